"""Checks for the exercises: try a learner's function stage by stage, say what went wrong first and why,
give hints.

fl.check("online_softmax")(online_attention)
fl.hint("online_softmax")          one level more with every call
fl.solution("online_softmax")      after two failed tries, or with anyway=True
"""

import importlib
from pathlib import Path

from flashlab.checks import mutants
from flashlab.errors import unknown_name
from flashlab.text import t

__all__ = ["check", "hint", "mutants", "solution"]

EXERCISES = ("online_softmax",)
LEVELS = 3
TRIES = 2  # failed tries before the solution is shown without being asked twice
SOLUTIONS = Path(__file__).parent / "solutions"

_hints = {}  # exercise -> the last level given in this session
_failed = {}  # exercise -> failed tries in this session


def check(name):
    """Return a function that checks an answer to exercise `name`: it prints one line a stage, True when all
    pass.

    Raises ValueError for an unknown exercise, TypeError when the answer is not a function.
    """
    _known(name)

    def examine(answer):
        from flashlab.checks import engine

        if not callable(answer):
            raise TypeError(
                f"check({name!r}) expects your function itself, not a result; got {type(answer).__name__}"
            )
        stages = importlib.import_module(f"flashlab.checks.{name}").STAGES
        report = engine.examine(stages, answer)
        print("\n".join(engine.lines(name, stages, report)))
        if answer not in mutants.load(name).values():  # a planted wrong answer is a demonstration, not a try
            _remember(name, report)
        return report.passed

    return examine


def hint(name, level=None):
    """Print a hint for exercise `name`: the next of three levels, or the one asked for."""
    _known(name)
    if level is None:
        level = min(_hints.get(name, 0) + 1, LEVELS)
    if level not in range(1, LEVELS + 1):
        raise ValueError(f"level must be 1 to {LEVELS}, got {level!r}")
    _hints[name] = level
    print(t("checks.engine.hint_title", level=level, levels=LEVELS))
    print(t(f"checks.{name}.hints.level_{level}").rstrip())
    print(t("checks.engine.hint_next" if level < LEVELS else "checks.engine.hint_last", name=name))


def solution(name, anyway=False):
    """Print the solution of exercise `name`: after two failed tries or success, or with `anyway`."""
    _known(name)
    if not anyway and not _earned(name):
        print(t("checks.engine.solution_later", name=name, tries=TRIES))
        return
    file = SOLUTIONS / f"{name}.py"
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing: build it with `python course/build.py`")
    print(file.read_text(encoding="utf-8").rstrip())


def _known(name):
    if name not in EXERCISES:
        raise unknown_name("exercise", name, EXERCISES)


def _remember(name, report):
    """Store the try; a progress file that cannot be used never breaks a check."""
    if report.started and not report.passed:
        _failed[name] = _failed.get(name, 0) + 1
    key = report.diagnosis.key if report.diagnosis else None
    try:
        from flashlab import progress

        progress.record(
            "check",
            name,
            passed=report.passed,
            started=report.started,
            stage=report.reached,
            stages=report.total,
            diagnosis=key,
        )
    except Exception:
        pass


def _earned(name):
    tries = []
    try:
        from flashlab import progress

        tries = progress.events("check", name)
    except Exception:
        pass
    failed = sum(bool(e.get("started")) and not e.get("passed") for e in tries)
    return any(e.get("passed") for e in tries) or max(failed, _failed.get(name, 0)) >= TRIES
