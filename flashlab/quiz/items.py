"""Draw an item (the numbers, the order of its options) with a seed, and mark an answer to it.

A response is what was typed, or positions as shown: numeric and predict "8 GiB"; choice "b", "2" or 1 (from
0); order "2 1 3", [1, 0, 2], with steps to mark afterwards "2 1 3 | 1 3"; spot_the_error "2" or 2 (from 1).
"""

import math
import random
import re
from dataclasses import dataclass, field

from flashlab.quiz import formulas, units
from flashlab.quiz.model import Item
from flashlab.text import t

EXACT = 1e-9  # what a tolerance of 0 means: the rounding of floats


@dataclass(frozen=True)
class Task:
    """An item with its numbers: `ask` is what is shown, `shown` the options, steps or code lines in the order
    shown, `order` their positions in the item.
    """

    item: Item
    seed: int
    ask: str
    draws: dict = field(hash=False)
    expect: float | None = None
    slips: tuple = ()  # (value, text)
    shown: tuple = ()
    order: tuple = ()


@dataclass(frozen=True)
class Result:
    """`right` is None where the answer could not be read (ask again). `slip`: position in the item's slips.

    `expected`: the right answer as text; `explained`: (text, explanation, right?) for options and steps.
    """

    right: bool | None
    message: str
    expected: str = ""
    slip: int | None = None
    explained: tuple = ()


def draw(item, seed=0):
    """A Task with numbers chosen by `seed`. Raises ValueError where an expression fails."""
    rng = random.Random(f"{item.id}/{seed}")
    draws = {name: rng.choice(values) for name, values in item.draws.items()}
    return task_of(item, draws, rng, seed)


def task_of(item, draws, rng=None, seed=0):
    """A Task with these numbers."""
    known = {**item.values, **draws}
    if "gpu" in draws:
        known["sms"] = formulas.gpu(draws["gpu"]).sms
    known.update({name: formulas.evaluate(text, **known) for name, text in item.shown.items()})
    ask = units.fill(item.ask, known, item.lang)
    if item.kind in ("numeric", "predict"):
        expect = formulas.evaluate(item.expect, **known)
        slips = tuple(
            (formulas.evaluate(s.value, **known, expect=expect), units.fill(s.text, known, item.lang))
            for s in item.slips
        )
        return Task(item, seed, ask, draws, expect, slips)
    texts = {"choice": item.options, "order": item.steps}.get(item.kind, item.code)
    order = list(range(len(texts)))
    if item.kind != "spot_the_error":
        rng = rng or random.Random(seed)
        rng.shuffle(order)
        if item.kind == "order" and order == sorted(order) and len(order) > 1:
            order.append(order.pop(0))
    values = {} if item.kind == "spot_the_error" else known
    shown = tuple(units.fill(texts[i], values, item.lang) if values else texts[i] for i in order)
    return Task(item, seed, ask, draws, shown=shown, order=tuple(order))


def mark(task, response):
    """The Result of a response to a task."""
    return _MARK[task.item.kind](task, response)


def solution(task):
    """A response that marks as right."""
    item = task.item
    if item.kind in ("numeric", "predict"):
        return repr(float(task.expect)) if not isinstance(task.expect, int) else str(task.expect)
    if item.kind == "spot_the_error":
        return item.answer
    if item.kind == "choice":
        return task.order.index(item.answer)
    right = [task.order.index(n) for n in range(len(item.steps))]
    return (right, [task.order.index(n) for n in item.gone]) if item.gone else right


def outcome(task):
    """What the cell of a predict item gives, run now; None where the item has none."""
    if not task.item.run:
        return None
    return formulas.evaluate(task.item.run, **task.item.values, **task.draws)


def unit_name(unit, lang):
    """The unit as a reader of `lang` writes it."""
    names = t("quiz.units", lang)
    return names.get(unit, unit)


def example(unit, lang):
    """How an answer with that unit may be typed."""
    known = t("quiz.examples", lang)
    return known.get(unit, known["number"])


def near(value, target, tolerance):
    """Is `value` within the relative `tolerance` of `target`?"""
    return math.isclose(value, target, rel_tol=max(tolerance, EXACT), abs_tol=EXACT if target == 0 else 0)


def _number(task, response):
    item, lang = task.item, task.item.lang
    found = units.read(response, item.unit)
    if not found:
        return Result(None, t("quiz.item.unreadable", lang, example=example(item.unit, lang)))
    expected = units.quantity(task.expect, item.unit, lang, unit_name(item.unit, lang))
    if any(near(x, task.expect, item.tolerance) for x in found):
        return Result(True, "", expected)
    for n, (value, text) in enumerate(task.slips):
        if any(near(x, value, item.tolerance) for x in found):
            return Result(False, text, expected, n)
    return Result(False, _known_slip(task, response, found), expected)


def _known_slip(task, response, found):
    """A slip that needs no line in the bank: the other kind of GB, a prefix left out."""
    lang, ratios = task.item.lang, [x / task.expect for x in found] if task.expect else []
    if task.item.unit.startswith("bytes") and units.other_unit(response):
        for factor in (1024 / 1000, (1024 / 1000) ** 2, (1024 / 1000) ** 3, (1024 / 1000) ** 4):
            if any(near(r * factor, 1, 0.01) or near(r / factor, 1, 0.01) for r in ratios):
                return t("quiz.item.binary", lang)
    for factor in (1000, 1024, 1e6, 2**20, 1e9, 2**30):
        if any(near(r * factor, 1, 0.02) or near(r / factor, 1, 0.02) for r in ratios):
            return t("quiz.item.prefix", lang, factor=units.plain(float(factor), lang))
    return ""


def position(text, count):
    """The position, from 0, that "b", "2" or 1 (an int counts from 0) means, or None."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text if 0 <= text < count else None
    text = str(text).strip().strip("().").lower()
    at = ord(text) - ord("a") if len(text) == 1 and text.isascii() and text.isalpha() else None
    if at is None and text.isdecimal():
        at = int(text) - 1
    return at if at is not None and 0 <= at < count else None


def _choice(task, response):
    item = task.item
    at = position(response, len(task.shown))
    if at is None:
        return Result(None, t("quiz.item.choose", item.lang, last=chr(ord("a") + len(task.shown) - 1)))
    explained = tuple(
        (text, item.because[i], i == item.answer) for text, i in zip(task.shown, task.order, strict=True)
    )
    chosen = task.order[at]
    right = next(text for text, _, is_right in explained if is_right)
    return Result(chosen == item.answer, item.because[chosen], right, None, explained)


def _positions(text, count):
    if isinstance(text, (list, tuple)):
        return list(text) if all(isinstance(n, int) and 0 <= n < count for n in text) else None
    words = re.findall(r"\d+|[A-Za-z]", str(text))
    found = [position(w, count) for w in words]
    return None if None in found else found


def _order(task, response):
    item, count = task.item, len(task.shown)
    if isinstance(response, str):
        first, _, rest = response.partition("|")
    else:
        first, rest = response if item.gone and len(response) == 2 else (response, [])
    order, gone = _positions(first, count), _positions(rest, count)
    if order is None or gone is None or sorted(order) != list(range(count)):
        return Result(None, t("quiz.item.arrange", item.lang, count=count))
    given = [task.order[n] for n in order]
    right_order = given == list(range(count))
    right_gone = sorted(task.order[n] for n in gone) == sorted(item.gone)
    explained = tuple((text, "", n in item.gone) for n, text in enumerate(item.steps))
    message = ""
    if not right_order:
        first_wrong = next(n for n, step in enumerate(given) if step != n)
        message = t("quiz.item.order_wrong", item.lang, place=first_wrong + 1, step=item.steps[first_wrong])
    elif not right_gone:
        message = t("quiz.item.marked_wrong", item.lang)
    if item.because:
        message = f"{message} {item.because[0]}".strip()
    return Result(right_order and right_gone, message, " → ".join(item.steps), None, explained)


def _spot(task, response):
    item = task.item
    text = str(response).strip()
    line = int(text) if text.isdecimal() else 0
    if not 1 <= line <= len(item.code):
        return Result(None, t("quiz.item.line", item.lang, last=len(item.code)))
    return Result(line == item.answer, item.because[0], str(item.answer))


_MARK = {
    "numeric": _number, "predict": _number, "choice": _choice, "order": _order, "spot_the_error": _spot,
}  # fmt: skip
