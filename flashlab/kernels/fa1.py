"""FlashAttention-1 (arXiv 2205.14135) in Triton, as published: to be compared with, not to be fast.

    for each key block j:                 load K_j, V_j once
        for each query block i:           load Q_i and the running O_i, m_i, l_i; store O_i, m_i, l_i again

One program works through a whole head, so that a GPU with 132 multiprocessors needs 132 heads to be busy, and
the output travels to memory and back once for each key block: 2 * 4 bytes * N * D * (N / BLOCK_K) for a head,
where FlashAttention-2 writes it once. The tile of O that is stored is always normalised: a division at every
step. Row maxima are in units of log2, as in `fa2`.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.launch import LOG2_E, config_for, constants, launch, must_upcast
from flashlab.kernels.primitives import diagonal, load_row_numbers, load_tile, row_range, store_tile, visible

LN_2 = tl.constexpr(1 / LOG2_E)


@triton.jit
def my_head(num_heads):
    """(batch, head) of this program, which has a head for itself."""
    pid = tl.program_id(0)
    return (pid // num_heads).to(tl.int64), (pid % num_heads).to(tl.int64)


@triton.jit
def last_key(num_queries, num_keys, shift, CAUSAL: tl.constexpr):
    """No row may see this key or a later one."""
    if CAUSAL is not None:
        num_keys = tl.minimum(num_keys, num_queries + shift)
    return num_keys


@triton.jit
def store_row_numbers(x_ptr, batch_head, first, num_rows, x, BLOCK: tl.constexpr):
    """Write one number a row to rows first to first + BLOCK of x [batch * heads, num_rows]."""
    rows = first + tl.arange(0, BLOCK)
    tl.store(x_ptr + batch_head * num_rows + rows, x, mask=rows < num_rows)


@triton.jit
def forward_step(
    q_ptr, o_fp32_ptr, m_ptr, l_ptr, q_strides, o_fp32_strides, k, v,
    batch, head, bh, first, keys, num_queries, num_keys, shift, qk_scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One query block meets one key block: O_i, m_i and l_i are read from HBM and written back."""
    # FA1 Alg. 1, line 8: load Q_i, O_i, l_i, m_i
    # [BLOCK_Q, BLOCK_D], [BLOCK_Q]
    q = load_tile(q_ptr, q_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    o = load_tile(
        o_fp32_ptr, o_fp32_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor"
    )
    m = load_row_numbers(m_ptr, bh, first, num_queries, BLOCK_Q, float("-inf"))
    l = load_row_numbers(l_ptr, bh, first, num_queries, BLOCK_Q, 0.0)  # noqa: E741
    # FA1 Alg. 1, line 9: S = Q_i K_j^T
    # [BLOCK_Q, BLOCK_K]
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * qk_scale
    rows = first + tl.arange(0, BLOCK_Q)
    seen = visible(rows[:, None], keys[None, :], num_keys, shift, CAUSAL) & (rows < num_queries)[:, None]
    scores = tl.where(seen, scores, float("-inf"))
    # FA1 Alg. 1, line 10: m~ = rowmax(S), P~ = exp(S - m~), l~ = rowsum(P~)
    block_max = tl.max(scores, 1)
    unit = tl.where(block_max == float("-inf"), 0.0, block_max)
    p = tl.exp2(scores - unit[:, None])
    block_sum = tl.sum(p, 1)
    # FA1 Alg. 1, line 11: m_new = max(m, m~), l_new = exp(m - m_new) l + exp(m~ - m_new) l~
    m_new = tl.maximum(m, block_max)
    new_unit = tl.where(m_new == float("-inf"), 0.0, m_new)
    alpha = tl.exp2(m - new_unit)
    beta = tl.exp2(block_max - new_unit)
    l_new = alpha * l + beta * block_sum
    # FA1 Alg. 1, line 12: O_i = (l exp(m - m_new) O_i + exp(m~ - m_new) P~ V_j) / l_new
    update = tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    o = ((l * alpha)[:, None] * o + beta[:, None] * update) / tl.where(l_new == 0, 1.0, l_new)[:, None]
    store_tile(o_fp32_ptr, o_fp32_strides, batch, head, first, num_queries, o, DIM, BLOCK_Q, BLOCK_D)
    # FA1 Alg. 1, lines 13-15: write l_i, m_i
    store_row_numbers(l_ptr, bh, first, num_queries, l_new, BLOCK_Q)
    store_row_numbers(m_ptr, bh, first, num_queries, m_new, BLOCK_Q)


@triton.jit(do_not_specialize=["num_queries", "num_keys"])
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, o_fp32_ptr, m_ptr, l_ptr, lse_ptr, q_strides, k_strides, v_strides,
    o_strides, o_fp32_strides,
    num_heads, group, num_queries, num_keys, qk_scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o and lse of one head. acc (O in fp32), m and l live in HBM and are read and written at every step."""
    # FA1 Alg. 1, line 1: block sizes BLOCK_Q, BLOCK_K
    batch, head = my_head(num_heads)
    bh = batch * num_heads + head
    shift = diagonal(num_queries, num_keys, CAUSAL)
    # FA1 Alg. 1, line 2: O = 0, l = 0, m = -inf in HBM
    for first in tl.range(0, num_queries, BLOCK_Q):
        zero = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
        store_tile(o_fp32_ptr, o_fp32_strides, batch, head, first, num_queries, zero, DIM, BLOCK_Q, BLOCK_D)
        store_row_numbers(l_ptr, bh, first, num_queries, tl.zeros([BLOCK_Q], tl.float32), BLOCK_Q)
        store_row_numbers(
            m_ptr, bh, first, num_queries, tl.full([BLOCK_Q], float("-inf"), tl.float32), BLOCK_Q
        )
    # FA1 Alg. 1, lines 3-5: for all key blocks
    for first_key in tl.range(0, num_keys, BLOCK_K):
        tl.debug_barrier()  # what other threads stored in the last round must be there
        # FA1 Alg. 1, line 6: load K_j, V_j
        # [BLOCK_K, BLOCK_D]
        k = load_tile(
            k_ptr, k_strides, batch, head // group, first_key, num_keys, DIM, BLOCK_K, BLOCK_D, "tensor"
        )
        v = load_tile(
            v_ptr, v_strides, batch, head // group, first_key, num_keys, DIM, BLOCK_K, BLOCK_D, "tensor"
        )
        keys = first_key + tl.arange(0, BLOCK_K)
        v = tl.where(
            (keys < last_key(num_queries, num_keys, shift, CAUSAL))[:, None], v, 0.0
        )  # 0 * nan is nan
        # FA1 Alg. 1, line 7: for all query blocks (those that see a key of this block)
        start, _ = row_range(first_key, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
        for first in tl.range(start, num_queries, BLOCK_Q):
            forward_step(
                q_ptr, o_fp32_ptr, m_ptr, l_ptr, q_strides, o_fp32_strides, k, v,
                batch, head, bh, first, keys, num_queries, num_keys, shift, qk_scale,
                DIM, BLOCK_Q, BLOCK_D, CAUSAL, PRECISION,
            )  # fmt: skip
    tl.debug_barrier()
    # FA1 Alg. 1, line 16: return O; here: round it to the inputs' format, and turn m and l into lse
    for first in tl.range(0, num_queries, BLOCK_Q):
        o = load_tile(
            o_fp32_ptr, o_fp32_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor"
        )
        store_tile(o_ptr, o_strides, batch, head, first, num_queries, o, DIM, BLOCK_Q, BLOCK_D)
        m = load_row_numbers(m_ptr, bh, first, num_queries, BLOCK_Q, 0.0)
        l = load_row_numbers(l_ptr, bh, first, num_queries, BLOCK_Q, 1.0)  # noqa: E741
        lse = (m + tl.log2(tl.where(l == 0, 1.0, l))) * LN_2
        store_row_numbers(lse_ptr, bh, first, num_queries, lse, BLOCK_Q)


@triton.jit(do_not_specialize=["num_queries", "num_keys"])
def backward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, dk_ptr, dv_ptr, dq_fp32_ptr, dq_ptr, lse_ptr, dlse_ptr,
    q_strides, k_strides, v_strides, o_strides, do_strides, dk_strides, dv_strides, dq_fp32_strides,
    dq_strides,
    num_kv_heads, group, num_queries, num_keys, scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq, dk, dv of one K/V head and its query heads. acc (dQ in fp32) lives in HBM; m is lse, l is 1."""
    # FA1 Alg. 4, lines 1-4: block sizes; no random state, dropout is not offered here
    batch, kv_head = my_head(num_kv_heads)
    shift = diagonal(num_queries, num_keys, CAUSAL)
    # FA1 Alg. 4, line 5: dQ = 0 in HBM
    for member in range(0, group):
        for first in tl.range(0, num_queries, BLOCK_Q):
            zero = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
            head = kv_head * group + member
            store_tile(
                dq_fp32_ptr, dq_fp32_strides, batch, head, first, num_queries, zero, DIM, BLOCK_Q, BLOCK_D
            )
    # FA1 Alg. 4, line 6: for all key blocks
    for first_key in tl.range(0, num_keys, BLOCK_K):
        tl.debug_barrier()  # what other threads added to dQ in the last round must be there
        # FA1 Alg. 4, line 7: load K_j, V_j
        # [BLOCK_K, BLOCK_D]
        k = load_tile(k_ptr, k_strides, batch, kv_head, first_key, num_keys, DIM, BLOCK_K, BLOCK_D, "tensor")
        v = load_tile(v_ptr, v_strides, batch, kv_head, first_key, num_keys, DIM, BLOCK_K, BLOCK_D, "tensor")
        # FA1 Alg. 4, line 8: dK_j = 0, dV_j = 0 on chip
        dk = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
        dv = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
        # FA1 Alg. 4, line 9: for all query blocks
        start, _ = row_range(first_key, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
        for member in range(0, group):
            for first in tl.range(start, num_queries, BLOCK_Q):
                dk, dv = backward_step(
                    dk, dv, k, v, q_ptr, o_ptr, do_ptr, dq_fp32_ptr, lse_ptr, dlse_ptr,
                    q_strides, o_strides, do_strides, dq_fp32_strides, batch, kv_head * group + member,
                    num_kv_heads * group, first, first_key, num_queries, num_keys, shift, scale,
                    DIM, BLOCK_Q, BLOCK_K, BLOCK_D, CAUSAL, PRECISION,
                )  # fmt: skip
        # FA1 Alg. 4, lines 23-25: write dK_j, dV_j
        store_tile(dk_ptr, dk_strides, batch, kv_head, first_key, num_keys, dk, DIM, BLOCK_K, BLOCK_D)
        store_tile(dv_ptr, dv_strides, batch, kv_head, first_key, num_keys, dv, DIM, BLOCK_K, BLOCK_D)
    tl.debug_barrier()
    # FA1 Alg. 4, line 26: return dQ, rounded to the inputs' format
    for member in range(0, group):
        for first in tl.range(0, num_queries, BLOCK_Q):
            head = kv_head * group + member
            dq = load_tile(
                dq_fp32_ptr, dq_fp32_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor"
            )
            store_tile(dq_ptr, dq_strides, batch, head, first, num_queries, dq, DIM, BLOCK_Q, BLOCK_D)


@triton.jit
def backward_step(
    dk, dv, k, v, q_ptr, o_ptr, do_ptr, dq_fp32_ptr, lse_ptr, dlse_ptr,
    q_strides, o_strides, do_strides, dq_fp32_strides, batch, head, num_heads, first, first_key,
    num_queries, num_keys, shift, scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One query block: adds to dk and dv on chip and to dQ_i in HBM."""
    bh = batch * num_heads + head
    # FA1 Alg. 4, line 10: load Q_i, O_i, dO_i, dQ_i, l_i, m_i
    # [BLOCK_Q, BLOCK_D], [BLOCK_Q]
    q = load_tile(q_ptr, q_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    o = load_tile(o_ptr, o_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    do = load_tile(do_ptr, do_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor")
    dq = load_tile(
        dq_fp32_ptr, dq_fp32_strides, batch, head, first, num_queries, DIM, BLOCK_Q, BLOCK_D, "tensor"
    )
    m = load_row_numbers(lse_ptr, bh, first, num_queries, BLOCK_Q, float("inf"))
    m = tl.where(m == float("-inf"), float("inf"), m)
    # FA1 Alg. 4, line 11: S = scale Q_i K_j^T
    # [BLOCK_Q, BLOCK_K]
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale / LN_2)
    # FA1 Alg. 4, line 12: S = mask(S)
    rows, keys = first + tl.arange(0, BLOCK_Q), first_key + tl.arange(0, BLOCK_K)
    seen = visible(rows[:, None], keys[None, :], num_keys, shift, CAUSAL) & (rows < num_queries)[:, None]
    # FA1 Alg. 4, line 13: P = exp(S - m) / l, with l = 1
    p = tl.where(seen, tl.exp2(scores - m[:, None] / LN_2), 0.0)
    # FA1 Alg. 4, lines 14-16: dV_j += P^T dO_i (no dropout)
    dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv, input_precision=PRECISION)
    # FA1 Alg. 4, lines 17-18: dP = dO_i V_j^T
    dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
    # FA1 Alg. 4, line 19: D_i = rowsum(dO_i * O_i), again for every key block
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
    if dlse_ptr is not None:
        delta -= load_row_numbers(dlse_ptr, bh, first, num_queries, BLOCK_Q, 0.0)
    # FA1 Alg. 4, line 20: dS = P * (dP - D_i)
    ds = tl.where(seen, p * (dp - delta[:, None]), 0.0).to(q.dtype)
    # FA1 Alg. 4, line 21: dQ_i += scale dS K_j, in HBM
    k_seen = tl.where((keys < last_key(num_queries, num_keys, shift, CAUSAL))[:, None], k, 0.0)  # 0 * nan
    dq += scale * tl.dot(ds, k_seen, input_precision=PRECISION)
    store_tile(dq_fp32_ptr, dq_fp32_strides, batch, head, first, num_queries, dq, DIM, BLOCK_Q, BLOCK_D)
    # FA1 Alg. 4, line 22: dK_j += scale dS^T Q_i
    dk += scale * tl.dot(tl.trans(ds), q, input_precision=PRECISION)
    return dk, dv


def forward(q, k, v, *, causal=None, scale, config=None):
    """o [B, Hq, Nq, D] in q's dtype and lse [B, Hq, Nq] fp32 of q [B, Hq, Nq, D], k and v [B, Hkv, Nk, D].

    Any strides; D from 1 to 256; fp16, bf16 or fp32; `causal` is None, "top-left" or "bottom-right". No
    dropout, no key lengths. On the CPU, bf16 is computed in fp32.
    """
    if must_upcast(q):
        o, lse = forward(*(x.float() for x in (q, k, v)), causal=causal, scale=scale, config=config)
        return o.to(q.dtype), lse
    (batch, heads, num_queries, _), (kv_heads, num_keys) = q.shape, k.shape[1:3]
    o, o_fp32 = torch.empty_like(q), torch.empty(q.shape, dtype=torch.float32, device=q.device)
    m, l, lse = (o_fp32.new_empty(q.shape[:3]) for _ in range(3))  # noqa: E741
    if o.numel() == 0:
        return o, lse
    config = config or config_for(q, "fa1")
    launch(
        forward_kernel, (batch * heads,),
        q, k, v, o, o_fp32, m, l, lse, *(x.stride() for x in (q, k, v, o, o_fp32)),
        heads, heads // kv_heads, num_queries, num_keys, scale * LOG2_E,
        CAUSAL=causal, config=config, **constants(q, config),
    )  # fmt: skip
    return o, lse


def backward(q, k, v, o, lse, do, dlse=None, *, causal=None, scale, config=None):
    """dq, dk, dv, shaped and typed like q, k and v. lse [B, Hq, Nq] fp32; dlse, its gradient, may be None."""
    if must_upcast(q):
        wide = (x.float() for x in (q, k, v, o))
        grads = backward(*wide, lse, do.float(), dlse, causal=causal, scale=scale, config=config)
        return tuple(g.to(q.dtype) for g in grads)
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    if dq.numel() == 0 or dk.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    dq_fp32 = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    (batch, kv_heads, num_keys, _), (heads, num_queries) = k.shape, q.shape[1:3]
    config = config or config_for(q, "fa1 backward")
    dlse = None if dlse is None else dlse.contiguous()
    launch(
        backward_kernel, (batch * kv_heads,),
        q, k, v, o, do, dk, dv, dq_fp32, dq, lse, dlse, *(x.stride() for x in (q, k, v, o, do, dk, dv,
        dq_fp32, dq)),
        kv_heads, heads // kv_heads, num_queries, num_keys, scale,
        CAUSAL=causal, config=config, **constants(q, config),
    )  # fmt: skip
    return dq, dk, dv
