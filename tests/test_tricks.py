"""The lying benchmark: every trick is found by its experiment, and the honest benchmark is left alone."""

import dataclasses

import numpy as np
import pytest

from flashlab.bench import timing, tricks
from flashlab.bench.tricks import detectors, exercise, honest, lies, model
from flashlab.text import lang


@pytest.fixture(autouse=True)
def in_english():
    before = lang()
    lang("en")
    yield
    lang(before)


def found(benchmark, seed=0, **how):
    return [x.trick for x in tricks.detect(benchmark, tricks.Simulated(seed), **how)]


def test_there_are_at_least_the_nine_tricks_asked_for_and_each_has_one_detector():
    asked = {
        "no-synchronize", "first-call-counted", "cached-output", "warm-l2", "causal-flops", "zeros",
        "math-baseline", "throttling-clock", "mean",
    }  # fmt: skip
    assert asked <= {*tricks.list()}
    assert tricks.list() == [*detectors.DETECTORS]


@pytest.mark.parametrize("seed", range(3))
def test_no_detector_fires_on_the_honest_benchmark(seed):
    assert found(tricks.HONEST, seed) == []


@pytest.mark.parametrize("kernel", ["fa2", "sdpa-cudnn"])
def test_no_detector_fires_on_the_honest_benchmark_of_another_kernel_or_without_a_mask(kernel):
    unmasked = dataclasses.replace(tricks.LONG, causal=False)
    assert found(tricks.HONEST, kernel=kernel, problem=unmasked) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", lies.TRICKS)
def test_each_trick_is_found_by_its_detector_and_by_no_other(name, seed):
    trick = lies.get(name)
    assert {*found(trick.benchmark, seed)} == {name, *trick.also}


class Lasting(tricks.Simulated):
    """A device of which there is only one, as a real GPU: `fresh` gives itself back."""

    def fresh(self, again=0):
        self.__init__(self.seed + 1009 * again, self.model)
        return self


@pytest.mark.parametrize("name", ["another-backend", "math-baseline", "unwarmed-baseline", "cached-output"])
def test_one_device_for_all_experiments_is_enough(name):
    assert [x.trick for x in tricks.detect(lies.get(name).benchmark, Lasting())] == [name]
    assert tricks.detect(tricks.HONEST, Lasting()) == []


def test_the_one_overlap_is_that_no_warm_up_also_takes_any_clock_it_finds():
    overlaps = {name: trick.also for name, trick in lies.TRICKS.items() if trick.also}
    assert overlaps == {"first-call-counted": ("throttling-clock",)}


def test_the_honest_benchmark_is_timed_by_the_harness_that_flashlab_uses(monkeypatch):
    calls = []
    real = timing.measure
    monkeypatch.setattr(timing, "measure", lambda *a, **k: calls.append(k) or real(*a, **k))
    device = tricks.Simulated()
    claim = tricks.HONEST(device, device.attention("fa2"), tricks.LONG)
    assert len(calls) == 1 and calls[0].get("cold", True) and calls[0]["check"] and calls[0]["prepare"]
    assert 0.5 < claim.ms < 0.8


def test_the_honest_benchmark_leaves_nan_where_old_results_were():
    device, results = tricks.Simulated(), []
    attention = device.attention("fa2")

    def call(*inputs):
        results.append(attention(*inputs))
        return results[-1]

    call.kernel = "fa2"
    tricks.HONEST(device, call, tricks.LONG)
    timed = results[1:]  # the first warmed the chip up
    old, last = timed[: -tricks.HONEST.sets], timed[-tricks.HONEST.sets :]
    assert len(old) > 10 and all(np.isnan(o.values()).all() for o in old)
    assert all(np.isfinite(o.values()).all() for o in last)


def test_what_an_experiment_finds_once_and_not_again_is_not_told(monkeypatch):
    lucky = lambda lab: (lab.again == 0, dict(counted=2.0))  # noqa: E731
    monkeypatch.setitem(detectors.DETECTORS, "causal-flops", lucky)
    assert found(tricks.HONEST, only=["causal-flops"]) == []


def test_the_honest_median_is_the_one_that_timing_reports():
    how, device = {}, tricks.Simulated(3)
    q, k, v = honest.inputs(device, tricks.LONG, 0)
    attention = device.attention()
    call = lambda i: attention(q, k, v, True)  # noqa: E731
    one = honest.statistic(honest.stopwatch(device, call, **how))
    twin = device.fresh()
    q, k, v = honest.inputs(twin, tricks.LONG, 0)
    attention = twin.attention()
    assert one == timing.measure(call, twin, budget_ms=40.0, least=20).median


@pytest.mark.parametrize("says_clock", [True, False])
def test_the_harness_as_the_suites_use_it_is_honest_because_it_says_its_clock(says_clock):
    """timing.measure steadies no clock: a chip that has just begun to work is faster."""

    def plain(device, attention, problem, baseline=None):
        sets = [honest.inputs(device, problem, seed) for seed in range(2)]
        check = lambda i, o: honest.check(device, o, *sets[i], problem.causal)  # noqa: E731

        def timed(attend):
            return timing.measure(lambda i: attend(*sets[i], problem.causal), device, sets=2, check=check)

        before = device.clock_mhz()
        ms = timed(attention).median
        clock = (before, device.clock_mhz()) if says_clock else None
        claim = tricks.Claim(ms, model.flops(problem) / ms / 1e9, attention.kernel, problem, clock_mhz=clock)
        if baseline is None:
            return claim
        return claim._replace(baseline=baseline.kernel, speedup=timed(baseline).median / ms)

    assert found(plain) == ([] if says_clock else ["throttling-clock"])


def test_a_kernel_that_remembers_its_answer_gets_no_number_from_the_honest_benchmark():
    device = tricks.Simulated()
    attention = lies.replay(device, device.attention(), tricks.LONG)
    attention.kernel = "remembers"
    with pytest.raises(tricks.WrongResult):
        tricks.HONEST(device, attention, tricks.LONG)


def test_detectors_do_not_read_names():
    """A trick behind a plain function of another name, and an honest benchmark behind a suspicious one."""

    def honest_one(*a):
        return lies.get("best-of").benchmark(*a)

    def mean(*a):
        return tricks.HONEST(*a)

    assert found(honest_one) == ["best-of"]
    assert found(mean) == []


def test_a_claim_alone_is_checked_by_arithmetic():
    device = tricks.Simulated()
    liar = lies.get("causal-flops").benchmark
    assert [x.trick for x in tricks.detect(liar(device, device.attention(), tricks.LONG))] == ["causal-flops"]
    liar = lies.get("no-synchronize").benchmark
    (finding,) = tricks.detect(liar(device, device.attention(), tricks.LONG))
    assert finding.trick == "impossible" and "990" in finding.evidence
    assert tricks.detect(tricks.HONEST(device, device.attention(), tricks.LONG)) == []


def test_what_is_no_benchmark_or_no_trick_is_refused():
    with pytest.raises(TypeError, match="a benchmark or a Claim, got int"):
        tricks.detect(3)
    with pytest.raises(ValueError, match="Did you mean 'no-synchronize'"):
        tricks.play("no-synchronise")
    with pytest.raises(ValueError, match="unknown trick"):
        tricks.detect(tricks.HONEST, only=["mode"])
    with pytest.raises(ValueError, match="share {'statistic'}"):
        tricks.together(["mean", "best-of"])


FLATTERS = {
    "no-synchronize": 20, "cached-output": 100, "warm-l2": 1.2, "causal-flops": 1.9, "zeros": 1.1,
    "math-baseline": 2, "unwarmed-baseline": 20, "throttling-clock": 1.1, "best-of": 1.0,
    "another-backend": 1.5, "unchecked": 1.9,
}  # fmt: skip


@pytest.mark.parametrize("name", lies.TRICKS)
def test_a_trick_played_shows_claim_honest_number_and_evidence(name, capsys):
    played = tricks.play(name)
    said = capsys.readouterr().out
    assert "claimed" in said and "honest" in said and "Found by: " + played.evidence in said
    assert played.factor > FLATTERS[name] if name in FLATTERS else played.factor < 0.95


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_trick_has_name_lie_and_evidence_in_both_languages(language):
    lang(language)
    for name in tricks.list():
        played = tricks.play(name, show=False)
        assert played.evidence and "{" not in str(played)


def test_the_figure_says_every_factor_in_words():
    still = tricks.figure()
    assert still.alt.count(" times") >= len(tricks.list())
    (ax,) = still.axes
    assert len(ax.patches) == len(tricks.list())


def test_pairs_of_a_mystery_are_told_apart():
    names = [*exercise.pairs()]
    assert len(names) > 40
    for a, b in names[::4]:
        also = {x for name in (a, b) for x in lies.get(name).also}
        assert {*found(tricks.together((a, b)), seed=5)} == {a, b} | also


def test_mysteries_are_the_same_for_a_seed_and_range_from_none_to_two():
    assert tricks.mystery(1)._plays == tricks.mystery(1)._plays
    hands = [exercise._hand(seed) for seed in range(60)]
    assert {len(hand) for hand in hands} == {0, 1, 2}
    assert {name for hand in hands for name in hand} == {*tricks.list()}
    assert not any(name in repr(tricks.mystery(seed)) for seed, hand in enumerate(hands) for name in hand)


def test_a_guess_is_marked_with_the_evidence(capsys):
    benchmark = tricks.together(["mean", "causal-flops"])
    assert tricks.guess(benchmark, "causal-flops", "mean")
    assert "✓ mean: one call in ten" in capsys.readouterr().out
    assert not tricks.guess(benchmark, "causal-flops", "zeros")
    said = capsys.readouterr().out
    assert "✗ missed mean" in said and "✗ zeros is not played" in said
    assert tricks.guess(tricks.HONEST)
    assert "honest" in capsys.readouterr().out
    with pytest.raises(ValueError, match="unknown trick"):
        tricks.guess(benchmark, "luck")
