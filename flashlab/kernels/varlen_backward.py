"""The backward of `varlen`: dK and dV by key blocks, dQ by query blocks, as in `fa2_backward`, of which it
uses the updates. delta needs no kernel of its own: to it a packed tensor is a batch of one.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.fa2_backward import add_key_block, add_query_block, log2_sum
from flashlab.kernels.launch import LOG2_E, config_for, constants, launch, must_upcast, tiles
from flashlab.kernels.primitives import (
    diagonal,
    key_range,
    load_row_numbers,
    load_tile,
    row_range,
    store_tile,
)
from flashlab.kernels.varlen import as_batch, grid, my_rows, my_slot, outside, span, store_zeros


@triton.jit(do_not_specialize=["num_sequences", "total_queries", "total_keys"])
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, cu_seqlens_q_ptr, cu_seqlens_k_ptr,
    q_strides, k_strides, v_strides, do_strides, dk_strides, dv_strides,
    group, num_sequences, total_queries, total_keys, qk_scale, scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key block of one sequence, summed over the query heads that share it."""
    slot, kv_head = my_slot(total_keys, num_sequences, BLOCK_K, False)
    batch = kv_head * 0
    some, rows, mask = outside(cu_seqlens_k_ptr, slot, num_sequences, total_keys, BLOCK_K)
    if some:
        store_zeros(dk_ptr, dk_strides, batch, kv_head, slot * BLOCK_K, mask, DIM, BLOCK_K, BLOCK_D)
        store_zeros(dv_ptr, dv_strides, batch, kv_head, slot * BLOCK_K, mask, DIM, BLOCK_K, BLOCK_D)
    sequence, key_start, key_end, block = my_rows(cu_seqlens_k_ptr, slot, num_sequences, total_keys, BLOCK_K)
    first_key = key_start + block * BLOCK_K
    if first_key >= key_end:
        return
    row_start, row_end = span(cu_seqlens_q_ptr, sequence, total_queries)
    num_queries, num_keys = row_end - row_start, key_end - key_start
    shift = diagonal(num_queries, num_keys, CAUSAL)
    start, full = row_range(block * BLOCK_K, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
    start, full = row_start + start, row_start + full
    shift += key_start - row_start
    keys = first_key + tl.arange(0, BLOCK_K)
    # [BLOCK_K, BLOCK_D]
    k = load_tile(k_ptr, k_strides, batch, kv_head, first_key, key_end, DIM, BLOCK_K, BLOCK_D, "inside")
    v = load_tile(v_ptr, v_strides, batch, kv_head, first_key, key_end, DIM, BLOCK_K, BLOCK_D, "inside")
    dk = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    for member in range(0, group):
        head = kv_head * group + member
        # lse and delta are [heads, total]
        lse_of_head, delta_of_head = lse_ptr + head * total_queries, delta_ptr + head * total_queries
        if CAUSAL is not None:
            for first in tl.range(start, full, BLOCK_Q):
                dk, dv = add_query_block(
                    dk, dv, k, v, keys, None, 0,
                    q_ptr, do_ptr, lse_of_head, delta_of_head, q_strides, do_strides,
                    batch, head, first, row_end, key_end, shift, qk_scale,
                    DIM, BLOCK_Q, BLOCK_D, CAUSAL, True, PRECISION,
                )  # fmt: skip
        for first in tl.range(full, row_end, BLOCK_Q):
            dk, dv = add_query_block(
                dk, dv, k, v, keys, None, 0,
                q_ptr, do_ptr, lse_of_head, delta_of_head, q_strides, do_strides,
                batch, head, first, row_end, key_end, shift, qk_scale,
                DIM, BLOCK_Q, BLOCK_D, CAUSAL, False, PRECISION,
            )  # fmt: skip
    # found once more: numbers kept through the loops would not fit into the registers
    _, key_start, key_end, block = my_rows(cu_seqlens_k_ptr, slot, num_sequences, total_keys, BLOCK_K)
    first_key = key_start + block * BLOCK_K
    store_tile(dk_ptr, dk_strides, batch, kv_head, first_key, key_end, dk * scale, DIM, BLOCK_K, BLOCK_D)
    store_tile(dv_ptr, dv_strides, batch, kv_head, first_key, key_end, dv, DIM, BLOCK_K, BLOCK_D)


@triton.jit(do_not_specialize=["num_sequences", "total_queries", "total_keys"])
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, cu_seqlens_q_ptr, cu_seqlens_k_ptr,
    q_strides, k_strides, v_strides, do_strides, dq_strides,
    group, num_sequences, total_queries, total_keys, qk_scale, scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of one query block of one sequence and head: the forward's loop over key blocks once more."""
    slot, head = my_slot(total_queries, num_sequences, BLOCK_Q, CAUSAL is not None)
    batch = head * 0
    some, rows, mask = outside(cu_seqlens_q_ptr, slot, num_sequences, total_queries, BLOCK_Q)
    if some:
        store_zeros(dq_ptr, dq_strides, batch, head, slot * BLOCK_Q, mask, DIM, BLOCK_Q, BLOCK_D)
    sequence, row_start, row_end, block = my_rows(
        cu_seqlens_q_ptr, slot, num_sequences, total_queries, BLOCK_Q
    )
    row = row_start + block * BLOCK_Q
    if row >= row_end:
        return
    key_start, key_end = span(cu_seqlens_k_ptr, sequence, total_keys)
    num_queries, num_keys = row_end - row_start, key_end - key_start
    shift = diagonal(num_queries, num_keys, CAUSAL)
    full, end = key_range(block, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
    full, end = key_start + full, key_start + end
    shift += key_start - row_start
    rows = row + tl.arange(0, BLOCK_Q)
    # [BLOCK_Q, BLOCK_D]
    q = load_tile(q_ptr, q_strides, batch, head, row, row_end, DIM, BLOCK_Q, BLOCK_D, "inside")
    do = load_tile(do_ptr, do_strides, batch, head, row, row_end, DIM, BLOCK_Q, BLOCK_D, "inside")
    # [BLOCK_Q]
    lse = log2_sum(lse_ptr + head * total_queries, 0, row, row_end, BLOCK_Q)
    delta = load_row_numbers(delta_ptr + head * total_queries, 0, row, row_end, BLOCK_Q, 0.0)
    dq = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for first in tl.range(key_start, full, BLOCK_K):
        dq = add_key_block(
            dq, q, do, lse, delta, rows, None, 0,
            k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
            DIM, BLOCK_K, BLOCK_D, CAUSAL, False, PRECISION,
        )  # fmt: skip
    for first in tl.range(full, end, BLOCK_K):
        dq = add_key_block(
            dq, q, do, lse, delta, rows, None, 0,
            k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
            DIM, BLOCK_K, BLOCK_D, CAUSAL, True, PRECISION,
        )  # fmt: skip
    store_tile(dq_ptr, dq_strides, batch, head, row, row_end, dq * scale, DIM, BLOCK_Q, BLOCK_D)


def by_head(rows):
    """Numbers of rows [total, heads] in the kernels' order [heads, total]; no copy if a kernel made them."""
    return rows.transpose(0, 1).contiguous()


def backward_kv(q, k, v, do, lse, delta, cu_seqlens_q, cu_seqlens_k, *, causal=None, scale, config=None):
    """dk and dv, shaped and typed like k and v. Arguments as `forward`; lse and delta [total_q, Hq] fp32."""
    how = dict(causal=causal, scale=scale, config=config)
    if must_upcast(q):
        wide = (x.float() for x in (q, k, v, do))
        dk, dv = backward_kv(*wide, lse, delta, cu_seqlens_q, cu_seqlens_k, **how)
        return dk.to(k.dtype), dv.to(v.dtype)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    if cu_seqlens_k.shape[0] == 1:
        return dk.zero_(), dv.zero_()
    if dk.numel() == 0:
        return dk, dv
    (total_q, heads, _), (total_k, kv_heads) = q.shape, k.shape[:2]
    config = config or config_for(q, "dkdv packed")
    launch(
        dkdv_kernel, grid(total_k, config.block_k, cu_seqlens_k, kv_heads),
        q, k, v, do, dk, dv, by_head(lse), by_head(delta), cu_seqlens_q, cu_seqlens_k,
        *(as_batch(x).stride() for x in (q, k, v, do, dk, dv)),
        heads // kv_heads, cu_seqlens_q.shape[0] - 1, total_q, total_k, scale * LOG2_E, scale,
        CAUSAL=causal, config=config, **constants(q, config),
    )  # fmt: skip
    return dk, dv


def backward_q(q, k, v, do, lse, delta, cu_seqlens_q, cu_seqlens_k, *, causal=None, scale, config=None):
    """dq, shaped and typed like q. Arguments as `backward_kv`."""
    how = dict(causal=causal, scale=scale, config=config)
    if must_upcast(q):
        wide = (x.float() for x in (q, k, v, do))
        return backward_q(*wide, lse, delta, cu_seqlens_q, cu_seqlens_k, **how).to(q.dtype)
    dq = torch.empty_like(q)
    if cu_seqlens_q.shape[0] == 1:
        return dq.zero_()
    if dq.numel() == 0:
        return dq
    (total_q, heads, _), (total_k, kv_heads) = q.shape, k.shape[:2]
    config = config or config_for(q, "dq packed")
    of_rows, of_keys = config.block_q, config.block_k
    args, strides = zip(
        *tiles(
            config, q=(as_batch(q), of_rows), k=(as_batch(k), of_keys), v=(as_batch(v), of_keys),
            do=(as_batch(do), of_rows),
        ),
        strict=True,
    )  # fmt: skip
    launch(
        dq_kernel, grid(total_q, config.block_q, cu_seqlens_q, heads),
        *args, dq, by_head(lse), by_head(delta), cu_seqlens_q, cu_seqlens_k, *strides, as_batch(dq).stride(),
        heads // kv_heads, cu_seqlens_q.shape[0] - 1, total_q, total_k, scale * LOG2_E, scale,
        CAUSAL=causal, config=config, **constants(q, config),
    )  # fmt: skip
    return dq
