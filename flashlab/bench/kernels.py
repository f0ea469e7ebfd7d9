"""The suite `kernels`: forward and backward speed at 16,384 tokens and hidden size 2048, beside the peers,
in one run.

Each result is checked against the reference formula in float32 before its time counts, and stands beside two
floors: the time that the bytes need at the card's bandwidth, and the time that the matrix products need at
its peak.
"""

import itertools

from flashlab.bench.peers import all_peers
from flashlab.bench.timing import time_cuda

TOKENS, HIDDEN = 16384, 2048


def cases(
    dtypes=("float16", "bfloat16"),
    dims=(64, 128),
    lengths=(512, 1024, 2048, 4096, 8192, 16384),
    causal=(False, True),
):
    """The grid of cases, as dicts with dtype, D, N, causal, B, H."""
    for dtype, d, c, n in itertools.product(dtypes, dims, causal, lengths):
        yield dict(dtype=dtype, D=d, N=n, causal=c, B=TOKENS // n, H=HIDDEN // d)


def flops(case, direction):
    """FLOPs that count: 4 B H N^2 D forward, halved for causal, times 2.5 backward."""
    forward = 4 * case["B"] * case["H"] * case["N"] ** 2 * case["D"] / (2 if case["causal"] else 1)
    return forward * (2.5 if direction == "backward" else 1)


def run(which, peers=None, directions=("forward", "backward"), say=print):
    """Measure every case; yields one dict a measurement (or with "error": why there is none)."""
    made = {}
    for case, direction in itertools.product(which, directions):
        for name in peers or list(all_peers()):
            row = dict(case, direction=direction, peer=name)
            try:
                if name not in made:
                    made[name] = all_peers()[name]()
                timing, error = measure(made[name], case, direction)
            except Exception as problem:  # a peer that cannot do a case is a result, too
                row["error"] = f"{type(problem).__name__}: {problem}"[:300]
            else:
                row |= dict(
                    ms=timing.median, low=timing.low, high=timing.high, runs=timing.runs, max_error=error
                )
                row["tflops"] = flops(case, direction) / timing.median / 1e9
            say(line(row))
            yield row


def measure(attend, case, direction):
    """The timing of one peer on one case, and its largest error against float32 (on the first head only,
    to stay small).
    """
    import torch

    torch.manual_seed(0)
    shape = case["B"], case["H"], case["N"], case["D"]
    dtype = getattr(torch, case["dtype"])
    q, k, v, do = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(4))
    grad = direction == "backward"
    leaves = [x.requires_grad_(grad) for x in (q, k, v)]
    o = attend(q, k, v, case["causal"])
    got = torch.autograd.grad(o, leaves, do, retain_graph=True) if grad else (o,)
    error = check(got, leaves, do, case["causal"])
    if not grad:
        with torch.no_grad():
            return time_cuda(lambda: attend(q, k, v, case["causal"])), error
    return time_cuda(lambda: torch.autograd.grad(o, leaves, do, retain_graph=True)), error


def check(got, leaves, do, causal):
    """Largest error over the first batch and head against the formula in float32; raises when it is not a
    rounding error.
    """
    import torch

    from flashlab.bench.peers import standard

    first = [x[:1, :1].detach().float().requires_grad_() for x in leaves]
    want = standard(*first, causal)
    if len(got) == 3:
        want = torch.autograd.grad(want, first, do[:1, :1].float())
    worst = 0.0
    for g, w in zip(got, want if len(got) == 3 else (want,), strict=True):
        error = (g[:1, :1].float() - w).abs().max().item()
        allowed = 16 * torch.finfo(g.dtype).eps * max(w.abs().max().item(), 1)
        if not error <= allowed:
            raise AssertionError(f"wrong result: largest error {error:.3g}, allowed {allowed:.3g}")
        worst = max(worst, error)
    return worst


def line(row):
    """One line of progress."""
    mask = "causal" if row["causal"] else "full"
    head = f"{row['direction']:8} {row['dtype']:8} D {row['D']:3} N {row['N']:5} {mask:6} {row['peer']:15}"
    return head + (f"{row['tflops']:7.1f} TFLOP/s  {row['ms']:.3f} ms" if "ms" in row else row["error"])
