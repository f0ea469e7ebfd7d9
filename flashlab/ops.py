"""The public attention calls: they check their inputs, choose a backend and call it.

A backend is a function (q, k, v, causal, scale, key_lengths, need_lse) -> (o, lse or None) with `causal`
None,
"top-left" or "bottom-right".
"""

import math
import os
from numbers import Real

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlab.errors import unknown_name
from flashlab.problem import causal_offset, default_scale

BACKENDS = ("auto", "fa1", "fa2", "fa3", "sdpa", "naive")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 256  # of the kernels


def attention(
    q, k, v, *, causal=False, scale=None, dropout_p=0.0, seed=None, key_lengths=None, backend="auto",
    return_lse=False, **masks,
):  # fmt: skip
    """softmax(scale * Q K^T) V. q [B, Hq, Nq, D], k and v [B, Hkv, Nk, D] -> o [B, Hq, Nq, D] in q's dtype.

    fp16, bf16 or fp32, any strides, Hq a multiple of Hkv. With `return_lse` also lse [B, Hq, Nq] fp32, the
    natural log of each row's sum of exp(scores).

    causal: False; True or "top-left" (row i sees keys j <= i); "bottom-right" (j <= i + Nk - Nq). scale: any
    number, default 1/sqrt(D). key_lengths: integers [B], keys from there on are padding ("bottom-right"
    is then
    aligned to them). backend: "auto", "fa2" (our kernel: interpreted for CPU tensors, compiled for CUDA),
    "sdpa" (PyTorch's), "naive" (the whole score matrix, in fp32). A row that sees no key gives o = 0 and
    lse = -inf. A nan in V also reaches rows that do not see it but share a tile with one that does.

    Raises TypeError (dtypes, masks) or ValueError (shapes, devices, values, names) for what does not fit, and
    NotImplementedError for what a backend does not do.
    """
    if masks:
        raise TypeError(
            f"attention() takes no {', '.join(masks)}: arbitrary masks and biases are not offered. For "
            "padding use key_lengths, or flashlab.attention_varlen on packed sequences; for other masks PyTorch's "
            "scaled_dot_product_attention (sdpa)"
        )
    q, k, v = under_autocast(q, k, v)
    check_tensors(q, k, v)
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    causal = causal_kind(causal)
    scale = check_scale(scale, q.shape[-1])
    check_dropout(dropout_p)
    if key_lengths is not None:
        key_lengths = check_lengths(key_lengths, q, k)
    if backend == "auto":
        backend = choose(q, k, causal, key_lengths, return_lse)
    if dropout_p:
        raise NotImplementedError(f"backend {backend!r} has no dropout yet: use dropout_p=0")
    o, lse = RUN[backend](q, k, v, causal, scale, key_lengths, return_lse)
    return (o, lse) if return_lse else o


def choose(q, k, causal, key_lengths, need_lse):
    """The backend that "auto" stands for. The interpreter is never chosen: it is for learning, not for
    speed.
    """
    fits_kernel = q.shape[-1] <= MAX_HEAD_DIM and not needs_grad(q, k)
    if q.device.type == "cuda" and fits_kernel and torch.cuda.get_device_capability(q.device) >= (8, 0):
        return "fa2"
    return "naive" if sdpa_lacks(k, causal, key_lengths, need_lse) else "sdpa"


def sdpa_lacks(k, causal, key_lengths, need_lse):
    """What PyTorch's scaled_dot_product_attention cannot express of a call, in words; None if it can."""
    if need_lse:
        return "return_lse"
    if key_lengths is not None:
        return "key_lengths"
    if causal == "bottom-right":
        return 'causal="bottom-right"'
    return "rows without any key" if k.shape[2] == 0 else None


def run_sdpa(q, k, v, causal, scale, key_lengths, need_lse):
    lacks = sdpa_lacks(k, causal, key_lengths, need_lse)
    if lacks:
        raise NotImplementedError(f"backend 'sdpa' has no {lacks}: use 'fa2' or 'naive'")
    if causal:  # keys that no row may see must not matter, not even if they are nan
        k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
    shared = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(q, k, v, is_causal=bool(causal), scale=scale, enable_gqa=shared), None


def run_naive(q, k, v, causal, scale, key_lengths, need_lse):
    """The formula: the whole [Nq, Nk] matrix, in fp32, differentiated by autograd."""
    num_queries, num_keys = q.shape[2], k.shape[2]
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, 1) for x in (k, v))
    rows = torch.arange(num_queries, device=q.device)[:, None]
    keys = torch.arange(num_keys, device=q.device)[None, :]
    lengths = (
        torch.tensor(num_keys, device=q.device) if key_lengths is None else key_lengths[:, None, None, None]
    )
    see = (keys < lengths) & (rows >= 0)  # [Nq, Nk], or [B, 1, Nq, Nk] with key_lengths
    if causal:
        see = see & (keys <= rows + (lengths - num_queries if causal == "bottom-right" else 0))
    k, v = (torch.where(see.any(-2)[..., None], x, 0.0) for x in (k, v))  # 0 * nan is nan
    scores = (q.float() @ k.mT * scale).masked_fill(~see, -math.inf)
    row_max = scores.detach().amax(-1, keepdim=True) if num_keys else scores.new_zeros(*q.shape[:3], 1)
    row_max = row_max.masked_fill(row_max == -math.inf, 0.0)
    p = torch.exp(scores - row_max)
    row_sum = p.sum(-1, keepdim=True)
    empty = row_sum == 0
    row_sum = row_sum.masked_fill(empty, 1.0)
    lse = (row_max + row_sum.log()).masked_fill(empty, -math.inf)[..., 0]
    return (p @ v / row_sum).to(q.dtype), lse


def run_fa2(q, k, v, causal, scale, key_lengths, need_lse):
    from flashlab.kernels import require_triton

    require_triton()
    from flashlab.kernels import fa2

    if q.shape[-1] > MAX_HEAD_DIM:
        raise ValueError(
            f"the kernels take head dims 1 to {MAX_HEAD_DIM}, got {q.shape[-1]}: use 'sdpa' or 'naive'"
        )
    if needs_grad(q, k, v):
        raise NotImplementedError(
            "backend 'fa2' has no backward yet: use torch.no_grad() or detach the inputs; 'sdpa' and 'naive' "
            "give gradients"
        )
    return fa2.forward(q, k, v, causal=causal, scale=scale, key_lengths=key_lengths)


def run_missing(q, k, v, causal, scale, key_lengths, need_lse):
    raise NotImplementedError("this backend is not written yet: use 'fa2', 'sdpa' or 'naive'")


RUN = {"fa1": run_missing, "fa2": run_fa2, "fa3": run_missing, "sdpa": run_sdpa, "naive": run_naive}


def needs_grad(*tensors):
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def under_autocast(*tensors):
    """Under torch.autocast, floating tensors in its dtype, as scaled_dot_product_attention gets them."""
    device = getattr(getattr(tensors[0], "device", None), "type", None)
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x.to(dtype) if torch.is_tensor(x) and x.dtype in DTYPES else x for x in tensors)


def check_tensors(q, k, v):
    """Raise TypeError or ValueError unless q, k and v are one attention problem."""
    named = (("q", q), ("k", k), ("v", v))
    for name, x in named:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"expected {name} to be a torch tensor, got {type(x).__name__}")
        if x.dim() != 4:
            raise ValueError(f"expected {name} to be [batch, heads, rows, D], got shape {list(x.shape)}")
    for _, x in named:
        if x.dtype not in DTYPES:
            raise TypeError(
                f"expected float16, bfloat16 or float32, got {str(x.dtype).removeprefix('torch.')}"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"expected q, k and v of one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"expected q, k and v on one device, got {q.device}, {k.device} and {v.device}")
    (batch, heads, _, dim), (kv_batch, kv_heads, _, k_dim) = q.shape, k.shape
    if k_dim != dim or v.shape[-1] != dim:
        raise ValueError(f"expected q, k and v with the same D, got {dim}, {k_dim} and {v.shape[-1]}")
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got {list(k.shape)} and {list(v.shape)}")
    if batch != kv_batch:
        raise ValueError(f"expected q and k with the same batch size, got {batch} and {kv_batch}")
    if heads != kv_heads and (kv_heads == 0 or heads % kv_heads):
        raise ValueError(f"expected Hq to be a multiple of Hkv, got Hq = {heads} and Hkv = {kv_heads}")
    if dim == 0:
        raise ValueError("expected a head dim D of at least 1, got 0")


def causal_kind(causal):
    """None, "top-left" or "bottom-right". Raises ValueError for an unknown value."""
    if causal is False or causal is None:
        return None
    causal_offset(causal, 0, 0)
    return "top-left" if causal is True else causal


def check_scale(scale, dim):
    """The softmax scale as a float; None is 1/sqrt(D). 0 and negative numbers are numbers."""
    if scale is None:
        return default_scale(dim)
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise TypeError(f"expected scale to be a number or None, got {type(scale).__name__}")
    if not math.isfinite(scale):
        raise ValueError(f"expected a finite scale, got {scale}")
    return float(scale)


def check_dropout(p):
    if isinstance(p, bool) or not isinstance(p, Real):
        raise TypeError(f"expected dropout_p to be a number, got {type(p).__name__}")
    if not 0 <= p <= 1:
        raise ValueError(f"expected dropout_p from 0 to 1, got {p}")


def check_lengths(lengths, q, k):
    """key_lengths as int32 [B]. Values on a GPU are checked only with FLASHLAB_VALIDATE=1: it makes
    the host wait.
    """
    if not isinstance(lengths, torch.Tensor):
        raise TypeError(f"expected key_lengths to be a tensor of integers, got {type(lengths).__name__}")
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"expected key_lengths to be int32 or int64, got {lengths.dtype}")
    if lengths.shape != q.shape[:1]:
        raise ValueError(f"expected key_lengths to be [{q.shape[0]}], got shape {list(lengths.shape)}")
    if lengths.device != q.device:
        raise ValueError(f"expected key_lengths on {q.device}, got {lengths.device}")
    look = lengths.device.type == "cpu" or os.environ.get("FLASHLAB_VALIDATE") == "1"
    if look and lengths.numel() and not torch.compiler.is_compiling():
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > k.shape[2]:
            raise ValueError(f"expected key_lengths from 0 to Nk = {k.shape[2]}, got {low} to {high}")
    return lengths.to(torch.int32)
