"""One attention problem: its sizes, its mask, its scale, its number format and its block sizes.

Everything else in the package takes its sizes from here, so that a picture, a byte count and a kernel launch
speak of the same thing.
"""

import math
from dataclasses import dataclass, fields

import numpy as np

from flashlab.errors import unknown_name

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
CAUSAL = (False, True, "top-left", "bottom-right")


@dataclass(frozen=True)
class Problem:
    """Attention of B x Hq query heads [Nq, D] over B x Hkv key/value heads [Nk, D].

    `Hkv` defaults to `Hq`, `Nk` to `Nq`, `scale` to 1/sqrt(D). `causal` is False, True (= "top-left"),
    "top-left" or "bottom-right". `dtype` names how Q, K, V and O are stored ("float16", "bfloat16",
    "float32", "float64"). Raises ValueError for sizes that cannot be and for unknown names.
    """

    B: int = 1
    Hq: int = 1
    Hkv: int | None = None
    Nq: int = 128
    Nk: int | None = None
    D: int = 64
    causal: bool | str = False
    dtype: str = "float16"
    scale: float | None = None
    block_q: int = 64
    block_k: int = 64

    def __post_init__(self):
        for name, other in (("Hkv", self.Hq), ("Nk", self.Nq), ("scale", default_scale(self.D))):
            if getattr(self, name) is None:
                object.__setattr__(self, name, other)
        for field in fields(self):
            size = getattr(self, field.name)
            least = 1 if field.name in ("Hkv", "D", "block_q", "block_k") else 0
            if field.type in (int, int | None) and (not isinstance(size, int) or size < least):
                raise ValueError(f"expected {field.name} to be a whole number >= {least}, got {size!r}")
        if self.Hq % self.Hkv:
            raise ValueError(f"expected Hq to be a multiple of Hkv, got Hq = {self.Hq} and Hkv = {self.Hkv}")
        if self.dtype not in ITEMSIZE:
            raise unknown_name("dtype", self.dtype, ITEMSIZE)
        causal_offset(self.causal, self.Nq, self.Nk)

    @property
    def itemsize(self):
        """Bytes of one element of Q, K, V and O."""
        return ITEMSIZE[self.dtype]


def default_scale(d):
    """The usual softmax scale 1/sqrt(d)."""
    return 1.0 / math.sqrt(d) if d else 1.0


def causal_offset(causal, nq, nk):
    """How far the diagonal is shifted: row i sees key j if and only if j <= i + offset; None means that
    every key is seen.

    True and "top-left" (PyTorch's is_causal) give 0; "bottom-right" (flash-attn from 2.1 on) gives nk - nq,
    so that the last query sees the last key. Raises ValueError for anything else.
    """
    if causal is False or causal is None:
        return None
    if causal is True or causal == "top-left":
        return 0
    if causal == "bottom-right":
        return nk - nq
    raise unknown_name("causal", causal, CAUSAL)


def visible(rows, keys, offset):
    """The mask for index vectors `rows` [r] and `keys` [c]: bool [r, c], True where the row may look at
    the key.
    """
    rows, keys = np.asarray(rows), np.asarray(keys)
    if offset is None:
        return np.ones((len(rows), len(keys)), bool)
    return keys[None, :] <= rows[:, None] + offset


def make_inputs(problem, seed=0):
    """Random q [B, Hq, Nq, D], k and v [B, Hkv, Nk, D] for a problem: standard normal, rounded to its dtype.

    NumPy has no bfloat16: there the arrays are float32 that hold bfloat16 values.
    """
    p, rng = problem, np.random.default_rng(seed)
    shapes = (p.B, p.Hq, p.Nq, p.D), (p.B, p.Hkv, p.Nk, p.D), (p.B, p.Hkv, p.Nk, p.D)
    return tuple(round_to(rng.standard_normal(shape), p.dtype) for shape in shapes)


def round_to(x, dtype):
    """`x` rounded to `dtype` ("bfloat16": to nearest even, returned as float32)."""
    if dtype != "bfloat16":
        return x.astype(dtype)
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def check_qkv(q, k, v):
    """Check NumPy q [..., Nq, D], k and v [..., Nk, D]; return them as arrays, with K and V heads repeated
    for each query head.

    The third axis from the end is the head; fewer K/V heads than query heads are shared by consecutive query
    heads (GQA). Raises ValueError (shapes, heads) or TypeError (dtypes) that say what was expected and what
    came.
    """
    q, k, v = (np.asarray(x) for x in (q, k, v))
    for name, x in zip("qkv", (q, k, v), strict=True):
        if x.ndim < 2:
            raise ValueError(f"expected {name} to be [..., N, D], got shape {list(x.shape)}")
        if x.dtype.kind not in "fiu":
            raise TypeError(f"expected {name} to hold real numbers, got {x.dtype}")
    if len({x.dtype for x in (q, k, v)}) > 1:
        raise TypeError(f"expected q, k and v of one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got {list(k.shape)} and {list(v.shape)}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q and k with the same D, got D = {q.shape[-1]} and D = {k.shape[-1]}")
    if q.ndim != k.ndim or q.shape[:-3] != k.shape[:-3]:
        raise ValueError(
            f"expected q and k with the same batch axes, got {list(q.shape)} and {list(k.shape)}"
        )
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        hq, hkv = q.shape[-3], k.shape[-3]
        if hkv == 0 or hq % hkv:
            raise ValueError(
                f"expected the query heads to be a multiple of the K/V heads, got {hq} and {hkv}"
            )
        k, v = (np.repeat(x, hq // hkv, axis=-3) for x in (k, v))
    return q, k, v


def check_grad(q, o, lse, do):
    """Check that o and do are shaped like q [..., Nq, D] and lse [..., Nq]; raises ValueError otherwise."""
    if o.shape != q.shape or do.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(
            f"expected o and do {list(q.shape)} and lse {list(q.shape[:-1])}, "
            f"got {list(o.shape)}, {list(do.shape)} and {list(lse.shape)}"
        )


def check_blocks(block_q, block_k):
    """Check that both block sizes are whole numbers >= 1; raises ValueError otherwise."""
    for name, size in (("block_q", block_q), ("block_k", block_k)):
        if not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"expected {name} to be a whole number >= 1, got {size!r}")


def working_dtype(dtype):
    """The format in which NumPy code computes: float64 for float64 and integers, float32 for everything
    shorter.
    """
    return np.float64 if np.dtype(dtype).kind in "iu" or np.dtype(dtype).itemsize == 8 else np.float32
