"""Fourteen ways in which benchmarks lie, each one step of the honest benchmark replaced.

Read one beside the step of the same name in `flashlab.bench.tricks.honest`.
"""

import statistics
from dataclasses import dataclass, field, replace

from flashlab.bench.tricks import honest
from flashlab.bench.tricks.honest import HONEST
from flashlab.errors import unknown_name
from flashlab.problem import Problem

LONG = Problem(B=4, Hq=16, Nq=4096, D=128, causal=True, dtype="float16")  # arithmetic is the limit
DECODE = Problem(B=1, Hq=32, Hkv=8, Nq=1, Nk=8192, D=128, dtype="float16")  # memory; 34 MB, fits into L2


def no_synchronize(device, call, **how):
    """Stops the host's clock when the launch returns, not when the kernel ends."""
    times = []
    for _ in range(40):
        start = device.host()
        result = call(0)
        times.append((device.host() - start) * 1e3)
    return _checked(device, result, times, how)


def one_run(device, call, **how):
    """Times a single run, with all that the first one has to prepare."""
    start = device.record()
    result = call(0)
    end = device.record()
    device.synchronize()
    return _checked(device, result, [device.elapsed(start, end)], how)


def warm_up_another_shape(device, attention, problem, sets):
    """Warms up, but on half the length: whatever is made for each shape is still to be made."""
    half = replace(problem, Nq=max(1, problem.Nq // 2), Nk=problem.Nk // 2)
    honest.warm_up(device, attention, half, [honest.inputs(device, half, 0)])


def replay(device, attention, problem):
    """Computes the answer once and hands it out again."""
    answers = {}

    def call(q, k, v, causal):
        if id(q) not in answers:
            answers[id(q)] = attention(q, k, v, causal)
        return answers[id(q)]

    return call


def warm_cache(device, call, **how):
    """Keeps the queue full without touching L2, which still holds the inputs of the run before."""
    return honest.stopwatch(_NoFlush(device), call, **how)


def all_pairs(problem):
    """Counts the pairs that the causal mask skips."""
    return 4 * problem.B * problem.Hq * problem.Nq * problem.Nk * problem.D


def zeros(device, problem, seed):
    """Inputs that need no power: nothing switches, the clock stays high."""
    return [device.zeros(x.shape, problem.dtype) for x in honest.inputs(device, problem, seed)]


def math_backend(device, given):
    """Takes SDPA's math backend for "standard attention": it computes in float32."""
    return device.attention("sdpa-math")


def what_pytorch_picks(device, attention, problem):
    """Names no backend, and so measures another one than the report says."""
    return device.attention(None)


class _NoFlush:
    def __init__(self, device):
        self.record, self.synchronize, self.elapsed = device.record, device.synchronize, device.elapsed
        self.flush = lambda: device.delay(0.1)


def _checked(device, result, times, how):
    device.synchronize()
    if "check" in how:
        how["check"](0, result)
    return times


@dataclass(frozen=True)
class Trick:
    """`steps` of the honest benchmark replaced; `problem`, `kernel` and `against` are where it shows best.

    `also`: tricks that it plays by playing this one.
    """

    name: str
    steps: dict = field(hash=False)
    problem: Problem = LONG
    kernel: str = "sdpa-flash"
    against: str | None = None
    also: tuple = ()

    @property
    def benchmark(self):
        """The benchmark that plays this trick and no other."""
        return replace(HONEST, **self.steps)


ONCE = dict(warm_up=None, stopwatch=one_run)
_LIST = (
    Trick("no-synchronize", dict(stopwatch=no_synchronize)),
    Trick("first-call-counted", ONCE, also=("throttling-clock",)),  # no warm-up takes any clock it finds
    Trick("warmed-on-another-shape", dict(warm_up=warm_up_another_shape, stopwatch=one_run)),
    Trick("cached-output", dict(attend=replay, prepare=None)),
    Trick("warm-l2", dict(stopwatch=warm_cache, sets=1), DECODE),
    Trick("causal-flops", dict(flops=all_pairs)),
    Trick("zeros", dict(inputs=zeros, prepare=None)),
    Trick("math-baseline", dict(baseline=math_backend), against="standard"),
    Trick("unwarmed-baseline", dict(baseline_steps=ONCE), against="standard"),
    Trick("throttling-clock", dict(warm_up=None)),
    Trick("mean", dict(statistic=statistics.mean)),
    Trick("best-of", dict(statistic=min)),
    Trick("another-backend", dict(attend=what_pytorch_picks)),
    Trick("unchecked", dict(check=None), kernel="skips-half"),
)
TRICKS = {trick.name: trick for trick in _LIST}


def get(name):
    """The trick of that name. Raises ValueError that lists the closest names."""
    if name not in TRICKS:
        raise unknown_name("trick", name, TRICKS)
    return TRICKS[name]


def together(names):
    """The benchmark that plays all these tricks; ValueError where two of them replace the same step."""
    steps = {}
    for trick in map(get, names):
        if both := steps.keys() & trick.steps:
            raise ValueError(f"expected tricks that replace different steps, {', '.join(names)} share {both}")
        steps |= trick.steps
    return replace(HONEST, **steps)
