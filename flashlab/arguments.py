"""Checks of what attention calls are given: TypeError or ValueError says what was expected and what came."""

import math
import os
from numbers import Real

import torch

from flashlab.problem import causal_offset, default_scale

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


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
    return float(p)


def check_lengths(lengths, q, k):
    """key_lengths as int32 [B]. On a GPU values are checked with FLASHLAB_VALIDATE=1 only: the host waits."""
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


def check_seed(seed, device):
    """The dropout seed as an int64 tensor [1] on `device`; None draws one from torch's generator."""
    if seed is None:
        return torch.randint(0, 2**63 - 1, (1,), device=device)
    if isinstance(seed, torch.Tensor):
        if seed.dtype != torch.int64 or seed.numel() != 1:
            raise TypeError(f"expected seed to be one int64, got {seed.dtype} {list(seed.shape)}")
        if seed.device != device:
            raise ValueError(f"expected seed on {device}, got {seed.device}")
        return seed.reshape(1)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"expected seed to be an int, an int64 tensor or None, got {type(seed).__name__}")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"expected seed to fit into 64 bits, got {seed}")
    return torch.tensor([seed if seed < 2**63 else seed - 2**64], device=device)
