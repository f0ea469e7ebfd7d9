"""The schedule model beside the times that an H200 took: today's model, the record's measured times.

What the record holds of predictions is not read: they are those of the model on the day of the measurement.
"""

import pytest

from flashlab import bench, gpus
from flashlab.bench import schedule
from flashlab.bench.grids import Launch

(RECORD,) = bench.recorded("schedule")
H200 = gpus.get("H200")
KERNELS = [("fa1", False), ("fa2", False), ("fa2", "top-left")]


def of(algorithm, causal):
    """(the row of the calibration, the rows of the cases), as they were measured."""
    rows = [r for r in RECORD["rows"] if (r["algorithm"], r["causal"]) == (algorithm, causal)]
    (calibration,) = [r for r in rows if "calibration_ms" in r]
    return calibration, [r for r in rows if "calibration_ms" not in r]


def predicted(algorithm, causal):
    """The cases with their ratios, predicted from nothing but the launches that calibrate."""
    row, cases = of(algorithm, causal)
    found = schedule.calibrate(
        algorithm, row["programs_per_sm"], H200.sms, row["config"], row["calibration_ms"], causal
    )
    ms = {Launch(r["heads"], r["N"], causal, r["order"]): r["ms"] for r in cases}
    head = {name: row[name] for name in ("algorithm", "causal", "config", "programs_per_sm")}
    return schedule.compared(list(ms), ms, head, H200, found)


@pytest.mark.parametrize(("algorithm", "causal"), KERNELS)
def test_every_ratio_between_grids_and_orders_is_within_15_percent_of_the_measured_one(algorithm, causal):
    rows = predicted(algorithm, causal)
    assert all(abs(row["predicted_ratio"] / row["ratio"] - 1) <= 0.15 for row in rows), [
        *map(schedule.line, rows)
    ]


@pytest.mark.parametrize(("algorithm", "causal"), KERNELS)
def test_the_record_holds_the_cases_and_the_launches_that_calibrate(algorithm, causal):
    row, cases = of(algorithm, causal)
    sizes = schedule.calibration_sizes(algorithm, row["programs_per_sm"], H200.sms, row["config"])
    assert [tuple(size) for size in row["sizes"]] == sizes and len(row["calibration_ms"]) == len(sizes)
    asked = {(a.heads, a.n, a.order) for a in schedule.cases(algorithm, causal)}
    assert {(r["heads"], r["N"], r["order"]) for r in cases} == asked and len(cases) == len(asked)
    if not causal:
        assert {r["heads"] for r in cases} == {4, 16, 132, 133, 264}


def test_two_programs_of_three_are_between_never_meeting_and_a_straight_line():
    row, cases = of("fa1", False)
    assert row["programs_per_sm"] == 3
    ms, alone = {r["heads"]: r["ms"] for r in cases}, row["alone"]
    # 132 heads: each has an SM for itself; 133: two are on one SM, and what they share ends last
    slowed = ms[133] / ms[132]
    assert max(1, 2 * alone) < slowed < 2 * alone / ((alone + 1) / 2)


def test_a_tile_step_of_fa1_takes_longer_in_long_heads_which_the_model_leaves_out():
    row, cases = of("fa1", False)
    ms = {(r["heads"], r["N"]): r["ms"] for r in cases} | {
        tuple(size): t for size, t in zip(row["sizes"], row["calibration_ms"], strict=True)
    }
    # one program on an SM, the same tokens in both launches; the overhead, in both, is less in the long heads
    step = {(h, n): ms[h, n] / (n // 64) ** 2 for h, n in [(32, 2304), (4, 18432)]}
    assert 32 * 2304 == 4 * 18432 and step[4, 18432] > 1.04 * step[32, 2304]
