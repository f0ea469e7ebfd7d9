"""FlashAttention-1 in Triton, interpreted: right, faithful in what it moves, and caught without its
barrier.
"""

import importlib.util
import inspect
import sys

import pytest

pytest.importorskip("triton")
import numpy as np
import torch
from kernel_cases import CAUSAL, SIZES, STRIDES, draw, poison, strided

import flashlab
from flashlab import interpreter, library
from flashlab.kernels import fa1
from flashlab.kernels.launch import Config
from flashlab.testing import assert_close_to_reference
from flashlab.tiled import fa1_backward, fa1_forward
from flashlab.trace import Trace

SMALL = Config(16, 16)


def run(q, k, v, do=None, *, causal=False, scale=None, config=SMALL, kernels=fa1):
    how = dict(causal=causal or None, scale=q.shape[-1] ** -0.5 if scale is None else scale, config=config)
    do = torch.ones_like(q) if do is None else do
    with poison():
        o, lse = kernels.forward(q, k, v, **how)
        grads = kernels.backward(q, k, v, o, lse, do, **how)
    return dict(zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads), strict=True))


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_all_results_are_right_for_every_size_and_mask(shape, causal):
    q, k, v = draw(shape)
    do = draw(shape, seed=7)[0]
    assert_close_to_reference(run(q, k, v, do, causal=causal), q, k, v, do, causal=causal)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [None, -0.7, 0.0])
def test_16_bit_inputs_and_any_scale_are_right(dtype, scale):
    q, k, v = draw((1, 4, 2, 19, 20, 24), dtype)
    got = run(q, k, v, q, causal="top-left", scale=scale, config=Config(16, 32))
    assert_close_to_reference(got, q, k, v, q, causal="top-left", scale=scale)


@pytest.mark.parametrize("kind", STRIDES)
def test_any_memory_order_is_right(kind):
    q, k, v, do = (strided(draw((1, 2, 2, 20, 20, 16), seed=s)[0], kind) for s in range(4))
    assert_close_to_reference(run(q, k, v, do), q, k, v, do)


@pytest.mark.parametrize("size", [30, 1000])
def test_large_scores_are_right(size):
    q, k, v = draw((1, 1, 1, 18, 35, 16), size=size)
    assert_close_to_reference(
        run(q, k, v, v[:, :, :18], causal="top-left"), q, k, v, v[:, :, :18], causal="top-left"
    )


def test_rows_that_see_nothing_give_zero_and_minus_infinity():
    q, k, v = draw((1, 1, 1, 40, 3, 16))
    got = run(q, k, v, causal="bottom-right")
    empty = torch.arange(40) < 37
    assert (got["o"][0, 0, empty] == 0).all() and (got["lse"][0, 0, empty] == -np.inf).all()
    assert (got["dq"][0, 0, empty] == 0).all() and all(
        x.isfinite().all() for n, x in got.items() if n != "lse"
    )


def test_nan_at_keys_that_no_row_sees_changes_nothing():
    q, k, v = draw((1, 2, 2, 20, 40, 16))
    want = run(q, k, v, causal="top-left")
    k[:, :, 20:] = v[:, :, 20:] = float("nan")
    got = run(q, k, v, causal="top-left")
    assert all(torch.equal(got[name], want[name]) for name in got)


@pytest.mark.parametrize("causal", CAUSAL)
def test_it_moves_the_bytes_that_the_loops_over_tiles_move(causal):
    q, k, v = draw((1, 1, 1, 40, 35, 16), torch.float16)
    how = dict(causal=causal or None, scale=0.25, config=SMALL)
    got = interpreter.record(lambda: fa1.forward(q, k, v, **how))
    want = Trace(dtype="float16")
    fa1_forward(
        *(x.numpy() for x in (q, k, v)), block_q=16, block_k=16, causal=causal, scale=0.25, trace=want
    )
    for op in ("load", "store"):
        for tensor in ("q", "k", "v", "o_fp32", "m", "l", "o", "lse"):
            assert got.bytes(op, tensor) == want.bytes(op, tensor), (op, tensor)


def test_the_backward_moves_the_bytes_that_the_loops_over_tiles_move():
    q, k, v = draw((1, 2, 1, 40, 35, 16), torch.float16)
    o, lse = fa1.forward(q, k, v, causal="top-left", scale=0.25, config=SMALL)
    got = interpreter.record(
        lambda: fa1.backward(q, k, v, o, lse, q, causal="top-left", scale=0.25, config=SMALL)
    )
    want = Trace(dtype="float16")
    arrays = (x.numpy() for x in (q, k, v, o, lse, q))
    fa1_backward(*arrays, block_q=16, block_k=16, causal="top-left", scale=0.25, trace=want)
    for op in ("load", "store"):
        for tensor in ("q", "k", "v", "o", "do", "dq_fp32", "lse", "dq", "dk", "dv"):
            assert got.bytes(op, tensor) == want.bytes(op, tensor), (op, tensor)


def without_barriers(tmp_path):
    """The module fa1 without its barriers."""
    path = tmp_path / "fa1_without_barriers.py"
    path.write_text(inspect.getsource(fa1).replace("tl.debug_barrier()", "pass"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_programs_do_not_race_and_a_missing_barrier_is_caught(tmp_path):
    q, k, v = draw((1, 4, 2, 33, 35, 16))
    assert interpreter.find_races(lambda: run(q, k, v)) == []
    found = interpreter.find_races(lambda: run(q, k, v, kernels=without_barriers(tmp_path)))
    for tensor in ("o_fp32", "m", "l", "dq_fp32"):
        assert any(f"bytes of {tensor} that it stored since its last barrier" in f for f in found), tensor


def test_through_autograd_with_the_gradient_of_lse():
    q, k, v = (x.requires_grad_() for x in draw((1, 4, 2, 9, 12, 8)))
    u = torch.randn(1, 4, 9)
    got, want = [], []
    for backend, out in (("fa1", got), ("naive", want)):
        o, lse = flashlab.attention(q, k, v, causal=True, backend=backend, return_lse=True)
        out += [o, lse, *torch.autograd.grad(o.cos().sum() + (u * lse).sum(), (q, k, v))]
    assert all(torch.allclose(x, y, atol=5e-6) for x, y in zip(got, want, strict=True))


def test_the_operators_pass_opcheck_and_the_gradient_of_a_gradient_raises():
    q, k, v = (x.requires_grad_() for x in draw((1, 2, 1, 5, 6, 8)))
    torch.library.opcheck(library.fa1, (q, k, v, "top-left", 0.3))
    (grad,) = torch.autograd.grad(flashlab.attention(q, k, v, backend="fa1").sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no double backward"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("what", "how"), [("key_lengths", dict(key_lengths=torch.tensor([2]))), ("dropout", dict(dropout_p=0.1))]
)
def test_what_it_does_not_do_raises(what, how):
    q, k, v = draw((1, 1, 1, 3, 4, 8))
    with pytest.raises(NotImplementedError, match=f"'fa1' has no {what}"):
        flashlab.attention(q, k, v, backend="fa1", **how)


@pytest.mark.parametrize("shape", [(0, 2, 2, 5, 5, 16), (2, 2, 2, 0, 5, 16), (2, 2, 2, 5, 0, 16)], ids=str)
def test_empty_inputs_give_empty_or_zero_results(shape):
    q, k, v = draw(shape)
    got = run(q, k, v)
    assert (got["o"] == 0).all() and (got["lse"] == -np.inf).all()
    assert all((got[name] == 0).all() for name in ("dq", "dk", "dv"))
