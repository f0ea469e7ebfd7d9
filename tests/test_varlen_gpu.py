"""attention_varlen compiled, on a GPU: `pytest -m gpu tests/test_varlen_gpu.py`."""

import math

import pytest

pytest.importorskip("triton")
import torch
from kernel_cases import CAUSAL
from varlen_cases import all_results, assert_right, bounds, by_sequence, check_packed, draw_packed

import flashlab
from flashlab.varlen import unpad

pytestmark = pytest.mark.gpu

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
LENGTHS = [
    ([0, 3, 0, 5], [4, 0, 0, 5]),
    ([1, 17, 64, 65], [1, 17, 64, 65]),
    ([127, 128, 129, 0, 1], [130, 257, 1, 5, 300]),
    ([513, 70], [3, 515]),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("dim", [24, 64, 80, 128, 256])
@pytest.mark.parametrize("lens", LENGTHS, ids=str)
def test_every_sequence_is_right_for_every_mask_and_format(lens, dim, causal, dtype):
    check_packed(draw_packed(*lens, 6, 2, dim, dtype, "cuda", tail=(70, 130)), causal=causal)


@pytest.mark.parametrize("dim", [1, 8, 33, 72, 120, 200])
def test_any_head_dim_is_right(dim):
    check_packed(draw_packed([130, 65], [100, 257], 2, 1, dim, torch.float16, "cuda"), causal="bottom-right")


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.5])
def test_the_scale_may_be_any_number(scale):
    tensors = draw_packed([130, 65], [100, 257], 2, 1, 64, torch.float16, "cuda")
    check_packed(tensors, causal="top-left", scale=scale)


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_a_nan_never_reaches_another_sequence(dim):
    for bad in range(3):
        q, k, v, do, cu_q, cu_k = draw_packed([70, 200, 33], [130, 65, 250], 4, 2, dim, torch.float16, "cuda")
        want = all_results(q, k, v, do, cu_q, cu_k, causal="bottom-right")
        for x, cu in ((q, cu_q), (k, cu_k), (v, cu_k), (do, cu_q)):
            x[cu[bad] : cu[bad + 1]] = float("nan")
        got = all_results(q, k, v, do, cu_q, cu_k, causal="bottom-right")
        for name in got:
            cu = cu_k if name in ("dk", "dv") else cu_q
            parts = zip(by_sequence(got[name], cu), by_sequence(want[name], cu), strict=True)
            assert all(torch.equal(x, y) for n, (x, y) in enumerate(parts) if n != bad), name


def test_slices_of_a_packed_qkv_tensor_are_right():
    cu = bounds([70, 200], "cuda")
    qkv = torch.randn(270, 3, 4, 64, generator=torch.Generator().manual_seed(3)).half().cuda()
    do = torch.ones(1, 1, 1, device="cuda", dtype=torch.float16).expand(270, 4, 64)
    check_packed((*qkv.unbind(1), do, cu, cu), causal="top-left")
    odd = torch.randn(270, 3, 4, 65, generator=torch.Generator().manual_seed(4)).half().cuda()[..., 1:]
    check_packed((*odd.unbind(1), do, cu, cu), causal="top-left")


def test_outputs_stay_between_their_guards(monkeypatch):
    tensors = draw_packed([70, 200, 3], [130, 65, 250], 2, 1, 72, torch.float16, "cuda", tail=(9, 200))
    guarded, empty = [], torch.empty

    def between_guards(shape, dtype=torch.float32, device="cuda"):
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = math.prod(shape)
        buffer = empty(size + 4096, dtype=dtype, device=device).fill_(777)
        inside = buffer[2048 : 2048 + size].view(shape).fill_(float("nan"))
        guarded.append((buffer, inside))
        return inside

    monkeypatch.setattr(torch, "empty", between_guards)
    monkeypatch.setattr(torch, "empty_like", lambda x: between_guards(x.shape, x.dtype, x.device))
    got = all_results(*tensors, causal="top-left")
    monkeypatch.undo()
    assert_right(got, *tensors, causal="top-left")
    for buffer, inside in guarded:
        assert (buffer[:2048] == 777).all() and (buffer[-2048:] == 777).all() and not inside.isnan().any()


@pytest.mark.parametrize("wrong", [[0, 9999, 9999], [-5, 3, 80], [0, 80, 3], [2**31 - 1, 0, -(2**31)]])
def test_wrong_bounds_are_clamped_and_hurt_nobody(wrong):
    q, k, v, do, cu, _ = draw_packed([30, 50], [30, 50], 2, 1, 64, torch.float16, "cuda")
    wrong = torch.tensor(wrong, dtype=torch.int32, device="cuda")
    for cu_q, cu_k in ((wrong, cu), (cu, wrong), (wrong, wrong)):
        all_results(q, k, v, do, cu_q, cu_k, causal="bottom-right")
    torch.cuda.synchronize()
    check_packed((q, k, v, do, cu, cu), causal="bottom-right")


def test_wrong_bounds_are_found_when_asked_for(monkeypatch):
    q, k, v, _, cu, _ = draw_packed([30, 50], [30, 50], 2, 1, 64, torch.float16, "cuda")
    monkeypatch.setenv("FLASHLAB_VALIDATE", "1")
    with pytest.raises(ValueError, match="cu_seqlens_k to go from 0 to at most 80"):
        flashlab.attention_varlen(q, k, v, cu, cu * 2)


def test_the_host_never_waits():
    q, k, v, _, cu, _ = draw_packed([300, 500], [300, 500], 2, 1, 64, torch.float16, "cuda")
    q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
    flashlab.attention_varlen(q, k, v, cu, cu, causal=True).sum().backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        flashlab.attention_varlen(q, k, v, cu, cu, causal=True).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_captured_graph_replays_with_other_lengths():
    q, k, v, do, cu, _ = draw_packed([300, 500], [300, 500], 2, 1, 64, torch.float16, "cuda")
    all_results(q, k, v, do, cu, cu, causal="top-left")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = flashlab.attention_varlen(q, k, v, cu, cu, causal=True, return_lse=True)
    cu.copy_(torch.tensor([0, 77, 600]))
    graph.replay()
    assert_right(dict(o=o, lse=lse), q, k, v, do, cu, cu, causal="top-left")


@pytest.mark.parametrize("dim", [64, 128])
def test_twenty_runs_are_equal_bit_for_bit(dim):
    tensors = draw_packed([777, 100, 1000], [500, 901, 1000], 4, 2, dim, torch.float16, "cuda")
    first = all_results(*tensors, causal="bottom-right")
    for _ in range(20):
        again = all_results(*tensors, causal="bottom-right")
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_padded_and_packed_agree():
    lens = torch.tensor([1, 170, 640, 650], device="cuda")
    g = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(4, 650, 4, 64, generator=g).half().cuda() for _ in range(3))
    padded = flashlab.attention(
        *(x.transpose(1, 2) for x in (q, k, v)), key_lengths=lens, causal=True, backend="fa2"
    ).transpose(1, 2)
    (packed_q, cu), (packed_k, _), (packed_v, _) = (unpad(x, lens) for x in (q, k, v))
    o = flashlab.attention_varlen(packed_q, packed_k, packed_v, cu, cu, causal=True)
    assert (o - unpad(padded, lens)[0]).abs().max() < 2e-3


def test_many_short_sequences_are_right():
    lens = [n % 7 for n in range(3000)]
    q, k, v, _, cu, _ = draw_packed(lens, lens, 2, 1, 32, torch.float16, "cuda")
    o = flashlab.attention_varlen(q, k, v, cu, cu)
    of = torch.repeat_interleave(torch.arange(3000), torch.tensor(lens)).cuda()
    scores = torch.einsum("qhd,kd->hqk", q.float(), k[:, 0].float()) / 32**0.5
    scores.masked_fill_(of[:, None] != of[None, :], float("-inf"))
    want = torch.einsum("hqk,kd->qhd", scores.softmax(-1), v[:, 0].float())
    assert (o - want).abs().max() < 5e-3
