"""Attention over sequences of different lengths, packed one after another without padding.

Sequence s is rows cu_seqlens[s] to cu_seqlens[s + 1] of a packed tensor [total, heads, D]. `unpad` and `pad`
go from padded tensors [B, N, ...] to packed ones and back.
"""

import os

import torch
from torch import Tensor

from flashlab import library
from flashlab.arguments import causal_kind, check_scale, check_tensors, under_autocast
from flashlab.kernels import triton_version

MAX_HEAD_DIM = 256  # of the kernels


def attention_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, *, max_seqlen_q=None, max_seqlen_k=None, causal=False, scale=None,
    return_lse=False,
):  # fmt: skip
    """softmax(scale * Q K^T) V within each of B packed sequences: q [total_q, Hq, D], k and v [total_k, Hkv,
    D] -> o [total_q, Hq, D] in q's dtype. With `return_lse` also lse [total_q, Hq] fp32, natural log.

    fp16, bf16 or fp32, D from 1 to 256, any strides, Hq a multiple of Hkv. cu_seqlens_q and cu_seqlens_k are
    int32 [B + 1], begin with 0 and do not go down; a sequence may have no queries, no keys, or neither.
    causal: False; True or "top-left"; "bottom-right", each within its sequence. max_seqlen_q and max_seqlen_k
    may be given, as other libraries want them: nothing here needs them, and the host never waits for the
    device.

    Rows that see no key, and rows from cu_seqlens_q[B] on, give o = 0, lse = -inf and gradients 0. The kernel
    is interpreted for CPU tensors and compiled for CUDA tensors. cu_seqlens on a GPU are clamped to the
    tensors; they are looked at, and ValueError raised, only with FLASHLAB_VALIDATE=1.

    Raises TypeError (dtypes) or ValueError (shapes, devices, values, names) for what does not fit, and
    RuntimeError where there is no Triton.
    """
    q, k, v = under_autocast(q, k, v)
    check_packed(q, k, v)
    check_cu_seqlens("cu_seqlens_q", cu_seqlens_q, "q", q, max_seqlen_q)
    check_cu_seqlens("cu_seqlens_k", cu_seqlens_k, "k", k, max_seqlen_k)
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise ValueError(
            "expected cu_seqlens_q and cu_seqlens_k for the same number of sequences, got "
            f"{cu_seqlens_q.shape[0] - 1} and {cu_seqlens_k.shape[0] - 1}"
        )
    causal, scale = causal_kind(causal), check_scale(scale, q.shape[-1])
    if triton_version() is None:
        raise RuntimeError(
            "attention_varlen needs Triton, which exists for Linux only: call flashlab.attention on padded "
            "tensors with key_lengths, or on each sequence"
        )
    o, lse = run(q, k, v, cu_seqlens_q, cu_seqlens_k, causal or "", scale)
    return (o, lse) if return_lse else o


def check_packed(q, k, v):
    """Raise TypeError or ValueError unless q, k and v are one packed attention problem for the kernels."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected {name} to be a torch tensor, got {type(x).__name__}")
        if x.dim() != 3:
            raise ValueError(f"expected {name} to be packed, [total, heads, D], got shape {list(x.shape)}")
    if k.shape[:2] != v.shape[:2]:
        raise ValueError(f"expected k and v of one shape, got {list(k.shape)} and {list(v.shape)}")
    check_tensors(*(x.transpose(0, 1)[None] for x in (q, k, v)))
    if q.shape[-1] > MAX_HEAD_DIM:
        raise ValueError(f"the kernels take head dims 1 to {MAX_HEAD_DIM}, got {q.shape[-1]}")


def check_cu_seqlens(name, cu_seqlens, of, x, longest):
    """Raise TypeError or ValueError unless `cu_seqlens` fits the packed tensor x, which is called `of`, and
    no sequence is longer than `longest` (an int or None). The values are looked at where that costs no
    waiting.
    """
    if not isinstance(cu_seqlens, Tensor):
        raise TypeError(f"expected {name} to be an int32 tensor, got {type(cu_seqlens).__name__}")
    if cu_seqlens.dtype != torch.int32:
        raise TypeError(f"expected {name} to be int32, got {str(cu_seqlens.dtype).removeprefix('torch.')}")
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] == 0:
        raise ValueError(
            f"expected {name} to be [B + 1], the sequences' bounds, got shape {list(cu_seqlens.shape)}"
        )
    if cu_seqlens.device != x.device:
        raise ValueError(f"expected {name} on {x.device}, got {cu_seqlens.device}")
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, int | torch.SymInt)):
        raise TypeError(f"expected max_seqlen_{of} to be an int or None, got {type(longest).__name__}")
    look = cu_seqlens.device.type == "cpu" or os.environ.get("FLASHLAB_VALIDATE") == "1"
    if not look or library.is_traced(cu_seqlens):
        return
    bounds = cu_seqlens.tolist()
    if bounds[0] != 0 or bounds[-1] > x.shape[0]:
        raise ValueError(
            f"expected {name} to go from 0 to at most {x.shape[0]}, the rows of {of}, got {bounds[0]} to "
            f"{bounds[-1]}"
        )
    lengths = [end - start for start, end in zip(bounds, bounds[1:], strict=False)]
    if min(lengths, default=0) < 0:
        raise ValueError(f"expected {name} not to go down, got a sequence of {min(lengths)} rows")
    if longest is not None and max(lengths, default=0) > longest:
        raise ValueError(f"expected sequences of at most max_seqlen_{of} = {longest}, got {max(lengths)}")


def _varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, causal: str, scale: float
) -> tuple[Tensor, Tensor]:
    """o [total_q, Hq, D] and lse [total_q, Hq] fp32."""
    from flashlab.kernels import varlen as kernels

    bounds = cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous()
    return kernels.forward(q, k, v, *bounds, causal=causal or None, scale=scale)


def _varlen_dkdv(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor, causal: str, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dk and dv; lse and delta [total_q, Hq] fp32."""
    from flashlab.kernels import varlen_backward as kernels

    bounds = cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous()
    return kernels.backward_kv(q, k, v, do, lse, delta, *bounds, causal=causal or None, scale=scale)


def _varlen_dq(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor, causal: str, scale: float,
) -> Tensor:  # fmt: skip
    """dq; lse and delta [total_q, Hq] fp32."""
    from flashlab.kernels import varlen_backward as kernels

    bounds = cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous()
    return kernels.backward_q(q, k, v, do, lse, delta, *bounds, causal=causal or None, scale=scale)


varlen = torch.library.custom_op("flashlab::varlen", _varlen, mutates_args=())
varlen_dkdv = torch.library.custom_op("flashlab::varlen_dkdv", _varlen_dkdv, mutates_args=())
varlen_dq = torch.library.custom_op("flashlab::varlen_dq", _varlen_dq, mutates_args=())


@varlen.register_fake
def _(q, k, v, *rest):
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    return torch.empty_like(q), lse.transpose(0, 1)


@varlen_dkdv.register_fake
def _(q, k, v, *rest):
    return torch.empty_like(k), torch.empty_like(v)


@varlen_dq.register_fake
def _(q, k, v, *rest):
    return torch.empty_like(q)


def _keep(ctx, inputs, output):
    *tensors, causal, scale = inputs
    ctx.how = causal, scale
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _gradients(ctx, do, dlse):
    """One gradient, or None, for each input of `varlen`."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, o, lse = ctx.saved_tensors
    if do is None and dlse is None:
        return (None,) * 7
    traced = torch.is_grad_enabled() or library.is_traced(
        q
    )  # to refuse gradients of gradients, or to be traced
    run_dq, run_dkdv = (varlen_dq, varlen_dkdv) if traced else (_varlen_dq, _varlen_dkdv)
    do = torch.zeros_like(o) if do is None else do
    inputs = (q, k, v, do, lse, _delta(o, do, dlse, traced), cu_seqlens_q, cu_seqlens_k, *ctx.how)
    want_q, want_k, want_v = ctx.needs_input_grad[:3]
    dq = run_dq(*inputs) if want_q else None
    dk, dv = run_dkdv(*inputs) if want_k or want_v else (None, None)
    return dq, dk if want_k else None, dv if want_v else None, None, None, None, None


def _delta(o, do, dlse, traced):
    """rowsum(dO * O) - dlse, [total_q, Hq] fp32: a packed tensor is a batch of one."""
    dlse = None if dlse is None else dlse.transpose(0, 1)[None]
    run_delta = library.delta if traced else library._delta
    return run_delta(o.transpose(0, 1)[None], do.transpose(0, 1)[None], dlse)[0].transpose(0, 1)


class EagerVarlen(torch.autograd.Function):
    """`varlen` with its gradient, without the dispatcher, which costs more than the launch of a kernel."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _varlen(*inputs)
        _keep(ctx, inputs, output)
        return output

    backward = staticmethod(_gradients)


def run(q, k, v, *rest):
    """`varlen` by the shortest way: the operator where PyTorch traces, a plain call where it does not."""
    library.refuse_tangents(q, k, v)
    if library.is_traced(q):
        return varlen(q, k, v, *rest)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return EagerVarlen.apply(q, k, v, *rest)
    return _varlen(q, k, v, *rest)


def _no_second_gradient(ctx, *grads):
    raise RuntimeError(
        "flashlab's kernels have no double backward: for gradients of gradients call flashlab.attention with "
        "backend='naive' on each sequence"
    )


varlen.register_autograd(_gradients, setup_context=_keep)
for _op in (varlen_dkdv, varlen_dq):
    _op.register_autograd(_no_second_gradient)


def unpad(x, lengths, side="right", total=None):
    """Pack the real rows of x [B, N, ...], padded on its "right" or "left" side, where entry b has lengths[b]
    rows.

    Returns packed [total, ...] and cu_seqlens, int32 [B + 1]. `total` defaults to the sum of the lengths, for
    which the host has to wait; a larger one (B * N always suffices) gives rows of 0 at the end, which
    attention_varlen skips.
    """
    check_padding(lengths, side)
    if lengths.shape != x.shape[:1]:
        raise ValueError(
            f"expected lengths to be [{x.shape[0]}], one for each entry, got {list(lengths.shape)}"
        )
    batch, num_rows = x.shape[:2]
    lengths = lengths.clamp(0, num_rows)
    cu_seqlens = bounds_of(lengths)
    total = int(cu_seqlens[-1]) if total is None else total
    if total == 0 or batch * num_rows == 0:
        return x.new_zeros((total, *x.shape[2:])), cu_seqlens
    rows = torch.arange(total, device=x.device)
    entry = torch.searchsorted(cu_seqlens[1:], rows, right=True).clamp(max=batch - 1)
    row = rows - cu_seqlens[entry]
    if side == "left":
        row = row + num_rows - lengths[entry]
    real = rows < cu_seqlens[-1]
    packed = x[entry, torch.where(real, row, 0)]
    return torch.where(real.view(-1, *[1] * (x.dim() - 2)), packed, 0), cu_seqlens


def pad(packed, cu_seqlens, num_rows, side="right"):
    """The way back: x [B, num_rows, ...] of packed [total, ...], with 0 on the "right" or "left" side.
    Sequences longer than num_rows lose their last (right) or first (left) rows. The host does not wait.
    """
    check_padding(cu_seqlens, side)
    starts, lengths = cu_seqlens[:-1, None], cu_seqlens.diff()[:, None]
    row = torch.arange(num_rows, device=packed.device)[None]
    if side == "left":
        row = row - (num_rows - lengths)
    real = (row >= 0) & (row < lengths)
    if packed.shape[0] == 0:
        return packed.new_zeros((*real.shape, *packed.shape[1:]))
    x = packed[torch.where(real, starts + row, 0)]
    return torch.where(real.view(*real.shape, *[1] * (packed.dim() - 1)), x, 0)


def check_padding(integers, side):
    if (
        not isinstance(integers, Tensor)
        or integers.dtype not in (torch.int32, torch.int64)
        or integers.dim() != 1
    ):
        raise TypeError("expected lengths (cu_seqlens) to be a tensor of integers with one axis")
    if side not in ("right", "left"):
        raise ValueError(f"expected side to be 'right' or 'left', got {side!r}")


def bounds_of(lengths):
    """cu_seqlens, int32 [B + 1], of lengths [B]."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
