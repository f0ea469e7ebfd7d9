"""The public attention calls: they check their inputs, choose a backend and call it.

What each backend of `attention` does, and the two calls that take none (fa2's kernels):

    feature                    fa1   fa2   fa3   sdpa  naive  attention_varlen  decode_attention
    causal top-left            yes   yes   yes   yes   yes    yes               no
    causal bottom-right        yes   yes   yes   no    yes    yes               yes
    Nq != Nk                   yes   yes   yes   yes   yes    yes               yes
    scale of 0 or below        yes   yes   yes   no    yes    yes               yes
    rows without any key       yes   yes   yes   no    yes    yes               yes
    Hq a multiple of Hkv       yes   yes   yes   yes   yes    yes               yes
    D > 256                    no    no    no    yes   yes    no                no
    key_lengths                no    yes   no    no    yes    no                no
    dropout                    no    yes   no    no    yes    no                no
    return_lse                 yes   yes   yes   no    yes    yes               yes
    gradients                  yes   yes   yes   yes   yes    yes               no
    gradient through lse       yes   yes   yes   no    yes    yes               no
    gradient of gradients      no    no    no    -     yes    no                no
    forward-mode derivative    no    no    no    -     yes    no                no
    without Triton             no    no    no    yes   yes    no                yes
    CPU tensors                yes   yes   no    yes   yes    yes               yes
    CUDA tensors               yes   yes   yes   yes   yes    yes               yes

A "no" raises (NotImplementedError, ValueError, TypeError or, for gradients and Triton, RuntimeError). "-" is
up to PyTorch. attention_varlen has a length for each sequence anyway, decode_attention has cache_lengths; its
tokens are the last ones, so its mask is always "bottom-right". fa3 is for Hopper GPUs (sm_90) and 16-bit
tensors with D a multiple of 8 that TMA can move (under torch.compile it copies the others); up to D 128 it
has a backward of its own, beyond that and under torch.compile fa2's. "auto" takes fa3 where it supports the
call (unless AUTO_TAKES_FA3 is False), else fa2 for CUDA tensors of sm_80 and later with D up to 256;
everywhere else sdpa, or naive for what sdpa lacks. Only a backend that is named is interpreted: fa1 and fa2
on CPU tensors.

A backend is a function (q, k, v, call) -> (o, lse), where lse may be None if the call does not ask for it.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from flashlab.arguments import (
    causal_kind,
    check_dropout,
    check_lengths,
    check_scale,
    check_seed,
    check_tensors,
    under_autocast,
)
from flashlab.errors import unknown_name
from flashlab.philox import dropout_mask

BACKENDS = ("auto", "fa1", "fa2", "fa3", "sdpa", "naive")
MAX_HEAD_DIM = 256  # of the kernels

AUTO_TAKES_FA3 = True  # where it supports the call; measured beside fa2: bench/recorded/h200_hopper.json


class Call(NamedTuple):
    """What is asked for, after the checks: causal is None, "top-left" or "bottom-right"."""

    causal: str | None
    scale: float
    key_lengths: Tensor | None
    dropout_p: float
    seed: Tensor | None
    need_lse: bool


def attention(
    q, k, v, *, causal=False, scale=None, dropout_p=0.0, seed=None, key_lengths=None, backend="auto",
    return_lse=False, **masks,
):  # fmt: skip
    """softmax(scale * Q K^T) V. q [B, Hq, Nq, D], k and v [B, Hkv, Nk, D] -> o [B, Hq, Nq, D] in q's dtype.

    fp16, bf16 or fp32, any strides, Hq a multiple of Hkv. With `return_lse` also lse [B, Hq, Nq] fp32, the
    natural log of each row's sum of exp(scores).

    causal: False; True or "top-left" (row i sees keys j <= i); "bottom-right" (j <= i + Nk - Nq).
    scale: any number, default 1/sqrt(D).
    key_lengths: integers [B]; keys from there on are padding, and "bottom-right" is aligned to them.
    dropout_p, seed: the share of weights that is dropped; an int or int64 tensor that repeats the choice.
    backend: "auto"; "fa2" or "fa1", our kernels (CPU tensors interpreted, CUDA tensors compiled); "fa3", our
    kernel for Hopper; "sdpa", PyTorch's; "naive", the whole score matrix in fp32. "auto" is "fa3" where that
    does the call, else "fa2" on NVIDIA GPUs of sm_80 and later, else "sdpa", or "naive" for what that lacks.
    The table in flashlab.ops says what each of them does.

    A row that sees no key gives o = 0 and lse = -inf. A nan in V also reaches rows that do not see it but
    share a tile with one that does.

    Raises TypeError (dtypes, masks) or ValueError (shapes, devices, values, names) for what does not fit, and
    NotImplementedError for what a backend does not do.
    """
    if masks:
        raise TypeError(
            f"attention() takes no {', '.join(masks)}: arbitrary masks and biases are not offered. For "
            "padding use key_lengths, or flashlab.attention_varlen on packed sequences; for other masks "
            "PyTorch's scaled_dot_product_attention (sdpa)"
        )
    q, k, v = under_autocast(q, k, v)
    check_tensors(q, k, v)
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    call = Call(
        causal_kind(causal),
        check_scale(scale, q.shape[-1]),
        None if key_lengths is None else check_lengths(key_lengths, q, k),
        check_dropout(dropout_p),
        check_seed(seed, q.device) if dropout_p else None,
        return_lse,
    )
    o, lse = RUN[choose(q, k, call, v) if backend == "auto" else backend](q, k, v, call)
    return (o, lse) if return_lse else o


def choose(q, k, call, v=None):
    """The backend that "auto" stands for. Never the interpreter: that is for learning, not for speed."""
    if AUTO_TAKES_FA3 and v is not None and fa3_lacks(q, k, v, call) is None:
        return "fa3"
    if q.device.type == "cuda" and q.shape[-1] <= MAX_HEAD_DIM:
        if torch.cuda.get_device_capability(q.device) >= (8, 0):
            return "fa2"
    return "naive" if sdpa_lacks(k, call) else "sdpa"


def sdpa_lacks(k, call):
    """What PyTorch's scaled_dot_product_attention cannot express of a call, in words; None if it can."""
    if call.need_lse:
        return "return_lse"
    if call.key_lengths is not None:
        return "key_lengths"
    if call.dropout_p:
        return "dropout that a seed repeats"
    if call.causal == "bottom-right":
        return 'causal="bottom-right"'
    if call.scale <= 0:  # it masks before it scales: -inf * 0 is nan
        return "scale of 0 or below"
    return "rows without any key" if k.shape[2] == 0 else None


def run_sdpa(q, k, v, call):
    lacks = sdpa_lacks(k, call)
    if lacks:
        raise NotImplementedError(f"backend 'sdpa' has no {lacks}: use 'fa2' or 'naive'")
    if call.causal:  # keys that no row may see must not matter, not even if they are nan
        k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
    how = dict(is_causal=call.causal is not None, scale=call.scale, enable_gqa=q.shape[1] != k.shape[1])
    return scaled_dot_product_attention(q, k, v, **how), None


def run_naive(q, k, v, call):
    """The formula: the whole [Nq, Nk] matrix, in fp32, differentiated by autograd."""
    num_queries, num_keys = q.shape[2], k.shape[2]
    group = q.shape[1] // max(k.shape[1], 1)
    k, v = (x.float().repeat_interleave(group, 1) for x in (k, v))
    rows = torch.arange(num_queries, device=q.device)[:, None]
    keys = torch.arange(num_keys, device=q.device)[None, :]
    lengths = num_keys if call.key_lengths is None else call.key_lengths[:, None, None, None]
    see = (keys < lengths) & (rows >= 0)  # [Nq, Nk], or [B, 1, Nq, Nk] with key_lengths
    if call.causal:
        see = see & (keys <= rows + (lengths - num_queries if call.causal == "bottom-right" else 0))
    k, v = (torch.where(see.any(-2)[..., None], x, 0.0) for x in (k, v))  # 0 * nan is nan
    scores = (q.float() @ k.mT * call.scale).masked_fill(~see, -math.inf)
    row_max = scores.detach().amax(-1, keepdim=True) if num_keys else scores.new_zeros(*q.shape[:3], 1)
    row_max = row_max.masked_fill(row_max == -math.inf, 0.0)
    p = torch.exp(scores - row_max)
    row_sum = p.sum(-1, keepdim=True)
    empty = row_sum == 0
    row_sum = row_sum.masked_fill(empty, 1.0)
    lse = (row_max + row_sum.log()).masked_fill(empty, -math.inf)[..., 0]
    if call.dropout_p:
        keep = dropout_mask(call.seed, *scores.shape, call.dropout_p)
        p = torch.where(keep, p / (1 - call.dropout_p if call.dropout_p < 1 else 1), 0.0)
    return (p @ v / row_sum).to(q.dtype), lse


def run_fa1(q, k, v, call):
    from flashlab import library

    for given, name in ((call.key_lengths is not None, "key_lengths"), (call.dropout_p, "dropout")):
        if given:
            raise NotImplementedError(f"backend 'fa1' has no {name}: use 'fa2' or 'naive'")
    check_head_dim(q)
    library.refuse_tangents(q, k, v)
    return library.fa1(q, k, v, call.causal or "", call.scale)


def run_fa2(q, k, v, call):
    from flashlab import library

    check_head_dim(q)
    library.refuse_tangents(q, k, v)
    return library.run_fa2(
        q, k, v, call.key_lengths, call.seed, call.causal or "", call.scale, float(call.dropout_p)
    )


def check_head_dim(q):
    if q.shape[-1] > MAX_HEAD_DIM:
        raise ValueError(
            f"the kernels take head dims 1 to {MAX_HEAD_DIM}, got {q.shape[-1]}: use 'sdpa' or 'naive'"
        )


def run_fa3(q, k, v, call):
    from flashlab import library

    lacks = fa3_lacks(q, k, v, call)
    if lacks:
        raise NotImplementedError(f"backend 'fa3' {lacks}: use 'fa2', 'sdpa' or 'naive'")
    library.refuse_tangents(q, k, v)
    return library.run_fa3(q, k, v, call.causal or "", call.scale)


def fa3_lacks(q, k, v, call):
    """Why backend "fa3" does not do a call, as the end of a sentence; None if it does."""
    if q.device.type != "cuda" or torch.cuda.get_device_capability(q.device) != (9, 0):
        where = torch.cuda.get_device_name(q.device) if q.device.type == "cuda" else f"the {q.device.type}"
        return f"runs on Hopper GPUs only (sm_90: H100, H200), these tensors are on {where}"
    for given, name in ((call.key_lengths is not None, "key_lengths"), (call.dropout_p, "dropout")):
        if given:
            return f"has no {name}"
    from flashlab import library
    from flashlab.kernels import require_triton

    traced = library.is_traced(q)  # then it has no address, and the operator copies what TMA cannot move
    if not traced:
        require_triton()
    from flashlab.kernels import hopper_host

    lacks = hopper_host.lacks_kind(q) if traced else hopper_host.lacks(q, k, v)
    return lacks and f"has no {lacks}"


RUN = {"fa1": run_fa1, "fa2": run_fa2, "fa3": run_fa3, "sdpa": run_sdpa, "naive": run_naive}
