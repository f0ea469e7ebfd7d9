"""The rules of the question bank. `python -m flashlab.quiz.lint [id, section or "claims" ...]` prints
a report; CI runs it as tests/test_quiz_bank.py.

Problems fail. Pending (questions not written, lessons and exercises not there yet) is listed, never passed
silently. Notes are for people: numbers that were typed, strong points that the spoken answer leaves out.
"""

import contextlib
import io
import itertools
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from flashlab.quiz import bank_loader, items, lint_chinese, marking, model
from flashlab.text import LANGUAGES

ROOT = Path(__file__).parents[2]
SEEDS = 50
WORDS = {"en": (75, 160), "zh": (120, 280)}
CARD_WORDS, CARD_ANSWER_WORDS, CARD_CHARACTERS = 20, 12, 30
TYPED = re.compile(
    r"(?<![\w{:.-])\d[\d.,]*\s*(?:[KMGT]i?B(?:/s)?|[TGP]FLOPs?(?:/s)?|million|billion|[µmu]s)\b|\d[\d.,]*\s*[万亿]"
)


@dataclass
class Report:
    """What the lint found; `problems` fail."""

    problems: list = field(default_factory=list)
    pending: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    def __str__(self):
        parts = []
        for title, lines in (("NOTES", self.notes), ("PENDING", self.pending), ("PROBLEMS", self.problems)):
            parts += [f"{title} ({len(lines)})", *(f"  {line}" for line in lines)]
        return "\n".join(parts)


def lint(folder=None, only=(), root=ROOT, run=False):
    """The Report on the bank in `folder`. `only`: ids, section letters or "claims"; `run`: also run the cells
    of predict items (one draw each) and of claims.
    """
    bank, report = bank_loader.collect(folder), Report()

    def wanted(id):
        return not only or any(id == o or id[0] == o or (o == "claims" and id[0] == "K") for o in only)

    report.problems += [p for p in bank.problems if not only or any(o in p for o in only)]
    if not only:
        _pending(bank, report)
    allowed = lint_chinese.allowed_words(bank.glossary)
    for id in sorted(filter(wanted, bank.questions)):
        raw, both = bank.questions[id], {}
        for lang in LANGUAGES:
            both[lang] = bank_loader.question(raw, lang, bank.values[id])
        _shape(raw, report)
        lint_chinese.check_question(raw, both["zh"], allowed, report)
        _typed(raw, report)
        for lang in LANGUAGES:
            _spoken(both[lang], report)
            _cards(both[lang], report)
            for item in both[lang].items:
                _item(item, report, run and lang == "en")
        _places(both["en"], root, report)
    for id in sorted(filter(wanted, bank.claims)):
        raw = bank.claims[id]
        chinese = bank_loader.claim(raw, "zh", bank.values[id])
        for name in ("text", "correction", "polite", "check"):
            lint_chinese.check(getattr(chinese, name), f"{id} {name}", allowed, report)
        _anchor(id, raw.get("anchor", ""), root, report)
        if run and chinese.code:
            _runs(chinese, report)
    return report


def _pending(bank, report):
    missing = [id for id in model.IDS if id not in bank.questions]
    if missing:
        report.pending.append(
            f"{len(missing)} of {len(model.IDS)} questions not written: {' '.join(missing)}"
        )
    absent = [id for id in model.CLAIM_IDS if id not in bank.claims]
    if absent:
        report.problems.append(f"claims.toml: {len(absent)} of 46 claims are missing: {' '.join(absent)}")


def _shape(raw, report):
    """How many of each part a question must have."""
    bounds = {
        "key_point": (3, 8),
        "misconception": (2, 9),
        "follow_up": (2, 9),
        "item": (2, 12),
        "card": (2, 5),
    }
    for part, (low, high) in bounds.items():
        if not low <= len(raw[part]) <= high:
            report.problems.append(f"{raw['id']}: {len(raw[part])} × {part}, expected {low} to {high}")
    if not any(k["level"] == "must" for k in raw["key_point"]):
        report.problems.append(f"{raw['id']}: no key point is a must")
    if not any(f["when"] == "always" for f in raw["follow_up"]):
        report.problems.append(f"{raw['id']}: no follow-up is for always")
    for part in ("item", "card"):
        for entry in raw[part]:
            if not entry["id"].startswith(raw["id"] + "-"):
                report.problems.append(f"{raw['id']}: {part} {entry['id']!r}: ids begin with {raw['id']}-")


def _typed(raw, report):
    for part in ("spoken", "answer"):
        found = [m[0].strip() for m in TYPED.finditer(raw[part]["en"])]
        if found:
            report.notes.append(
                f"{raw['id']} {part}: typed numbers; can flashlab compute them? {', '.join(found)}"
            )


def _spoken(q, report):
    low, high = WORDS[q.lang]
    length = len(q.spoken.split()) if q.lang == "en" else len(re.sub(r"\s", "", q.spoken))
    if not low <= length <= high:
        what = "words" if q.lang == "en" else "characters"
        report.problems.append(f"{q.id} spoken {q.lang}: {length} {what}, expected {low} to {high}")
    hit = marking.found(q, q.spoken)
    for point in q.key_points:
        if point.id not in hit:
            line = f"{q.id} spoken {q.lang}: does not tick {point.level} {point.id!r}"
            (report.problems if point.level == "must" else report.notes).append(line)
    heard = {m.id for m in marking.asserted(q, q.spoken)}
    for m in q.misconceptions:
        if m.id in heard:
            report.problems.append(
                f"{q.id} {q.lang}: the terms of misconception {m.id!r} are in the spoken answer"
            )
        elif m.terms and m not in marking.asserted(q, m.claim):
            report.problems.append(f"{q.id} {q.lang}: misconception {m.id!r} is not heard in its own claim")
    empty = marking.found(q, q.prompt)
    if len(empty) == len(q.key_points):
        report.problems.append(f"{q.id} {q.lang}: the prompt alone ticks every key point")


def _cards(q, report):
    for card in q.cards:
        if q.lang == "en":
            too_long = len(card.ask.split()) > CARD_WORDS or len(card.answer.split()) > CARD_ANSWER_WORDS
        else:
            too_long = len(card.ask) > CARD_CHARACTERS
        if too_long:
            report.problems.append(
                f"{q.id} card {card.id!r}: too long in {q.lang}: {card.ask} / {card.answer}"
            )


def _item(item, report, run):
    where = f"{item.id} {item.lang}"
    try:
        if item.kind in ("numeric", "predict"):
            _apart(item, where, report)
        for seed in range(SEEDS if item.lang == "en" else SEEDS // 5):  # the numbers are the same
            _solvable(items.draw(item, seed), where, report)
        if run and item.run:
            task = items.draw(item, 0)
            got = items.outcome(task)
            if isinstance(got, (int, float)) and not items.near(got, task.expect, max(item.tolerance, 0.01)):
                report.problems.append(
                    f"{where}: the cell gives {got!r}, expected {task.expect!r}: {task.ask}"
                )
    except ValueError as problem:
        report.problems.append(f"{where}: {problem}")


def _apart(item, where, report):
    """Over all draws, expected value and slips lie more than twice the tolerance apart."""
    for values in itertools.product(*item.draws.values()):
        task = items.task_of(item, dict(zip(item.draws, values, strict=True)))
        named = [
            ("expect", task.expect),
            *((s.value, v) for s, (v, _) in zip(item.slips, task.slips, strict=True)),
        ]
        for (a, x), (b, y) in itertools.combinations(named, 2):
            gap = abs(x - y) / max(abs(x), abs(y), 1e-300)
            if x == y or gap < 2 * item.tolerance:
                report.problems.append(f"{where}: {a} = {x!r} and {b} = {y!r} are too close at {task.draws}")
                return


def _solvable(task, where, report):
    """The item's own answer marks as right, everything else that can be chosen as wrong."""
    item, right = task.item, items.solution(task)
    if items.mark(task, right).right is not True:
        report.problems.append(f"{where}: its own answer is marked wrong with seed {task.seed}: {task.ask}")
    for wrong, slip in _wrong(task, right):
        result = items.mark(task, wrong)
        if result.right is not False or (slip is not None and result.slip != slip):
            report.problems.append(f"{where}: {wrong!r} is not marked as its slip with seed {task.seed}")
    if item.unit and item.unit not in _units():
        line = f"{item.id}: unit {item.unit!r} has no name in text/*/quiz.toml [units]"
        if line not in report.problems:
            report.problems.append(line)


def _wrong(task, right):
    """(response, slip expected) of every wrong answer that the item offers."""
    item = task.item
    if item.kind in ("numeric", "predict"):
        for n, (value, _) in enumerate(task.slips):
            yield repr(float(value)), n
    elif item.kind == "choice":
        yield from ((n, None) for n in range(len(task.shown)) if n != right)
    elif item.kind == "spot_the_error":
        yield from ((n, None) for n in range(1, len(item.code) + 1) if n != right)
    else:
        order, gone = right if item.gone else (right, [])
        for n in range(len(order) - 1):
            swapped = [*order[:n], order[n + 1], order[n], *order[n + 2 :]]
            yield ((swapped, gone) if item.gone else swapped), None
        if item.gone:
            yield (order, gone[1:]), None


def _units():
    from flashlab.text import t

    return t("quiz.units", "en")


def _places(q, root, report):
    from flashlab import checks

    _anchor(q.id, q.anchor, root, report)
    known = set(getattr(checks, "NAMES", ())) or {
        p.stem for p in (root / "course" / "exercises").glob("*.py")
    }
    absent = [e for e in q.exercises if e not in known]
    if absent:
        report.pending.append(f"{q.id}: exercises not there yet: {', '.join(absent)}")


def _anchor(id, anchor, root, report):
    """A lesson cell "03_C#C05" is there when the lesson is and names C05."""
    if not anchor:
        return
    if not re.fullmatch(r"\w+#[\w.-]+", anchor):
        report.problems.append(f"{id}: anchor {anchor!r} should look like 03_C#C05")
        return
    stem, _, name = anchor.partition("#")
    lesson = root / "course" / "lessons" / f"{stem}.py"
    if not lesson.exists():
        report.pending.append(f"{id}: lesson {stem} not written (anchor {anchor})")
    elif not re.search(rf"\b{re.escape(name)}\b", lesson.read_text(encoding="utf-8")):
        report.problems.append(f"{id}: lesson {stem} does not name {name} (anchor {anchor})")


def _runs(claim, report):
    """The check of a claim prints what it says it prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(claim.code, claim.id, "exec"), {"__name__": "__check__"})
    except Exception as problem:
        report.problems.append(f"{claim.id} check: {type(problem).__name__}: {problem}")
        return
    if printed.getvalue().strip() != claim.shows:
        report.problems.append(
            f"{claim.id} check printed {printed.getvalue().strip()!r}, not {claim.shows!r}"
        )


def main(argv=None):
    """Print the report; 1 if there are problems."""
    arguments = sys.argv[1:] if argv is None else argv
    run = "--run" in arguments
    report = lint(only=tuple(a for a in arguments if not a.startswith("-")), run=run)
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
