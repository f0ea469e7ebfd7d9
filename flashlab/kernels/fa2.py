"""FlashAttention-2 (arXiv 2307.08691) in Triton.

Forward, Algorithm 1: one program for each query block. It keeps its rows' state (row_max, row_sum, acc) on
chip while the key blocks come by, divides once at the end, and writes o and lse. Row maxima are kept in units
of log2, because the GPU computes exp2: exp(scale * s) = exp2(qk_scale * s) with qk_scale = scale * log2(e).
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.launch import LOG2_E, constants, forward_config, launch, must_upcast, tiles
from flashlab.kernels.primitives import (
    diagonal,
    drop,
    key_range,
    keys_of,
    load_tile,
    my_block,
    store_tile,
    visible,
    weights,
)  # fmt: skip

LN_2 = tl.constexpr(1 / LOG2_E)


@triton.jit
def absorb(
    row_max, row_sum, acc, q, rows, dropout, batch_head,
    k_ptr, v_ptr, k_strides, v_strides, batch, head, first, end, shift, qk_scale,
    DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One more key block for query block `q`: new (row_max, row_sum, acc). MASKED: a key may be hidden."""
    # FA2 Alg. 1, line 7: load K_j and V_j (V_j below, where it is needed)
    keys = first + tl.arange(0, BLOCK_K)
    EDGE: tl.constexpr = "inside" if MASKED else None
    # [BLOCK_K, BLOCK_D]
    k = load_tile(k_ptr, k_strides, batch, head, first, end, DIM, BLOCK_K, BLOCK_D, EDGE)
    # FA2 Alg. 1, line 8: S = Q_i K_j^T
    # [BLOCK_Q, BLOCK_K]
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if MASKED:  # scale first, mask second: -inf * scale would be +inf or nan for scale <= 0
        seen = visible(rows[:, None], keys[None, :], end, shift, CAUSAL)
        scores = tl.where(seen, scores * qk_scale, float("-inf"))
    # FA2 Alg. 1, line 9: row_max, P = exp(S - row_max), row_sum
    new_max, p, alpha = weights(row_max, scores, qk_scale, MASKED)
    row_sum = row_sum * alpha + tl.sum(p, 1)
    if dropout is not None:
        p = drop(p, dropout, batch_head, rows[:, None], keys[None, :])
    # FA2 Alg. 1, line 10: O_i = exp(old row_max - row_max) O_i + P V_j
    v = load_tile(v_ptr, v_strides, batch, head, first, end, DIM, BLOCK_K, BLOCK_D, EDGE)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
    return new_max, row_sum, acc


@triton.jit(do_not_specialize=["num_queries", "num_keys"])
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, key_lengths_ptr, dropout,
    q_strides, k_strides, v_strides, o_strides,  # each (batch, head, row, dim), in elements
    num_heads, group, num_queries, num_keys, qk_scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, EDGE: tl.constexpr, NEGATE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o = softmax(scale Q K^T) V and lse for one query block of one head."""
    # FA2 Alg. 1, lines 1-3: this program is query block i of one head
    block, batch, head = my_block(num_queries, num_heads, BLOCK_Q, CAUSAL is not None)
    batch_head = batch * num_heads + head
    num_keys = keys_of(batch, key_lengths_ptr, num_keys)
    shift = diagonal(num_queries, num_keys, CAUSAL)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    # FA2 Alg. 1, line 4: load Q_i
    # [BLOCK_Q, BLOCK_D]
    q = load_tile(
        q_ptr, q_strides, batch, head, block * BLOCK_Q, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor"
    )
    if NEGATE:  # a negative scale: its sign goes to q, so that a row's largest score stays its largest
        q = -q
    # FA2 Alg. 1, line 5: row_max = -inf, row_sum = 0, O_i = 0
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    # FA2 Alg. 1, line 6: for all key blocks; first those that every row sees whole, then those under a mask
    full, end = key_range(block, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
    for first in tl.range(0, full, BLOCK_K):
        row_max, row_sum, acc = absorb(
            row_max, row_sum, acc, q, rows, dropout, batch_head,
            k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
            DIM, BLOCK_K, BLOCK_D, CAUSAL, False, PRECISION,
        )  # fmt: skip
    if EDGE:  # compiled only where some tile may be under a mask: a loop that never runs costs registers, too
        for first in tl.range(full, end, BLOCK_K):
            row_max, row_sum, acc = absorb(
                row_max, row_sum, acc, q, rows, dropout, batch_head,
                k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
                DIM, BLOCK_K, BLOCK_D, CAUSAL, True, PRECISION,
            )  # fmt: skip
    # FA2 Alg. 1, lines 11-12: O_i = O_i / row_sum, once. A row that saw no key has row_sum 0 and gets 0
    row_sum = tl.where(row_sum == 0, 1.0, row_sum)
    acc = acc * (1 / row_sum)[:, None]
    # FA2 Alg. 1, line 13: L_i = row_max + ln(row_sum), -inf for a row that saw no key
    lse = (row_max + tl.log2(row_sum)) * LN_2
    # FA2 Alg. 1, line 14: write O_i
    store_tile(o_ptr, o_strides, batch, head, block * BLOCK_Q, num_queries, acc, DIM, BLOCK_Q, BLOCK_D)
    # FA2 Alg. 1, lines 15-17: write L_i
    tl.store(lse_ptr + batch_head * num_queries + rows, lse, mask=rows < num_queries)


def forward(q, k, v, *, causal=None, scale, key_lengths=None, dropout=None, config=None):
    """o [B, Hq, Nq, D] in q's dtype and lse [B, Hq, Nq] fp32 of q [B, Hq, Nq, D], k and v [B, Hkv, Nk, D].

    Any strides; D from 1 to 256; fp16, bf16 or fp32. `causal` is None, "top-left" or "bottom-right";
    `dropout` is None or (seed, threshold, keep_scale) from `dropout_arguments`. Expects inputs that fit
    together (`flashlab.attention` checks them). On the CPU, bf16 is computed in fp32.
    """
    if must_upcast(q):
        how = dict(causal=causal, scale=scale, key_lengths=key_lengths, dropout=dropout, config=config)
        o, lse = forward(*(x.float() for x in (q, k, v)), **how)
        return o.to(q.dtype), lse
    (batch, heads, num_queries, _), (kv_heads, num_keys) = q.shape, k.shape[1:3]
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads, num_queries), dtype=torch.float32, device=q.device)
    if o.numel() == 0:
        return o, lse
    masked = causal is not None or key_lengths is not None
    config = config or forward_config(q, num_keys, simple=not masked and dropout is None)
    of_rows, of_keys = config.block_q, config.block_k
    args, strides = zip(
        *tiles(config, q=(q, of_rows), k=(k, of_keys), v=(v, of_keys), o=(o, of_rows)), strict=True
    )
    launch(
        forward_kernel, (-(-num_queries // config.block_q) * batch * heads,),
        *args, lse, key_lengths, dropout, *strides,
        heads, heads // kv_heads, num_queries, num_keys, abs(scale) * LOG2_E,
        CAUSAL=causal, EDGE=masked or num_keys % config.block_k != 0, NEGATE=scale < 0,
        config=config, **constants(q, config),
    )  # fmt: skip
    return o, lse
