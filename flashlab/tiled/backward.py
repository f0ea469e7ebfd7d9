"""The backward passes as loops over tiles: P is computed again, tile by tile, from Q, K and one number per
row.

FlashAttention-1 visits all query blocks for each key block and adds to dQ in HBM at each visit.
FlashAttention-2 computes delta, the row sums of dO * O, once beforehand. The paper accumulates its dQ in the
same way; here, as in flashlab's kernels, a second pass over the query blocks computes dQ by itself: more
matrix products, but no two programs ever add to the same address.
"""

import functools
import inspect

import numpy as np

from flashlab.online_softmax import seen
from flashlab.problem import causal_offset, check_blocks, check_grad, check_qkv, default_scale, working_dtype
from flashlab.tiled.forward import keys_in_sight, last_key_block, tile_scores
from flashlab.trace import HBM


def over_kv_heads(one_head):
    """Turn a function of one K/V head, [N, D], and its G query heads, [G, N, D], into one of any leading
    axes.
    """

    def run(q, k, v, o, lse, do, *, block_q=64, block_k=64, causal=False, scale=None, trace=None, **options):
        check_qkv(q, k, v)
        check_blocks(block_q, block_k)
        q, k, v, o, lse, do = (np.asarray(x) for x in (q, k, v, o, lse, do))
        check_grad(q, o, lse, do)
        offset = causal_offset(causal, q.shape[-2], k.shape[-2])
        scale = default_scale(q.shape[-1]) if scale is None else scale
        dtype = working_dtype(q.dtype)
        group = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
        dq, dk, dv = np.empty(q.shape, dtype), np.empty(k.shape, dtype), np.empty(k.shape, dtype)
        for head in np.ndindex(k.shape[:-2]):
            shared = (*head[:-1], slice(head[-1] * group, (head[-1] + 1) * group)) if head else np.newaxis
            tensors = {name: x[shared].astype(dtype) for name, x in dict(q=q, o=o, lse=lse, do=do).items()}
            tensors |= {name: x[head].astype(dtype) for name, x in dict(k=k, v=v).items()}
            hbms = memories(tensors, block_q, block_k, trace)
            grads = one_head(hbms, offset, scale, head, **options)
            dq[shared], dk[head], dv[head] = grads
        return tuple(g.astype(q.dtype if q.dtype.kind == "f" else dtype) for g in (dq, dk, dv))

    signature = inspect.signature(run)
    functools.update_wrapper(run, one_head).__signature__ = signature
    return run


@over_kv_heads
def fa2_backward(hbms, offset, scale, head, accumulate_dq=False):
    """FlashAttention-2 backward (arXiv 2307.08691, Algorithm 2): dq, dk, dv, shaped like q, k and v.

    q, o, do [..., Nq, D], k, v [..., Nk, D], lse [..., Nq]. `accumulate_dq=True` adds to dQ in HBM as the
    paper does, instead of the second pass. Raises ValueError or TypeError for inputs that do not fit.
    """
    for hbm, i in query_blocks(hbms, head, "delta"):
        if accumulate_dq:
            hbm.store("dq_fp32", i, 0)  # FA2 Alg. 2, line 3: dQ = 0 in HBM
        o_i, do_i = hbm.load("o", i), hbm.load("do", i)
        hbm.store("delta", i, (do_i * o_i).sum(-1))  # FA2 Alg. 2, line 4: delta = rowsum(dO * O)
    for j in range(hbms[0].blocks("k")):  # FA2 Alg. 2, line 5
        hbms[0].program = (*head, "dkdv", j)
        k_j, v_j = hbms[0].load("k", j), hbms[0].load("v", j)  # FA2 Alg. 2, line 6
        dk_j, dv_j = np.zeros_like(k_j), np.zeros_like(v_j)  # FA2 Alg. 2, line 7
        for hbm, i in query_blocks(hbms, head, "dkdv", j, offset):  # FA2 Alg. 2, line 8
            q_i, do_i = hbm.load("q", i), hbm.load("do", i)  # FA2 Alg. 2, line 9
            lse_i, delta_i = hbm.load("lse", i), hbm.load("delta", i)
            s = tile_scores(hbm, q_i, k_j, i, j, offset, scale)  # FA2 Alg. 2, line 10
            p = probabilities(s, lse_i)  # FA2 Alg. 2, line 11: exp(S - L)
            dv_j += p.T @ do_i  # FA2 Alg. 2, line 12
            dp = do_i @ v_j.T  # FA2 Alg. 2, line 13
            ds = score_gradient(s, p, dp, delta_i)  # FA2 Alg. 2, line 14: P * (dP - delta)
            if accumulate_dq:
                dq_i = hbm.load("dq_fp32", i) + scale * ds @ seen(s, k_j)
                hbm.store("dq_fp32", i, dq_i)  # FA2 Alg. 2, line 15
            dk_j += scale * ds.T @ q_i  # FA2 Alg. 2, line 16
            hbm.note("update", "dk", (i, j), flops=(3 + accumulate_dq) * 2 * ds.size * q_i.shape[1])
        hbms[0].store("dk", j, dk_j), hbms[0].store("dv", j, dv_j)  # FA2 Alg. 2, line 18
    if accumulate_dq:
        round_dq(hbms, head)
    else:
        dq_pass(hbms, offset, scale, head)
    return [
        np.stack([hbm.tensors["dq"][0] for hbm in hbms]),
        *(hbms[0].tensors[name][0] for name in ("dk", "dv")),
    ]


def dq_pass(hbms, offset, scale, head):
    """dQ without Alg. 2's accumulation in HBM: each query block meets its key blocks once more (the
    deviation).
    """
    for hbm, i in query_blocks(hbms, head, "dq"):
        q_i, do_i = hbm.load("q", i), hbm.load("do", i)
        lse_i, delta_i = hbm.load("lse", i), hbm.load("delta", i)
        dq_i, end = np.zeros_like(q_i), keys_in_sight(hbm, i, offset)
        for j in range(last_key_block(hbm, i, offset)):
            k_j, v_j = hbm.load("k", j, end), hbm.load("v", j, end)
            s = tile_scores(hbm, q_i, k_j, i, j, offset, scale)
            ds = score_gradient(s, probabilities(s, lse_i), do_i @ v_j.T, delta_i)
            dq_i += scale * ds @ seen(s, k_j)  # FA2 Alg. 2, line 15, in a second pass
            hbm.note("update", "dq", (i, j), flops=2 * 2 * ds.size * q_i.shape[1])
        hbm.store("dq", i, dq_i)


@over_kv_heads
def fa1_backward(hbms, offset, scale, head):
    """FlashAttention-1 backward (arXiv 2205.14135, Algorithm 4, without dropout): dq, dk, dv, shaped like
    q, k and v.

    q, o, do [..., Nq, D], k, v [..., Nk, D]. The paper loads m and l; here lse [..., Nq] stands for both (m =
    lse, l = 1). dQ lives in HBM as fp32 and is rounded at the end. Raises ValueError or TypeError for inputs
    that do not fit.
    """
    for hbm, i in query_blocks(hbms, head):
        hbm.store("dq_fp32", i, 0)  # FA1 Alg. 4, line 5: dQ = 0 in HBM
    for j in range(hbms[0].blocks("k")):  # FA1 Alg. 4, line 6
        k_j, v_j = hbms[0].load("k", j), hbms[0].load("v", j)  # FA1 Alg. 4, line 7
        dk_j, dv_j = np.zeros_like(k_j), np.zeros_like(v_j)  # FA1 Alg. 4, line 8
        for hbm, i in query_blocks(hbms, head, None, j, offset):  # FA1 Alg. 4, line 9
            q_i, o_i, do_i = hbm.load("q", i), hbm.load("o", i), hbm.load("do", i)  # FA1 Alg. 4, line 10
            dq_i, lse_i = hbm.load("dq_fp32", i), hbm.load("lse", i)
            s = tile_scores(hbm, q_i, k_j, i, j, offset, scale)  # FA1 Alg. 4, lines 11-12
            p = probabilities(s, lse_i)  # FA1 Alg. 4, line 13
            dv_j += p.T @ do_i  # FA1 Alg. 4, line 16
            dp = do_i @ v_j.T  # FA1 Alg. 4, line 17
            delta_i = (do_i * o_i).sum(-1)  # FA1 Alg. 4, line 19
            ds = score_gradient(s, p, dp, delta_i)  # FA1 Alg. 4, line 20
            hbm.store("dq_fp32", i, dq_i + scale * ds @ seen(s, k_j))  # FA1 Alg. 4, line 21
            dk_j += scale * ds.T @ q_i  # FA1 Alg. 4, line 22
            hbm.note("update", "dk", (i, j), flops=4 * 2 * ds.size * q_i.shape[1])
        hbms[0].store("dk", j, dk_j), hbms[0].store("dv", j, dv_j)  # FA1 Alg. 4, line 24
    round_dq(hbms, head)
    return [
        np.stack([hbm.tensors["dq"][0] for hbm in hbms]),
        *(hbms[0].tensors[name][0] for name in ("dk", "dv")),
    ]


def memories(tensors, block_q, block_k, trace):
    """One HBM for each query head of the group; K, V, dK and dV are the same arrays in all of them."""
    k, v = tensors["k"], tensors["v"]
    shared = {
        name: (x, block_k) for name, x in dict(k=k, v=v, dk=np.zeros_like(k), dv=np.zeros_like(v)).items()
    }
    hbms = []
    for g in range(len(tensors["q"])):
        own = {name: tensors[name][g] for name in ("q", "o", "lse", "do")}
        own |= dict(
            delta=np.zeros_like(own["lse"]), dq=np.zeros_like(own["q"]), dq_fp32=np.zeros_like(own["q"])
        )
        hbms.append(HBM({name: (x, block_q) for name, x in own.items()} | shared, trace))
    return hbms


def query_blocks(hbms, head, phase=None, j=None, offset=None):
    """(hbm, i) for each query block of the group's heads, with j: only those that key block j has to meet.

    Sets who is at work: a program for each K/V head (no phase), for each key block ("dkdv") or for each query
    block.
    """
    for g, hbm in enumerate(hbms):
        for i in range(hbm.blocks("q")):
            if j is not None and j >= last_key_block(hbm, i, offset):
                continue
            own = (g, i) if phase in ("delta", "dq") else (j,)
            hbm.program = (*head, phase, *own) if phase else head
            yield hbm, i


def probabilities(s, lse):
    """P = exp(S - L), and 0 in rows that saw no key (L = -inf)."""
    return np.exp(s - np.where(lse == -np.inf, np.inf, lse)[:, None])


def score_gradient(s, p, dp, delta):
    """dS = P * (dP - delta), and 0 where the row may not look, whatever stands in V there."""
    return np.where(s == -np.inf, 0, p * (dp - delta[:, None]))


def round_dq(hbms, head):
    """The last step of an accumulated dQ: from fp32 to the format of q."""
    for hbm, i in query_blocks(hbms, head):
        hbm.store("dq", i, hbm.load("dq_fp32", i))
