"""Runs a learner's function through stages, and turns the first thing that goes wrong into one diagnosis.

A stage is a plain function `stage(answer) -> None | Diagnosis`; `answer(*args)` is the learner's function,
guarded. Stages call it like any function: what it raises, a time-out, a changed input, a missing result
become diagnoses by themselves.
"""

import linecache
import traceback
from dataclasses import dataclass, field

import numpy as np

from flashlab.checks import guard
from flashlab.text import t

TIME_LIMIT = 3.0  # seconds for one call
MEMORY_LIMIT = 2**30  # additional bytes for one call


@dataclass
class Diagnosis:
    """What went wrong: `key` names the text, `values` fill it; `more` are further (key, values) lines."""

    key: str
    values: dict = field(default_factory=dict)
    tried: str = ""
    expected: str = ""
    got: str = ""
    more: list = field(default_factory=list)


@dataclass
class Report:
    """The outcome: `reached` stages of `total` were passed; `notes` are (key, values) remarks on a right
    answer."""

    total: int
    reached: int = 0
    started: bool = True
    diagnosis: Diagnosis | None = None
    notes: list = field(default_factory=list)

    @property
    def passed(self):
        return self.started and self.reached == self.total


class Found(Exception):
    """Ends a stage with a diagnosis from anywhere inside it."""

    def __init__(self, diagnosis):
        super().__init__(diagnosis.key)
        self.diagnosis = diagnosis


class NotStarted(Exception):
    pass


class Answer:
    """The learner's function, guarded. `right_on`: the inputs it passed; `notes`: remarks that do not make
    it wrong."""

    def __init__(self, function):
        self.function = function
        self.right_on = []
        self.notes = []

    def __call__(self, *args):
        before = [a.view(np.ndarray).copy() if isinstance(a, np.ndarray) else None for a in args]
        try:
            with np.errstate(all="ignore"):
                result = guard.call(self.function, *args, seconds=TIME_LIMIT, memory=MEMORY_LIMIT)
        except NotImplementedError:
            raise NotStarted from None
        except guard.TooSlow as stop:
            raise Found(Diagnosis("too_slow", {"seconds": f"{stop.seconds:g}"})) from None
        except guard.TooMuchMemory as stop:
            raise Found(Diagnosis("too_much_memory", {"size": f"{stop.size / 2**20:.0f} MiB"})) from None
        except Exception as error:
            raise Found(self._raised(error)) from None
        for position, old in enumerate(before):
            if old is not None and not np.array_equal(args[position].view(np.ndarray), old, equal_nan=True):
                raise Found(Diagnosis("changes_its_input", {"name": self._argument(position)}))
        if result is None or result is Ellipsis:
            raise NotStarted
        return result

    def _argument(self, position):
        code = getattr(self.function, "__code__", None)
        names = code.co_varnames[: code.co_argcount] if code else ()
        return names[position] if position < len(names) else f"#{position + 1}"

    def _raised(self, error):
        """The exception and the learner's own line; a blank (`...`) still there is a case of its own."""
        key = "blank_left" if "ellipsis" in str(error).lower() else "raised"
        diagnosis = Diagnosis(key, {"kind": type(error).__name__, "message": str(error) or "-"})
        file = getattr(getattr(self.function, "__code__", None), "co_filename", None)
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        if own:
            line = (own[-1].line or linecache.getline(file, own[-1].lineno)).strip()
            diagnosis.more.append(("at_line", {"number": own[-1].lineno, "line": line}))
        if "broadcast" in str(error):
            diagnosis.more.append(("broadcast", {}))
        return diagnosis


def examine(stages, function):
    """Run `function` through `stages` (functions), up to the first that fails. Returns a Report."""
    answer = Answer(function)
    report = Report(total=len(stages), notes=answer.notes)
    for stage in stages:
        try:
            report.diagnosis = stage(answer)
        except Found as found:
            report.diagnosis = found.diagnosis
        except NotStarted:
            if report.reached == 0:
                report.started = False
                return report
            report.diagnosis = Diagnosis("returned_nothing")
        if report.diagnosis:
            return report
        report.reached += 1
    return report


def phrase(exercise, key, values):
    """The text of a diagnosis or remark: of this exercise if it has one by that name, else of the engine."""
    from flashlab.text import lang, table

    own = table("checks", lang()).get(exercise, {}).get("says", {})
    return t(f"checks.{exercise}.says.{key}" if key in own else f"checks.engine.{key}", **values)


def lines(exercise, stages, report):
    """The report as the lines that a learner reads, in the chosen language."""
    if not report.started:
        return [t("checks.engine.not_started", name=exercise)]
    titles = [t(f"checks.{exercise}.stages.{stage.__name__}") for stage in stages]
    out = [f"✓ {n}/{report.total} {title}" for n, title in enumerate(titles[: report.reached], 1)]
    found = report.diagnosis
    if found is None:
        out.append(t("checks.engine.all_pass", total=report.total))
        return out + [phrase(exercise, key, values) for key, values in report.notes]
    out.append(f"✗ {report.reached + 1}/{report.total} {titles[report.reached]}")
    for label in ("tried", "expected", "got"):
        if getattr(found, label):
            out.append(f"    {t('checks.engine.' + label)} {getattr(found, label)}")
    out += ["  " + phrase(exercise, key, values) for key, values in [(found.key, found.values), *found.more]]
    return [*out, "  " + t("checks.engine.hint_line", name=exercise)]
