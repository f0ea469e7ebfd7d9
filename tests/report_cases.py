"""Measurements for the tests of the report: made up, in the shape of the suites' rows."""

from flashlab.bench.floors import flops

ORIGIN = {
    "gpu": None, "cpu": "Example", "threads": 4, "torch": "2.13.0", "python": "3.11.7", "flashlab": "0.1.0",
    "date": "2026-12-01T10:00:00+00:00", "command": "python -m flashlab.bench cpu", "commit": None,
}  # fmt: skip
GPU = ORIGIN | {"gpu": "NVIDIA GeForce RTX 4090", "command": "python -m flashlab.bench kernels"}


def row(peer, ms, n=1024, direction="forward", spread=0.001, **more):
    """A row of the suite `cpu`; `spread` is how far low and high are from ms, as a share of it."""
    made = dict(dtype="float32", D=64, N=n, causal=False, B=1, H=4, direction=direction, peer=peer) | more
    times = dict(ms=ms, low=ms * (1 - spread), high=ms * (1 + spread), runs=9, max_error=1e-6)
    times["tflops"] = flops(made, direction) / ms / 1e9
    return made | times | more


def record(*rows, origin=ORIGIN, suite="cpu", **more):
    """What `records.load` gives for one file."""
    return {"suite": suite, "provenance": origin, "rows": list(rows), "file": "mine.json", **more}


def both(standard, flash, **more):
    """The two rows of a pair, with their times."""
    return [row("standard", standard, **more), row("sdpa-flash", flash, **more)]
