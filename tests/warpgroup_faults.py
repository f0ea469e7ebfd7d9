"""Mistakes planted into the Hopper kernels, one a copy, and what the simulator must say about each."""

from warpgroup_planting import Fault

THREE = dict(consumers=3, causal="top-left", Hq=4, Nk=384)
RAGGED = dict(consumers=3, Hq=2, Nq=193)  # the last block of a head has rows for one consumer only
TILE_OF_CONSUMER = """, PERSISTENT)
        block, batch, head = my_tile(work, (num_queries + BLOCK_Q - 1) // BLOCK_Q, num_heads)
        first_row"""
FAULTS = [
    Fault(
        "the consumers wait for the wrong parity", "_parts",
        "mbarrier.wait(filled.index(n % STAGES), n // STAGES & 1)",
        "mbarrier.wait(filled.index(n % STAGES), (n // STAGES & 1) ^ 1)",
        "ReadTooEarly Deadlock", ("k_filled[0]", "parity 1"),
    ),
    Fault(
        "the producer waits for the wrong parity", "_parts",
        "(n // STAGES & 1) ^ 1)", "n // STAGES & 1)",
        "Deadlock", ("produce", "k_emptied[0], phase 0 (parity 0)", "parity 1)"),
    ),
    Fault(
        "the parity flips with every tile, not with every lap", "_parts",
        "mbarrier.wait(filled.index(n % STAGES), n // STAGES & 1)",
        "mbarrier.wait(filled.index(n % STAGES), n & 1)",
        "Deadlock ReadTooEarly", ("filled[1]",),
    ),
    Fault(
        "the consumers do not wait for the copies", "_parts",
        "    mbarrier.wait(filled.index(n % STAGES), n // STAGES & 1)\n", "",
        "ReadTooEarly", ("wgmma", "k_tiles"),
    ),
    Fault(
        "the consumers do not wait for Q", "",
        "        mbarrier.wait(q_filled.index(WHICH), round & 1)\n", "",
        "ReadTooEarly", ("wgmma", "q_tiles"),
    ),
    Fault(
        "the producer does not wait for empty stages", "_parts",
        "    mbarrier.wait(emptied.index(stage), (n // STAGES & 1) ^ 1)\n", "",
        "Overwritten WrongArrivals", ("produce", "[0]"),
    ),
    Fault(
        "a stage is released before its wgmma is waited for", "_orders",
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    release(v_ring, n)\n    return scores",
        "    release(v_ring, n)\n    acc = warpgroup_mma_wait(0, deps=(acc,))\n    return scores",
        "Overwritten", ("v_tiles", "the wgmma with v tile", "v_emptied"),
    ),
    Fault(
        "a stage is never released", "_orders",
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    release(v_ring, n)\n    return scores",
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    return scores",
        "Deadlock",
        ("produce", "waits for v_emptied[0], phase 0", "0 of 2 arrivals", "arrive: consume 0 or consume 1"),
    ),
    Fault(
        "one consumer alone releases a stage", "_orders",
        "    release(k_ring, n)\n    last = end - 1",
        "    if WHICH == 0:\n        release(k_ring, n)\n    last = end - 1",
        "Deadlock", ("waits for k_emptied[0], phase 0", "1 of 2 arrivals (consume 0)", "arrive: consume 1"),
    ),
    Fault(
        "a count for one consumer where two arrive", "",
        "BLOCK_D, V_STAGES, CONSUMERS)", "BLOCK_D, V_STAGES, 1)",
        "Overwritten WrongArrivals Deadlock", ("v_emptied[0]", "count"),
    ),
    Fault(
        "a count for three where two arrive", "",
        "BLOCK_D, K_STAGES, CONSUMERS)", "BLOCK_D, K_STAGES, CONSUMERS + 1)",
        "Deadlock", ("k_emptied[0]", "2 of 3 arrivals", "its count is too high"),
    ),
    Fault(
        "each consumer arrives twice", "_parts",
        "mbarrier.arrive(emptied.index(n % tiles.shape[0]), count=1)",
        "mbarrier.arrive(emptied.index(n % tiles.shape[0]), count=2)",
        "WrongArrivals Overwritten Deadlock ReadTooEarly", ("k_",),
    ),
    Fault(
        "fewer bytes are expected than come", "_parts",
        "mbarrier.expect(filled.index(stage), desc.block_type.nbytes)",
        "mbarrier.expect(filled.index(stage), desc.block_type.nbytes // 2)",
        "WrongBytes", ("_filled[0]", "bring 8192 bytes", "only 4096"),
    ),
    Fault(
        "more bytes are expected than come", "_parts",
        "mbarrier.expect(filled.index(stage), desc.block_type.nbytes)",
        "mbarrier.expect(filled.index(stage), desc.block_type.nbytes * 2)",
        "Deadlock", ("k_filled[0]", "8192 bytes have come of 16384 expected"),
    ),
    Fault(
        "no bytes are expected", "_parts",
        "    mbarrier.expect(filled.index(stage), desc.block_type.nbytes)\n", "",
        "Deadlock", ("k_filled[0]", "0 of 1 arrivals", "8192 bytes have come of 0 expected"),
    ),
    Fault(
        "the producer arrives instead of expecting", "_parts",
        "mbarrier.expect(filled.index(stage), desc.block_type.nbytes)",
        "mbarrier.arrive(filled.index(stage), count=1)",
        "ReadTooEarly WrongBytes", ("k_",),
    ),
    Fault(
        "all copies report to the first stage's barrier", "_parts",
        "filled.index(stage), tiles.index(stage))", "filled.index(0), tiles.index(stage))",
        "WrongBytes Deadlock ReadTooEarly", ("filled[",),
    ),
    Fault(
        "all copies land in the first stage", "_parts",
        "filled.index(stage), tiles.index(stage))", "filled.index(stage), tiles.index(0))",
        "Overwritten ReadTooEarly", ("k_tiles",),
    ),
    Fault(
        "scores are used while the tensor cores make them", "_orders",
        "    scores = warpgroup_mma_wait(1, deps=(next_scores,))\n    release(k_ring, n + 1",
        "    scores = next_scores\n    release(k_ring, n + 1",
        "NotWaitedFor Overwritten", ("the wgmma with k tile",),
    ),
    Fault(
        "the wait leaves one wgmma too many in flight", "_orders",
        "scores = warpgroup_mma_wait(1, deps=(next_scores,))",
        "scores = warpgroup_mma_wait(2, deps=(next_scores,))",
        "NotWaitedFor", ("the wgmma with k tile",),
    ),
    Fault(
        "the output is stored without waiting for the last product", "_orders",
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    release(v_ring, n + last)\n",
        "    release(v_ring, n + last)\n",
        "NotWaitedFor", ("the wgmma with v tile",),
    ),
    Fault(
        "no fence between the store of O and its copy", "",
        "        fence_async_shared()\n        tma_store", "        tma_store",
        "MissingFence", ("TMA store to o", "fence_async_shared is missing"),
    ),
    Fault(
        "the place of Q is handed back after the first scores", "_orders",
        "pred=is_last", "pred=first == 0",
        "Overwritten WrongArrivals ReadTooEarly", ("q_",), "one_by_one",
    ),
    Fault(
        "the place of Q is handed back twice", "_orders",
        "    last = end - 1", "    mbarrier.arrive(q_emptied, count=1)\n    last = end - 1",
        "Overwritten WrongArrivals ReadTooEarly Deadlock", ("q_",),
    ),
    Fault(
        "the place of Q is never handed back", "_orders",
        "    if PERSISTENT:\n        mbarrier.arrive(q_emptied, count=1)\n    p, alpha", "    p, alpha",
        "Deadlock", ("produce", "waits for q_emptied[0], phase 0", "0 of 1 arrivals"),
    ),
    Fault(
        "a new O is stored while the last one is still read", "",
        "        tma.store_wait(0)  # waits for", "        # waits for",
        "Overwritten", ("o_tiles", "TMA store to o"),
    ),
    Fault(
        "the program ends while O is still read", "",
        "        work = next_work\n    tma.store_wait(0)\n", "        work = next_work\n",
        "NotWaitedFor", ("TMA store to o",),
    ),
    Fault(
        "a consumer passes by a tile that is not there yet", "_orders",
        "        take(k_ring, n + j)\n        release(k_ring", "        release(k_ring",
        "WrongArrivals Overwritten ReadTooEarly Deadlock MissedPhase", ("k_",), "one_by_one", THREE,
    ),
    Fault(
        "a consumer keeps the tiles that it passes by", "_orders",
        "        release(v_ring, n + j)\n    return", "    return",
        "Deadlock", ("waits for v_emptied", "of 3 arrivals"), "one_by_one", THREE,
    ),
    Fault(
        "a count for two where three arrive", "",
        "BLOCK_D, V_STAGES, CONSUMERS)", "BLOCK_D, V_STAGES, 2)",
        "Overwritten WrongArrivals Deadlock ReadTooEarly", ("v_",), "one_by_one", THREE,
    ),
    Fault(
        "the place of Q is handed back before its last scores are waited for", "_orders",
        "    scores = warpgroup_mma_wait(0, deps=(scores,))\n    release(k_ring, n)\n    if PERSISTENT:\n"
        "        mbarrier.arrive(q_emptied, count=1, pred=is_last)\n",
        "    if PERSISTENT:\n        mbarrier.arrive(q_emptied, count=1, pred=is_last)\n"
        "    scores = warpgroup_mma_wait(0, deps=(scores,))\n    release(k_ring, n)\n",
        "Overwritten", ("q_tiles", "the wgmma with k tile", "q_emptied"), "one_by_one",
    ),
    Fault(
        "a consumer without rows does not hand back the place of Q", "_orders",
        "pred=mine == 0", "pred=mine < 0",
        "Deadlock", ("produce", "waits for q_emptied[1]", "0 of 1 arrivals"), "one_by_one", RAGGED,
    ),
    Fault(
        "the producer waits for the other parity of Q's place", "",
        "mbarrier.wait(q_emptied.index(which), (round & 1) ^ 1)",
        "mbarrier.wait(q_emptied.index(which), round & 1)",
        "Deadlock", ("produce", "q_emptied[0], phase 0 (parity 0)"),
    ),
    Fault(
        "the consumers wait for the first Q all the time", "",
        "mbarrier.wait(q_filled.index(WHICH), round & 1)", "mbarrier.wait(q_filled.index(WHICH), 0)",
        "ReadTooEarly Deadlock Overwritten", ("q_",),
    ),
    Fault(
        "O is stored where the next Q comes", "",
        "        o_tiles = gl.allocate", "        unused = gl.allocate",
        "Overwritten ReadTooEarly MissingFence", ("q_tiles",),
    ),
    Fault(
        "a consumer does not count the tiles that it passes by", "",
        "n += tiles[2]", "n += tiles[1]",
        "Deadlock ReadTooEarly Overwritten WrongArrivals", ("consume",), "one_by_one", THREE,
    ),
    Fault(
        "the plan is read one entry too low", "_parts",
        "i = gl.load(plan_ptr + i)", "i = gl.load(plan_ptr + (i - 1))",
        "OutOfBounds", ("consume", "store of element"),
    ),
    Fault(
        "the consumers stay one entry of the plan behind the producer", "",
        f"i + 1{TILE_OF_CONSUMER}",
        f"i{TILE_OF_CONSUMER}",
        "Deadlock", ("waits for",), "one_by_one", dict(causal="top-left", Hq=2, Nk=384),
    ),
    Fault(
        "the turn is never passed on", "_orders",
        "    mbarrier.arrive(turn.index((WHICH + 1) % CONSUMERS), count=1)\n", "    pass\n",
        "Deadlock", ("consume 1", "waits for turn[1]"), "in_turns",
    ),
    Fault(
        "nobody has the first turn", "",
        "    mbarrier.arrive(turn.index(0), count=1)  # the first turn is consumer 0's\n", "",
        "Deadlock", ("consume 0", "waits for turn[0], phase 0"), "in_turns",
    ),
    Fault(
        "both consumers pass the turn to consumer 0", "_orders",
        "mbarrier.arrive(turn.index((WHICH + 1) % CONSUMERS), count=1)",
        "mbarrier.arrive(turn.index(0), count=1)",
        "Deadlock WrongArrivals", ("turn[",), "in_turns",
    ),
    Fault(
        "of three consumers two pass the turn to and fro", "_orders",
        "mbarrier.arrive(turn.index((WHICH + 1) % CONSUMERS), count=1)",
        "mbarrier.arrive(turn.index((WHICH + 1) % 2), count=1)",
        "Deadlock WrongArrivals", ("turn[",), "in_turns", THREE,
    ),
    Fault(
        "in turns the place of Q is never handed back", "_orders",
        "        mbarrier.arrive(q_emptied, count=1)\n    acc = start_output",
        "        pass\n    acc = start_output",
        "Deadlock", ("produce", "waits for q_emptied[0], phase 0", "0 of 1 arrivals"), "in_turns",
    ),
    Fault(
        "a stage is released while P V of the last tile still reads V", "_orders",
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    release(v_ring, n - 1)\n",
        "    release(v_ring, n - 1)\n    acc = warpgroup_mma_wait(0, deps=(acc,))\n",
        "Overwritten", ("v_tiles", "the wgmma with v tile"), "in_turns",
    ),
    Fault(
        "the producer does not wait for the place of Q", "",
        "            mbarrier.wait(q_emptied.index(which), (round & 1) ^ 1)\n", "",
        "Overwritten WrongArrivals ReadTooEarly", ("produce", "q_"),
    ),
    Fault(
        "each consumer waits for the first one's Q", "",
        "mbarrier.wait(q_filled.index(WHICH), round & 1)", "mbarrier.wait(q_filled.index(0), round & 1)",
        "ReadTooEarly", ("q_tiles", "for which consume 1 has never waited"),
    ),
    Fault(
        "the bytes of half a Q are expected", "",
        "q_desc.block_type.nbytes)", "q_desc.block_type.nbytes // 2)",
        "WrongBytes ReadTooEarly", ("q_filled[",),
    ),
    Fault(
        "two arrivals are awaited where one consumer hands back its Q", "",
        "mbarrier.init(q_emptied.index(which), count=1)", "mbarrier.init(q_emptied.index(which), count=2)",
        "Deadlock", ("produce", "q_emptied[0]", "1 of 2 arrivals"),
    ),
    Fault(
        "two arrivals are awaited where the producer alone brings Q", "",
        "mbarrier.init(q_filled.index(which), count=1)", "mbarrier.init(q_filled.index(which), count=2)",
        "Deadlock", ("consume 0", "q_filled[0]", "1 of 2 arrivals"),
    ),
    Fault(
        "the producer does not count its query blocks", "",
        "        n += end\n        round += 1\n", "        n += end\n",
        "Overwritten WrongArrivals ReadTooEarly Deadlock", ("produce", "q_"),
    ),
    Fault(
        "the consumers do not count their query blocks", "",
        "        n += tiles[2]\n        round += 1\n", "        n += tiles[2]\n",
        "ReadTooEarly Deadlock Overwritten", ("q_",),
    ),
    Fault(
        "the producer begins each query block at stage 0 of the rings", "",
        "        n += end\n", "",
        "Deadlock ReadTooEarly Overwritten WrongArrivals", ("_",),
    ),
    Fault(
        "the consumers begin each query block at stage 0 of the rings", "",
        "        n += tiles[2]\n", "",
        "Deadlock ReadTooEarly Overwritten WrongArrivals", ("_",),
    ),
    Fault(
        "the producer's parity flips with every tile, not with every lap", "_parts",
        "(n // STAGES & 1) ^ 1)", "(n & 1) ^ 1)",
        "Deadlock Overwritten WrongArrivals", ("produce", "_emptied["),
    ),
    Fault(
        "the producer waits for the first lap all the time", "_parts",
        "(n // STAGES & 1) ^ 1)", "1)",
        "Deadlock Overwritten WrongArrivals", ("produce", "k_"),
    ),
    Fault(
        "in turns the place of Q is handed back twice", "_orders",
        "    take(v_ring, n)\n    full = gl.max",
        "    take(v_ring, n)\n    mbarrier.arrive(q_emptied, count=1)\n    full = gl.max",
        "Overwritten WrongArrivals ReadTooEarly", ("q_",), "in_turns",
    ),
    Fault(
        "the last V of a block is released before its product is waited for", "_orders",
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    release(v_ring, n + end - 1)\n",
        "    release(v_ring, n + end - 1)\n    acc = warpgroup_mma_wait(0, deps=(acc,))\n",
        "Overwritten", ("v_tiles", "the wgmma with v tile"), "in_turns", dict(Nk=128),
    ),
    Fault(
        "the last V of a block is not released", "_orders",
        "    release(v_ring, n + end - 1)\n", "",
        "Deadlock", ("produce", "v_emptied", "0 of 2 arrivals"), "in_turns",
    ),
    Fault(
        "the turn's parity stays that of the first tile", "_orders",
        "mbarrier.wait(turn.index(WHICH), n & 1)", "mbarrier.wait(turn.index(WHICH), 0)",
        "Deadlock WrongArrivals MissedPhase", ("turn[",), "in_turns",
    ),
    Fault(
        "the turn begins anew with each query block", "_orders",
        "mbarrier.wait(turn.index(WHICH), n & 1)", "mbarrier.wait(turn.index(WHICH), (n & 1) ^ (n // 5 & 1))",
        "Deadlock WrongArrivals MissedPhase", ("turn[",), "in_turns",
    ),
    Fault(
        "two arrivals are awaited for a turn", "",
        "mbarrier.init(turn.index(which), count=1)", "mbarrier.init(turn.index(which), count=2)",
        "Deadlock", ("turn[0]", "1 of 2 arrivals"), "in_turns",
    ),
    Fault(
        "O of all consumers goes to the first one's place", "",
        "        o_tiles.index(WHICH).reshape", "        o_tiles.index(0).reshape",
        "Overwritten ReadTooEarly MissingFence", ("o_tiles[0]",),
    ),
    Fault(
        "step 1 does not wait for its copies", "_first",
        "    mbarrier.wait(loaded, j & 1)\n", "",
        "ReadTooEarly", ("reads k_tile", "loaded, phase 0", "has never waited"), None,
    ),
    Fault(
        "step 1 waits for the same parity all the time", "_first",
        "mbarrier.wait(loaded, j & 1)", "mbarrier.wait(loaded, 0)",
        "ReadTooEarly Deadlock", ("loaded, phase 1 (parity 1)", "phase 0 (parity 0)"), None,
    ),
    Fault(
        "step 1 expects the bytes of K only", "_first",
        "k_desc.block_type.nbytes + v_desc.block_type.nbytes", "k_desc.block_type.nbytes",
        "WrongBytes ReadTooEarly", ("loaded",), None,
    ),
    Fault(
        "step 1 overwrites V while it is still multiplied", "_first",
        "return row_max, row_sum, warpgroup_mma_wait(0, deps=(acc,))", "return row_max, row_sum, acc",
        "NotWaitedFor Overwritten", ("the wgmma with",), None,
    ),
]  # fmt: skip
