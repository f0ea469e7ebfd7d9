"""Which tricks does a benchmark play? Experiments on a black box, each with a world changed in one way.

A benchmark is any function (device, attention, problem, baseline=None) -> Claim. A detector hands it an
attention call that is known to differ from another in one thing (it takes longer on the device, on the host,
the first time, now and then; it is wrong; its inputs lie elsewhere) or a device that is hot instead of cool,
and looks at what the claim makes of it. No name and no source is read.
"""

from typing import NamedTuple

from flashlab.bench.tricks import honest, levers, model
from flashlab.bench.tricks.device import Simulated
from flashlab.bench.tricks.honest import Claim, WrongResult
from flashlab.bench.tricks.lies import DECODE, LONG
from flashlab.errors import unknown_name
from flashlab.text import t

LEVER_MS = 5.0  # how much longer a call is made; several times what it takes
ONCE_MS = 400.0  # what a first call is made to cost; as much as compiling


class Finding(NamedTuple):
    """A trick and the experiment that gave it away, in words."""

    trick: str
    evidence: str


class Laboratory:
    """Runs the experiments on one benchmark, each on a fresh device; what several detectors ask for is
    measured once.
    """

    def __init__(self, benchmark, device, problem=LONG, kernel="sdpa-flash", again=0):
        self.again = again
        self.benchmark, self.device, self.problem, self.kernel = benchmark, device, problem, kernel
        self._known = {}

    def claim(self, lever=None, *, problem=None, worked=None, against=None, **how):
        """The claim about the kernel under a lever (None where the benchmark refused the result as wrong),
        and the set of (kernel, dtype) launched. `worked`: for how many seconds the chip has just worked, all
        first calls done.
        """
        key = (lever, problem, worked, against, *how.items())
        if key not in self._known:
            device = self.device.fresh(self.again)
            if worked is not None:
                inputs = honest.inputs(device, self.problem, 0)
                device.attention(self.kernel)(*inputs, self.problem.causal)
                device.synchronize()
                device.heat(worked)
            change = lambda call: lever(device, call, **how) if lever else call  # noqa: E731
            call = change(device.attention(self.kernel))
            beside = () if against is None else (change(device.attention(against)),)
            try:
                found = self.benchmark(device, call, problem or self.problem, *beside)
            except WrongResult:
                found = None
            self._known[key] = (found, {*device.log})
        return self._known[key]

    def ms(self, *what, **how):
        """The milliseconds of that claim; infinite where it was refused."""
        found, _ = self.claim(*what, **how)
        return float("inf") if found is None else found.ms

    def moved(self, lever, **how):
        """By how many milliseconds the claim moves under a lever."""
        return self.ms(lever, **how) - self.ms()

    def foreign(self):
        """Kernels that ran although only one was to be measured."""
        _, launched = self.claim()
        return sorted({name for name, _ in launched} - {self.kernel})

    def timed(self):
        """Whether work of the given call is in the claim at all."""
        return self.moved(levers.busy_device, ms=LEVER_MS) > LEVER_MS / 2


def no_synchronize(lab):
    device, host = (lab.moved(x, ms=LEVER_MS) for x in (levers.busy_device, levers.busy_host))
    return device < LEVER_MS / 2 < host, dict(device=device, host=host, lever=LEVER_MS)


def cached_output(lab):
    device, host = (lab.moved(x, ms=LEVER_MS) for x in (levers.busy_device, levers.busy_host))
    return max(device, host) < LEVER_MS / 2 and not lab.foreign(), dict(lever=LEVER_MS, ms=lab.ms())


def another_backend(lab):
    names = lab.foreign()
    return bool(names), dict(names=", ".join(names), kernel=lab.kernel)


def first_call(lab):
    moved = lab.moved(levers.first_call, ms=ONCE_MS)
    return moved > ONCE_MS / 100, dict(moved=moved, lever=ONCE_MS)


def another_shape(lab):
    moved = lab.moved(levers.first_of_shape, ms=ONCE_MS)
    return moved > ONCE_MS / 100 and not first_call(lab)[0], dict(moved=moved, lever=ONCE_MS)


def warm_l2(lab):
    same, other = (lab.ms(x, problem=DECODE) for x in (None, levers.other_places))
    return other - same > 0.2 * other, dict(same=same * 1e3, other=other * 1e3)


def causal_flops(lab):
    found, _ = lab.claim()
    return (False, {}) if found is None else all_pairs_counted(found)


def all_pairs_counted(claim):
    """From the claim alone: do its milliseconds and its TFLOP/s multiply to the work that the mask leaves?"""
    counted = claim.tflops * claim.ms * 1e9 / model.flops(claim.problem)
    return counted > 1.5, dict(counted=counted)


def zeros(lab):
    seen = []
    try:
        device = lab.device.fresh(lab.again)
        lab.benchmark(device, levers.watched(device, device.attention(lab.kernel), seen), lab.problem)
    except WrongResult:
        pass
    constant = bool(seen) and max(seen) == 0
    return constant, dict(slower=100 * lab.moved(levers.filled) / lab.ms() if constant else 0)


def math_baseline(lab):
    _, launched = lab.claim(against="standard")
    wide = sorted({name for name, dtype in launched if dtype == "float32"})
    return bool(wide), dict(names=", ".join(wide), dtype=lab.problem.dtype)


def unwarmed_baseline(lab):
    found, launched = lab.claim(levers.first_call, against=lab.kernel, worked=0.0, ms=10 * ONCE_MS)
    speedup = 1.0 if found is None or found.speedup is None else found.speedup
    only_this = {name for name, _ in launched} == {lab.kernel}
    said = f"{speedup:,.0f}" if speedup >= 10 else f"{speedup:.2g}"
    return lab.timed() and only_this and not 0.1 < speedup < 10, dict(speedup=said)


def throttling_clock(lab):
    """A claim that says at which clock it ran may differ as the clocks do: the cycles count."""
    cool, hot = (lab.claim(worked=seconds)[0] for seconds in (0.0, 5.0))
    if not cool or not hot:
        return False, {}
    spent = [x.ms * sum(x.clock_mhz or (1, 1)) for x in (cool, hot)]
    return abs(spent[1] / spent[0] - 1) > 0.05, dict(cool=cool.ms, hot=hot.ms)


def mean(lab):
    moved = lab.moved(levers.now_and_then, ms=20 * LEVER_MS)
    return moved > LEVER_MS / 5, dict(moved=moved, lever=20 * LEVER_MS)


def best_of(lab):
    moved = lab.moved(levers.mostly, ms=LEVER_MS)
    return lab.timed() and moved < LEVER_MS / 5, dict(moved=moved, lever=LEVER_MS)


def unchecked(lab):
    found, _ = lab.claim(levers.wrong)
    return found is not None and not lab.foreign(), dict(tflops=found.tflops if found else 0)


DETECTORS = {
    "no-synchronize": no_synchronize,
    "first-call-counted": first_call,
    "warmed-on-another-shape": another_shape,
    "cached-output": cached_output,
    "warm-l2": warm_l2,
    "causal-flops": causal_flops,
    "zeros": zeros,
    "math-baseline": math_baseline,
    "unwarmed-baseline": unwarmed_baseline,
    "throttling-clock": throttling_clock,
    "mean": mean,
    "best-of": best_of,
    "another-backend": another_backend,
    "unchecked": unchecked,
}


def detect(claim_or_benchmark, device=None, *, problem=LONG, kernel="sdpa-flash", only=None):
    """The tricks found, a list of `Finding`; empty for an honest benchmark.

    A benchmark (device, attention, problem, baseline=None) -> Claim is put through all experiments, or those
    of the tricks in `only`, on `device` (default: a simulated one). Of a `Claim` alone only arithmetic can be
    checked: whether the FLOPs fit the mask, and whether the rate is above the peak of the GPU ("impossible").
    """
    if isinstance(claim_or_benchmark, Claim):
        return list(_of_claim(claim_or_benchmark, device or Simulated()))
    if not callable(claim_or_benchmark):
        raise TypeError(f"expected a benchmark or a Claim, got {type(claim_or_benchmark).__name__}")
    for name in only or ():
        if name not in DETECTORS:
            raise unknown_name("trick", name, DETECTORS)
    where = (claim_or_benchmark, device or Simulated(), problem, kernel)
    lab, twin = (Laboratory(*where, again=again) for again in range(2))
    found = []
    for name in only or DETECTORS:
        fires, values = DETECTORS[name](lab)
        if fires and DETECTORS[name](twin)[0]:  # what was found is repeated before it is told
            found.append(Finding(name, t(f"tricks.evidence.{name}", **values)))
    return found


def _of_claim(claim, device):
    fires, values = all_pairs_counted(claim)
    if fires:
        yield Finding("causal-flops", t("tricks.evidence.causal-flops", **values))
    peak = peak_tflops(device, claim.problem.dtype)
    if peak and claim.tflops > peak:
        yield Finding("impossible", t("tricks.evidence.impossible", tflops=claim.tflops, peak=peak))


def peak_tflops(device, dtype):
    """The peak of the device's GPU in TFLOP/s; None where flashlab.gpus does not know it."""
    gpu = device.gpu()
    return gpu.peak_of(dtype) / 1e12 if gpu else None
