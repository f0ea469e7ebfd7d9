"""What lies in a GPU's memory while attention runs, at its fullest moment, and the N at which it is full.

`flashlab.memory.kept` says what waits for the backward pass (or for the next token); this adds what one layer
needs to work. widgets/memory_numbers.js computes the same in the browser.
"""

from dataclasses import replace

from flashlab import memory

MOST = 2**40  # tokens: nobody asks for more


def needs(problem, algorithm, layers=1, dropout=0.0, training=True):
    """{tensor: (bytes, "kept" | "work")} of "standard" or "fa1"/"fa2" attention.

    "kept": of all layers at once. "work": of the layer that runs. Training is fullest in the backward pass of
    the last layer: S is gone, dP and dS (FlashAttention: delta) are there. Raises ValueError.
    """
    found = memory.kept(problem, algorithm, dropout, layers, training)
    if not training:
        return {x: (n, "kept" if x in ("k_cache", "v_cache") else "work") for x, n in found.items()}
    p, square = problem, found.pop("s", 0)
    rows, keys = p.B * p.Hq * p.Nq * p.D * p.itemsize, p.B * p.Hkv * p.Nk * p.D * p.itemsize
    own = {"dp": square, "ds": square} if algorithm == "standard" else {"delta": 4 * p.B * p.Hq * p.Nq}
    work = {**own, "do": rows, "dq": rows, "dk": keys, "dv": keys}
    return {x: (n, "kept") for x, n in found.items()} | {x: (n, "work") for x, n in work.items()}


def total(parts, during=None):
    """Bytes of all parts, or of those that are there "kept" or for "work"."""
    return sum(n for n, when in parts.values() if during in (None, when))


def at(problem, n):
    """The problem with N tokens: queries and keys where there were equally many, else keys only."""
    return replace(problem, Nk=n, Nq=n if problem.Nq == problem.Nk else problem.Nq)


def largest(problem, algorithm, gpu_bytes, **options):
    """The largest N whose `needs` fit into `gpu_bytes`; 0 if not even one token does, at most 2**40."""
    low, high = 0, MOST
    while high - low > 1:
        middle = (low + high) // 2
        fits = total(needs(at(problem, middle), algorithm, **options)) <= gpu_bytes
        low, high = (middle, high) if fits else (low, middle)
    return low
