"""The suite `hopper`: all that a first session on an H100 or H200 must find out about fa3, in this order.

1. "first": each step and head dim once, on small shapes, in a process of its own that is killed after a
   minute. A wrong barrier hangs the card, so nothing that failed here is run again.
2. "right": every step on shapes with ragged ends, masks and shared heads against the formula in float32, and
   fifty runs of step 5 that must be equal bit for bit; again in processes, for larger grids may hang, too.
3. "forward": the grid of the suite `kernels`, the steps beside fa2, SDPA and flash-attn-4 where installed.
4. "backward": the grid again, fa3's own backward beside fa2's and cuDNN's. Its first runs, in a process of
   their own that is killed after a minute, must agree with fa2's.

`python -m flashlab.bench.hopper STEP D` is one process of the first part, with `right` after D of the second;
`backward` in the place of STEP is one of the fourth.
"""

import contextlib
import itertools
import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

STEPS, DIMS = (1, 2, 3, 4, 5), (64, 128, 256)
PATIENCE = 60  # seconds for the first run of a step, compilation included
PATIENCE_RIGHT = 150  # and for part 2, six compilations
PROCESSES = 5  # at a time
PEERS = ("sdpa-cudnn", "sdpa-flash", "fa2", "flash-attn-4")
BACKWARDS = ("fa3, own backward", "fa3, fa2's backward", "sdpa-cudnn")
MASKS = (None, "top-left", "bottom-right")
# (B, Hq, Hkv, Nq, Nk); the head dim comes from DIMS
FIRST = [(1, 2, 1, 200, 300)]
SHAPES = [
    (1, 1, 1, 1, 1),
    (2, 6, 2, 129, 1000),
    (1, 2, 2, 1000, 129),
    (3, 4, 4, 511, 513),
    (1, 64, 8, 2048, 2048),
]
LADDER = (4096,)  # lengths at which every step is timed; elsewhere step 5


def run(cases, peers=None, say=print, *, patience=None, command=None):
    """Yield a row for each thing tried: with "error" where it failed, else with what was found.

    `cases` as `kernels.cases` gives them. `patience`, `command` (the words before STEP and D): for tests.
    """
    from flashlab.bench import kernels

    sound, cases = set(), list(cases)  # gone through twice: forward and backward
    for row in first_runs(patience or PATIENCE, command):
        if "error" not in row:
            sound.add((row["step"], row["D"]))
        yield row
        say(line(row))
    for row in right_runs(sorted(sound), patience or PATIENCE_RIGHT, command):
        if row.get("hangs"):
            sound.discard((row["step"], row["D"]))
        yield row
        say(line(row))
    say(kernels.HEAD)
    for row in timed(cases, peers, sound):
        yield row
        say(line(row))
    for row in backward(cases, patience or PATIENCE, command):
        yield row
        say(line(row))


def first_runs(patience=PATIENCE, command=None):
    """Part 1: a row for each step and head dim, a few processes at a time."""
    for (step, dim), _, problem in processes(itertools.product(STEPS, DIMS), (), patience, command):
        yield dict(part="first", step=step, D=dim) | ({"error": problem} if problem else {})


def right_runs(sound, patience=PATIENCE_RIGHT, command=None):
    """Part 2: the rows of `right` and `repeated` for each variant, a few processes at a time."""
    for (step, dim), said, problem in processes(sound, ("right",), patience, command):
        yield from map(json.loads, said.splitlines())
        if problem:
            yield dict(part="right", step=step, D=dim, error=problem, hangs=problem.startswith("no result"))


def processes(variants, words, patience, command=None):
    """Yield (variant, what its process said, what went wrong or None) for each (step, head dim)."""
    command = command or [sys.executable, "-m", "flashlab.bench.hopper"]

    def one(variant):
        given = [*command, *map(str, variant), *words]
        try:
            done = subprocess.run(given, capture_output=True, text=True, timeout=patience)
        except subprocess.TimeoutExpired as stopped:
            said = (stopped.stdout or b"").decode(errors="replace")
            said = said[: said.rfind("\n") + 1]  # whole lines
            return (
                variant,
                said,
                f"no result after {patience} s: it hangs, or its compilation takes that long",
            )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:300]
            return variant, done.stdout, last
        return variant, done.stdout, None

    with ThreadPoolExecutor(PROCESSES) as pool:
        yield from pool.map(one, variants)


def right(sound, device="cuda"):
    """Part 2: the largest error of every step that runs, in both formats, over SHAPES and MASKS."""
    for (step, dim), dtype in itertools.product(sorted(sound), ("float16", "bfloat16")):
        row = dict(part="right", step=step, D=dim, dtype=dtype)
        try:
            row["max_error"] = max(
                error_of(step, (*shape, dim), dtype, causal, device)
                for shape, causal in itertools.product(SHAPES, MASKS)
            )
        except Exception as problem:
            row["error"] = f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:300]
        yield row


def error_of(step, shape, dtype, causal, device="cuda"):
    """The largest error of o for one shape. Raises AssertionError where o or lse is not right."""
    import torch

    from flashlab import attention
    from flashlab.kernels import hopper_host

    (q, k, v), scale = inputs(shape, dtype, device), shape[-1] ** -0.5
    o, lse = hopper_host.forward(q, k, v, causal=causal, scale=scale, step=step)
    want, want_lse = attention(
        q.float(), k.float(), v.float(), causal=causal or False, scale=scale, backend="naive", return_lse=True
    )
    error, allowed = (
        (o.float() - want).abs().max().item(),
        16 * torch.finfo(o.dtype).eps * max(want.abs().max().item(), 1),
    )
    if not error <= allowed:
        raise AssertionError(f"{shape} causal={causal}: o is off by {error:.3g}, allowed {allowed:.3g}")
    both = (lse == want_lse).logical_or((lse - want_lse).abs() <= 1e-4)  # -inf is equal to -inf
    if not both.all():
        raise AssertionError(f"{shape} causal={causal}: {(~both).sum()} of {both.numel()} lse are off")
    return error


def inputs(shape, dtype, device):
    """Standard normal q, k, v for (B, Hq, Hkv, Nq, Nk, D)."""
    import torch

    batch, heads, kv_heads, num_queries, num_keys, dim = shape
    torch.manual_seed(0)
    return [
        torch.randn(batch, h, n, dim, device=device, dtype=getattr(torch, dtype))
        for h, n in ((heads, num_queries), (kv_heads, num_keys), (kv_heads, num_keys))
    ]


def repeated(sound, times=50, device="cuda"):
    """Part 2, too: step 5, `times` times, must give the same bits."""
    import torch

    from flashlab.kernels import hopper_host

    for dim in sorted(dim for step, dim in sound if step == 5):
        q, k, v = inputs((2, 8, 2, 1111, 1333, dim), "bfloat16", device)
        runs = [hopper_host.forward(q, k, v, causal="bottom-right", scale=dim**-0.5) for _ in range(times)]
        same = all(torch.equal(a, b) for r in runs for a, b in zip(r, runs[0], strict=True))
        row = dict(part="right", step=5, D=dim, dtype="bfloat16", repeats=times)
        yield row if same else row | dict(error=f"{times} runs differ")


def timed(cases, peers, sound):
    """Part 3: the steps and the peers on every case, measured as the suite `kernels` does."""
    from flashlab.bench import kernels
    from flashlab.bench.floors import floors
    from flashlab.bench.memory import peak_on_gpu
    from flashlab.bench.peers import installed, make
    from flashlab.bench.timing import Cuda

    device, gpu = Cuda(), kernels.this_gpu("cuda")
    others = [name for name in peers or PEERS if name in installed()]
    for case in cases:
        steps = [s for s in STEPS if (s, case["D"]) in sound and (s == 5 or case["N"] in LADDER)]
        for name in [*(f"fa3 step {s}" for s in steps), *others]:
            row = dict(case, part="forward", direction="forward", peer=name)
            try:
                attend = make(name) if name in others else step_as_peer(int(name[-1]))
                row |= kernels.measure(attend, case, "forward", name, "cuda", device, peak_on_gpu)
                row |= floors(case, "forward", row["ms"], gpu)
            except Exception as problem:
                row["error"] = kernels.reason(problem)
            yield row


def step_as_peer(step):
    """One step of the ladder as a function (q, k, v, causal) -> o."""
    from flashlab.kernels import hopper_host

    def attend(q, k, v, causal):
        how = dict(causal="top-left" if causal else None, scale=q.shape[-1] ** -0.5, step=step)
        return hopper_host.forward(q, k, v, **how)[0]

    return attend


def backward(cases, patience=PATIENCE, command=None):
    """Part 4: a row for the first runs of each head dim, then fa3's backward beside fa2's on every case."""
    sound = set()
    for (step, dim), _, problem in processes([("backward", dim) for dim in DIMS[:2]], (), patience, command):
        sound |= set() if problem else {dim}
        yield dict(part="first", step=step, D=dim) | ({"error": problem} if problem else {})
    if sound:
        yield from timed_backward([case for case in cases if case["D"] in sound])


def timed_backward(cases):
    """Part 4, on the GPU: both backwards, each behind the forward of fa3."""
    from flashlab.bench import kernels
    from flashlab.bench.floors import floors
    from flashlab.bench.memory import peak_on_gpu
    from flashlab.bench.peers import make
    from flashlab.bench.timing import Cuda

    device, gpu = Cuda(), kernels.this_gpu("cuda")
    for case, name in itertools.product(cases, BACKWARDS):
        row = dict(case, part="backward", direction="backward", peer=name)
        try:
            attend = attend_fa3 if name.startswith("fa3") else make(name)
            with own_backward(name == BACKWARDS[0]):
                row |= kernels.measure(attend, case, "backward", name, "cuda", device, peak_on_gpu)
            row |= floors(case, "backward", row["ms"], gpu)
        except Exception as problem:
            row["error"] = kernels.reason(problem)
        yield row


def attend_fa3(q, k, v, causal):
    """fa3 as a function (q, k, v, causal) -> o that autograd can go back through."""
    from flashlab import library

    return library.run_fa3(q, k, v, "top-left" if causal else "", q.shape[-1] ** -0.5)[0]


@contextlib.contextmanager
def own_backward(own):
    """Inside, the backward of fa3 is its own, or fa2's."""
    from flashlab import library

    before = library.FA3_BACKWARD_FROM
    library.FA3_BACKWARD_FROM = 0 if own else math.inf
    try:
        yield
    finally:
        library.FA3_BACKWARD_FROM = before


def agree(dim, device="cuda"):
    """The first runs of fa3's backward. Raises AssertionError where it is not fa2's within rounding."""
    import torch

    for shape, causal in itertools.product(FIRST, (False, True)):
        leaves = [x.requires_grad_() for x in inputs((*shape, dim), "bfloat16", device)]
        found = []
        for own in (True, False):
            o = attend_fa3(*leaves, causal)
            with own_backward(own):
                found.append(torch.autograd.grad(o.float().square().sum(), leaves))
        for name, got, want in zip(("dq", "dk", "dv"), *found, strict=True):
            error, allowed = (got - want).abs().max().item(), 0.02 * want.abs().max().item()
            if not error <= allowed:
                raise AssertionError(f"{shape} {name} is off by {error:.3g}, allowed {allowed:.3g}")


def line(row):
    """One line of progress."""
    if row["part"] in ("forward", "backward"):
        from flashlab.bench import kernels

        return kernels.line(row)
    what = "right" if "max_error" in row else f"{row['repeats']} equal runs" if "repeats" in row else "runs"
    return (
        f"{row['part']:8} step {row['step']} D {row['D']:3} {row.get('dtype', ''):8} {row.get('error', what)}"
    )


def main(argv=None):
    """One process: the step's first runs, which print nothing if all is right and raise if not; with "right",
    part 2 of that step, a row of JSON a line.
    """
    step, dim, *words = argv or sys.argv[1:]
    if step == "backward":
        return agree(int(dim))
    variant = int(step), int(dim)
    if words == ["right"]:
        for row in itertools.chain(right({variant}), repeated({variant})):
            print(json.dumps(row), flush=True)
        return
    for shape, causal in itertools.product(FIRST, MASKS):
        error_of(variant[0], (*shape, variant[1]), "bfloat16", causal)


if __name__ == "__main__":
    main()
