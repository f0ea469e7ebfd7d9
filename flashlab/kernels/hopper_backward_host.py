"""The host's side of `hopper_backward`: what it supports, configurations, launches."""

from typing import NamedTuple

import torch

from flashlab.kernels import hopper_backward, hopper_backward_dq, launch
from flashlab.kernels.hopper_host import ROWS, describe, lacks, movable, tile_width


class Config(NamedTuple):
    """Rows of a tile of the two rings (queries for dK and dV, keys for dQ), their stages, the producer's
    warps.
    """

    block: int
    num_stages: int = 2
    num_warps: int = 4


# (pass, tile width): what compiles without spills; three stages were slower on the H200 (TUNING.md)
CONFIGS = {
    ("dkdv", 64): Config(64, 2), ("dkdv", 128): Config(64, 2),
    ("dq", 64): Config(128, 2), ("dq", 128): Config(128, 2),
}  # fmt: skip


def lacks_backward(q, k, v):
    """What of these tensors the backward kernels do not support, in words; None if they support them."""
    if q.shape[-1] > 128:
        return (
            f"backward for head dim {q.shape[-1]}: it has up to 128 (dK and dV of 64 keys take one register "
            "a thread for each column, and a consumer has 240)"
        )
    return lacks(q, k, v)


def backward_kv(q, k, v, do, lse, delta, *, causal=None, scale, config=None):
    """dk and dv, shaped and typed like k and v [B, Hkv, Nk, D].

    q and do [B, Hq, Nq, D], lse and delta [B, Hq, Nq] fp32 (`fa2_backward.delta`); fp16 or bf16, D a multiple
    of 8 up to 128, tensors that TMA can describe (do is copied if it is not one). `causal` is None,
    "top-left" or "bottom-right"; `config` a Config. Raises NotImplementedError for what `lacks_backward`
    names.
    """
    do = ready(q, k, v, do)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    if q.numel() == 0 or k.numel() == 0:
        return dk.zero_(), dv.zero_()
    inner = cut(q, k, v, causal)
    num_keys, (heads, num_queries, dim) = inner[0].shape[2], q.shape[1:]
    batch, kv_heads = k.shape[:2]
    if num_keys < k.shape[2]:  # keys that no row may see
        dk[:, :, num_keys:], dv[:, :, num_keys:] = 0, 0
    config = config or CONFIGS["dkdv", tile_width(dim)]
    launch.launch(
        hopper_backward.dkdv_kernel, (-(-num_keys // (2 * ROWS)) * batch * kv_heads,),
        describe(q, config.block), *(describe(x, ROWS) for x in inner), describe(do, config.block),
        describe(dk[:, :, :num_keys], ROWS), describe(dv[:, :, :num_keys], ROWS), lse, delta,
        kv_heads, heads // kv_heads, num_queries, num_keys,
        num_keys - num_queries if causal == "bottom-right" else 0, float(scale) * launch.LOG2_E,
        BLOCK_Q=config.block, BLOCK_D=tile_width(dim), STAGES=config.num_stages, CAUSAL=causal is not None,
        config=config,
    )  # fmt: skip
    return dk, dv


def backward_q(q, k, v, do, lse, delta, *, causal=None, scale, config=None):
    """dq, shaped and typed like q. Arguments as `backward_kv`."""
    do = ready(q, k, v, do)
    dq = torch.empty_like(q)
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_()
    k, v = cut(q, k, v, causal)
    (batch, heads, num_queries, dim), (kv_heads, num_keys) = q.shape, k.shape[1:3]
    config = config or CONFIGS["dq", tile_width(dim)]
    launch.launch(
        hopper_backward_dq.dq_kernel, (-(-num_queries // (2 * ROWS)) * batch * heads,),
        describe(q, ROWS), describe(k, config.block), describe(v, config.block), describe(do, ROWS),
        describe(dq, ROWS), lse, delta,
        heads, heads // kv_heads, num_queries, num_keys,
        num_keys - num_queries if causal == "bottom-right" else 0, float(scale) * launch.LOG2_E,
        BLOCK_K=config.block, BLOCK_D=tile_width(dim), STAGES=config.num_stages, CAUSAL=causal is not None,
        EDGE=causal is not None or num_keys % config.block != 0,
        config=config,
    )  # fmt: skip
    return dq


def ready(q, k, v, do):
    """do as TMA can read it (autograd hands in expanded gradients, too)."""
    missing = lacks_backward(q, k, v)
    if missing:
        raise NotImplementedError(f"backend 'fa3' has no {missing}")
    return movable(do)


def cut(q, k, v, causal):
    """k and v without the keys that no row may see."""
    return (k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]) if causal == "top-left" else (k, v)
