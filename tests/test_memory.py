"""The traffic model: to the byte the same as the NumPy loops and as the kernels run in the interpreter."""

import dataclasses

import numpy as np
import pytest

from flashlab import memory, tiled
from flashlab.bench import recorded
from flashlab.flows import missing
from flashlab.memory import kept, traffic
from flashlab.problem import CAUSAL, Problem, make_inputs
from flashlab.trace import Trace

PROBLEM = Problem(B=1, Hq=16, Nq=4096, D=64)
DIRECTIONS = ["forward", "backward"]
LOOPS = ["standard", "fa1", "fa2"]


def random_problem(seed, **fixed):
    """A small problem with ragged sizes, shared heads and any mask."""
    rng = np.random.default_rng(seed)
    pick = lambda *options: options[rng.integers(len(options))]  # noqa: E731
    hkv = pick(1, 2)
    sizes = dict(
        B=pick(1, 2), Hkv=hkv, Hq=hkv * pick(1, 2, 3), D=pick(8, 16, 24), causal=pick(*CAUSAL),
        Nq=int(rng.integers(1, 60)), Nk=int(rng.integers(1, 60)), dtype=pick("float16", "float32"),
        block_q=pick(16, 32), block_k=pick(16, 32),
    )  # fmt: skip
    return Problem(**(sizes | fixed))


def loops(p, algorithm, direction):
    """The trace of the NumPy loops."""
    q, k, v = make_inputs(p)
    how = dict(block_q=p.block_q, block_k=p.block_k, causal=p.causal)
    trace = Trace(dtype=p.dtype)
    forward, backward = (getattr(tiled, f"{algorithm}_{d}") for d in DIRECTIONS)
    if direction == "forward":
        forward(q, k, v, trace=trace, **how)
    else:
        backward(q, k, v, *forward(q, k, v, **how), q, trace=trace, **how)
    return trace


def by_tensor(trace, rename=None):
    """{(op, tensor): bytes} of a trace."""
    found = {}
    for event in trace:
        if event.bytes:
            key = event.op, (rename or {}).get(event.tensor, event.tensor)
            found[key] = found.get(key, 0) + event.bytes
    return found


def by_model(t):
    return {(op, tensor): n for op, tensor, n in t.table() if n}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("algorithm", LOOPS)
@pytest.mark.parametrize("seed", range(25))
def test_the_model_is_the_trace_of_the_loops_to_the_byte_and_to_the_flop(algorithm, direction, seed):
    p = random_problem(seed)
    trace, model = loops(p, algorithm, direction), traffic(p, algorithm, direction)
    assert by_model(model) == by_tensor(trace), p
    assert model.flops == trace.flops(), p
    assert model.bytes() == trace.bytes() and model.bytes("load") == trace.bytes("load")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("algorithm", ["fa1", "fa2"])
@pytest.mark.parametrize("seed", range(12))
def test_the_model_is_what_the_kernels_move_to_the_byte(algorithm, direction, seed):
    p = random_problem(seed + 100)
    assert by_model(traffic(p, algorithm, direction)) == by_tensor(kernels(p, algorithm, direction)), p


@pytest.mark.parametrize("causal", ["top-left", "bottom-right"])
@pytest.mark.parametrize(("nq", "nk"), [(10, 70), (70, 10), (33, 48), (16, 64)])
@pytest.mark.parametrize("algorithm", ["fa1", "fa2"])
def test_key_blocks_that_no_row_sees_cost_the_kernels_the_loops_and_the_model_the_same(
    algorithm, nq, nk, causal
):
    p = Problem(Nq=nq, Nk=nk, D=16, causal=causal, dtype="float32", block_q=16, block_k=16)
    for direction in DIRECTIONS:
        model = by_model(traffic(p, algorithm, direction))
        assert (
            model == by_tensor(loops(p, algorithm, direction)) == by_tensor(kernels(p, algorithm, direction))
        )


def kernels(p, algorithm, direction):
    """The interpreter's record of flashlab's kernels, launched with the problem's block sizes."""
    pytest.importorskip("triton")
    import torch

    from flashlab.interpreter import record
    from flashlab.kernels import fa1, fa2, fa2_backward
    from flashlab.kernels.launch import Config

    q, k, v = (torch.from_numpy(x) for x in make_inputs(p))
    causal = {True: "top-left", False: None}.get(p.causal, p.causal)
    how = dict(causal=causal, scale=p.scale, config=Config(p.block_q, p.block_k))
    module = fa1 if algorithm == "fa1" else fa2
    if direction == "forward":
        return record(lambda: module.forward(q, k, v, **how))
    o, lse = module.forward(q, k, v, **how)
    if algorithm == "fa1":
        return record(lambda: fa1.backward(q, k, v, o, lse, q, **how))

    def both_passes():
        delta = fa2_backward.delta(o, q)
        fa2_backward.backward_kv(q, k, v, q, lse, delta, **how)
        fa2_backward.backward_q(q, k, v, q, lse, delta, **how)

    return record(both_passes)


@pytest.mark.parametrize("seed", range(12))
def test_decoding_moves_what_the_model_says_with_any_number_of_splits(seed):
    pytest.importorskip("triton")
    import torch

    from flashlab.interpreter import record
    from flashlab.kernels.decode import decode
    from flashlab.kernels.launch import Config

    rng = np.random.default_rng(seed)
    p = random_problem(seed, Nq=int(rng.integers(1, 12)), Nk=int(rng.integers(12, 150)), causal=False)
    splits = int(rng.integers(1, 5))
    q, k, v = (torch.from_numpy(x) for x in make_inputs(p))
    lengths = torch.full((p.B,), p.Nk, dtype=torch.int32)
    config = Config(p.block_q, p.block_k)
    trace = record(lambda: decode(q, k, v, lengths, num_splits=splits, scale=p.scale, config=config))
    model = by_model(traffic(p, "decode", splits=splits))
    # the first kernel calls its partial results o and lse
    for name in ("o", "lse") if splits > 1 else ():
        model["store", name] += model.pop(("store", "part_" + name))
    assert model == by_tensor(trace, {"k_cache": "k", "v_cache": "v"}), (p, splits)


def test_the_papers_formulas_hold_for_one_head():
    n, d, block = 256, 64, 64
    tiles = n // block
    p = Problem(Nq=n, D=d)
    assert traffic(p, "standard").bytes() == 2 * (4 * n * n + 4 * n * d)
    assert traffic(p, "standard", "backward").bytes() == 2 * (7 * n * n + 8 * n * d)
    # 2 Nd + 2 Nd Tr + N, the statistics in fp32
    assert traffic(p, "fa2").bytes() == 2 * (2 * n * d + 2 * n * d * tiles) + 4 * n
    # FA1: O is fp32, zeroed first, and rounded at the end, with lse
    assert traffic(p, "fa1").bytes("load", "q") == 2 * n * d * tiles
    assert traffic(p, "fa1").bytes("store", "o_fp32") == 4 * n * d * (1 + tiles)
    assert traffic(p, "fa1").bytes("load", "m") == 4 * n * (1 + tiles)


def test_the_bytes_that_a_profiler_counted_on_an_h200_are_predicted_to_the_byte():
    # Triton's tutorial kernel, B 1, H 16, N 16384, D 128, fp16, query blocks of 128 rows: L2 to SMs
    p = Problem(Hq=16, Nq=16384, D=128, block_q=128)
    assert traffic(p, "fa2").bytes("load") == 17_246_978_048
    # SDPA's flash kernel, N 4096, D 64: DRAM read
    assert traffic(PROBLEM, "fa2", level="hbm", gpu="H200").bytes("load") == 25_165_824


def test_the_passes_of_fa2_backward_add_up():
    parts = [traffic(PROBLEM, "fa2", part) for part in ("delta", "dkdv", "dq")]
    whole = traffic(PROBLEM, "fa2", "backward")
    assert sum(t.bytes() for t in parts) == whole.bytes() and sum(t.flops for t in parts) == whole.flops
    assert (
        whole.flops == 7 * 2 * 16 * 4096**2 * 64
    )  # 7 matrix products, 2 more than the algorithm of the paper


def test_the_number_format_sets_the_bytes_but_not_those_of_the_statistics():
    half, single = (traffic(dataclasses.replace(PROBLEM, dtype=d), "fa2") for d in ("bfloat16", "float32"))
    assert single.bytes(tensor="k") == 2 * half.bytes(tensor="k")
    assert single.bytes(tensor="lse") == half.bytes(tensor="lse") == 4 * 16 * 4096


def test_a_causal_mask_saves_fa2_almost_half_of_its_reads_and_standard_attention_nothing():
    masked = dataclasses.replace(PROBLEM, causal=True)
    assert traffic(masked, "standard").bytes() == traffic(PROBLEM, "standard").bytes()
    share = traffic(masked, "fa2").bytes("load", "k") / traffic(PROBLEM, "fa2").bytes("load", "k")
    assert share == (64 + 1) / (2 * 64)


@pytest.mark.parametrize("algorithm", LOOPS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("l2_bytes", [10**5, 10**7, 10**9])
@pytest.mark.parametrize("seed", range(8))
def test_hbm_sees_at_least_every_input_once_and_no_more_than_was_asked_for(
    algorithm, direction, l2_bytes, seed
):
    p = random_problem(seed, Nq=2000, Nk=2000, Hq=6, block_q=64, block_k=64, causal=bool(seed % 2))
    sm = traffic(p, algorithm, direction)
    hbm = traffic(p, algorithm, direction, "hbm", l2_bytes=l2_bytes)
    floors = {"q": p.B * p.Hq * p.Nq, "k": p.B * p.Hkv * p.Nk, "v": p.B * p.Hkv * p.Nk}
    for name, rows in floors.items():
        assert hbm.bytes("load", name) >= rows * p.D * p.itemsize
    for op, tensor, n in hbm.table():
        assert n <= sm.bytes(op, tensor)
    larger = traffic(p, algorithm, direction, "hbm", l2_bytes=10 * l2_bytes)
    assert larger.bytes() <= hbm.bytes()


def test_heads_too_long_for_l2_are_read_again_by_every_wave():
    p = Problem(Hq=2, Nq=65536, D=128, block_q=128)
    once = 2 * 65536 * 128 * 2  # K of both heads; K and V of one head are as much

    def k_read(megabytes):
        return traffic(p, "fa2", level="hbm", l2_bytes=megabytes * 2**20).bytes("load", "k")

    assert k_read(100) == once
    # what the one wave that touches both heads, and its Q and O, leave of the first part of the next head
    assert once < k_read(65) < k_read(60) < k_read(55) < 2 * once
    assert k_read(30) == 9 * once // 2  # 1024 programs, 132 at once: 8 waves, one of them touches both heads


@pytest.mark.parametrize("loop", [1.01, 1.2, 2.0, 10.0])
def test_a_cache_that_throws_out_at_random_keeps_a_part_of_a_loop_that_is_too_long(loop):
    rng, room = np.random.default_rng(0), 400
    lines, cache, misses, found = round(loop * room), [], [], {}
    for _ in range(12):
        misses.append(0)
        for line in range(lines):
            if line in found:
                continue
            misses[-1] += 1
            if len(cache) == room:
                place = int(rng.integers(room))
                del found[cache[place]]
                cache[place] = line
            else:
                cache.append(line)
            found[line] = True
    assert missing(lines, room) == pytest.approx(np.mean(misses[6:]) / lines, abs=0.06)
    assert missing(room, room) == 0 and missing(1, 0) == 1


COUNTERS = [row for record in recorded("traffic") for row in record["rows"] if "counted" in row]


def of_row(row, level, **how):
    c = row["config"]
    sizes = {name: row[name] for name in ("B", "Hq", "Hkv", "D", "causal")}
    p = Problem(**sizes, Nq=row["N"], block_q=c[0], block_k=c[1])
    algorithm, direction = row["kernel"].split()
    return traffic(p, algorithm, direction, level, gpu="H200", tma=c[4], **how)


@pytest.mark.parametrize("row", COUNTERS, ids=lambda r: f"{r['kernel']} N {r['N']} D {r['D']} {r['causal']}")
def test_the_counters_of_an_h200_saw_what_the_model_predicts(row):
    sm, hbm = of_row(row, "sm"), of_row(row, "hbm", in_flight=2 * 132)  # two programs on an SM
    counted = row["counted"]
    assert counted["sm_read"] == pytest.approx(sm.bytes("load"), rel=0.02)
    assert counted["sm_write"] == pytest.approx(sm.bytes("store"), rel=0.02)
    assert counted["dram_read"] >= sum(flow.once for flow in sm.flows if flow.op == "load")
    thrashes = row["kernel"] == "fa1 forward" and row["D"] == 128  # 51 MB come round and do not stay in L2
    assert counted["dram_read"] == pytest.approx(hbm.bytes("load"), rel=0.16 if thrashes else 0.1)


def test_counters_of_all_kernels_are_kept():
    assert {row["kernel"] for row in COUNTERS} == {"fa1 forward", "fa2 forward", "fa2 dkdv", "fa2 dq"}
    assert {row["D"] for row in COUNTERS} == {64, 128} and {row["causal"] for row in COUNTERS} >= {False}


def test_work_beside_the_matrix_products_and_memory_beyond_inputs_are_counted():
    standard, fa1, fa2 = (traffic(PROBLEM, name) for name in LOOPS)
    scores, rows = 16 * 4096**2, 16 * 4096
    assert standard.exps == scores and fa2.exps == scores + rows * 64 and fa1.exps == scores + 2 * rows * 64
    assert standard.extra_bytes == 2 * 2 * scores and fa2.extra_bytes == 4 * rows
    assert fa1.extra_bytes == 4 * rows * (64 + 3)
    assert fa1.other_flops > fa2.other_flops > fa2.exps
    assert traffic(PROBLEM, "fa2", "backward").extra_bytes == 2 * 4 * rows
    assert standard.intensity == pytest.approx(64 / 2, rel=0.02)  # about d / 2


def test_the_roofline_says_what_binds():
    seconds, binds = traffic(PROBLEM, "standard").time("H200")
    assert binds == "memory" and seconds == pytest.approx(2181038080 / 4.8e12)
    seconds, binds = traffic(PROBLEM, "fa2", level="hbm", gpu="H200").time("H200")
    assert binds == "compute" and seconds == pytest.approx(4 * 16 * 4096**2 * 64 / 989.5e12)
    with pytest.raises(ValueError, match="T4 has no bfloat16 peak"):
        traffic(dataclasses.replace(PROBLEM, dtype="bfloat16"), "fa2").time("T4")


def test_what_training_keeps_is_p_for_standard_attention_and_one_number_a_row_for_flash_attention():
    p = Problem(B=8, Hq=32, Nq=4096, D=64)
    square = 8 * 32 * 4096**2
    assert kept(p, "standard")["p"] == 2 * square == 8 * 2**30
    with_dropout = kept(p, "standard", dropout=0.1)
    assert sum(with_dropout[name] for name in ("p", "p_dropped", "mask")) == 5 * square
    assert kept(p, "fa2")["lse"] == 4 * 2**20 and "p" not in kept(p, "fa2", dropout=0.1)
    assert kept(p, "standard", layers=3)["p"] == 3 * kept(p, "standard")["p"]
    assert kept(p, "standard", layers=3)["s"] == kept(p, "standard")["s"]


def test_inference_keeps_the_cache_of_all_layers():
    p = Problem(B=1, Hq=32, Hkv=8, Nq=1, Nk=8192, D=128)
    result = kept(p, "decode", layers=32, training=False)
    assert result["k_cache"] + result["v_cache"] == 2**30  # 1 GiB a sequence: Llama-3-8B at 8192 tokens
    assert result["q"] == 32 * 128 * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fa4",), "unknown algorithm 'fa4'"),
        (("fa1", "sideways"), "unknown direction of fa1 'sideways'"),
        (("decode", "backward"), "unknown direction of decode 'backward'"),
        (("fa2", "forward", "l2"), "unknown level 'l2'"),
        (("fa2", "forward", "hbm"), 'level "hbm" needs the size of the L2 cache'),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(arguments, message):
    with pytest.raises(ValueError, match=message):
        traffic(PROBLEM, *arguments)
    assert set(memory.NAMES) == {"standard", "fa1", "fa2", "decode"}


def test_a_problem_without_rows_moves_nothing():
    for algorithm in LOOPS:
        for direction in DIRECTIONS:
            t = traffic(Problem(Nq=0, Nk=0), algorithm, direction)
            assert t.bytes() == t.flops == 0 and t.intensity == 0


def test_kept_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="expected dropout from 0 to 1, got 2"):
        kept(PROBLEM, "fa2", dropout=2)
    with pytest.raises(ValueError, match="expected layers to be a whole number >= 1, got 0"):
        kept(PROBLEM, "fa2", layers=0)


def through_lru(p, l2_bytes, in_flight):
    """Bytes of K and V that an LRU cache of tiles lets through when `in_flight` programs go on tile by tile
    at one pace: another way to the numbers of level "hbm". Tiles of Q and O pass through the cache, too.
    """
    tile, blocks = p.block_k * p.D * p.itemsize, -(-p.Nq // p.block_q)
    waiting = [(h // (p.Hq // p.Hkv), h, b) for h in range(p.Hq) for b in range(blocks)][::-1]
    cache, used, missed, slots = {}, 0, 0, []

    def touch(key, size):
        nonlocal used
        hit = cache.pop(key, 0)
        used += size - hit
        cache[key] = size
        while used > l2_bytes:
            used -= cache.pop(next(iter(cache)))
        return 0 if hit else size

    while waiting or slots:
        while waiting and len(slots) < in_flight:
            slots.append([*waiting.pop(), 0])
            touch(("q", *slots[-1][1:3]), p.block_q * p.D * p.itemsize)
        for slot in slots:
            missed += sum(touch((name, slot[0], slot[3]), tile) for name in "kv")
            slot[3] += 1
            if slot[3] * p.block_k >= p.Nk:
                touch(("o", *slot[1:3]), p.block_q * p.D * p.itemsize)
        slots = [s for s in slots if s[3] * p.block_k < p.Nk]
    return missed


@pytest.mark.parametrize("l2_tiles", [8, 40, 80, 200, 1000])
@pytest.mark.parametrize(("hq", "hkv"), [(8, 8), (8, 2)])
@pytest.mark.parametrize("in_flight", [4, 8, 24])
def test_level_hbm_is_close_to_a_simulated_lru_cache(l2_tiles, hq, hkv, in_flight):
    p = Problem(Hq=hq, Hkv=hkv, Nq=512, D=16, block_q=64, block_k=32)  # K and V of a head: 32 tiles
    l2_bytes = l2_tiles * 32 * 16 * 2
    model = traffic(p, "fa2", level="hbm", l2_bytes=l2_bytes, in_flight=in_flight)
    kv = model.bytes("load", "k") + model.bytes("load", "v")
    assert kv == pytest.approx(through_lru(p, l2_bytes, in_flight), rel=0.15)
