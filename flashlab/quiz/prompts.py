"""The questions of each lesson, read from lessons/*.toml and checked when read: prompts, predictions, before
and after, say.

The data is plain dicts and strings; every text is there in English and in Chinese. A lesson file may leave
any part out.
"""

import functools
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from flashlab.errors import unknown_name
from flashlab.quiz import answers
from flashlab.text import LANGUAGES

FOLDER = Path(__file__).parent / "lessons"
KINDS = ("number", "share", "numbers", "choice")


@dataclass(frozen=True)
class Lesson:
    """One lesson's data: `prompts`, `predictions`, `before_after` and `say` are dicts by id, in the order of
    the file.
    """

    name: str
    stops: tuple = ()
    checks: tuple = ()
    prompts: dict = field(default_factory=dict)
    predictions: dict = field(default_factory=dict)
    before_after: dict = field(default_factory=dict)
    say: dict = field(default_factory=dict)


def parse(text, source):
    """A Lesson from TOML text. Raises ValueError that names file, entry and what is missing or wrong."""

    def fail(what):
        raise ValueError(f"{source}: {what}")

    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        fail(problem)

    def need(entry, where, **fields):
        for key, kind in fields.items():
            if not isinstance(entry.get(key), kind) or entry[key] == "":
                fail(f"{where}: {key!r} must be given and be a {getattr(kind, '__name__', 'number')}")

    def words(entry, where, *keys):
        """Texts in every language: entry[language] is a string, or a table with `keys`."""
        for language in LANGUAGES:
            if keys:
                need(entry, where, **{language: dict})
                need(entry[language], f"{where}: {language}", **dict.fromkeys(keys, str))
            else:
                need(entry, where, **{language: str})

    def collect(part):
        found = {}
        for entry in raw.get(part, []):
            need(entry, part, id=str)
            if entry["id"] in found:
                fail(f"{part} {entry['id']!r} is there twice")
            found[entry["id"]] = entry
        return found

    def question(entry, where, options, kind):
        words(entry, where)
        if kind not in KINDS:
            fail(f"{where}: {unknown_name('kind', kind, KINDS)}")
        answer = entry.get("answer")
        if kind == "choice" and (type(answer) is not int or not 0 <= answer < len(options)):
            fail(f"{where}: answer must be a position in choices (0 to {len(options) - 1})")
        if kind == "numbers" and (not isinstance(answer, list) or not answers.numbers(str(answer))):
            fail(f"{where}: answer must be a list of numbers")
        if kind in ("number", "share") and type(answer) not in (int, float):
            fail(f"{where}: answer must be a number")

    need(raw, "top", lesson=str)
    parts = {p: collect(p) for p in ("prompt", "prediction", "before_after", "say")}
    stops = tuple(raw.get("stops", ()))
    for id, entry in parts["prompt"].items():
        words(entry, f"prompt {id!r}", "ask", "answer")
        if entry.get("stop") not in stops:
            fail(f"prompt {id!r}: {unknown_name('stop', entry.get('stop'), stops)}")
    for stop in stops:
        if not any(p["stop"] == stop for p in parts["prompt"].values()):
            fail(f"stop {stop!r} has no prompts")
    for id, entry in parts["prediction"].items():
        where, options = f"prediction {id!r}", entry.get("choices", [])
        for option in options:
            words(option, f"{where}: choice")
        kind = entry.get("kind", "number")
        question(entry, where, options, kind)
        for wrong in entry.get("wrong", []):
            words(wrong, f"{where}: wrong")
            guess = wrong.get("guess")
            readable = {
                "choice": type(guess) is int and 0 <= guess < len(options),
                "numbers": answers.numbers(str(guess)) is not None,
            }.get(kind, answers.number(str(guess)) is not None)
            if not readable:
                fail(f"{where}: wrong: {guess!r} is no {kind}")
            if answers.same(guess, entry["answer"], kind, entry.get("right")):
                fail(f"{where}: wrong: {guess!r} is the right answer")
    for id, entry in parts["before_after"].items():
        options = entry.get("choices", [])
        for option in options:
            words(option, f"before_after {id!r}: choice")
        for half in ("before", "after"):
            need(entry, f"before_after {id!r}", **{half: dict})
            question(entry[half], f"before_after {id!r}: {half}", options, entry.get("kind", "number"))
    for id, entry in parts["say"].items():
        words(entry, f"say {id!r}", "ask", "answer")
        need(entry, f"say {id!r}", seconds=int)
        counts = {language: len(entry[language].get("points", ())) for language in LANGUAGES}
        if 0 in counts.values() or len(set(counts.values())) > 1:
            fail(f"say {id!r}: points must be as many in every language, got {counts}")
    return Lesson(
        raw["lesson"], stops, tuple(raw.get("checks", ())),
        parts["prompt"], parts["prediction"], parts["before_after"], parts["say"],
    )  # fmt: skip


@functools.cache
def lessons():
    """All lessons by name, {"C": Lesson, ...}. Ids are unique over all of them. Raises ValueError on broken
    data.
    """
    found, seen = {}, {}
    for file in sorted(FOLDER.glob("*.toml")):
        lesson = parse(file.read_text(encoding="utf-8"), file.name)
        found[lesson.name] = lesson
        for part in (lesson.prompts, lesson.predictions, lesson.before_after, lesson.say):
            for id in part:
                if id in seen:
                    raise ValueError(f"{file.name}: id {id!r} is taken by {seen[id]}")
                seen[id] = file.name
    return found


def lesson(name):
    """One Lesson. Raises ValueError that names the closest ones."""
    if name not in lessons():
        raise unknown_name("lesson", name, lessons())
    return lessons()[name]


def prediction(id):
    """The data of a prediction as a dict, or None: a notebook may ask something that no lesson file knows."""
    return next((x.predictions[id] for x in lessons().values() if id in x.predictions), None)


def at_stop(stop):
    """(Lesson, its prompts at `stop`). Raises ValueError that names the closest stops."""
    for found in lessons().values():
        if stop in found.stops:
            return found, [p for p in found.prompts.values() if p["stop"] == stop]
    raise unknown_name("stop", stop, [s for x in lessons().values() for s in x.stops])


def to_say(id):
    """The data of a spoken question. Raises ValueError that names the closest ids."""
    known = {k: v for x in lessons().values() for k, v in x.say.items()}
    if id not in known:
        raise unknown_name("spoken question", id, known)
    return known[id]
