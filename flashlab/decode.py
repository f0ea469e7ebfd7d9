"""flashlab.decode_attention: attention of a few new tokens to a long cache, as a PyTorch operator.

The kernel is `flashlab.kernels.decode`; here are the checks of its inputs and what torch.compile knows of it.
"""

import os

import torch
from torch import Tensor

from flashlab.arguments import DTYPES, check_scale, under_autocast
from flashlab.kernels import triton_version
from flashlab.library import is_traced, refuse_tangents

MAX_HEAD_DIM = 256
INTEGERS = (torch.int32, torch.int64)


def decode_attention(
    q, k_cache, v_cache, cache_lengths, *, block_table=None, num_splits=None, scale=None, return_lse=False
):
    """Attention of the last Nq tokens, q [B, Hq, Nq, D], to caches that hold them -> o [B, Hq, Nq, D].

    k_cache and v_cache: [B, Hkv, Nmax, D]; or pages [n_pages, page, Hkv, D], of which block_table [B, pages]
    int32 names those of each sequence in order. cache_lengths: int32 [B], tokens in each cache with the new
    ones; token i of q sees keys j <= i + length - Nq. fp16, bf16 or fp32, D from 1 to 256, any strides, Hq a
    multiple of Hkv. num_splits: into how many parts the keys are divided; None chooses from the shapes and
    the number of SMs. scale: any number, default 1/sqrt(D). With return_lse also lse [B, Hq, Nq] fp32, the
    natural log of each row's sum of exp(scores). A row that sees no key gives o = 0 and lse = -inf.

    Nothing behind a sequence's length matters: neither cache slots nor entries of the block table. Values of
    CUDA tensors are clamped in the kernel, and checked with FLASHLAB_VALIDATE=1 only, so that a call never
    waits for the GPU and can be captured in a CUDA graph. There is no gradient. Without Triton, PyTorch
    computes the formula.

    Raises TypeError (dtypes) or ValueError (shapes, devices, values).
    """
    q, k_cache, v_cache = under_autocast(q, k_cache, v_cache)
    check_cache(q, k_cache, v_cache, block_table is not None)
    check_integers("cache_lengths", cache_lengths, [q.shape[0]], q.device)
    if block_table is not None:
        check_integers("block_table", block_table, [q.shape[0], "pages"], q.device)
        block_table = block_table.to(torch.int32)
    if num_splits is not None and (isinstance(num_splits, bool) or not isinstance(num_splits, int)):
        raise TypeError(f"expected num_splits to be an int or None, got {type(num_splits).__name__}")
    if num_splits is not None and num_splits < 1:
        raise ValueError(f"expected num_splits of at least 1, got {num_splits}")
    scale = check_scale(scale, q.shape[-1])
    look = q.device.type == "cpu" or os.environ.get("FLASHLAB_VALIDATE") == "1"
    if look and not is_traced(q):
        check_values(k_cache, cache_lengths, block_table)
    tensors = q, k_cache, v_cache, cache_lengths.to(torch.int32), block_table
    wants_grad = torch.is_grad_enabled() and (
        q.requires_grad or k_cache.requires_grad or v_cache.requires_grad
    )
    refuse_tangents(q, k_cache, v_cache)
    run = decode if wants_grad or is_traced(q) else _decode
    o, lse = run(*tensors, num_splits or 0, scale)
    return (o, lse) if return_lse else o


def check_cache(q, k_cache, v_cache, paged):
    """Raise TypeError or ValueError unless q and the caches fit together."""
    cache = "[n_pages, page, Hkv, D]" if paged else "[B, Hkv, Nmax, D]"
    named = (("q", q, "[B, Hq, Nq, D]"), ("k_cache", k_cache, cache), ("v_cache", v_cache, cache))
    for name, x, form in named:
        if not isinstance(x, Tensor):
            raise TypeError(f"expected {name} to be a torch tensor, got {type(x).__name__}")
        if x.dtype not in DTYPES:
            got = str(x.dtype).removeprefix("torch.")
            raise TypeError(f"expected {name} to be float16, bfloat16 or float32, got {got}")
        if x.dim() != 4:
            raise ValueError(f"expected {name} to be {form}, got shape {list(x.shape)}")
        if x.dtype != q.dtype:
            raise TypeError(f"expected q and the caches of one dtype, got {q.dtype} and {x.dtype} ({name})")
        if x.device != q.device:
            raise ValueError(f"expected {name} on {q.device}, got {x.device}")
        if x.shape[-1] != q.shape[-1]:
            raise ValueError(f"expected {name} with the D of q, {q.shape[-1]}, got {x.shape[-1]}")
    if k_cache.shape != v_cache.shape:
        raise ValueError(f"expected caches of one shape, got {list(k_cache.shape)} and {list(v_cache.shape)}")
    if not 1 <= q.shape[-1] <= MAX_HEAD_DIM:
        raise ValueError(f"expected a head dim D from 1 to {MAX_HEAD_DIM}, got {q.shape[-1]}")
    if not paged and k_cache.shape[0] != q.shape[0]:
        raise ValueError(f"expected caches for {q.shape[0]} sequences, as q has, got {k_cache.shape[0]}")
    if paged and k_cache.shape[1] == 0:
        raise ValueError(f"expected pages of at least one slot, got caches of shape {list(k_cache.shape)}")
    heads, kv_heads = q.shape[1], k_cache.shape[2 if paged else 1]
    if heads != kv_heads and (kv_heads == 0 or heads % kv_heads):
        raise ValueError(f"expected Hq to be a multiple of Hkv, got Hq = {heads} and Hkv = {kv_heads}")


def check_integers(name, x, shape, device):
    """Raise TypeError or ValueError unless x is a tensor of integers on `device`, [B] or [B, any number]."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected {name} to be a tensor of integers, got {type(x).__name__}")
    if x.dtype not in INTEGERS:
        raise TypeError(f"expected {name} to be int32 (or int64), got {str(x.dtype).removeprefix('torch.')}")
    if x.dim() != len(shape) or x.shape[0] != shape[0]:
        raise ValueError(f"expected {name} to be [{', '.join(map(str, shape))}], got shape {list(x.shape)}")
    if x.device != device:
        raise ValueError(f"expected {name} on {device}, got {x.device}")


def check_values(k_cache, lengths, table):
    """Raise ValueError for lengths beyond the cache, or used entries of the block table that name no page."""
    if lengths.numel() == 0:
        return
    room = k_cache.shape[2] if table is None else table.shape[1] * k_cache.shape[1]
    low, high = int(lengths.min()), int(lengths.max())
    if low < 0 or high > room:
        raise ValueError(f"expected cache_lengths from 0 to {room}, got {low} to {high}")
    if table is None:
        return
    num_pages, page = k_cache.shape[:2]
    used = torch.arange(table.shape[1], device=table.device) * page < lengths[:, None]
    wrong = used & ((table < 0) | (table >= num_pages))
    if wrong.any():
        b, i = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"expected the used entries of block_table from 0 to {num_pages - 1}, got {int(table[b, i])} at "
            f"[{b}, {i}] (that sequence has {int(lengths[b])} tokens in pages of {page})"
        )


def _decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, cache_lengths: Tensor, block_table: Tensor | None,
    num_splits: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o [B, Hq, Nq, D] and lse [B, Hq, Nq] fp32; num_splits 0 means: choose."""
    if triton_version() is None:
        return formula(q, k_cache, v_cache, cache_lengths, block_table, scale)
    from flashlab.kernels.decode import decode as run

    how = dict(block_table=block_table, num_splits=num_splits or None, scale=scale)
    return run(q, k_cache, v_cache, cache_lengths, **how)


def formula(q, k_cache, v_cache, cache_lengths, block_table, scale):
    """The same by the formula, with the whole score matrix and, if paged, a dense copy of the cache."""
    from flashlab.ops import Call, run_naive

    if block_table is not None:
        pages = block_table.long().clamp(0, max(k_cache.shape[0] - 1, 0))
        pages = pages if k_cache.shape[0] else pages[:, :0]
        # [B, pages, page, Hkv, D] -> [B, Hkv, N, D]
        k_cache, v_cache = (x[pages].flatten(1, 2).transpose(1, 2) for x in (k_cache, v_cache))
    lengths = cache_lengths.clamp(0, k_cache.shape[2])
    o, lse = run_naive(q, k_cache, v_cache, Call("bottom-right", scale, lengths, 0.0, None, True))
    return o.contiguous(), lse


decode = torch.library.custom_op("flashlab::decode", _decode, mutates_args=())


@decode.register_fake
def _(q, k_cache, v_cache, cache_lengths, block_table, num_splits, scale):
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


def _no_gradient(ctx, *grads):
    raise RuntimeError("decode_attention has no gradient: use flashlab.attention with key_lengths to train")


decode.register_autograd(_no_gradient)
