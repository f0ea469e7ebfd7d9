"""The suite `tune`: try launch configurations of the kernels on this GPU and rank them (opt-in; nothing is
tuned at run time).

Every candidate is compiled in a process of its own, many at once and each with a time limit, because a
compiler may fail or take for ever; then each is timed alone: inputs are new in every run, results are
poisoned, and those of the last timed run are compared with the shipped configuration's before a time counts.
"""

import itertools
import multiprocessing
import os

from flashlab.bench.floors import flops
from flashlab.bench.kernels import HIDDEN, TOKENS, reason

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
            yield (failed := row | dict(error=problem))
            say(line(failed))
            continue
        for n in lengths:
            case = dict(B=max(1, TOKENS // n), H=max(1, HIDDEN // dim), N=n, D=dim, causal=mask)
            found = row | dict(N=n)
            try:
                found |= timed(case, direction, dtype, config)
            except Exception as problem:  # wrong, or too little memory at this length
                found["error"] = reason(problem)
            yield found
            say(line(found))


def line(row):
    """One line of progress."""
    config = ",".join(map(str, row["config"][:4])) + (",tma" if row["config"][4] else "")
    mask = "causal" if row["causal"] else "full"
    head = f"{row['direction']:8} D {row['D']:3} {mask:6} N {row.get('N', ''):5} {config:16} "
    return head + (row["error"] if "error" in row else f"{row['ms']:8.3f} ms {row['tflops']:5.0f} TFLOP/s")


def timed(case, direction, dtype, config, where="cuda", device=None, **how):
    """The fields of one configuration on one case. `where`, `device` and `how` (for `timing.measure`) are for
    tests without a GPU.
    """
    from flashlab.bench.clocks import sm_mhz
    from flashlab.bench.timing import Cuda, measure

    inputs, before = Inputs(case, direction, dtype, where), sm_mhz()
    worst = []
    timing = measure(
        lambda _: inputs.launch(config), device or Cuda(),
        prepare=lambda _, results: inputs.renew(results),
        check=lambda _, results: worst.append(difference(inputs.launch(None), results)),
        **{"budget_ms": 40.0, **how},
    )  # fmt: skip
    share = {"forward": 1.0, "dkdv": 2.0, "dq": 1.5}[direction]  # half of its matrix products
    row = dict(ms=timing.median, low=timing.low, high=timing.high, runs=timing.runs, max_difference=worst[0])
    row |= dict(tflops=flops(case, "forward") * share / timing.median / 1e9, cache="flushed")
    return row | dict(clock_mhz=[before, sm_mhz()])


class Inputs:
    """Random tensors of a case, and one launch of one kernel on them."""

    def __init__(self, case, direction, dtype, where="cuda"):
        import torch

        shape = case["B"], case["H"], case["N"], case["D"]
        self.tensors = [torch.randn(shape, device=where, dtype=getattr(torch, dtype)) for _ in range(4)]
        self.how = dict(causal="top-left" if case["causal"] else None, scale=case["D"] ** -0.5)
        self.direction = direction
        self.renew(None)

    def renew(self, results):
        """NaN in the results of the last run, new inputs; before a backward kernel its lse and delta."""
        from flashlab.kernels import fa2, fa2_backward

        for x in results or ():
            x.fill_(float("nan"))
        for x in self.tensors:
            x.normal_()
        if self.direction != "forward":
            o, self.lse = fa2.forward(*self.tensors[:3], **self.how)
            self.delta = fa2_backward.delta(o, self.tensors[3])

    def launch(self, config):
        """The results with a Config (None: the shipped one), as a tuple."""
        from flashlab.kernels import fa2, fa2_backward

        if self.direction == "forward":
            return fa2.forward(*self.tensors[:3], **self.how, config=config)
        back = fa2_backward.backward_kv if self.direction == "dkdv" else fa2_backward.backward_q
        got = back(*self.tensors, self.lse, self.delta, **self.how, config=config)
        return got if isinstance(got, tuple) else (got,)


def difference(want, results):
    """The largest difference of two results; raises AssertionError where it is no rounding."""
    worst = 0.0
    for a, b in zip(want, results, strict=True):
        off = (a.float() - b.float()).abs().max().item()
        if not off <= 0.05 * a.float().abs().max().item():
            raise AssertionError(f"wrong result: differs by {off:.3g} from the shipped configuration's")
        worst = max(worst, off)
    return worst


def compile_one(job):
    """Compile and run one candidate once, and compare it with the shipped configuration; None, or what
    went wrong.
    """
    import torch

    direction, dim, mask, dtype, config = job
    try:
        torch.manual_seed(0)
        inputs = Inputs(dict(B=1, H=2, N=1000, D=dim, causal=mask), direction, dtype)
        difference(inputs.launch(None), inputs.launch(config))
    except Exception as problem:
        return reason(problem)


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
