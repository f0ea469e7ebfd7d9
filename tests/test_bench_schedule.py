"""The comparison of grids and orders with a GPU's times, as far as it needs no GPU."""

import pytest

from flashlab import gpus
from flashlab.bench import schedule

H200 = gpus.get("H200")
CONFIG = {"fa1": (64, 64), "fa2": (64, 128)}


@pytest.mark.parametrize("algorithm", ["fa1", "fa2"])
@pytest.mark.parametrize(("per_sm", "alone"), [(1, 1.0), (2, 0.5), (2, 0.7), (3, 0.6)])
def test_a_calibration_is_found_again_from_the_times_that_it_predicts(algorithm, per_sm, alone):
    true, config = schedule.Calibration(1e-3, alone, 0.8), CONFIG[algorithm]
    sizes = schedule.calibration_sizes(algorithm, per_sm, 132, config)
    times = [schedule.predict(algorithm, *size, config, H200, per_sm, true) for size in sizes]
    found = schedule.calibrate(algorithm, per_sm, 132, config, times)
    assert found == pytest.approx(true)


@pytest.mark.parametrize("algorithm", ["fa1", "fa2"])
@pytest.mark.parametrize("per_sm", [1, 2, 3, 4])
@pytest.mark.parametrize("config", [(64, 128), (128, 128), (128, 64), (64, 64)])
def test_calibration_launches_put_one_program_on_an_sm_or_fill_all_slots_and_are_no_cases(
    algorithm, per_sm, config
):
    if algorithm == "fa1" and config != (64, 64):
        return  # FA1 ships with tiles of 64 x 64
    sizes = schedule.calibration_sizes(algorithm, per_sm, 132, config)
    programs = [schedule.program_steps(algorithm, *size, config)[2] for size in sizes]
    assert max(programs[:2]) <= 132 and programs[2] % (132 * per_sm) == 0
    assert not set(sizes) & {(h, schedule.length(algorithm, h)) for h in schedule.HEADS}
    if algorithm == "fa1":
        assert all(heads * n <= 1.1 * schedule.TOKENS["fa1"] for heads, n in sizes)  # nothing leaves L2


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
