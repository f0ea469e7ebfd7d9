"""The suite `tune`: try launch configurations of the kernels on this GPU and rank them (opt-in; nothing is
tuned at run time).

Every candidate is compiled in a process of its own, many at once and each with a time limit, because a
compiler may fail or take for ever; then each is checked against the shipped configuration's result and timed
alone.
"""

import itertools
import multiprocessing
import os

from flashlab.bench.kernels import HIDDEN, TOKENS, flops
from flashlab.bench.timing import time_cuda

DIRECTIONS = ("forward", "dkdv", "dq")
SHARED_MEMORY = 227 * 1024  # bytes that one program may have on Hopper


def candidates(direction, dim, tma=(True,)):
    """Configurations worth trying: block sizes, warps and stages whose tiles fit into shared memory
    (with TMA descriptors: pointers were never faster on Hopper)."""
    from flashlab.kernels.launch import Config

    sizes = {
        "forward": ((64, 128), (64, 128), (2, 3)),
        "dkdv": ((32, 64, 128), (64, 128), (2, 3)),
        "dq": ((64, 128), (32, 64, 128), (2, 3)),
    }[direction]
    for block_q, block_k, stages, by_tma in itertools.product(*sizes, tma):
        rows = block_k if direction == "dkdv" else block_q  # the side that stays on chip
        moving = block_q if direction == "dkdv" else block_k
        held = 2 if direction != "forward" else 1
        if 2 * dim * (held * rows + 2 * stages * moving) > SHARED_MEMORY:
            continue
        for warps in (4, 8):
            if rows * moving <= 64 * 128 * (warps // 4) and rows * moving >= 32 * 64 * (warps // 4):
                yield Config(block_q, block_k, warps, stages, by_tma)


def run(dims, lengths, causal, directions=DIRECTIONS, dtype="bfloat16", limit_s=60, say=print):
    """Time every candidate on every case; yields dicts, the failures with "error"."""
    jobs = [
        (direction, dim, mask, dtype, config)
        for direction, dim, mask in itertools.product(directions, dims, causal)
        for config in candidates(direction, dim)
    ]
    say(f"{len(jobs)} configurations to compile")
    problems = compile_all(jobs, limit_s)
    for job, problem in zip(jobs, problems, strict=True):
        direction, dim, mask, _, config = job
        row = dict(direction=direction, D=dim, causal=mask, dtype=dtype, config=list(config))
        if problem:
            yield row | dict(error=problem)
            continue
        for n in lengths:
            case = dict(B=TOKENS // n, H=HIDDEN // dim, N=n, D=dim, causal=mask)
            timing = time_cuda(call(case, direction, dtype, config), budget_ms=40.0)
            share = {"forward": 1.0, "dkdv": 2.0, "dq": 1.5}[direction]  # half of its matrix products
            speed = flops(case, "forward") * share / timing.median / 1e9
            yield row | dict(N=n, ms=timing.median, tflops=speed, cache="flushed")
            mark = "causal" if mask else "full"
            what = f"{direction:8} D {dim:3} {mark:6} N {n:5} {tuple(config)}"
            say(f"{what}  {timing.median:.3f} ms  {speed:.0f}")


def call(case, direction, dtype, config):
    """A function that launches one kernel once, on fresh random tensors."""
    import torch

    from flashlab.kernels import fa2, fa2_backward

    shape = case["B"], case["H"], case["N"], case["D"]
    q, k, v, do = (torch.randn(shape, device="cuda", dtype=getattr(torch, dtype)) for _ in range(4))
    how = dict(causal="top-left" if case["causal"] else None, scale=case["D"] ** -0.5)
    if direction == "forward":
        return lambda: fa2.forward(q, k, v, **how, config=config)
    o, lse = fa2.forward(q, k, v, **how)
    delta = fa2_backward.delta(o, do)
    back = fa2_backward.backward_kv if direction == "dkdv" else fa2_backward.backward_q
    return lambda: back(q, k, v, do, lse, delta, **how, config=config)


def compile_one(job):
    """Compile and run one candidate once, and compare it with the shipped configuration; None, or what
    went wrong.
    """
    import torch

    direction, dim, mask, dtype, config = job
    case = dict(B=1, H=2, N=1000, D=dim, causal=mask)
    try:
        results = []
        for c in (None, config):
            torch.manual_seed(0)
            got = call(case, direction, dtype, c)()
            results.append(got if isinstance(got, tuple) else (got,))
        torch.cuda.synchronize()
        for a, b in zip(*results, strict=True):
            error = (a.float() - b.float()).abs().max().item()
            if not error <= 0.05 * a.float().abs().max().item():
                return f"wrong result: differs by {error:.3g}"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"[:200]


def compile_all(jobs, limit_s):
    """What went wrong with each job, in order; one that does not answer in time counts as failed."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(max(1, (os.cpu_count() or 2) - 2)) as pool:
        waiting = [pool.apply_async(compile_one, (job,)) for job in jobs]
        problems = []
        for result in waiting:
            try:
                problems.append(result.get(limit_s))
            except multiprocessing.TimeoutError:
                problems.append(f"no answer in {limit_s} s")
        pool.terminate()
    return problems
