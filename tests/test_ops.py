"""flashlab.attention: what it accepts, what it refuses and how it says so, and that all backends agree."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from kernel_cases import CAUSAL, draw

import flashlab
from flashlab import ops, reference
from flashlab.testing import assert_close_to_reference

Q, K, V = draw((2, 4, 2, 7, 9, 8))


@pytest.mark.parametrize("causal", [True, *CAUSAL])
@pytest.mark.parametrize("backend", ["fa2", "naive"])
def test_o_and_lse_are_those_of_the_reference(backend, causal):
    if backend == "fa2":
        pytest.importorskip("triton")
    o, lse = flashlab.attention(Q, K, V, causal=causal, backend=backend, return_lse=True)
    assert lse.dtype == torch.float32
    assert_close_to_reference({"o": o, "lse": lse}, Q, K, V, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 2, 5, 9, 8), (1, 2, 1, 9, 5, 8)], ids=str)
@pytest.mark.parametrize("backend", ["sdpa", "auto"])
def test_sdpa_agrees_with_the_reference(backend, shape, causal):
    q, k, v = draw(shape)
    assert_close_to_reference(
        {"o": flashlab.attention(q, k, v, causal=causal, backend=backend)}, q, k, v, causal=causal
    )


@pytest.mark.parametrize("backend", ["sdpa", "naive"])
def test_gradients_of_the_torch_backends_are_right(backend):
    do = draw((2, 4, 4, 7, 7, 8), seed=1)[0]
    q, k, v = (x.clone().requires_grad_() for x in (Q, K, V))
    flashlab.attention(q, k, v, causal=True, backend=backend).backward(do)
    assert_close_to_reference({"dq": q.grad, "dk": k.grad, "dv": v.grad}, Q, K, V, do, causal=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", ["sdpa", "naive", "auto"])
def test_16_bit_inputs_are_right_in_every_backend(backend, dtype):
    q, k, v = draw((1, 2, 1, 20, 20, 16), dtype)
    assert_close_to_reference({"o": flashlab.attention(q, k, v, backend=backend)}, q, k, v)


@pytest.mark.parametrize("backend", ["naive", "fa2", "auto"])
def test_rows_that_see_nothing_give_zero_and_minus_infinity(backend):
    if backend == "fa2":
        pytest.importorskip("triton")
    q, k, v = draw((1, 2, 2, 7, 3, 8))
    o, lse = flashlab.attention(q, k, v, causal="bottom-right", backend=backend, return_lse=True)
    assert (o[:, :, :4] == 0).all() and (lse[:, :, :4] == -np.inf).all() and lse[:, :, 4:].isfinite().all()
    o = flashlab.attention(q, k[:, :, :0], v[:, :, :0], backend=backend)
    assert o.shape == q.shape and (o == 0).all()


def test_rows_that_see_nothing_give_zero_gradients_in_the_naive_backend():
    q, k, v = (x.requires_grad_() for x in draw((1, 1, 1, 4, 2, 8)))
    o, lse = flashlab.attention(q, k, v, causal="bottom-right", backend="naive", return_lse=True)
    (o.sum() + lse[:, :, 2:].sum()).backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v)) and (q.grad[:, :, :2] == 0).all()


@pytest.mark.parametrize("backend", ["naive", "fa2", "auto"])
@pytest.mark.parametrize("causal", CAUSAL)
def test_padding_by_key_lengths_equals_shorter_inputs(backend, causal):
    if backend == "fa2":
        pytest.importorskip("triton")
    lengths = torch.tensor([5, 0])
    k, v = K.clone(), V.clone()
    k[0, :, 5:] = v[0, :, 5:] = k[1] = v[1] = float("nan")
    o, lse = flashlab.attention(Q, k, v, causal=causal, key_lengths=lengths, backend=backend, return_lse=True)
    for b, n in enumerate(lengths.tolist()):
        want = reference.attention(*(x.numpy() for x in (Q[b], K[b, :, :n], V[b, :, :n])), causal=causal)
        assert np.allclose(o[b], want[0], atol=1e-6) and np.allclose(lse[b], want[1], atol=1e-6)


@pytest.mark.parametrize("backend", ["sdpa", "naive", "auto", "fa2"])
def test_nan_at_keys_that_no_row_sees_changes_nothing(backend):
    if backend == "fa2":
        pytest.importorskip("triton")
    q, k, v = draw((1, 1, 1, 3, 6, 8))
    want = flashlab.attention(q, k, v, causal=True, backend=backend)
    k[:, :, 3:] = v[:, :, 3:] = float("nan")
    assert torch.equal(flashlab.attention(q, k, v, causal=True, backend=backend), want)


def test_without_return_lse_only_o_comes_back():
    assert isinstance(flashlab.attention(Q, K, V), torch.Tensor)


@pytest.mark.parametrize(
    ("error", "says", "change"),
    [
        (TypeError, "expected q to be a torch tensor, got ndarray", dict(q=Q.numpy())),
        (ValueError, r"expected q to be \[batch, heads, rows, D\], got shape \[4, 7, 8\]", dict(q=Q[0])),
        (ValueError, "multiple of Hkv, got Hq = 3 and Hkv = 2", dict(q=Q[:, :3])),
        (ValueError, "the same D, got 6, 8 and 8", dict(q=Q[..., :6])),
        (ValueError, "the same D, got 8, 8 and 4", dict(v=V[..., :4])),
        (ValueError, r"k and v of one shape, got \[2, 2, 9, 8\] and \[2, 2, 5, 8\]", dict(v=V[:, :, :5])),
        (ValueError, "same batch size, got 1 and 2", dict(q=Q[:1])),
        (TypeError, "one dtype, got torch.float32, torch.float16 and torch.float32", dict(k=K.half())),
        (TypeError, "expected float16, bfloat16 or float32, got float64", dict(q=Q.double(), k=K.double())),
        (TypeError, "expected float16, bfloat16 or float32, got int64", dict(q=Q.long())),
        (ValueError, "on one device, got cpu, meta and cpu", dict(k=K.to("meta"))),
        (ValueError, "unknown backend 'fa22'. Did you mean 'fa2'", dict(backend="fa22")),
        (ValueError, "unknown causal 'bottom'. Did you mean 'bottom-right'", dict(causal="bottom")),
        (TypeError, "expected scale to be a number or None, got str", dict(scale="1")),
        (ValueError, "expected a finite scale, got inf", dict(scale=float("inf"))),
        (ValueError, "expected dropout_p from 0 to 1, got 1.5", dict(dropout_p=1.5)),
        (TypeError, "attention_varlen .*sdpa", dict(attn_mask=torch.ones(7, 9))),
        (TypeError, "takes no bias", dict(bias=torch.ones(7, 9))),
        (TypeError, "key_lengths to be a tensor of integers, got list", dict(key_lengths=[1, 2])),
        (TypeError, "key_lengths to be int32 or int64, got torch.float32", dict(key_lengths=torch.ones(2))),
        (ValueError, r"key_lengths to be \[2\], got shape \[3\]", dict(key_lengths=torch.tensor([1, 2, 3]))),
        (ValueError, "key_lengths from 0 to Nk = 9, got 1 to 10", dict(key_lengths=torch.tensor([1, 10]))),
        (ValueError, "key_lengths from 0 to Nk = 9, got -1 to 3", dict(key_lengths=torch.tensor([-1, 3]))),
        (NotImplementedError, "'sdpa' has no return_lse", dict(backend="sdpa", return_lse=True)),
        (
            NotImplementedError,
            "'sdpa' has no key_lengths",
            dict(backend="sdpa", key_lengths=torch.tensor([1, 2])),
        ),
        (NotImplementedError, "bottom-right", dict(backend="sdpa", causal="bottom-right")),
    ],
)
def test_bad_input_says_what_was_expected_and_what_came(error, says, change):
    with pytest.raises(error, match=says):
        flashlab.attention(**(dict(q=Q, k=K, v=V) | change))


def test_a_head_dim_beyond_the_kernels_says_which_backends_take_it():
    pytest.importorskip("triton")
    q = torch.zeros(1, 1, 2, 300)
    with pytest.raises(ValueError, match="head dims 1 to 256, got 300: use 'sdpa' or 'naive'"):
        flashlab.attention(q, q, q, backend="fa2")
    assert flashlab.attention(q, q, q).shape == q.shape


def test_auto_on_a_cpu_never_interprets():
    plain = ops.Call(None, 1.0, None, 0.0, None, False)
    assert ops.choose(Q, K, plain) == "sdpa"
    for change in (
        dict(need_lse=True),
        dict(causal="bottom-right"),
        dict(key_lengths=torch.tensor([1, 2])),
        dict(dropout_p=0.5),
    ):
        assert ops.choose(Q, K, plain._replace(**change)) == "naive"


def test_without_triton_everything_but_the_kernels_works():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch, flashlab\n"
        "q = torch.randn(1, 1, 5, 4)\n"
        "assert flashlab.attention(q, q, q).shape == flashlab.attention(q, q, q, backend='naive').shape\n"
        "try: flashlab.attention(q, q, q, backend='fa2')\n"
        "except RuntimeError as e: print(e)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Linux only" in run.stdout, run.stderr
    assert len(run.stdout.strip().splitlines()) == 1


def test_half_precision_autocast_is_followed():
    q = Q.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        o = flashlab.attention(q, K, V.bfloat16(), backend="naive")
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert q.grad.dtype == torch.float32 and q.grad.isfinite().all()
