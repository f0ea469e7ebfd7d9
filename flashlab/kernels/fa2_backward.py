"""FlashAttention-2 backward (arXiv 2307.08691, Algorithm 2) in Triton, in two passes.

The algorithm recomputes P from Q, K and lse, one tile at a time. It is written with key blocks in the outer
loop, and adds to dQ in HBM from every one of them. Here dK and dV are made that way, by one program for each
key block, and dQ in a second pass, by one program for each query block, which computes S and dP once more: 7
matrix products instead of 5, but no atomic additions, so that two runs give the same bits.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.launch import LOG2_E, config_for, constants, launch, must_upcast, tiles
from flashlab.kernels.primitives import (
    diagonal,
    drop,
    key_range,
    keys_of,
    load_row_numbers,
    load_tile,
    my_block,
    row_range,
    store_tile,
    visible,
)  # fmt: skip

LOG2_E_ = tl.constexpr(LOG2_E)


@triton.jit
def delta_kernel(
    o_ptr, do_ptr, dlse_ptr, delta_ptr, o_strides, do_strides, num_heads, num_queries,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """delta = rowsum(dO * O) - dlse for one query block; dlse is the gradient of lse, if there is one."""
    # FA2 Alg. 2, lines 1-3: this program is query block i of one head
    block, batch, head = my_block(num_queries, num_heads, BLOCK_Q, False)
    first = block * BLOCK_Q
    batch_head = batch * num_heads + head
    # [BLOCK_Q, BLOCK_D]
    o = load_tile(o_ptr, o_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    do = load_tile(do_ptr, do_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    # FA2 Alg. 2, line 4: D = rowsum(dO * O), written to HBM
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # [BLOCK_Q]
    if dlse_ptr is not None:  # dS = P * (dP - delta + dlse)
        delta -= load_row_numbers(dlse_ptr, batch_head, first, num_queries, BLOCK_Q, 0.0)
    rows = first + tl.arange(0, BLOCK_Q)
    tl.store(delta_ptr + batch_head * num_queries + rows, delta, mask=rows < num_queries)


@triton.jit
def log2_sum(lse_ptr, batch_head, first, num_queries, BLOCK_Q: tl.constexpr):
    """lse in units of log2 [BLOCK_Q]; +inf, which makes P = 0, for rows beyond the end or without a key."""
    lse = load_row_numbers(lse_ptr, batch_head, first, num_queries, BLOCK_Q, float("inf"))
    return tl.where(lse == float("-inf"), float("inf"), lse * LOG2_E_)


@triton.jit
def add_query_block(
    dk, dv, k, v, keys, dropout, batch_head,
    q_ptr, do_ptr, lse_ptr, delta_ptr, q_strides, do_strides, batch, head, first, num_queries,
    num_keys, shift, qk_scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What query block `first` adds to dk and dv of a key block. Scores stand transposed: [keys, rows]."""
    # FA2 Alg. 2, line 9: load Q_i, dO_i, L_i, D_i (the last two where they are needed: fewer registers)
    # [BLOCK_Q, BLOCK_D]
    q = load_tile(q_ptr, q_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    do = load_tile(do_ptr, do_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    rows = first + tl.arange(0, BLOCK_Q)
    # FA2 Alg. 2, line 10: S = Q_i K_j^T
    # [BLOCK_K, BLOCK_Q]
    scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
    # FA2 Alg. 2, line 11: P = exp(S - L_i)
    lse = log2_sum(lse_ptr, batch_head, first, num_queries, BLOCK_Q)  # [BLOCK_Q]
    p = tl.exp2(scores * qk_scale - lse[None, :])
    if MASKED:
        seen = visible(rows[None, :], keys[:, None], num_keys, shift, CAUSAL) & (rows < num_queries)[None, :]
        p = tl.where(seen, p, 0.0)
    # FA2 Alg. 2, line 12: dV_j += P^T dO_i
    kept = p
    if dropout is not None:
        kept = drop(p, dropout, batch_head, rows[None, :], keys[:, None])
    dv = tl.dot(kept.to(do.dtype), do, dv, input_precision=PRECISION)
    # FA2 Alg. 2, line 13: dP = dO_i V_j^T
    dp = tl.dot(v, tl.trans(do), input_precision=PRECISION)
    if dropout is not None:
        dp = drop(dp, dropout, batch_head, rows[None, :], keys[:, None])
    # FA2 Alg. 2, line 14: dS = P * (dP - D_i)
    delta = load_row_numbers(delta_ptr, batch_head, first, num_queries, BLOCK_Q, 0.0)  # [BLOCK_Q]
    ds = p * (dp - delta[None, :])
    if MASKED:
        ds = tl.where(seen, ds, 0.0)  # 0 * nan is nan
    # FA2 Alg. 2, line 16: dK_j += dS^T Q_i (line 15, dQ, is the second pass)
    dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["num_queries", "num_keys"])
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, key_lengths_ptr, dropout,
    q_strides, k_strides, v_strides, do_strides, dk_strides, dv_strides,
    num_kv_heads, group, num_queries, num_keys, qk_scale, scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key block, summed over the query heads that share it."""
    # FA2 Alg. 2, line 5: this program is key block j of one K/V head
    block, batch, kv_head = my_block(num_keys, num_kv_heads, BLOCK_K, False)
    first_key = block * BLOCK_K
    keys = first_key + tl.arange(0, BLOCK_K)
    own_keys = keys_of(batch, key_lengths_ptr, num_keys)
    shift = diagonal(num_queries, own_keys, CAUSAL)
    # FA2 Alg. 2, line 6: load K_j and V_j (padding may come along: its rows of dK and dV are put to 0 below)
    # [BLOCK_K, BLOCK_D]
    k = load_tile(k_ptr, k_strides, batch, kv_head, first_key, num_keys, DIM, BLOCK_K, BLOCK_D, "tensor")
    v = load_tile(v_ptr, v_strides, batch, kv_head, first_key, num_keys, DIM, BLOCK_K, BLOCK_D, "tensor")
    # FA2 Alg. 2, line 7: dK_j = 0, dV_j = 0
    dk = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    # FA2 Alg. 2, line 8: for all query blocks; first those that the diagonal crosses, then those below it
    start, full = row_range(first_key, num_queries, own_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
    for member in range(0, group):
        head = kv_head * group + member
        batch_head = batch * num_kv_heads * group + head
        if CAUSAL is not None:
            for first in tl.range(start, full, BLOCK_Q):
                dk, dv = add_query_block(
                    dk, dv, k, v, keys, dropout, batch_head,
                    q_ptr, do_ptr, lse_ptr, delta_ptr, q_strides, do_strides,
                    batch, head, first, num_queries, own_keys, shift, qk_scale,
                    DIM, BLOCK_Q, BLOCK_D, CAUSAL, True, PRECISION,
                )  # fmt: skip
        for first in tl.range(full, num_queries, BLOCK_Q):
            dk, dv = add_query_block(
                dk, dv, k, v, keys, dropout, batch_head,
                q_ptr, do_ptr, lse_ptr, delta_ptr, q_strides, do_strides,
                batch, head, first, num_queries, own_keys, shift, qk_scale,
                DIM, BLOCK_Q, BLOCK_D, CAUSAL, False, PRECISION,
            )  # fmt: skip
    # FA2 Alg. 2, lines 17-20: write dK_j and dV_j; padding has no gradient
    real = (keys < own_keys)[:, None]
    dk = tl.where(real, dk * scale, 0.0)
    dv = tl.where(real, dv, 0.0)
    store_tile(dk_ptr, dk_strides, batch, kv_head, first_key, num_keys, dk, DIM, BLOCK_K, BLOCK_D)
    store_tile(dv_ptr, dv_strides, batch, kv_head, first_key, num_keys, dv, DIM, BLOCK_K, BLOCK_D)


@triton.jit
def add_key_block(
    dq, q, do, lse, delta, rows, dropout, batch_head,
    k_ptr, v_ptr, k_strides, v_strides, batch, kv_head, first, end, shift, qk_scale,
    DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What key block `first` adds to dq of a query block."""
    EDGE: tl.constexpr = "inside" if MASKED else None
    # [BLOCK_K, BLOCK_D]
    k = load_tile(k_ptr, k_strides, batch, kv_head, first, end, DIM, BLOCK_K, BLOCK_D, EDGE)
    v = load_tile(v_ptr, v_strides, batch, kv_head, first, end, DIM, BLOCK_K, BLOCK_D, EDGE)
    keys = first + tl.arange(0, BLOCK_K)
    # [BLOCK_Q, BLOCK_K]: S, P, dP and dS as in the first pass
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    p = tl.exp2(scores * qk_scale - lse[:, None])
    dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
    if dropout is not None:
        dp = drop(dp, dropout, batch_head, rows[:, None], keys[None, :])
    ds = p * (dp - delta[:, None])
    if MASKED:
        ds = tl.where(visible(rows[:, None], keys[None, :], end, shift, CAUSAL), ds, 0.0)
    # FA2 Alg. 2, line 15, in a second pass (deviation): dQ_i += dS K_j
    return tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)


@triton.jit(do_not_specialize=["num_queries", "num_keys"])
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, key_lengths_ptr, dropout,
    q_strides, k_strides, v_strides, do_strides, dq_strides,
    num_heads, group, num_queries, num_keys, qk_scale, scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of one query block: the forward's loop over key blocks once more."""
    block, batch, head = my_block(num_queries, num_heads, BLOCK_Q, CAUSAL is not None)
    batch_head = batch * num_heads + head
    num_keys = keys_of(batch, key_lengths_ptr, num_keys)
    shift = diagonal(num_queries, num_keys, CAUSAL)
    row = block * BLOCK_Q
    rows = row + tl.arange(0, BLOCK_Q)
    # [BLOCK_Q, BLOCK_D]
    q = load_tile(q_ptr, q_strides, batch, head, row, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    do = load_tile(do_ptr, do_strides, batch, head, row, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    # [BLOCK_Q]
    lse = log2_sum(lse_ptr, batch_head, row, num_queries, BLOCK_Q)
    delta = load_row_numbers(delta_ptr, batch_head, row, num_queries, BLOCK_Q, 0.0)
    dq = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    full, end = key_range(block, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
    for first in tl.range(0, full, BLOCK_K):
        dq = add_key_block(
            dq, q, do, lse, delta, rows, dropout, batch_head,
            k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
            DIM, BLOCK_K, BLOCK_D, CAUSAL, False, PRECISION,
        )  # fmt: skip
    for first in tl.range(full, end, BLOCK_K):
        dq = add_key_block(
            dq, q, do, lse, delta, rows, dropout, batch_head,
            k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
            DIM, BLOCK_K, BLOCK_D, CAUSAL, True, PRECISION,
        )  # fmt: skip
    store_tile(dq_ptr, dq_strides, batch, head, row, num_queries, dq * scale, DIM, BLOCK_Q, BLOCK_D)


def delta(o, do, dlse=None):
    """rowsum(dO * O) - dlse, fp32 [B, Hq, Nq], of o and do [B, Hq, Nq, D] and dlse [B, Hq, Nq] or None."""
    if must_upcast(o):
        o, do = o.float(), do.float()
    batch, heads, num_queries, dim = o.shape
    result = torch.empty((batch, heads, num_queries), dtype=torch.float32, device=o.device)
    if result.numel() == 0:
        return result
    config = config_for(o)._replace(block_q=64, num_warps=4)
    sizes = {name: constants(o, config)[name] for name in ("DIM", "BLOCK_Q", "BLOCK_D")}
    launch(
        delta_kernel, (-(-num_queries // config.block_q) * batch * heads,),
        o, do, None if dlse is None else dlse.contiguous(), result, o.stride(), do.stride(), heads,
        num_queries,
        config=config, **sizes,
    )  # fmt: skip
    return result


def backward_kv(q, k, v, do, lse, delta, *, causal=None, scale, key_lengths=None, dropout=None, config=None):
    """dk and dv, shaped and typed like k and v. Arguments as `fa2.forward`; lse, delta [B, Hq, Nq] fp32."""
    how = dict(causal=causal, scale=scale, key_lengths=key_lengths, dropout=dropout, config=config)
    if must_upcast(q):
        dk, dv = backward_kv(*(x.float() for x in (q, k, v, do)), lse, delta, **how)
        return dk.to(k.dtype), dv.to(v.dtype)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    if dk.numel() == 0:
        return dk, dv
    (batch, kv_heads, num_keys, _), (heads, num_queries) = k.shape, q.shape[1:3]
    config = config or config_for(q, "dkdv")
    of_rows, of_keys = config.block_q, config.block_k
    moved = dict(q=(q, of_rows), k=(k, of_keys), v=(v, of_keys), do=(do, of_rows))
    args, strides = zip(*tiles(config, **moved, dk=(dk, of_keys), dv=(dv, of_keys)), strict=True)
    launch(
        dkdv_kernel, (-(-num_keys // config.block_k) * batch * kv_heads,),
        *args, lse, delta, key_lengths, dropout, *strides,
        kv_heads, heads // kv_heads, num_queries, num_keys, scale * LOG2_E, scale,
        CAUSAL=causal, config=config, **constants(q, config),
    )  # fmt: skip
    return dk, dv


def backward_q(q, k, v, do, lse, delta, *, causal=None, scale, key_lengths=None, dropout=None, config=None):
    """dq, shaped and typed like q. Arguments as `backward_kv`."""
    how = dict(causal=causal, scale=scale, key_lengths=key_lengths, dropout=dropout, config=config)
    if must_upcast(q):
        return backward_q(*(x.float() for x in (q, k, v, do)), lse, delta, **how).to(q.dtype)
    dq = torch.empty_like(q)
    if dq.numel() == 0:
        return dq
    (batch, heads, num_queries, _), (kv_heads, num_keys) = q.shape, k.shape[1:3]
    config = config or config_for(q, "dq")
    of_rows, of_keys = config.block_q, config.block_k
    args, strides = zip(
        *tiles(config, q=(q, of_rows), k=(k, of_keys), v=(v, of_keys), do=(do, of_rows), dq=(dq, of_rows)),
        strict=True,
    )
    launch(
        dq_kernel, (-(-num_queries // config.block_q) * batch * heads,),
        *args, lse, delta, key_lengths, dropout, *strides,
        heads, heads // kv_heads, num_queries, num_keys, scale * LOG2_E, scale,
        CAUSAL=causal, config=config, **constants(q, config),
    )  # fmt: skip
    return dq
