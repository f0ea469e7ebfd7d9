"""Every shipped launch configuration of this GPU, run: `pytest -m gpu tests/test_shipped_gpu.py`."""

import pytest

pytest.importorskip("triton")
import torch
from decode_cases import check_decode, draw_cache, draw_queries, in_pages
from kernel_cases import check_forward, draw, poison
from varlen_cases import all_results, assert_right, draw_packed

import flashlab
from flashlab.kernels import decode, fa1, fa2, fa2_backward, launch, varlen, varlen_backward
from flashlab.testing import assert_close_to_reference

pytestmark = pytest.mark.gpu

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
DIMS = [64, 128, 256, 40, 80, 136]  # the table's, and head dims that leave columns of a tile empty
RAGGED = (2, 4, 2, 257, 333)  # B, Hq, Hkv, Nq, Nk: no multiple of any block
WHOLE = (2, 4, 2, 256, 384)  # whole key blocks: "forward simple" compiles no loop for masked tiles


def config(x, direction):
    """The shipped Config of a direction for tensors like x on this GPU, as the launcher looks it up."""
    arch = launch.generation(*torch.cuda.get_device_capability())
    return launch.table_config(arch, x.element_size(), x.shape[-1], direction)


def twenty_times(run):
    """What `run` (a function of no arguments -> tensors) gives; twenty more runs give the same bits."""
    first = [x.clone() for x in run()]
    for _ in range(20):
        assert all(torch.equal(x, y) for x, y in zip(first, run(), strict=True))
    return first


def case(shape, dim, dtype):
    """q, k, v, do of a problem on the GPU."""
    q, k, v = draw((*shape, dim), dtype, "cuda")
    return q, k, v, draw((*shape, dim), dtype, "cuda", seed=7)[0]


def run_forward(direction, causal, dim, dtype):
    shape = WHOLE if direction == "forward simple" else RAGGED
    q, k, v, _ = case(shape, dim, dtype)
    how = dict(causal=causal or None, scale=dim**-0.5, config=config(q, direction))
    assert direction != "forward simple" or shape[4] % how["config"].block_k == 0
    check_forward(lambda *a, causal: fa2.forward(*a, **how), q, k, v, causal=causal)
    twenty_times(lambda: fa2.forward(q, k, v, **how))


def run_backward(direction, causal, dim, dtype):
    q, k, v, do = case(RAGGED, dim, dtype)
    how = dict(causal=causal or None, scale=dim**-0.5)
    o, lse = fa2.forward(q, k, v, **how)
    delta, how["config"] = fa2_backward.delta(o, do), config(q, direction)

    def run():
        if direction == "dkdv":
            return fa2_backward.backward_kv(q, k, v, do, lse, delta, **how)
        return [fa2_backward.backward_q(q, k, v, do, lse, delta, **how)]

    with poison():
        got = dict(zip(("dk", "dv") if direction == "dkdv" else ("dq",), twenty_times(run), strict=True))
    assert_close_to_reference(got, q, k, v, do, causal=causal)


def run_fa1(direction, causal, dim, dtype):
    q, k, v, do = case(RAGGED, dim, dtype)
    how = dict(causal=causal or None, scale=dim**-0.5)

    def run():
        o, lse = fa1.forward(q, k, v, config=config(q, "fa1"), **how)
        return o, lse, *fa1.backward(q, k, v, o, lse, do, config=config(q, "fa1 backward"), **how)

    with poison():
        got = dict(zip(("o", "lse", "dq", "dk", "dv"), twenty_times(run), strict=True))
    assert_close_to_reference(got, q, k, v, do, causal=causal)


def run_packed(direction, causal, dim, dtype):
    tensors = draw_packed([127, 0, 257, 3], [130, 5, 200, 0], 4, 2, dim, dtype, "cuda", tail=(9, 70))
    q, k, v, do, cu_q, cu_k = tensors
    got = all_results(*tensors, causal=causal)
    assert_right(got, *tensors, causal=causal)
    as_batch, how = varlen.as_batch, dict(causal=causal or None, scale=dim**-0.5)
    delta = fa2_backward.delta(as_batch(got["o"]), as_batch(do))[0].transpose(0, 1)
    rest = (q, k, v, do, got["lse"], delta, cu_q, cu_k)

    def run():
        how["config"] = config(q, "forward packed")
        results = varlen.forward(q, k, v, cu_q, cu_k, **how)
        how["config"] = config(q, "dkdv packed")
        results += varlen_backward.backward_kv(*rest, **how)
        how["config"] = config(q, "dq packed")
        return *results, varlen_backward.backward_q(*rest, **how)

    names = ("o", "lse", "dk", "dv", "dq")
    for name, x in zip(names, twenty_times(run), strict=True):
        assert torch.equal(x, got[name]), f"{name} by the shipped configuration and by default"


def run_decode(direction, causal, dim, dtype):
    lengths = [0, 1, 333, 1000]
    k, v, on_gpu = draw_cache(lengths, 2, 1000, dim, dtype, "cuda")
    q = draw_queries(4, 8 if direction != "decode group" else 64, 3, dim, dtype, "cuda")
    how = dict(num_splits=5, config=config(q, "decode paged" if direction == "decode paged" else "decode"))
    caches, dense = (k, v), None
    if direction == "decode paged":
        *caches, how["block_table"] = in_pages((k, v), lengths, 16, 63)
        dense = (k, v)

    def run(q, k, v, lengths, scale=None, **more):
        return decode.decode(q, k, v, lengths, scale=dim**-0.5 if scale is None else scale, **how)

    check_decode(run, q, *caches, on_gpu, dense=dense)
    twenty_times(lambda: run(q, *caches, on_gpu))


RUN = {
    "forward": run_forward, "forward short": run_forward, "forward simple": run_forward,
    "dkdv": run_backward, "dq": run_backward, "fa1": run_fa1, "packed": run_packed,
    "decode": run_decode, "decode group": run_decode, "decode paged": run_decode,
}  # fmt: skip
CASES = [
    (direction, causal)
    for direction in RUN
    for causal in (False, "top-left", "bottom-right")
    if (causal is False or direction != "forward simple")
    and (causal == "bottom-right" or not direction.startswith("decode"))
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("direction", "causal"), CASES)
def test_every_shipped_kernel_is_right_and_twenty_runs_are_equal_bit_for_bit(direction, causal, dim, dtype):
    RUN[direction](direction, causal, dim, dtype)


@pytest.mark.parametrize("num_keys", [384, 333, 2048, 2304])
@pytest.mark.parametrize("causal", [False, "top-left"])
def test_whatever_configuration_the_launcher_picks_is_right(num_keys, causal):
    q, k, v = draw((1, 2, 1, 257, num_keys, 128), torch.float16, "cuda")
    how = dict(causal=causal, backend="fa2", return_lse=True)
    check_forward(lambda *a, causal: flashlab.attention(*a, **how), q, k, v, causal=causal)


def test_more_than_2_to_the_31_elements_are_right():
    shape = (16, 64, 16448, 128)  # 4.3 GB a tensor
    g = torch.Generator("cuda").manual_seed(1)
    q, k, v = (torch.empty(shape, dtype=torch.float16, device="cuda").normal_(generator=g) for _ in range(3))
    o, lse = flashlab.attention(q, k, v, causal=True, backend="fa2", return_lse=True)
    for b, h in ((0, 0), (15, 63)):  # the first head, and the last one, which begins beyond 2^31
        alone = [x[b : b + 1, h : h + 1].clone() for x in (q, k, v)]
        want = flashlab.attention(*alone, causal=True, backend="fa2", return_lse=True)
        assert torch.equal(o[b, h], want[0][0, 0]) and torch.equal(lse[b, h], want[1][0, 0])
    do = torch.ones_like(q)
    delta, how = fa2_backward.delta(o, do), dict(causal="top-left", scale=128**-0.5)
    dq = fa2_backward.backward_q(q, k, v, do, lse, delta, **how)
    last = [x[15:, 63:].clone() for x in (q, k, v, do, lse, delta)]
    assert torch.equal(dq[15:, 63:], fa2_backward.backward_q(*last, **how))


def test_a_captured_graph_reads_its_dropout_seed_at_each_replay():
    q, k, v = draw((1, 2, 2, 130, 130, 64), torch.float16, "cuda")
    seed = torch.tensor([1], device="cuda")
    how = dict(dropout_p=0.5, backend="fa2")
    first = flashlab.attention(q, k, v, seed=seed, **how)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        flashlab.attention(q, k, v, seed=seed, **how)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = flashlab.attention(q, k, v, seed=seed, **how)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(o, first)
    seed.fill_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(o, first)
    assert torch.equal(o, flashlab.attention(q, k, v, seed=2, **how))


def test_tensors_on_another_gpu_than_the_current_one_are_right():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    q, k, v = draw((1, 2, 1, 100, 130, 64), torch.float16, "cuda:1")
    with torch.cuda.device(0):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        o = flashlab.attention(*leaves, causal=True, backend="fa2")
        o.backward(q)
        got = dict(o=o.detach(), dq=leaves[0].grad, dk=leaves[1].grad, dv=leaves[2].grad)
        with pytest.raises(ValueError, match="on one device, got cuda:1, cuda:0 and cuda:1"):
            flashlab.attention(q, k.to("cuda:0"), v)
    assert o.device == q.device
    assert_close_to_reference(got, q, k, v, q, causal=True)
