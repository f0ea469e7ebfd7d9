"""Standard attention, one whole matrix after another, with every byte that it moves.

Each pass reads matrices from HBM and writes one back. S, P and, in the backward pass, dP and dS are as large
as [Nq, Nk]. A matrix crosses once for each pass that uses it, the best that separate kernels can do;
`block_q` and `block_k` only say in which tiles that is written down. Query heads that share a K/V head are
stacked, so that K and V cross once for all of them. A mask costs nothing and saves nothing: it is applied on
the way, and the masked half of S moves like the rest.
"""

import itertools

import numpy as np

from flashlab.problem import (
    causal_offset,
    check_blocks,
    check_grad,
    check_qkv,
    default_scale,
    visible,
    working_dtype,
)
from flashlab.trace import HBM

SQUARE = ("s", "p", "dp", "ds")
OF_KEYS = ("k", "v", "dk", "dv")


def standard_forward(q, k, v, *, block_q=64, block_k=64, causal=False, scale=None, trace=None):
    """Standard attention (FlashAttention, arXiv 2205.14135, Algorithm 0): o [..., Nq, D] and lse [..., Nq].

    q [..., Nq, D], k and v [..., Nk, D]. It moves 4 Nq Nk + 4 N D elements a head; lse is returned for
    comparison and never stored in HBM (standard attention keeps P instead). `trace` is a list that receives
    the events. Raises ValueError or TypeError for inputs that do not fit.
    """
    check_qkv(q, k, v)
    check_blocks(block_q, block_k)
    q, k, v = (np.asarray(x) for x in (q, k, v))
    seen, tau = _mask_and_scale(q, k, causal, scale)
    o, lse = np.empty(q.shape, working_dtype(q.dtype)), np.empty(q.shape[:-1], working_dtype(q.dtype))
    for shared, head, heads in _groups(q, k):
        m = Matrices(dict(q=q[shared]), dict(k=k[head], v=v[head]), heads, block_q, block_k, trace)
        s = m.make(
            "s", lambda q, k: np.where(seen, tau * (q @ _t(k)), -np.inf), "q", "k"
        )  # FA1 Alg. 0, line 1
        m.make("p", _softmax, "s")  # FA1 Alg. 0, line 2
        m.make("o", lambda p, v: p @ _unhide(v, seen), "p", "v")  # FA1 Alg. 0, line 3
        o[shared], lse[shared] = m.arrays["o"], _log_sum_exp(s)
    return o.astype(q.dtype if q.dtype.kind == "f" else o.dtype), lse


def standard_backward(q, k, v, o, lse, do, *, block_q=64, block_k=64, causal=False, scale=None, trace=None):
    """Standard attention backward (FlashAttention, arXiv 2205.14135, Algorithm 3): dq, dk, dv like q, k, v.

    q, o, do [..., Nq, D], k, v [..., Nk, D], lse [..., Nq]. It starts from the P that the forward pass kept
    (made here from lse, without an event) and moves 7 Nq Nk + 8 N D elements a head. Raises ValueError or
    TypeError for inputs that do not fit.
    """
    check_qkv(q, k, v)
    check_blocks(block_q, block_k)
    q, k, v, o, lse, do = (np.asarray(x) for x in (q, k, v, o, lse, do))
    check_grad(q, o, lse, do)
    seen, tau = _mask_and_scale(q, k, causal, scale)
    dq, dk, dv = (np.empty(x.shape, working_dtype(q.dtype)) for x in (q, k, v))
    for shared, head, heads in _groups(q, k):
        m = Matrices(
            dict(q=q[shared], do=do[shared]), dict(k=k[head], v=v[head]), heads, block_q, block_k, trace
        )
        m.arrays["p"] = _kept(m.arrays["q"], m.arrays["k"], lse[shared], seen, tau)
        m.make("dv", lambda p, do: (_t(p) @ do).sum(0, keepdims=True), "p", "do")  # FA1 Alg. 3, line 1
        m.make("dp", lambda do, v: do @ _t(v), "do", "v")  # FA1 Alg. 3, line 2
        m.make("ds", lambda p, dp: _score_gradient(p, dp, seen), "p", "dp")  # FA1 Alg. 3, line 3
        m.make("dq", lambda ds, k: tau * (ds @ _unhide(k, seen)), "ds", "k")  # FA1 Alg. 3, line 4
        m.make("dk", lambda ds, q: tau * (_t(ds) @ q).sum(0, keepdims=True), "ds", "q")  # FA1 Alg. 3, line 5
        dq[shared], dk[head], dv[head] = m.arrays["dq"], m.arrays["dk"][0], m.arrays["dv"][0]
    return tuple(g.astype(q.dtype if q.dtype.kind == "f" else g.dtype) for g in (dq, dk, dv))


class Matrices:
    """The HBM of one K/V head and its G query heads: arrays [G, rows, columns], those of the keys [1, Nk, D].

    `heads` are the query heads' indices, each the beginning of a program's name.
    """

    def __init__(self, own, shared, heads, block_q, block_k, trace):
        dtype = working_dtype(own["q"].dtype)
        self.arrays = {name: x.astype(dtype) for name, x in own.items()}
        self.arrays |= {name: x[None].astype(dtype) for name, x in shared.items()}
        self.heads, self.blocks, self.hbm = heads, (block_q, block_k), HBM({}, trace)

    def make(self, name, function, *inputs):
        """One pass, a kernel of its own: load whole matrices, compute, store the matrix `name`."""
        for x in inputs:
            self.note("load", x, name)
        self.arrays[name] = function(*(self.arrays[x] for x in inputs))
        self.note_work(name, inputs)
        self.note("store", name, name)
        return self.arrays[name]

    def note(self, op, name, made):
        """The events of a whole matrix, tile by tile; `made` names the pass."""
        block_q, block_k = self.blocks
        for head, x in zip(self.heads, self.arrays[name], strict=False):
            self.hbm.program = (*head, made)
            rows = _cuts(x.shape[0], block_k if name in OF_KEYS else block_q)
            columns = _cuts(x.shape[1], block_k) if name in SQUARE else [x.shape[1]]
            for (i, r), (j, c) in itertools.product(enumerate(rows), enumerate(columns)):
                self.hbm.note(op, name, (i, j) if name in SQUARE else (i,), elements=r * c)

    def note_work(self, name, inputs):
        """The events of the arithmetic: a product for each tile of S, or one softmax for each query block."""
        product = not set(inputs) <= set(SQUARE)  # softmax and its gradient are elementwise
        d = self.arrays["q"].shape[2]
        for g, head in enumerate(self.heads):
            self.hbm.program = (*head, name)
            rows = _cuts(self.arrays["q"][g].shape[0], self.blocks[0])
            keys = _cuts(self.arrays["k"].shape[1], self.blocks[1])
            for (i, r), (j, c) in itertools.product(enumerate(rows), enumerate(keys)):
                op = "scores" if name == "s" else "update"
                self.hbm.note(op, name, (i, j), flops=2 * r * c * d if product else 0)


def _groups(q, k):
    """For each K/V head: (index of its query heads, its own index, the indices of its query heads)."""
    group = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    for head in np.ndindex(k.shape[:-2]):
        if not head:
            yield np.newaxis, head, [()]
            continue
        first = head[-1] * group
        yield (*head[:-1], slice(first, first + group)), head, [(*head[:-1], first + g) for g in range(group)]


def _mask_and_scale(q, k, causal, scale):
    nq, nk = q.shape[-2], k.shape[-2]
    seen = visible(np.arange(nq), np.arange(nk), causal_offset(causal, nq, nk))
    return seen, default_scale(q.shape[-1]) if scale is None else scale


def _cuts(size, block):
    """Sizes of the blocks of `size` rows."""
    return [min(block, size - first) for first in range(0, size, block)]


def _t(x):
    return x.swapaxes(-1, -2)


def _row_max(s):
    row_max = s.max(-1, keepdims=True, initial=-np.inf)
    return np.where(row_max == -np.inf, 0, row_max)


def _softmax(s):
    p = np.exp(s - _row_max(s))
    row_sum = p.sum(-1, keepdims=True)
    return p / np.where(row_sum == 0, 1, row_sum)


def _log_sum_exp(s):
    with np.errstate(divide="ignore"):
        return (_row_max(s) + np.log(np.exp(s - _row_max(s)).sum(-1, keepdims=True)))[..., 0]


def _unhide(x, seen):
    """x [..., Nk, D] with 0 for keys that no row sees: a weight of 0 times nan would be nan."""
    return np.where(seen.any(0)[:, None], x, 0)


def _kept(q, k, lse, seen, tau):
    """P as the forward pass left it."""
    s = np.where(seen, tau * (q @ _t(k)), -np.inf)
    return np.exp(s - np.where(lse == -np.inf, np.inf, lse)[..., None])


def _score_gradient(p, dp, seen):
    """dS = P * (dP - rowsum(P * dP)), and 0 where the row may not look, whatever stands in V there."""
    dp = np.where(seen, dp, 0)
    return p * (dp - (p * dp).sum(-1, keepdims=True))
