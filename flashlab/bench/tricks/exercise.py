"""A benchmark that may play tricks, for the learner to find out: `mystery` and `guess`."""

import itertools
import random

from flashlab.bench.tricks import detectors, lies
from flashlab.bench.tricks.device import Simulated
from flashlab.text import t

# These leave the call's time out of the claim, or drown it, and so hide what else is done to the time.
HIDES = {
    "no-synchronize",
    "cached-output",
    "another-backend",
    "first-call-counted",
    "warmed-on-another-shape",
}
NOT_TIME = {"causal-flops", "math-baseline"}
BASELINE = {"math-baseline", "unwarmed-baseline"}  # another baseline stands where the second is looked for


def pairs():
    """The pairs of tricks that can be told apart in one benchmark."""
    for a, b in itertools.combinations(lies.TRICKS, 2):
        if (HIDES & {a, b} and not NOT_TIME & {a, b}) or {a, b} == BASELINE:
            continue
        if not set(lies.TRICKS[a].steps) & set(lies.TRICKS[b].steps):
            yield a, b


class Mystery:
    """A benchmark (device, attention, problem, baseline=None) -> Claim that plays none, one or two tricks."""

    def __init__(self, seed):
        self.seed = seed
        self._plays = lies.together(_hand(seed))

    def __call__(self, device, attention, problem, baseline=None):
        beside = () if baseline is None else (baseline,)
        return self._plays(device, attention, problem, *beside)

    def __repr__(self):
        return f"mystery({self.seed}): {t('tricks.guess.ask')}"


def _hand(seed):
    """The names of the tricks dealt: one time in seven none, else one or two alike."""
    choose = random.Random(f"mystery {seed}")
    hands = ([()], [(name,) for name in lies.TRICKS], [*pairs()])
    return choose.choice(choose.choices(hands, (1, 3, 3))[0])


def mystery(seed=0):
    """A benchmark to find out about; the same for the same seed."""
    return Mystery(seed)


def guess(benchmark, *names, device=None, show=True):
    """Mark a guess: `names` of the tricks that the benchmark plays (none: it is honest).

    What it plays is found by experiment, here too; each line names the evidence. Returns True when the guess
    is right and complete. Raises ValueError for an unknown trick.
    """
    for name in names:
        lies.get(name)
    found = {x.trick: x.evidence for x in detectors.detect(benchmark, device or Simulated())}
    lines = [] if found or names else [t("tricks.guess.honest")]
    for name, evidence in found.items():
        lines.append(
            t(f"tricks.guess.{'right' if name in names else 'missed'}", name=name, evidence=evidence)
        )
    lines += [t("tricks.guess.wrong", name=name) for name in dict.fromkeys(names) if name not in found]
    if show:
        print("\n".join(lines))
    return set(names) == set(found)
