"""The comparison of grids and orders with a GPU's times, as far as it needs no GPU."""

import pytest

from flashlab import gpus
from flashlab.bench import schedule

H200 = gpus.get("H200")
CONFIG = {"fa1": (64, 64), "fa2": (64, 128)}


KERNELS = [("fa1", False), ("fa2", False), ("fa2", "top-left")]


def times_of(algorithm, per_sm, config, true, causal, gap_ms=0.0):
    """What the launches that calibrate would take, with a gap before each."""
    sizes = schedule.calibration_sizes(algorithm, per_sm, 132, config)
    return [schedule.predict(algorithm, *size, config, H200, per_sm, true, causal) + gap_ms for size in sizes]


@pytest.mark.parametrize(("algorithm", "causal"), KERNELS)
@pytest.mark.parametrize(("per_sm", "alone"), [(1, 1.0), (2, 0.5), (2, 0.7), (3, 0.6)])
def test_a_calibration_is_found_again_from_the_times_that_it_predicts(algorithm, causal, per_sm, alone):
    true, config = schedule.Calibration(1e-3, alone, 0.8), CONFIG[algorithm]
    times = times_of(algorithm, per_sm, config, true, causal)
    found = schedule.calibrate(algorithm, per_sm, 132, config, times, causal)
    # Under a mask the last programs of a full launch leave slots free, which the calibration does not see.
    assert found == pytest.approx(true, rel=0.02 if causal else 1e-6, abs=0.4 if causal else None)


@pytest.mark.parametrize(("algorithm", "causal"), KERNELS)
def test_the_gap_between_two_launches_moves_no_ratio_by_more_than_4_percent(algorithm, causal):
    # three programs on an SM: what the registers of the kernels that are compiled for sm_90 allow
    true, config = schedule.Calibration(5e-4, 0.6, 1.5), CONFIG[algorithm]
    if algorithm == "fa1":
        true = true._replace(step_ms=2e-3)
    times = times_of(algorithm, 3, config, true, causal, gap_ms=1.5e-3)
    found = schedule.calibrate(algorithm, 3, 132, config, times, causal)
    which, milliseconds = schedule.cases(algorithm, causal), {}
    for a in which:
        at = a.heads, a.n, config, H200, 3, true, causal, a.order if causal else None
        milliseconds[a] = schedule.predict(algorithm, *at) + 1.5e-3
    head = dict(algorithm=algorithm, causal=causal, config=list(config), programs_per_sm=3)
    rows = schedule.compared(which, milliseconds, head, H200, found)
    assert max(abs(row["off"]) for row in rows) < 0.04 and all(row["ok"] for row in rows)
    assert all(len(schedule.line(row)) < 80 for row in rows)
    assert len(schedule.calibrated(head, found)) < 80


def test_times_that_do_not_grow_calibrate_nothing():
    with pytest.raises(ValueError, match="expected longer launches to take longer, got"):
        schedule.calibrate("fa2", 2, 132, CONFIG["fa2"], [2.0, 1.0, 1.0, 2.0])


@pytest.mark.parametrize("algorithm", ["fa1", "fa2"])
@pytest.mark.parametrize("per_sm", [1, 2, 3, 4])
@pytest.mark.parametrize("sms", [114, 132])
@pytest.mark.parametrize("config", [(64, 128), (128, 128), (128, 64), (64, 64)])
def test_calibration_launches_put_one_program_on_an_sm_or_fill_all_slots_and_are_no_cases(
    algorithm, per_sm, sms, config
):
    if algorithm == "fa1" and config != (64, 64):
        return  # FA1 ships with tiles of 64 x 64
    sizes = schedule.calibration_sizes(algorithm, per_sm, sms, config)
    programs = [schedule.work(algorithm, *size, config).programs for size in sizes]
    assert max(programs[:2]) <= sms and all(n % (sms * per_sm) == 0 for n in programs[2:])
    assert not set(sizes) & {(h, schedule.length(algorithm, h)) for h in schedule.HEADS}
    assert all(n % size == 0 for _, n in sizes for size in config)  # else another kernel runs
    if algorithm == "fa1":
        assert all(heads * n <= 1.1 * schedule.TOKENS["fa1"] for heads, n in sizes)  # nothing leaves L2


def test_a_kernel_that_fails_is_a_row_and_the_others_are_measured(monkeypatch):
    from flashlab.bench import device, grids

    def resources(algorithm, causal, gpu):
        if algorithm == "fa1":
            raise RuntimeError("no memory")
        return CONFIG["fa2"], 2, "registers"

    def measure(algorithm, launches, config):
        true, ms = schedule.Calibration(1e-3, 0.6, 1.0), {}
        for a in launches:
            at = a.heads, a.n, config, H200, 2, true, a.causal, a.order if a.causal else None
            ms[a] = schedule.predict(algorithm, *at)
        return ms, [1980, 1965]

    monkeypatch.setitem(schedule.TOKENS, "fa2", 98304)  # quicker to follow
    monkeypatch.setattr(device, "this_gpu", lambda: (H200, "not in the table"))
    monkeypatch.setattr(grids, "resources", resources)
    monkeypatch.setattr(grids, "measure", measure)
    said = []
    rows = list(schedule.run(said.append))
    assert rows[0] == dict(algorithm="fa1", causal=False, error="RuntimeError: no memory")
    assert said[0] == "not in the table" and said[1] == "fa1: RuntimeError: no memory"
    good = [row for row in rows if "ratio" in row]
    assert len(good) == 5 + 9 and all(row["ok"] and row["clock_mhz"] == [1980, 1965] for row in good)
    assert {row["gpu_note"] for row in rows[1:]} == {"not in the table"}
    assert "5 of 5 ratios within 15%" in said and "9 of 9 ratios within 15%" in said


@pytest.mark.parametrize("algorithm", ["fa1", "fa2"])
def test_all_cases_move_about_the_same_tokens(algorithm):
    for heads in schedule.HEADS:
        tokens = heads * schedule.length(algorithm, heads)
        assert tokens == pytest.approx(schedule.TOKENS[algorithm], rel=0.1)
    assert schedule.length(algorithm, 132) == schedule.length(algorithm, 133)


def test_ratios_are_to_the_reference_row_and_15_percent_is_the_goal():
    rows = [dict(heads=132, ms=2.0, predicted_ms=1.0), dict(heads=4, ms=8.0, predicted_ms=4.4)]
    rows.append(dict(heads=16, ms=4.0, predicted_ms=3.0))
    schedule.ratios(rows, lambda row: row["heads"] == 132)
    assert [row["ratio"] for row in rows] == [1, 4, 2] and rows[1]["predicted_ratio"] == pytest.approx(4.4)
    assert rows[1]["off"] == pytest.approx(0.1) and [row["ok"] for row in rows] == [True, True, False]


def test_fa1_is_predicted_to_lose_most_where_there_are_few_heads():
    found = schedule.Calibration(1e-3, 0.6, 0.5)
    cost = {
        h: schedule.predict("fa1", h, schedule.length("fa1", h), (64, 64), H200, 2, found)
        / schedule.predict("fa2", h, schedule.length("fa1", h), (64, 64), H200, 2, found)
        for h in schedule.HEADS
    }
    assert cost[4] > 20 > cost[16] > 5 > cost[264] > 0.9


@pytest.mark.parametrize("order", ["natural", "longest-first"])
def test_another_order_starts_other_blocks_first_and_changes_no_result(order):
    pytest.importorskip("triton")
    import torch

    from flashlab.bench import orders
    from flashlab.interpreter import record
    from flashlab.kernels.launch import Config

    q = torch.randn(2, 3, 50, 16)
    how = dict(causal="top-left", scale=0.3, config=Config(16, 16))
    for a, b in zip(
        orders.forward(order)(q, q, q, **how), orders.forward("reversed")(q, q, q, **how), strict=True
    ):
        assert torch.equal(a, b)
    first = [e.tile for e in record(lambda: orders.forward(order)(q, q, q, **how)) if e.tensor == "q"]
    shipped = [e.tile for e in record(lambda: orders.forward("reversed")(q, q, q, **how)) if e.tensor == "q"]
    blocks = {"natural": [0, 1, 2, 3, 0], "longest-first": [3, 3, 3, 3, 3]}[order]
    assert [row // 16 for _, _, row, _ in first[:5]] == blocks
    assert [row // 16 for _, _, row, _ in shipped[:5]] == [3, 2, 1, 0, 3]
