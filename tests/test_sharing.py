"""Programs that share a multiprocessor: the law's ends, its limits, and the queue itself, played out."""

import random

import pytest

from flashlab.sharing import speeds, throughputs


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_ends_are_what_was_measured_and_each_program_more_adds_less(n, share):
    alone = 1 / n + share * (1 - 1 / n)
    found = speeds(n, alone)
    assert len(found) == n and found[0] == pytest.approx(alone, rel=1e-12) and found[-1] == 1
    gains = [b - a for a, b in zip([0.0, *found], found, strict=False)]
    assert all(later <= sooner + 1e-9 for sooner, later in zip(gains, gains[1:], strict=False))
    assert all(x <= min(c * alone, 1) + 1e-9 for c, x in enumerate(found, 1))  # no queue at all


def test_programs_that_only_wait_add_up_and_one_that_never_waits_leaves_nothing():
    assert speeds(4, 0.25) == pytest.approx([0.25, 0.5, 0.75, 1])
    assert speeds(4, 1.0) == [1, 1, 1, 1]


def test_two_programs_by_hand():
    # A step is one at the pipes and one of waiting. Whoever comes meets the other one there half of the time.
    assert throughputs(2, pipe=1, wait=1) == pytest.approx([1 / 2, 2 / (1 + 1.5)])


def played(programs, pipe, wait, steps, seed=0):
    """Steps per time of a queue with random times, one program served at a time, the first come first."""
    rng = random.Random(seed)
    arrives, free, last = [rng.expovariate(1 / wait) for _ in range(programs)], 0.0, 0.0
    for _ in range(steps):
        i = min(range(programs), key=arrives.__getitem__)
        free = last = max(free, arrives[i]) + rng.expovariate(1 / pipe)
        arrives[i] = last + rng.expovariate(1 / wait)
    return steps / last


@pytest.mark.parametrize("programs", [1, 2, 3])
def test_the_law_is_that_of_a_queue_that_is_played_out(programs):
    law = throughputs(programs, pipe=0.9, wait=0.8)[-1]
    assert played(programs, 0.9, 0.8, 40_000) == pytest.approx(law, rel=0.02)


@pytest.mark.parametrize(
    ("per_sm", "alone", "message"),
    [
        (0, 1.0, "expected programs_per_sm to be a whole number >= 1, got 0"),
        (2.0, 1.0, "expected programs_per_sm to be a whole number >= 1, got 2.0"),
        (3, 0.3, "expected alone from 1/3 to 1, got 0.3"),
        (3, 1.1, "expected alone from 1/3 to 1, got 1.1"),
        (3, float("nan"), "expected alone from 1/3 to 1, got nan"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(per_sm, alone, message):
    with pytest.raises(ValueError, match=message):
        speeds(per_sm, alone)
