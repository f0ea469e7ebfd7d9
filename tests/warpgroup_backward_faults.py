"""Mistakes planted into the backward of the Hopper kernels; `order` is the pass that must stumble on each."""

from warpgroup_planting import Fault

SHARED = dict(shape=(1, 2, 1, 80, 70, 64))  # two query heads share the keys
MASKED = dict(shape=(1, 1, 1, 80, 140, 64), causal="top-left")
FAULTS = [
    # own_filled: the two tiles that each consumer keeps
    Fault(
        "nobody waits for K and V", "_backward_parts",
        "    mbarrier.wait(own_filled.index(WHICH), 0)\n", "",
        "ReadTooEarly", ("for which consume_queries",), "dkdv",
    ),
    Fault(
        "nobody waits for Q and dO", "_backward_parts",
        "    mbarrier.wait(own_filled.index(WHICH), 0)\n", "",
        "ReadTooEarly", ("for which consume_keys",), "dq",
    ),
    Fault(
        "both consumers wait for the first one's tiles", "_backward_parts",
        "mbarrier.wait(own_filled.index(WHICH), 0)", "mbarrier.wait(own_filled.index(0), 0)",
        "ReadTooEarly", ("for which consume_queries 1 has never waited",), "dkdv",
    ),
    Fault(
        "both consumers wait for the first one's Q and dO", "_backward_parts",
        "mbarrier.wait(own_filled.index(WHICH), 0)", "mbarrier.wait(own_filled.index(0), 0)",
        "ReadTooEarly", ("for which consume_keys 1 has never waited",), "dq",
    ),
    Fault(
        "a consumer waits for its tiles with the parity that passes at once", "_backward_parts",
        "mbarrier.wait(own_filled.index(WHICH), 0)", "mbarrier.wait(own_filled.index(WHICH), 1)",
        "ReadTooEarly MissedPhase", ("own_filled",), "dkdv",
    ),
    Fault(
        "the bytes of one of the two tiles are expected", "_backward_parts",
        "left_desc.block_type.nbytes + right_desc.block_type.nbytes", "left_desc.block_type.nbytes",
        "WrongBytes ReadTooEarly", ("own_filled",), "dq",
    ),
    Fault(
        "two arrivals are awaited where the producer alone arrives", "_backward_parts",
        "mbarrier.init(own_filled.index(which), count=1)", "mbarrier.init(own_filled.index(which), count=2)",
        "Deadlock", ("own_filled[0]", "1 of 2 arrivals"), "dkdv",
    ),
    Fault(
        "the second tile reports to the other consumer's barrier", "_backward_parts",
        "tma_load(right_desc, at, own_filled.index(which)",
        "tma_load(right_desc, at, own_filled.index(1 - which)",
        "ReadTooEarly WrongBytes", ("own_filled",), "dkdv",
    ),
    # q_filled and do_filled, k_filled and v_filled
    Fault(
        "the first pass does not wait for the copies", "_parts",
        "    mbarrier.wait(filled.index(n % STAGES), n // STAGES & 1)\n", "",
        "ReadTooEarly", ("q_tiles", "q_filled[0]"), "dkdv",
    ),
    Fault(
        "the second pass does not wait for the copies", "_parts",
        "    mbarrier.wait(filled.index(n % STAGES), n // STAGES & 1)\n", "",
        "ReadTooEarly", ("k_tiles", "k_filled[0]"), "dq",
    ),
    Fault(
        "dO is taken without a wait", "_backward",
        "do = take(do_ring, n)",
        "do = do_ring[0].index(n % do_ring[0].shape[0]).reshape([BLOCK_Q, do_ring[0].shape[4]])",
        "ReadTooEarly", ("do_tiles", "do_filled[0]"), "dkdv",
    ),
    Fault(
        "V is taken without a wait", "_backward_dq",
        "take(v_ring, j)", "v_ring[0].index(j % v_ring[0].shape[0]).reshape([BLOCK_K, v_ring[0].shape[4]])",
        "ReadTooEarly", ("v_tiles", "v_filled[0]"), "dq",
    ),
    Fault(
        "the consumers of the first pass wait for the first lap all the time", "_parts",
        "filled.index(n % STAGES), n // STAGES & 1)", "filled.index(n % STAGES), 0)",
        "ReadTooEarly Deadlock Overwritten", ("q_",), "dkdv",
    ),
    Fault(
        "the consumers of the second pass wait for the first lap all the time", "_parts",
        "filled.index(n % STAGES), n // STAGES & 1)", "filled.index(n % STAGES), 0)",
        "ReadTooEarly Deadlock Overwritten", ("k_",), "dq",
    ),
    Fault(
        "the producer counts the query tiles of each head from 0", "_backward",
        "    for member in range(0, group):\n", "    for member in range(0, group):\n        n = 0\n",
        "Deadlock ReadTooEarly Overwritten WrongArrivals", ("_",), "dkdv", SHARED,
    ),
    Fault(
        "the consumers count the query tiles of each head from 0", "_backward",
        "    for _ in range(0, group):\n", "    for _ in range(0, group):\n        n = 0\n",
        "Deadlock ReadTooEarly Overwritten WrongArrivals", ("_",), "dkdv", SHARED,
    ),
    Fault(
        "the producer brings query tiles that the consumers leave out", "_backward",
        "for i in range(start, end):", "for i in range(0, end):",
        "Deadlock NotWaitedFor", ("q_",), "dkdv", dict(shape=(1, 1, 1, 160, 160, 64), causal="top-left"),
    ),
    Fault(
        "the producer brings fewer key tiles than the consumers want", "_backward_dq",
        "key_tiles(block, num_queries, num_keys, shift, 2 * ROWS, BLOCK_K, CAUSAL)\n    for j",
        "key_tiles(2 * block, num_queries, num_keys, shift, ROWS, BLOCK_K, CAUSAL)\n    for j",
        "Deadlock", ("consume_keys", "waits for k_filled"), "dq", MASKED,
    ),
    # q_emptied and do_emptied
    Fault(
        "the producer of the first pass does not wait for empty stages", "_parts",
        "    mbarrier.wait(emptied.index(stage), (n // STAGES & 1) ^ 1)\n", "",
        "Overwritten WrongArrivals", ("produce_queries", "q_"), "dkdv",
    ),
    Fault(
        "Q is released while dK += dS^T Q reads it", "_backward",
        "    dk = warpgroup_mma_wait(0, deps=(dk,))\n    release(q_ring, n)\n",
        "    release(q_ring, n)\n    dk = warpgroup_mma_wait(0, deps=(dk,))\n",
        "Overwritten", ("the wgmma with q tile",), "dkdv",
    ),
    Fault(
        "Q is never released", "_backward",
        "    release(q_ring, n)\n", "", "Deadlock", ("produce_queries", "q_emptied[0]", "0 of 2"), "dkdv",
    ),
    Fault(
        "dO is never released", "_backward",
        "    release(do_ring, n)\n", "", "Deadlock", ("produce_queries", "do_emptied[0]", "0 of 2"), "dkdv",
    ),
    Fault(
        "one consumer alone releases dO", "_backward",
        "    release(do_ring, n)\n", "    if which == 0:\n        release(do_ring, n)\n",
        "Deadlock", ("do_emptied[0]", "1 of 2", "consume_queries 1"), "dkdv",
    ),
    Fault(
        "one consumer is enough to empty a stage of Q", "_backward",
        "make_ring(q_desc, BLOCK_Q, BLOCK_D, STAGES, 2)", "make_ring(q_desc, BLOCK_Q, BLOCK_D, STAGES, 1)",
        "WrongArrivals Overwritten ReadTooEarly Deadlock", ("consume_queries",), "dkdv",
    ),
    Fault(
        "one consumer is enough to empty a stage of dO", "_backward",
        "make_ring(do_desc, BLOCK_Q, BLOCK_D, STAGES, 2)", "make_ring(do_desc, BLOCK_Q, BLOCK_D, STAGES, 1)",
        "WrongArrivals Overwritten ReadTooEarly Deadlock", ("do_",), "dkdv",
    ),
    # k_emptied and v_emptied
    Fault(
        "the producer of the second pass does not wait for empty stages", "_parts",
        "    mbarrier.wait(emptied.index(stage), (n // STAGES & 1) ^ 1)\n", "",
        "Overwritten WrongArrivals", ("produce_keys", "k_"), "dq",
    ),
    Fault(
        "K is released while dQ += dS K reads it", "_backward_dq",
        "    dq = warpgroup_mma_wait(0, deps=(start_output(ds, k, dq),))\n    release(k_ring, j)\n",
        "    dq = start_output(ds, k, dq)\n    release(k_ring, j)\n"
        "    dq = warpgroup_mma_wait(0, deps=(dq,))\n",
        "Overwritten", ("the wgmma with k tile",), "dq",
    ),
    Fault(
        "K is never released", "_backward_dq",
        "    release(k_ring, j)\n", "", "Deadlock", ("produce_keys", "k_emptied[0]", "0 of 2"), "dq",
    ),
    Fault(
        "V is never released", "_backward_dq",
        "    release(v_ring, j)\n", "", "Deadlock", ("produce_keys", "v_emptied[0]", "0 of 2"), "dq",
    ),
    Fault(
        "one consumer is enough to empty a stage of K", "_backward_dq",
        "make_ring(k_desc, BLOCK_K, BLOCK_D, STAGES, 2)", "make_ring(k_desc, BLOCK_K, BLOCK_D, STAGES, 1)",
        "WrongArrivals Overwritten ReadTooEarly Deadlock", ("k_",), "dq",
    ),
    Fault(
        "three consumers are wanted to empty a stage of V", "_backward_dq",
        "make_ring(v_desc, BLOCK_K, BLOCK_D, STAGES, 2)", "make_ring(v_desc, BLOCK_K, BLOCK_D, STAGES, 3)",
        "Deadlock", ("v_emptied[0]", "2 of 3 arrivals", "its count is too high"), "dq",
    ),
    # products, and what leaves
    Fault(
        "P^T is made before S^T is there", "_backward",
        "    scores = warpgroup_mma_wait(1, deps=(scores,))\n", "",
        "NotWaitedFor", ("the wgmma with q tile",), "dkdv",
    ),
    Fault(
        "dS^T is made before dP^T is there", "_backward",
        "    dp = warpgroup_mma_wait(1, deps=(dp,))\n    ds", "    ds",
        "NotWaitedFor", ("the wgmma with do tile",), "dkdv",
    ),
    Fault(
        "P is made before S is there", "_backward_dq",
        "    scores = warpgroup_mma_wait(1, deps=(scores,))\n", "",
        "NotWaitedFor", ("the wgmma with k tile",), "dq",
    ),
    Fault(
        "the wait for dP leaves it in flight", "_backward_dq",
        "dp = warpgroup_mma_wait(0, deps=(dp,))", "dp = warpgroup_mma_wait(1, deps=(dp,))",
        "NotWaitedFor", ("the wgmma with v tile",), "dq",
    ),
    Fault(
        "dQ is used while the tensor cores make it", "_backward_dq",
        "dq = warpgroup_mma_wait(0, deps=(start_output(ds, k, dq),))", "dq = start_output(ds, k, dq)",
        "NotWaitedFor Overwritten", ("the wgmma with k tile",), "dq",
    ),
    Fault(
        "no fence between the stores of dK and dV and their copies", "_backward",
        "    fence_async_shared()\n    k_tiles,", "    k_tiles,",
        "MissingFence", ("TMA store to dk",), "dkdv",
    ),
    Fault(
        "no fence between the store of dQ and its copy", "_backward_dq",
        "    fence_async_shared()\n    q_tiles,", "    q_tiles,", "MissingFence", ("TMA store to dq",), "dq",
    ),
    Fault(
        "the first pass ends while dK and dV are still read", "_backward",
        "    tma.store_wait(0)\n", "", "NotWaitedFor", ("TMA store to dk",), "dkdv",
    ),
    Fault(
        "the second pass ends while dQ is still read", "_backward_dq",
        "    tma.store_wait(0)\n", "", "NotWaitedFor", ("TMA store to dq",), "dq",
    ),
    Fault(
        "both consumers write the first one's dK", "_backward",
        "tma_store(dk_desc, at, k_tiles.index(WHICH))", "tma_store(dk_desc, at, k_tiles.index(0))",
        "ReadTooEarly MissingFence Overwritten", ("dk",), "dkdv",
    ),
    Fault(
        "dV goes where the other consumer's V is", "_backward",
        "    v.store(dv.to(v.dtype))\n",
        "    v_tiles = own[1]\n    v_tiles.index(1 - WHICH).reshape([ROWS, BLOCK_D]).store(dv.to(v.dtype))\n",
        "Overwritten ReadTooEarly", ("consume_queries", "v_tiles"), "dkdv",
    ),
]  # fmt: skip

# No mistakes, as long as the producer waits for Q's stage before dO's, and for K's before V's: those are
# released after the product that still reads here.
COVERED = [
    Fault(
        "dO is released while dV += P^T dO reads it", "_backward",
        "    dv = warpgroup_mma_wait(1, deps=(dv,))\n    release(do_ring, n)\n",
        "    release(do_ring, n)\n    dv = warpgroup_mma_wait(1, deps=(dv,))\n",
        "", (), "dkdv",
    ),
    Fault(
        "V is released while dP = dO V^T reads it", "_backward_dq",
        "    dp = warpgroup_mma_wait(0, deps=(dp,))\n    release(v_ring, j)\n",
        "    release(v_ring, j)\n    dp = warpgroup_mma_wait(0, deps=(dp,))\n",
        "", (), "dq",
    ),
]  # fmt: skip
