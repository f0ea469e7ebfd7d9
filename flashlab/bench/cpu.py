"""The suite `cpu`: the same attention five times on this CPU, in float32, forward and backward, by N.

What this shows: that memory grows with N^2 where the scores are kept and with N where they are not; that all
five agree up to rounding; that the time of all five grows with N^2. What it does not show: how much faster
FlashAttention is on a GPU. A CPU's caches are large beside its arithmetic, so writing the scores out costs it
little, and NumPy's loops pay for Python at every tile. The GPU's times are in `flashlab.bench.recorded()`.

Rows are those of the suite `kernels`: dtype, D, N, causal, B, H, direction, peer; ms (the median), low, high,
runs, max_error, tflops, cache, input_sets; peak_bytes: most memory that the call held beyond its inputs, the
result included; in backward rows kept_bytes: what autograd keeps from the forward pass, q, k and v included.
"""

import itertools

from flashlab.bench import peers
from flashlab.bench.kernels import COLUMNS, DIRECTIONS, check_sizes, line, reason
from flashlab.bench.memory import peak_in_numpy, peak_on_cpu
from flashlab.bench.timing import Host
from flashlab.bench.work import measured
from flashlab.text import t

NOTE = t("bench.cpu_note", language="en")  # kept with the rows; said at the end in the chosen language
LENGTHS, QUICK_LENGTHS = (256, 512, 1024, 2048), (128, 256)
NUMPY_UP_TO = 1024  # the loops take seconds beyond
HEADS, DIM = 4, 64
PEERS = ("numpy-naive", "numpy-fa2", "sdpa-flash", "sdpa-math", "standard")
SQUARES = 5  # score matrices that standard attention holds at once, backward


def plan(lengths=LENGTHS, causal=(False,), dims=(DIM,), names=None, directions=DIRECTIONS):
    """[(case, direction, peer), ...] in the order in which they are measured; NumPy only as far as it goes in
    seconds, unless it is asked for by name. Raises ValueError for an unknown peer or direction and for sizes
    below 1.
    """
    peers.check_names(names or (), PEERS)
    peers.check_names(directions, DIRECTIONS, "direction")
    check_sizes(lengths, dims)
    return [
        (dict(dtype="float32", D=d, N=n, causal=c, B=1, H=HEADS), direction, name)
        for d, c, n, direction, name in itertools.product(dims, causal, lengths, directions, names or PEERS)
        if names or not name.startswith("numpy") or n <= NUMPY_UP_TO
    ]


def run(lengths=LENGTHS, say=print, budget_ms=250.0, **which):
    """Measure every case of a `plan` (same arguments); yields one dict a measurement (or with "error": why
    there is none). `budget_ms`: about how long the timed runs of one measurement take.
    """
    say(COLUMNS)
    for case, direction, name in plan(lengths, **which):
        row = dict(case, direction=direction, peer=name)
        try:
            fits(case)
            peak = peak_in_numpy if name.startswith("numpy") else peak_on_cpu
            how = dict(sets=2, cold=False, budget_ms=budget_ms, least=3, most=50, warm=1)
            row |= measured(make(name), case, direction, Host(), "cpu", peak, **how)
        except Exception as problem:  # a peer that cannot do a case is a result, too
            row["error"] = reason(problem)
        yield row
        say(line(row))
    say(t("bench.cpu_note"))


def fits(case):
    """Raise MemoryError where standard attention would not fit into the free memory."""
    from flashlab.bench.sdpa_paths import free_bytes, readable_bytes

    needed, free = SQUARES * case["B"] * case["H"] * case["N"] ** 2 * 4, free_bytes()
    if free is not None and needed > free:
        raise MemoryError(f"about {readable_bytes(needed)} are needed and {readable_bytes(free)} are free")


def make(name):
    """A peer by its name: a function (q, k, v, causal) -> o on CPU tensors [B, H, N, D], differentiable."""
    from flashlab import reference, tiled

    if name == "numpy-naive":
        return in_numpy(reference.attention, reference.attention_backward)
    if name == "numpy-fa2":
        return in_numpy(tiled.fa2_forward, tiled.fa2_backward)
    return peers.make(name)


def in_numpy(forward, backward):
    """A NumPy forward and backward pass (as in `flashlab.reference`) as one differentiable function of
    PyTorch tensors; nothing is copied.
    """
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, causal):
            o, lse = map(torch.from_numpy, forward(*(x.numpy() for x in (q, k, v)), causal=causal))
            ctx.save_for_backward(q, k, v, o, lse)
            ctx.causal = causal
            return o

        @staticmethod
        def backward(ctx, do):
            saved = [x.detach().numpy() for x in ctx.saved_tensors]
            return *map(torch.from_numpy, backward(*saved, do.numpy(), causal=ctx.causal)), None

    return Attention.apply
