"""A benchmark that may play tricks, for the learner to find out: `mystery` and `guess`."""

import itertools
import random

from flashlab.bench.tricks import detectors, lies
from flashlab.bench.tricks.device import Simulated
from flashlab.text import t

# A number that no work went into, or another kernel's, hides what else is wrong with the time.
HIDES = (
    "no-synchronize",
    "cached-output",
    "another-backend",
    "first-call-counted",
    "warmed-on-another-shape",
)
ABOUT_TIME = (
    *HIDES,
    "warm-l2",
    "throttling-clock",
    "mean",
    "best-of",
    "unchecked",
    "unwarmed-baseline",
    "zeros",
)


def pairs():
    """The pairs of tricks that can be told apart in one benchmark."""
    for a, b in itertools.combinations(lies.TRICKS, 2):
        hidden = any(x in HIDES and y in ABOUT_TIME for x, y in ((a, b), (b, a)))
        if not hidden and not set(lies.TRICKS[a].steps) & set(lies.TRICKS[b].steps):
            yield a, b


class Mystery:
    """A benchmark (device, attention, problem, baseline=None) -> Claim that plays none, one or two tricks."""

    def __init__(self, seed):
        choose = random.Random(f"mystery {seed}")
        hands = ([()], [(name,) for name in lies.TRICKS], [*pairs()])
        self.seed = seed
        self._plays = lies.together(choose.choice(choose.choices(hands, (1, 3, 3))[0]))

    def __call__(self, device, attention, problem, baseline=None):
        beside = () if baseline is None else (baseline,)
        return self._plays(device, attention, problem, *beside)

    def __repr__(self):
        return f"mystery({self.seed}): {t('tricks.guess.ask')}"


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
