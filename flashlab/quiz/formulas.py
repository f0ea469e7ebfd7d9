"""What the bank's expressions may call: bytes, FLOPs and tiles of attention, each in a line or two.

Sizes are per call, not per head, where B and heads are among the arguments; else per head. Nothing here is a
measurement. dtype names: "fp16", "bf16", "fp32", "fp64", and NumPy's.
"""

import functools
import importlib
import math

from flashlab.errors import unknown_name

ITEMSIZE = {"fp8": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "float16": 2, "bfloat16": 2, "float32": 4}
ALIASES = {"A100": "A100-40", "H100": "H100 SXM", "RTX4090": "RTX 4090"}


def itemsize(dtype):
    """Bytes of one element. Raises ValueError that names the closest dtypes."""
    if dtype not in ITEMSIZE:
        raise unknown_name("dtype", dtype, ITEMSIZE)
    return ITEMSIZE[dtype]


def score_bytes(B, Hq, Nq, Nk, dtype="fp16"):
    """Bytes of one copy of the score matrix [B, Hq, Nq, Nk]."""
    return B * Hq * Nq * Nk * itemsize(dtype)


def lse_bytes(B, Hq, Nq):
    """Bytes of the log-sum-exp [B, Hq, Nq], always fp32."""
    return 4 * B * Hq * Nq


def qkv_bytes(B, Hq, Hkv, N, D, dtype="fp16"):
    """Bytes of Q [B, Hq, N, D], K and V [B, Hkv, N, D]."""
    return B * (Hq + 2 * Hkv) * N * D * itemsize(dtype)


def kv_cache_bytes(B, Hkv, N, D, dtype="fp16", layers=1):
    """Bytes of the K and V of N tokens in all layers."""
    return 2 * layers * B * Hkv * N * D * itemsize(dtype)


def attention_flops(B, Hq, Nq, Nk, D, causal=False, direction="forward"):
    """FLOPs of the matrix products (a multiply-add is two): 4, 10 or 14 B Hq Nq Nk D; causal counts half.

    The convention of the papers' benchmarks: backward is 2.5 forward (five products, one recomputed).
    """
    products = {"forward": 4, "backward": 10, "both": 14}
    if direction not in products:
        raise unknown_name("direction", direction, products)
    flops = products[direction] * B * Hq * Nq * Nk * D
    return flops // 2 if causal else flops


def exp_count(B, Hq, Nq, Nk):
    """Exponentials of the scores, without those of the rescaling."""
    return B * Hq * Nq * Nk


def tiles(N, block):
    """Blocks that cover N rows."""
    return -(-N // block)


def tile_bytes(rows, D, dtype="fp16"):
    """Bytes of a tile [rows, D]."""
    return rows * D * itemsize(dtype)


def fa1_elements(N, D, block_k):
    """Elements that FA1's forward pass moves per head, O, m and l (begun as zeros) in HBM at every step."""
    t = tiles(N, block_k)
    return 3 * N * D * (1 + t) + N * (2 + 4 * t)


def fa2_elements(N, D, block_q):
    """Elements that FA2's forward pass moves per head: Q, O and lse once, K and V per query block."""
    return 2 * N * D + 2 * N * D * tiles(N, block_q) + N


def standard_elements(N, D, direction="forward"):
    """Elements that attention with stored S and P moves per head: 4 N^2 + 4 N D, backward 7 N^2 + 8 N D."""
    both = {"forward": 4 * N * N + 4 * N * D, "backward": 7 * N * N + 8 * N * D}
    both["both"] = sum(both.values())
    if direction not in both:
        raise unknown_name("direction", direction, both)
    return both[direction]


def causal_share(N, block):
    """Share of the block x block tiles that a causal mask leaves (the diagonal ones whole)."""
    t = tiles(N, block)
    return (t + 1) / (2 * t)


def gpu(name):
    """A flashlab.gpus.GPU; "A100" is A100-40 and "H100" is H100 SXM."""
    gpus = importlib.import_module("flashlab.gpus")
    return gpus.get(ALIASES.get(name, name) if isinstance(name, str) else name)


def peak(name, dtype="fp16"):
    """Dense matrix-product FLOP/s of a GPU."""
    rates = gpu(name).peak
    long = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
    for key in (dtype, long.get(dtype), {v: k for k, v in long.items()}.get(dtype)):
        if key in rates:
            return rates[key]
    raise unknown_name("dtype", dtype, rates)


def ridge(name, dtype="fp16"):
    """FLOPs per byte at which a GPU's matrix rate and its HBM bandwidth are both used up."""
    return peak(name, dtype) / gpu(name).hbm_bandwidth


def seconds_memory(bytes, name):
    """Seconds to move that many bytes at the full HBM bandwidth."""
    return bytes / gpu(name).hbm_bandwidth


def seconds_compute(flops, name, dtype="fp16"):
    """Seconds for that many FLOPs at the dense peak rate."""
    return flops / peak(name, dtype)


def waves(programs, sms):
    """Rounds of `sms` equal programs at a time that `programs` need."""
    return -(-programs // sms)


class _Module:
    """A module loaded at its first use, with a few names of its own in front."""

    def __init__(self, name, **own):
        self._name = name
        self.__dict__.update(own)

    def __getattr__(self, name):
        return getattr(importlib.import_module(self._name), name)


class _Gpus(_Module):
    def __getitem__(self, name):
        return gpu(name)

    def get(self, name):
        return gpu(name)


def grid(B, H, N, block_q=128, algorithm="fa2"):
    """Thread blocks of a forward pass as published: FA1 B * H, FA2 one more axis, the query blocks."""
    if algorithm not in ("fa1", "fa2"):
        raise unknown_name("algorithm", algorithm, ("fa1", "fa2"))
    return B * H * (tiles(N, block_q) if algorithm == "fa2" else 1)


def wave_efficiency(blocks, slots):
    """Average use of `slots` until the last of `blocks` equal thread blocks is done, 0 to 1."""
    return blocks / (slots * waves(blocks, slots))


_BUILTINS = {
    f.__name__: f
    for f in (abs, bool, dict, divmod, enumerate, float, int, len, list, max, min, pow, range, round, set)
    + (sorted, str, sum, tuple, zip)
}
_BUILTINS["__import__"] = __import__  # NumPy's C code imports through the caller's builtins
_OWN = (
    itemsize, score_bytes, lse_bytes, qkv_bytes, kv_cache_bytes, attention_flops, exp_count, tiles,
    tile_bytes, fa1_elements, fa2_elements, standard_elements, causal_share, peak, ridge, seconds_memory,
    seconds_compute, waves, grid, wave_efficiency,
)  # fmt: skip


def _problem(*args, **sizes):
    return importlib.import_module("flashlab.problem").Problem(*args, **sizes)


NAMES = {
    **{f.__name__: f for f in _OWN},
    **{name: getattr(math, name) for name in ("ceil", "floor", "sqrt", "log", "log2", "exp")},
    "math": math,
    "np": _Module("numpy"),
    "Problem": _problem,
    "memory": _Module("flashlab.memory", score_bytes=score_bytes, lse_bytes=lse_bytes),
    "schedule": _Module("flashlab.schedule", grid=grid, wave_efficiency=wave_efficiency),
    "gpus": _Gpus("flashlab.gpus"),
    "reference": _Module("flashlab.reference"),
    "tiled": _Module("flashlab.tiled"),
    "online_softmax": _Module("flashlab.online_softmax"),
    "mutants": _Module("flashlab.checks.mutants"),
    "data": _Module("flashlab.data"),
    "lab": _Module("flashlab.quiz.lab"),
}


@functools.cache
def _compiled(expression):
    return compile(expression.strip(), "<bank>", "eval")


def evaluate(expression, **values):
    """The value of a Python expression of the bank, with `values` (draws, "expect") beside the names above.

    Raises ValueError that says which expression failed and why.
    """
    try:
        return eval(_compiled(expression), {"__builtins__": _BUILTINS, **NAMES, **values})
    except Exception as problem:
        raise ValueError(f"cannot compute {expression!r}: {type(problem).__name__}: {problem}") from problem
