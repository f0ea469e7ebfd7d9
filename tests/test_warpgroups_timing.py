"""The simulator's log: a model of time, whose sums can be checked."""

import pytest

pytest.importorskip("triton.experimental.gluon")
torch = pytest.importorskip("torch")

from test_warpgroups import STEPS, forward  # noqa: E402

from flashlab import gpus  # noqa: E402
from flashlab.kernels import hopper_host  # noqa: E402
from flashlab.problem import Problem  # noqa: E402
from flashlab.warpgroups import Costs, Event, Log, simulate, simulated  # noqa: E402
from flashlab.warpgroups.timing import UNITS  # noqa: E402


def log_of(order, **how):
    with simulated("time") as simulation:
        forward(order, **how)
    return simulation.logs[0, 0, 0]


@pytest.fixture(scope="module")
def logs():
    return {order: log_of(order, D=128, block_k=128, Nk=1024) for order in STEPS}


def test_one_tile_of_the_paper_takes_512_clocks_each_for_its_products_and_for_its_exponentials():
    costs = Costs.of("H200")
    assert costs.clocks("tensor", 2 * 64 * 128 * 128) == pytest.approx(512, rel=0.01)
    assert costs.clocks("exp", 64 * 128) == pytest.approx(512)
    assert costs.clocks("fp32", 64 * 128) == pytest.approx(64, rel=0.1)


def test_the_rates_come_from_the_table_of_gpus():
    h200 = gpus.get("H200")
    assert Costs.of("H200").flops * h200.sms * h200.clock_ghz * 1e9 == pytest.approx(h200.peak_of("float16"))
    assert Costs.of("A100-80").flops < Costs.of("H200").flops
    with pytest.raises(ValueError, match="unknown GPU"):
        Costs.of("H2000")


@pytest.mark.parametrize("order", STEPS)
def test_a_unit_does_one_thing_at_a_time(logs, order):
    for unit in UNITS:
        events = sorted(logs[order].of(unit=unit), key=lambda e: e.start)
        assert all(a.end <= b.start + 1e-6 for a, b in zip(events, events[1:], strict=False)), unit


@pytest.mark.parametrize("order", STEPS)
def test_units_work_for_as_long_as_the_problem_asks(logs, order):
    costs, log, rows = Costs.of("H200"), logs[order], 128 if order else 64  # step 1 has one warpgroup of 64
    clocks = {unit: log.busy(unit) * log.end for unit in UNITS}
    assert clocks["tensor"] == pytest.approx(costs.clocks("tensor", 4 * rows * 1024 * 128))
    loads, store = 2 * (rows + 2 * 1024) * 128, 2 * rows * 128
    assert clocks["copy"] == pytest.approx(costs.clocks("copy", loads + store))
    scores, factors = rows * 1024, rows * (1024 // 128 + 2)
    assert clocks["exp"] * costs.exps == pytest.approx(scores + factors)


def test_a_score_costs_five_fp32_operations_where_nothing_is_masked(logs):
    """Maximum, one fused multiply-add, sum, rounding of P; and O, as wide as the tile, is rescaled."""
    log, costs = logs["one_by_one"], Costs.of("H200")
    scores, output, rows = 128 * 1024, 128 * 128, 128 * 8
    clocks = log.busy("fp32") * log.end
    assert (
        5 * scores < clocks * costs.fp32 < 5 * scores + 3 * output + 12 * rows
    )  # O: divided, masked, rounded


def test_a_partition_waits_or_works_but_never_both(logs):
    for log in logs.values():
        for name in ("consume 0", "consume 1"):
            own = [e for e in log.of(name) if e.unit in ("wait", "exp", "fp32", "shared")]
            own.sort(key=lambda e: e.start)
            assert all(a.end <= b.start + 1e-6 for a, b in zip(own, own[1:], strict=False))


def test_look_ahead_closes_bubbles(logs):
    assert logs["look_ahead"].end < logs["one_by_one"].end
    assert logs["look_ahead"].busy("tensor") > logs["one_by_one"].busy("tensor")


def test_two_warpgroups_share_the_units(logs):
    log = logs["one_by_one"]
    for unit in ("tensor", "exp", "fp32"):
        both = [log.busy(unit, name) for name in ("consume 0", "consume 1")]
        assert both[0] == pytest.approx(both[1], rel=0.02)
        assert sum(both) == pytest.approx(log.busy(unit), rel=0.02)


def test_no_more_is_used_than_its_stages_allow(logs):
    """The copy of k tile 2 starts after both products with k tile 0 have ended: the ring has two stages."""
    log = logs["look_ahead"]
    start = next(e.start for e in log if e.op == "load" and e.tile == ("k", 2))
    assert start >= max(e.end for e in log if e.op == "wgmma" and e.tile == ("k", 0))


def test_events_name_their_tile_and_waits_their_barrier(logs):
    log = logs["look_ahead"]
    assert {e.tile for e in log if e.op == "wgmma"} == {(x, j) for x in "kv" for j in range(8)}
    assert {e.tile for e in log if e.op == "exp2"} >= {("k", j) for j in range(8)}
    assert any(e.unit == "wait" and e.op == "q_filled[0], phase 0" for e in log)


def test_a_slower_memory_makes_the_copies_the_bottleneck():
    slow = Costs(flops=4096, exps=16, fp32=128, copy_bytes=4)
    with simulated("time", slow) as simulation:
        forward("look_ahead")
    assert simulation.logs[0, 0, 0].busy("copy") > 0.8


def test_an_empty_log_has_no_time():
    assert (Log().end, Log().busy("tensor"), Log().partitions) == (0.0, 0.0, [])


def test_events_that_continue_each_other_become_one():
    log = Log()
    for start in (0, 5):
        log.add(Event("consume 0", "exp", "exp2", ("k", 0), start, start + 5))
    assert log == [("consume 0", "exp", "exp2", ("k", 0), 0, 10)]


def test_an_sm_runs_its_programs_one_after_another():
    """140 heads of one query block each on 132 SMs: the first SM runs program 0 and program 132."""
    problem = Problem(Hq=140, Nq=1, Nk=64)
    one, both = (simulate(3, problem, programs=n) for n in (1, 9))
    assert both.end == pytest.approx(2 * one.end)
    assert both.busy("tensor") == pytest.approx(one.busy("tensor"))
    assert both.seconds() == pytest.approx(both.end / 1.83e9)


def test_a_persistent_program_starts_its_next_block_while_the_last_one_is_written():
    problem = Problem(Hq=140, Nq=1, Nk=64)
    apart, together = (simulate(step, problem, programs=9) for step in (4, 5))
    stored = min(e.end for e in together if e.op == "store" and e.unit == "copy")
    second = [e.start for e in together if e.op == "load" and e.tile == ("k", 0)][1]
    assert second < stored
    assert together.end < apart.end


def test_a_function_of_ones_own_can_be_simulated_and_an_unknown_step_cannot():
    def attention(q, k, v, *, causal, scale):
        assert (causal, scale, q.dtype) == ("top-left", 0.5, torch.bfloat16)
        hopper_host.forward(q, k, v, causal=causal, scale=scale, step=1)

    problem = Problem(Nq=64, causal=True, scale=0.5, dtype="bfloat16")
    assert simulate(attention, problem).busy("tensor") > 0
    with pytest.raises(ValueError, match="step=6"):
        simulate(6, problem)
