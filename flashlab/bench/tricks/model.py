"""What the simulated device believes about a GPU: where each number is from, and which are assumed.

It is a model. It is right about the order of things (a launch returns before the kernel runs, a first call
compiles, L2 remembers, a hot chip slows down) and about as right about sizes as its parameters are. Those of
the H200 are read from the measurements that the package keeps (`flashlab.bench.recorded`); what nobody
measured here is an assumption, and is called one below.
"""

import functools
import math
import statistics
from dataclasses import dataclass

from flashlab import bench, gpus
from flashlab.bench.floors import known

MATRIX_SHARE = 715 / 989.5  # what a large matrix product reaches of the peak: measured, see gpus.ALL["H200"]


@dataclass(frozen=True)
class Model:
    """The parameters of a simulated device; times in µs or ms as named, clocks in MHz.

    Recorded (H200, 2026-11-30 and 2026-12-01)
    `launch_us`: until a call of SDPA returns (suite host). `bandwidth`: bytes/s of a copy (suite decode).
    `boost_mhz`, `steady_mhz`: the highest SM clock, and that of the suite kernels at work on random data.
    `noise`: half the distance from the 20th to the 80th percentile, over the median (suite kernels).

    Assumed
    `latency_us`: from a launch to the first byte. `event_us`: what recording an event costs the
    host, and the device.
    `first_call_ms`, `plan_ms`: what the first call of a kernel, and of a kernel on a shape, cost the host
    (loading, handles; compiling, planning). `l2_speed`: L2's bandwidth over that of HBM. `settle_ms`: the
    time constant with which the clock follows the power drawn. `outlier_share`, `outlier_factor`: how many
    runs something else disturbs, and how much longer those take. Zeros as input draw so little power that
    the clock stays at its boost value.
    """

    gpu: gpus.GPU
    launch_us: float
    bandwidth: float
    boost_mhz: float
    steady_mhz: float
    noise: float
    latency_us: float = 3.0
    event_us: float = 1.0
    first_call_ms: float = 300.0
    plan_ms: float = 150.0
    l2_speed: float = 2.0
    settle_ms: float = 500.0
    outlier_share: float = 0.03
    outlier_factor: float = 6.0


@functools.cache
def h200():
    """The model of the H200 on which the kept measurements were made."""
    launch = next(row["us"] for row in _rows("host") if row["way"] == "sdpa, no_grad")
    copies = [row["copy_tbs"] for row in _rows("decode")]
    spread = [(row["high"] - row["low"]) / 2 / row["ms"] for row in _kernel_rows()]
    return Model(
        gpu=gpus.get("H200"),
        launch_us=launch,
        bandwidth=statistics.median(copies) * 1e12,
        boost_mhz=max(_mhz(record["provenance"]["sm_clock_max"]) for record in _records("kernels")),
        steady_mhz=steady_mhz(_records("kernels")),
        noise=statistics.median(spread),
    )


def steady_mhz(records):
    """The SM clock at work: the lowest tenth of what was read right after the longest sequences.

    Not the middle: short sequences and slow kernels draw too little power to bring the clock down, and a
    clock read after the work has begun to rise again. Of records that do not say the clock with each
    measurement, the lowest that their provenance says.
    """
    rows = [row for record in records for row in record["rows"] if all(row.get("clock_mhz") or (None,))]
    longest = max((row["N"] for row in rows), default=0)
    after = sorted(row["clock_mhz"][1] for row in rows if row["N"] == longest)
    return after[len(after) // 10] if after else min(_mhz(r["provenance"]["sm_clock"]) for r in records)


def compute_ms(model, kernel, problem):
    """Milliseconds of arithmetic of a kernel at the steady clock: FLOPs over the recorded rate.

    The rate is that of the record nearest in D and N, with the same mask. The unfused kernels' matrices are
    counted by `matrix_bytes`, here only their products: of "standard" at the rate of a large matrix product,
    of "sdpa-math" at the peak of float32. "skips-half" (a wrong kernel) does half of what "sdpa-flash" does.
    One query row is all memory: 0.
    """
    if problem.Nq == 1:
        return 0.0
    if kernel == "skips-half":
        return compute_ms(model, "sdpa-flash", problem) / 2
    full = 4 * problem.B * problem.Hq * problem.Nq * problem.Nk * problem.D
    if kernel == "sdpa-math":
        return full / model.gpu.peak_of("float32") * 1e3
    if kernel == "standard":
        return full / (model.gpu.peak_of(problem.dtype) * MATRIX_SHARE) * 1e3
    return flops(problem) / _rate(kernel, problem.D, problem.Nk, bool(problem.causal)) * 1e3


def matrix_bytes(kernel, problem):
    """Bytes of S and P that an unfused kernel writes and reads back; 0 for the fused ones.

    SDPA's math backend does so in float32 and makes more passes than are counted here: on the H200 it
    reached 6 to 25 TFLOP/s, the model is kinder to it.
    """
    if kernel not in ("standard", "sdpa-math"):
        return 0
    itemsize = 4 if kernel == "sdpa-math" else problem.itemsize
    return 4 * problem.B * problem.Hq * problem.Nq * problem.Nk * itemsize


def flops(problem):
    """FLOPs that count, forward: 4 B H Nq Nk D, half of it under a causal mask."""
    full = 4 * problem.B * problem.Hq * problem.Nq * problem.Nk * problem.D
    return full / 2 if problem.causal and problem.Nq > 1 else full


def _rate(kernel, d, n, causal):
    rows = [row for row in _kernel_rows() if row["peer"] == kernel and row["causal"] == causal]
    return min(rows, key=lambda row: (abs(row["D"] - d), abs(math.log(row["N"] / n))))["tflops"] * 1e12


@functools.cache
def _kernel_rows():
    return [row for row in _rows("kernels") if row["direction"] == "forward" and "tflops" in row]


def _rows(suite):
    return [row for record in _records(suite) for row in record["rows"]]


def _records(suite):
    return [r for r in bench.recorded(suite) if known(str(r["provenance"]["gpu"])) is gpus.get("H200")]


def _mhz(text):
    return float(text.split()[0])
