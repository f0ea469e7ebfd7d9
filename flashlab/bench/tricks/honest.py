"""An honest benchmark of one attention call, in steps; a lie is one step replaced.

The steps are those of `flashlab.bench`: fresh random inputs, a chip at its steady clock, a time taken by
`flashlab.bench.timing.measure` (marks on the device, cold L2, poisoned outputs, right results or none, the
median), FLOPs that the mask leaves, and a baseline measured in the same way.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

from flashlab.bench import timing
from flashlab.bench.tricks import model
from flashlab.problem import Problem


class WrongResult(Exception):
    """The call that was to be timed does not compute attention."""


class Claim(NamedTuple):
    """What a benchmark says of a call: milliseconds, TFLOP/s, the kernel by name, the problem, the speed-up
    over a baseline if there was one, and the clock at which it ran if it says so (MHz before and after).
    """

    ms: float
    tflops: float
    kernel: str
    problem: Problem
    baseline: str | None = None
    speedup: float | None = None
    clock_mhz: tuple | None = None


def inputs(device, problem, seed):
    """Normal random q, k, v."""
    shapes = ((problem.Hq, problem.Nq), (problem.Hkv, problem.Nk), (problem.Hkv, problem.Nk))
    return [
        device.normal((problem.B, heads, n, problem.D), problem.dtype, seed=3 * seed + i)
        for i, (heads, n) in enumerate(shapes)
    ]


def attend(device, attention, problem):
    """The call as it was given."""
    return attention


def prepare(device, q, result, turn):
    """Another query in each run, and no trace of the last result."""
    device.renew(q, seed=1000 + turn)
    if result is not None:
        device.poison(result)


def warm_up(device, attention, problem, sets):
    """The same call on the same shape until compiling is done and the clock is steady."""
    device.soak(lambda: attention(*sets[0], problem.causal))


def stopwatch(device, call, **how):
    """Milliseconds of each run that counts, taken by flashlab.bench.timing."""
    kept = Keeping(device)
    found = timing.measure(call, kept, budget_ms=40.0, least=20, **how)
    return kept.times[-found.runs :]


def statistic(times):
    """The median, as flashlab.bench.timing reports it."""
    return timing.Timing.of(times).median


def baseline(device, given):
    """The baseline as it was given."""
    return given


def check(device, o, q, k, v, causal):
    """Raises WrongResult unless o is attention of q, k and v."""
    error = device.error(o, q, k, v, causal)
    if not error <= device.tolerance:
        raise WrongResult(f"largest error {error:.3g}, allowed {device.tolerance:.3g}")


class Keeping:
    """A device for flashlab.bench.timing that keeps each of the times it was asked for."""

    def __init__(self, device):
        self.times = []
        self.record, self.synchronize, self.flush = device.record, device.synchronize, device.flush
        self._elapsed = device.elapsed

    def elapsed(self, start, end):
        self.times.append(self._elapsed(start, end))
        return self.times[-1]


@dataclass(frozen=True)
class Benchmark:
    """A function (device, attention, problem, baseline=None) -> `Claim`, put together from steps."""

    inputs: Any = inputs
    sets: int = 2
    attend: Any = attend
    prepare: Any = prepare
    warm_up: Any = warm_up
    stopwatch: Any = stopwatch
    statistic: Any = statistic
    flops: Any = model.flops
    baseline: Any = baseline
    baseline_steps: Any = None  # fields of the baseline's own benchmark that differ
    check: Any = check

    def __call__(self, device, attention, problem, baseline=None):
        ms = self.time(device, self.attend(device, attention, problem), problem)
        claim = Claim(ms, self.flops(problem) / ms / 1e9, attention.kernel, problem)
        if baseline is None:
            return claim
        steps = dataclasses.replace(self, **(self.baseline_steps or {}))
        other = steps.time(device, self.baseline(device, baseline), problem)
        return claim._replace(baseline=baseline.kernel, speedup=other / ms)

    def time(self, device, attention, problem):
        """Milliseconds of one call."""
        sets = [self.inputs(device, problem, seed) for seed in range(self.sets)]
        turns = iter(range(10**9))
        how = dict(sets=self.sets)
        if self.prepare:
            how["prepare"] = lambda i, o: self.prepare(device, sets[i][0], o, next(turns))
        if self.check:
            how["check"] = lambda i, o: self.check(device, o, *sets[i], problem.causal)
        if self.warm_up:
            self.warm_up(device, attention, problem, sets)
        call = lambda i: attention(*sets[i], problem.causal)  # noqa: E731
        return max(self.statistic(self.stopwatch(device, call, **how)), 1e-6)


HONEST = Benchmark()
