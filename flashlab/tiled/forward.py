"""The forward passes as loops over tiles, with every byte that they move.

Both forward passes do the same sums. FlashAttention-1 walks the K/V blocks outside and the query blocks
inside, so that the output and the statistics of every row travel to HBM and back at each visit.
FlashAttention-2 swaps the loops: a query block stays on chip until it has met all keys, and its output is
written once.
"""

import functools
import inspect

import numpy as np

from flashlab.online_softmax import absorb, finish, finite, seen, start
from flashlab.problem import causal_offset, check_blocks, check_qkv, default_scale, visible, working_dtype
from flashlab.trace import HBM


def over_heads(one_head):
    """Turn a function of one head (arrays [N, D]) into one of any leading axes: check, loop over heads,
    stack the results.
    """

    def run(q, k, v, *, block_q=64, block_k=64, causal=False, scale=None, trace=None):
        q, k, v = check_qkv(q, k, v)
        check_blocks(block_q, block_k)
        offset = causal_offset(causal, q.shape[-2], k.shape[-2])
        scale = default_scale(q.shape[-1]) if scale is None else scale
        dtype = working_dtype(q.dtype)
        o, lse = np.empty(q.shape, dtype), np.empty(q.shape[:-1], dtype)
        for head in np.ndindex(q.shape[:-2]):
            one = (x[head].astype(dtype) for x in (q, k, v))
            o[head], lse[head] = one_head(*one, block_q, block_k, offset, scale, trace, head)
        return o.astype(q.dtype if q.dtype.kind == "f" else dtype), lse

    signature = inspect.signature(run)
    functools.update_wrapper(run, one_head).__signature__ = signature
    return run


@over_heads
def fa2_forward(q, k, v, block_q, block_k, offset, scale, trace, head):
    """FlashAttention-2 forward (arXiv 2307.08691, Algorithm 1).

    q [..., Nq, D], k and v [..., Nk, D] -> o [..., Nq, D], lse [..., Nq]. `scale` defaults to 1/sqrt(D);
    `trace` is a list that receives the events. Raises ValueError or TypeError for inputs that do not fit.
    """
    o, lse = np.empty_like(q), np.empty_like(q[:, 0])
    hbm = HBM(dict(q=(q, block_q), k=(k, block_k), v=(v, block_k), o=(o, block_q), lse=(lse, block_q)), trace)
    for i in range(hbm.blocks("q")):  # FA2 Alg. 1, line 3: each query block is a program of its own
        hbm.program = (*head, i)
        q_i = hbm.load("q", i)  # FA2 Alg. 1, line 4
        state = start(*q_i.shape, q.dtype)  # FA2 Alg. 1, line 5: acc = 0, row_sum = 0, row_max = -inf
        end = keys_in_sight(hbm, i, offset)
        for j in range(last_key_block(hbm, i, offset)):  # FA2 Alg. 1, line 6
            k_j, v_j = hbm.load("k", j, end), hbm.load("v", j, end)  # FA2 Alg. 1, line 7
            s = tile_scores(hbm, q_i, k_j, i, j, offset, scale)  # FA2 Alg. 1, line 8: S = scale * Q_i K_j^T
            state = absorb(state, s, v_j)  # FA2 Alg. 1, lines 9-10
            hbm.note("update", "acc", (i, j), flops=2 * s.size * q.shape[1])
        o_i, lse_i = finish(state)  # FA2 Alg. 1, lines 12-13: divide once; L = m + ln l
        hbm.note("finish", "acc", (i,))
        hbm.store("o", i, o_i)  # FA2 Alg. 1, line 14
        hbm.store("lse", i, lse_i)  # FA2 Alg. 1, line 15
    return o, lse


@over_heads
def fa1_forward(q, k, v, block_q, block_k, offset, scale, trace, head):
    """FlashAttention-1 forward (arXiv 2205.14135, Algorithm 1).

    q [..., Nq, D], k and v [..., Nk, D] -> o [..., Nq, D], lse [..., Nq]; arguments as in `fa2_forward`. The
    running output, always normalised, lives in HBM as fp32 with m and l. The last loop is not in the paper:
    it rounds o to the inputs' format and turns m and l into lse, so that all forward passes return the same.
    """
    o, acc = np.empty_like(q), np.empty_like(q)
    lse, m, l = np.empty((3, len(q)), q.dtype)  # noqa: E741 (l is the papers' name of the row sum)
    by_q = {name: (x, block_q) for name, x in dict(q=q, o_fp32=acc, l=l, m=m, o=o, lse=lse).items()}
    hbm = HBM(by_q | dict(k=(k, block_k), v=(v, block_k)), trace, head)
    for i in range(hbm.blocks("q")):  # FA1 Alg. 1, line 2: O = 0, l = 0, m = -inf in HBM
        for name, first in (("o_fp32", 0), ("l", 0), ("m", -np.inf)):
            hbm.store(name, i, first)
    for j in range(hbm.blocks("k")):  # FA1 Alg. 1, line 5
        k_j, v_j = hbm.load("k", j), hbm.load("v", j)  # FA1 Alg. 1, line 6
        for i in range(hbm.blocks("q")):  # FA1 Alg. 1, line 7
            if j >= last_key_block(hbm, i, offset):
                continue  # above the diagonal: nothing to load, nothing to do
            q_i, o_i = hbm.load("q", i), hbm.load("o_fp32", i)  # FA1 Alg. 1, line 8
            l_i, m_i = hbm.load("l", i), hbm.load("m", i)
            s = tile_scores(hbm, q_i, k_j, i, j, offset, scale)  # FA1 Alg. 1, line 9
            block_max = s.max(-1)  # FA1 Alg. 1, line 10: of this block alone
            p = np.exp(s - finite(block_max)[:, None])
            block_sum = p.sum(-1)
            m_new = np.maximum(m_i, block_max)  # FA1 Alg. 1, line 11
            old, new = np.exp(m_i - finite(m_new)), np.exp(block_max - finite(m_new))
            l_new = old * l_i + new * block_sum
            total = (l_i * old)[:, None] * o_i + new[:, None] * (p @ seen(s, v_j))
            hbm.note("update", "o_fp32", (i, j), flops=2 * s.size * q.shape[1])
            hbm.store("o_fp32", i, total / np.where(l_new == 0, 1, l_new)[:, None])  # FA1 Alg. 1, line 12
            hbm.store("l", i, l_new), hbm.store("m", i, m_new)  # FA1 Alg. 1, line 13
    for i in range(hbm.blocks("q")):
        o_i, l_i, m_i = (hbm.load(name, i) for name in ("o_fp32", "l", "m"))
        hbm.store("o", i, o_i)
        hbm.store("lse", i, np.where(l_i == 0, -np.inf, finite(m_i) + np.log(np.where(l_i == 0, 1, l_i))))
    return o, lse


def last_key_block(hbm, i, offset):
    """How many key blocks query block i has to meet: all of them, or those not wholly above the diagonal."""
    return -(-keys_in_sight(hbm, i, offset) // hbm.tensors["k"][1])


def keys_in_sight(hbm, i, offset):
    """How many keys the last row of query block i, and so the block, may see: later ones are not loaded."""
    keys = len(hbm.tensors["k"][0])
    return keys if offset is None else int(np.clip(hbm.rows("q", i)[-1] + offset + 1, 0, keys))


def tile_scores(hbm, q_i, k_j, i, j, offset, scale):
    """One tile of scores [rows, keys], scaled, with -inf where a row may not look."""
    hbm.note("scores", "s", (i, j), flops=2 * len(q_i) * len(k_j) * q_i.shape[1])
    may_see = visible(hbm.rows("q", i), hbm.rows("k", j)[: len(k_j)], offset)
    return np.where(may_see, scale * (q_i @ k_j.T), -np.inf)
