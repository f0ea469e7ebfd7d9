"""Attention as the formula says it: the whole score matrix, then softmax, then V. Slow, short, and right:
the oracle of every test.

Nothing here is ever optimised. In float64 its error is about 1e-16 of the values, so that everything else can
be judged by it.
"""

import numpy as np

from flashlab.problem import causal_offset, check_grad, check_qkv, default_scale, visible, working_dtype


def attention(q, k, v, *, causal=False, scale=None):
    """O = softmax(scale * Q K^T) V, with the whole [Nq, Nk] score matrix in memory (FlashAttention paper,
    Algorithm 0).

    q [..., Nq, D], k and v [..., Nk, D] NumPy arrays of one dtype; with a head axis, fewer K/V heads than
    query heads are shared. Returns o [..., Nq, D] in q's dtype and lse [..., Nq], the natural log of each
    row's sum of exp(scores), in the working dtype (float64 for float64, else float32). A row that may look at
    nothing gives o = 0 and lse = -inf. Raises ValueError or TypeError for inputs that do not fit.
    """
    q_in, k, v = check_qkv(q, k, v)
    q, k, v = (x.astype(working_dtype(q_in.dtype)) for x in (q_in, k, v))
    s, may_see = scores(q, k, causal, scale)
    v = np.where(may_see.any(0)[:, None], v, 0)  # 0 * nan is nan: a value that nobody may see must not count
    row_max = s.max(-1, keepdims=True, initial=-np.inf)
    row_max = np.where(row_max == -np.inf, 0, row_max)  # -inf minus -inf is nan
    p = np.exp(s - row_max)
    row_sum = p.sum(-1, keepdims=True)
    o = p @ v / np.where(row_sum == 0, 1, row_sum)
    with np.errstate(divide="ignore"):
        lse = (row_max + np.log(row_sum))[..., 0]
    return o.astype(q_in.dtype if q_in.dtype.kind == "f" else o.dtype), lse


def attention_backward(q, k, v, o, lse, do, *, causal=False, scale=None):
    """The gradients dq, dk, dv of a loss whose gradient with respect to o is `do` (FlashAttention paper,
    appendix B.2).

    Takes what `attention` took and gave: o [..., Nq, D], lse [..., Nq], do [..., Nq, D]; returns arrays
    shaped like q, k and v (for shared K/V heads, summed over the query heads that share them). Raises
    ValueError or TypeError for inputs that do not fit.
    """
    kv_shape = np.shape(k)
    q, k, v = check_qkv(q, k, v)
    dtype = working_dtype(q.dtype)
    q, k, v, o, lse, do = (np.asarray(x, dtype) for x in (q, k, v, o, lse, do))
    check_grad(q, o, lse, do)
    s, may_see = scores(q, k, causal, scale)
    k, v = (np.where(may_see.any(0)[:, None], x, 0) for x in (k, v))
    tau = default_scale(q.shape[-1]) if scale is None else scale
    p = np.exp(
        s - np.where(lse == -np.inf, np.inf, lse)[..., None]
    )  # P again, from the scores and one number a row
    dv = p.swapaxes(-1, -2) @ do
    dp = do @ v.swapaxes(-1, -2)
    delta = (do * o).sum(-1, keepdims=True)  # = sum over keys of P * dP
    ds = p * (dp - delta)
    dq, dk = tau * ds @ k, tau * ds.swapaxes(-1, -2) @ q
    return dq, *(sum_shared_heads(g, kv_shape) for g in (dk, dv))


def scores(q, k, causal=False, scale=None):
    """scale * Q K^T with -inf where a row may not look, [..., Nq, Nk], and that mask, bool [Nq, Nk]."""
    nq, nk, tau = q.shape[-2], k.shape[-2], default_scale(q.shape[-1]) if scale is None else scale
    may_see = visible(np.arange(nq), np.arange(nk), causal_offset(causal, nq, nk))
    return np.where(may_see, tau * (q @ k.swapaxes(-1, -2)), -np.inf), may_see


def sum_shared_heads(grad, shape):
    """Sum a gradient [..., Hq, Nk, D] over the query heads that share a K/V head, down to `shape` [...,
    Hkv, Nk, D].
    """
    if grad.shape == tuple(shape):
        return grad
    *batch, heads, n, d = shape
    return grad.reshape(*batch, heads, grad.shape[-3] // heads, n, d).sum(-3)


def dropout_mask(seed, B, H, Nq, Nk, p):
    """Which weights dropout with probability p keeps: bool [B, H, Nq, Nk], the same on every machine.

    Weight (b, h, i, j) is kept if the top 24 bits of philox4x32-10(seed; j, i, b * H + h, 0)[0], as a
    fraction, are at least p. seed: an int that fits into 64 bits. Raises TypeError or ValueError.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"expected seed to be an int, got {type(seed).__name__}")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"expected seed to fit into 64 bits, got {seed}")
    if not 0 <= p <= 1:
        raise ValueError(f"expected p from 0 to 1, got {p}")
    head, row, key = (np.arange(n, dtype=np.uint64) for n in (B * H, Nq, Nk))
    random = philox(int(seed), key, row[:, None], head[:, None, None], np.uint64(0))
    return ((random >> np.uint64(8)) >= p * 2**24).reshape(B, H, Nq, Nk)


def philox(seed, c0, c1, c2, c3):
    """The first number of philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3")
    for counters c0 to c3, arrays of 32-bit numbers as uint64 that broadcast.
    """
    low = np.uint64(0xFFFFFFFF)
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        product0, product2 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c2 = (
            (product2 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            (product0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
        )
        c1, c3 = product2 & low, product0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0
