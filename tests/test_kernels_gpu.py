"""The kernels compiled, on a GPU: `pytest -m gpu tests/test_kernels_gpu.py`.

What the interpreter hides is tested here: missing `other=`, TF32, small tiles, races, compilation itself.
"""

import pytest

pytest.importorskip("triton")
import numpy as np
import torch
from kernel_cases import CAUSAL, SIZES, STRIDES, check_all, check_forward, draw, gradients, poison, strided

import flashlab
from flashlab.kernels import check_versions, fa1, fa2, fa2_backward, triton_version
from flashlab.kernels.launch import config_for
from flashlab.philox import dropout_mask
from flashlab.testing import assert_close_to_reference

pytestmark = pytest.mark.gpu

BIGGER = [
    (1, 1, 1, 127, 127, 64),
    (1, 1, 1, 128, 128, 64),
    (2, 4, 2, 129, 129, 64),
    (1, 2, 1, 259, 515, 128),
    (1, 2, 2, 515, 259, 128),
    (1, 4, 1, 1025, 1025, 32),
    (1, 2, 1, 257, 257, 80),
    (1, 2, 1, 257, 257, 72),
    (1, 1, 1, 130, 300, 256),
    (1, 1, 1, 1, 4000, 96),
    (1, 1, 1, 257, 257, 120),
]
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def forward(q, k, v, causal=False, scale=None, config=None, **how):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return fa2.forward(q, k, v, causal=causal or None, scale=scale, config=config, **how)


def between_canaries(x):
    """An uninitialised tensor like `x` with a row of 777 before and after it, and the check of those rows."""
    size = x.numel()
    buffer = torch.full((size + 2048,), 777.0, dtype=x.dtype, device=x.device)
    inside = buffer[1024 : 1024 + size].view(x.shape).fill_(float("nan"))
    return inside, lambda: bool((buffer[:1024] == 777).all() and (buffer[1024 + size :] == 777).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SIZES + BIGGER, ids=str)
def test_o_and_lse_are_right_for_every_size_mask_and_format(shape, causal, dtype):
    check_forward(forward, *draw(shape, dtype, "cuda"), causal=causal)


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.5])
@pytest.mark.parametrize("causal", [False, "top-left"])
def test_the_scale_may_be_any_number(scale, causal):
    check_forward(forward, *draw((1, 2, 1, 300, 300, 64), torch.float16, "cuda"), causal=causal, scale=scale)


@pytest.mark.parametrize("size", [30, 1000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_large_scores_are_right(size, dtype):
    check_forward(forward, *draw((1, 1, 1, 300, 300, 64), dtype, "cuda", size=size), causal="top-left")


@pytest.mark.parametrize("kind", STRIDES)
def test_any_memory_order_is_right(kind):
    q, k, v = (strided(x, kind) for x in draw((2, 3, 3, 200, 200, 64), torch.float16, "cuda"))
    check_forward(forward, q, k, v, causal="top-left")


def test_fp32_is_not_tf32():
    q, k, v = draw((1, 2, 2, 128, 128, 64), torch.float32, "cuda")
    want = torch.softmax(q.double() @ k.double().mT / 8, -1) @ v.double()
    assert (forward(q, k, v)[0] - want).abs().max() < 1e-5 * want.abs().max()


def test_keys_behind_the_key_length_do_not_matter_even_if_they_are_nan():
    q, k, v = draw((3, 2, 1, 200, 333, 64), torch.float16, "cuda")
    lengths = torch.tensor([0, 100, 333], device="cuda")
    short = [
        (k[b : b + 1, :, :n].clone(), v[b : b + 1, :, :n].clone()) for b, n in enumerate(lengths.tolist())
    ]
    for b, n in enumerate(lengths.tolist()):
        k[b, :, n:] = v[b, :, n:] = float("nan")
    o, lse = flashlab.attention(
        q, k, v, causal="bottom-right", key_lengths=lengths, backend="fa2", return_lse=True
    )
    for b, (k_b, v_b) in enumerate(short):
        want = flashlab.attention(
            q[b : b + 1], k_b, v_b, causal="bottom-right", backend="fa2", return_lse=True
        )
        assert torch.equal(o[b : b + 1], want[0]) and torch.equal(lse[b : b + 1], want[1])


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_twenty_runs_are_equal_bit_for_bit(dim):
    q, k, v = draw((2, 4, 2, 777, 777, dim), torch.float16, "cuda")
    first = forward(q, k, v, causal="top-left")
    for _ in range(20):
        again = forward(q, k, v, causal="top-left")
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


def test_outputs_stay_between_their_canaries(monkeypatch):
    q, k, v = draw((1, 3, 3, 70, 70, 72), torch.float16, "cuda")
    o, intact = between_canaries(q)
    monkeypatch.setattr(fa2.torch, "empty_like", lambda x: o)
    forward(q, k, v)
    monkeypatch.undo()
    assert intact() and not o.isnan().any()


def test_row_offsets_beyond_32_bits_are_right():
    buffer = torch.zeros(63 * (2**25 + 2**20) + 64, dtype=torch.float16, device="cuda")  # 4.4 GB
    q, fill, v = draw((1, 1, 1, 64, 64, 64), torch.float16, "cuda")
    k = buffer.as_strided((1, 1, 64, 64), (0, 0, 2**25 + 2**20, 1))
    k.copy_(fill)
    check_forward(forward, q, k, v)


def test_many_heads_and_batches_are_right():
    q, k, v = draw((700, 100, 100, 3, 3, 16), torch.float16, "cuda")  # 70,000: beyond a grid's y axis
    want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    assert (forward(q, k, v)[0] - want).abs().max() < 5e-3


def test_a_cpu_call_is_interpreted_and_a_cuda_call_compiled_in_one_process():
    try:
        check_versions(triton_version(), np.__version__)
    except RuntimeError as problem:
        pytest.skip(str(problem))
    q, k, v = draw((1, 1, 1, 20, 20, 16), torch.float16)
    interpreted = flashlab.attention(q, k, v, backend="fa2")
    compiled = flashlab.attention(q.cuda(), k.cuda(), v.cuda(), backend="fa2")
    again = flashlab.attention(q, k, v, backend="fa2")
    assert torch.equal(interpreted, again)
    assert (interpreted - compiled.cpu()).abs().max() < 2e-3


def test_auto_takes_our_kernel_on_this_gpu():
    q, k, v = draw((1, 2, 1, 100, 100, 64), torch.float16, "cuda")
    assert torch.equal(flashlab.attention(q, k, v), flashlab.attention(q, k, v, backend="fa2"))


def test_a_captured_graph_replays_with_new_data():
    q, k, v = draw((1, 2, 1, 300, 300, 64), torch.float16, "cuda")
    forward(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = forward(q, k, v)
    for x, new in zip((q, k, v), draw((1, 2, 1, 300, 300, 64), torch.float16, "cuda", seed=1), strict=True):
        x.copy_(new)
    graph.replay()
    want = forward(q, k, v)
    assert torch.equal(o, want[0]) and torch.equal(lse, want[1])


def test_memory_grows_with_n_and_not_with_n_squared():
    def extra(n):
        q, k, v = draw((1, 1, 1, n, n, 64), torch.float16, "cuda")
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        o, lse = forward(q, k, v)
        return torch.cuda.max_memory_allocated() - before

    assert extra(65536) <= 16 * extra(4096) * 1.1


# Backward


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SIZES + BIGGER, ids=str)
def test_gradients_are_right_for_every_size_mask_and_format(shape, causal, dtype):
    check_all(*draw(shape, dtype, "cuda"), causal=causal)


@pytest.mark.parametrize("kind", STRIDES)
def test_gradients_are_right_in_any_memory_order(kind):
    q, k, v, do = (
        strided(x, kind)
        for x in (*draw((2, 3, 3, 200, 200, 64), torch.float16, "cuda"), draw_do(2, 3, 200, 64))
    )
    check_all(q, k, v, do=do, causal="top-left")


def draw_do(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(torch.float16).cuda()


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_twenty_backward_runs_are_equal_bit_for_bit(dim):
    q, k, v = draw((2, 4, 2, 777, 777, dim), torch.float16, "cuda")
    first = gradients(q, k, v, q, causal="top-left")
    for _ in range(20):
        again = gradients(q, k, v, q, causal="top-left")
        assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("causal", CAUSAL)
def test_tiles_moved_by_tma_and_by_pointers_give_the_same(dim, causal):
    q, k, v = draw((2, 4, 2, 300, 333, dim), torch.float16, "cuda")
    got = {}
    for tma in (False, True):
        how = dict(causal=causal or None, scale=dim**-0.5)
        config = {d: config_for(q, d)._replace(tma=tma) for d in ("forward", "dkdv", "dq")}
        o, lse = fa2.forward(q, k, v, config=config["forward"], **how)
        delta = fa2_backward.delta(o, q)
        dq = fa2_backward.backward_q(q, k, v, q, lse, delta, config=config["dq"], **how)
        dk, dv = fa2_backward.backward_kv(q, k, v, q, lse, delta, config=config["dkdv"], **how)
        got[tma] = (o, lse, dq, dk, dv)
    for x, y in zip(got[False], got[True], strict=True):
        assert torch.allclose(x, y, atol=2e-3, rtol=2e-3)


def test_padding_gets_no_gradient_even_if_it_is_nan():
    q, k, v = (x.requires_grad_() for x in draw((3, 2, 1, 200, 333, 64), torch.float16, "cuda"))
    lengths = torch.tensor([0, 100, 333], device="cuda")
    padding = torch.arange(333, device="cuda") >= lengths[:, None, None]
    bad = [x.masked_fill(padding[..., None], float("nan")) for x in (k.detach(), v.detach())]
    bad = [x.requires_grad_() for x in bad]
    flashlab.attention(q, *bad, key_lengths=lengths, causal="bottom-right").sum().backward()
    got = [q.grad.clone(), *(x.grad for x in bad)]
    q.grad = None
    flashlab.attention(q, k, v, key_lengths=lengths, causal="bottom-right").sum().backward()
    want = [q.grad, k.grad, v.grad]
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))
    assert (k.grad.masked_select(padding[..., None]) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_dropout_drops_what_the_contract_says(dtype):
    p, n, seed = 0.3, 200, torch.tensor([12345678901], device="cuda")
    q, k, _ = draw((2, 2, 2, n, n, 256), dtype, "cuda")
    v = torch.eye(n, 256, dtype=dtype, device="cuda").expand(2, 2, n, 256)
    o = flashlab.attention(q * 0, k, v, dropout_p=p, seed=seed, backend="fa2")
    keep = dropout_mask(seed, 2, 2, n, n, p)
    assert torch.equal(o[..., :n] != 0, keep)
    q, k, v = (x.requires_grad_() for x in draw((2, 4, 2, 150, 170, 64), torch.float32, "cuda"))
    got, want = (
        torch.autograd.grad(
            flashlab.attention(q, k, v, causal="bottom-right", dropout_p=p, seed=seed, backend=b).cos().sum(),
            (q, k, v),
        )
        for b in ("fa2", "naive")
    )
    assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(got, want, strict=True))


def test_a_captured_training_step_replays():
    q, k, v = (x.requires_grad_() for x in draw((1, 2, 1, 300, 300, 64), torch.float16, "cuda"))

    def step():
        o = flashlab.attention(q, k, v, causal=True, backend="fa2")
        return torch.autograd.grad(o.float().square().sum(), (q, k, v))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    with torch.no_grad():
        for x, new in zip(
            (q, k, v), draw((1, 2, 1, 300, 300, 64), torch.float16, "cuda", seed=1), strict=True
        ):
            x.copy_(new)
    graph.replay()
    want = step()
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_compiled_by_inductor_it_gives_the_same():
    def loss(q, k, v):
        return flashlab.attention(q, k, v, causal=True, backend="fa2").float().square().sum()

    q, k, v = (x.requires_grad_() for x in draw((1, 2, 1, 65, 65, 64), torch.float16, "cuda"))
    want = torch.autograd.grad(loss(q, k, v), (q, k, v))
    got = torch.autograd.grad(torch.compile(loss, fullgraph=True)(q, k, v), (q, k, v))
    assert all(torch.allclose(x, y, atol=1e-3) for x, y in zip(got, want, strict=True))


def test_forward_and_backward_memory_grows_with_n():
    def extra(n):
        q, k, v = (x.requires_grad_() for x in draw((1, 1, 1, n, n, 64), torch.float16, "cuda"))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        flashlab.attention(q, k, v, backend="fa2").sum().backward()
        return torch.cuda.max_memory_allocated() - before

    assert extra(65536) <= 16 * extra(4096) * 1.1


# FlashAttention-1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SIZES + BIGGER, ids=str)
def test_flashattention_1_is_right_for_every_size_mask_and_format(shape, causal, dtype):
    q, k, v = draw(shape, dtype, "cuda")
    do = draw(shape, dtype, "cuda", seed=3)[0]
    how = dict(causal=causal or None, scale=shape[-1] ** -0.5)
    with poison():
        o, lse = fa1.forward(q, k, v, **how)
        dq, dk, dv = fa1.backward(q, k, v, o, lse, do, **how)
    assert_close_to_reference(dict(o=o, lse=lse, dq=dq, dk=dk, dv=dv), q, k, v, do, causal=causal)


def test_twenty_runs_of_flashattention_1_are_equal_bit_for_bit():
    q, k, v = draw((2, 4, 2, 777, 777, 64), torch.float16, "cuda")
    how = dict(causal="top-left", scale=0.125)
    first = fa1.forward(q, k, v, **how)
    first += fa1.backward(q, k, v, *first, q, **how)
    for _ in range(20):
        again = fa1.forward(q, k, v, **how)
        again += fa1.backward(q, k, v, *again, q, **how)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
