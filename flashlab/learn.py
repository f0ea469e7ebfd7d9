"""What makes a notebook a lesson: ask before a result, show what a wrong guess was thinking, review, compare,
say it aloud.

Nothing here ever waits: without a guess a cell just shows its value. Everything is recorded by
flashlab.progress. Widget callbacks come from several threads, so the little state there is stands behind one
lock.
"""

import os
import threading
import weakref

from flashlab import progress
from flashlab.errors import unknown_name
from flashlab.quiz import answers, prompts
from flashlab.text import lang

_lock = threading.RLock()
_asked = {}  # id -> what predict() was called with, and the locked guess of this session
_shown = weakref.WeakValueDictionary()  # id -> the last Reveal, which a late guess updates


def predict(id, question=None, unit=None, choices=None):
    """Ask for a guess before the result: a box, or buttons when there are `choices`. Enter locks and stores
    it.

    `id` as in the lesson's data ("C-p01"); `question` may be left out if the data has one. In Chinese the
    data's question and choices are shown. Returns the widget. Raises ValueError when there is neither a
    question nor an entry, or when `choices` are not as many as in the data.
    """
    from flashlab.widgets.predict import Predict

    data = prompts.prediction(id) or {}
    if question is None and not data:
        raise unknown_name(
            "prediction without a question",
            id,
            [i for x in prompts.lessons().values() for i in x.predictions],
        )
    own = [c["en"] for c in data.get("choices", [])]
    english = list(choices) if choices is not None else own
    if own and len(english) != len(own):
        raise ValueError(
            f"prediction {id!r} has {len(own)} choices in the lesson's data, got {len(english)}: {english}"
        )
    shown = english
    if lang() != "en" and data:
        question, shown = data[lang()], [c[lang()] for c in data.get("choices", [])] or english
    offline = _offline()
    with _lock:
        asked = _asked[id] = {"question": question or data["en"], "unit": unit or "", "locked": {}}
        asked.update(english=english, shown=shown)
        earlier = None if offline else progress.latest("guess", id)
        if earlier:
            asked["locked"] = _locked(earlier, shown)
    box = Predict(
        question=asked["question"], unit=asked["unit"], choices=shown, locked=asked["locked"], offline=offline
    )

    def lock(change):
        locked = change["new"]
        with _lock:
            _asked.setdefault(id, asked)["locked"] = locked
        choice = locked.get("choice", -1)
        text = english[choice] if 0 <= choice < len(english) else locked.get("guess", "")
        box.saved = progress.record("guess", id, guess=text, choice=choice)
        later = _shown.get(id)
        if later is not None:
            _compare(later, id)

    box.observe(lock, "locked")
    return box


def reveal(id, value):
    """Show `value` beside the guess for `id`, and what a common wrong guess was thinking. Last line of the
    cell after predict.

    `value` may be anything with a repr; a number, a string or up to four numbers are compared with the guess,
    for other values the lesson's data knows the answer. In plain text (logs, papermill) it shows repr(value)
    and nothing else.
    """
    from flashlab.widgets.reveal import Reveal

    data = prompts.prediction(id) or {}
    with _lock:
        asked = _asked.get(id, {})
    box = Reveal(
        value,
        question=asked.get("question") or data.get(lang(), ""),
        value=_display(value, asked),
        mistakes=[{"guess": _spell(w["guess"], data), "text": w[lang()]} for w in data.get("wrong", [])],
        offline=_offline(),
    )
    if not box.offline:
        _compare(box, id)
        _shown[id] = box
    return box


def review(stop):
    """The prompts of a review stop ("C-1") one at a time, after those of earlier stops that were not known.
    Returns the widget.

    Raises ValueError that names the closest stops.
    """
    from flashlab.widgets.review import Review

    lesson, here = prompts.at_stop(stop)
    known = {} if _offline() else {e["id"]: e["known"] for e in progress.events("prompt")}
    earlier = lesson.stops[: lesson.stops.index(stop)]
    returning = [p for p in lesson.prompts.values() if p["stop"] in earlier and known.get(p["id"]) is False]
    box = Review(
        stop=stop,
        last=stop == lesson.stops[-1],
        cards=[
            {
                "id": p["id"],
                "ask": p[lang()]["ask"],
                "answer": p[lang()]["answer"],
                "returning": p in returning,
            }
            for p in returning + here
        ],
    )
    recorded = {}

    def keep(change):
        with _lock:
            new = {k: v for k, v in change["new"].items() if recorded.get(k) is not v}
            recorded.update(new)
        for prompt, knew in new.items():
            progress.record("prompt", prompt, known=bool(knew), stop=stop)

    box.observe(keep, "marks")
    return box


def pretest(lesson):
    """The lesson's few questions before it begins: answers are recorded, nothing is shown. Returns the
    widget.
    """
    return _before_after(lesson, "before", "pretest")


def posttest(lesson):
    """The same questions with other numbers; once answered, both results stand side by side. Returns the
    widget.
    """
    return _before_after(lesson, "after", "posttest")


def _before_after(lesson, half, kind):
    from flashlab.widgets.before_after import BeforeAfter

    data = prompts.lesson(lesson).before_after
    items = [
        {
            "id": id,
            "question": item[half][lang()],
            "choices": [c[lang()] for c in item.get("choices", [])],
            **({"expected": _expected(item, half)} if _offline() and half == "after" else {}),
        }
        for id, item in data.items()
    ]
    box = BeforeAfter(half=half, items=items, offline=_offline())

    def keep(change):
        old = change["old"] or {}
        for id, given in change["new"].items():
            if id in data and given != old.get(id):
                progress.record(kind, id, right=_right(data[id], half, given), **given)
        if half == "after":
            box.results = [_both(id, item, box.given.get(id)) for id, item in data.items()]

    box.observe(keep, "given")
    return box


def _right(item, half, given):
    kind = item.get("kind", "number")
    guess = given.get("choice", -1) if kind == "choice" else given.get("guess", "")
    return answers.same(guess, item[half]["answer"], kind)


def _expected(item, half):
    answer = item[half]["answer"]
    return item["choices"][answer][lang()] if item.get("kind") == "choice" else f"{answer:g}"


def _both(id, item, now):
    """One row of the comparison: the last answer before the lesson and the one given now."""
    row = {"question": item["after"][lang()]}
    for half, given in (("before", progress.latest("pretest", id)), ("after", now)):
        given = given or {"guess": "", "choice": -1}
        choice = given.get("choice", -1)
        guess = item["choices"][choice][lang()] if item.get("choices") and choice >= 0 else given["guess"]
        row[half] = {"guess": guess, "right": _right(item, half, given), "expected": _expected(item, half)}
    return row


def say(id):
    """A question to answer aloud ("C01"): a timer, then key points to tick and one way to say it."""
    from flashlab.widgets.say import Say

    data = prompts.to_say(id)
    words = data[lang()]
    box = Say(
        ask=words["ask"], seconds=data["seconds"], points=words["points"], answer=words["answer"].strip()
    )
    box.observe(
        lambda change: progress.record("say", id, ticked=change["new"], of=len(words["points"])), "ticked"
    )
    return box


def show_source(function, docstring=True):
    """The source of a function or class, also behind decorators and inside a Triton kernel, highlighted.

    `docstring=False` leaves its docstring out. As text it is the source itself. Raises TypeError when there
    is no Python source (a built-in, or no function at all).
    """
    from flashlab.widgets.source import Source

    return Source.of(function, docstring)


def _offline():
    return os.environ.get("FLASHLAB_STATIC") == "1"


def _locked(event, shown):
    """What a stored guess looks like in the box: choices in the language of now."""
    choice = event.get("choice", -1)
    return {"guess": shown[choice] if 0 <= choice < len(shown) else event["guess"], "choice": choice}


def _display(value, asked):
    """The value as text: a choice in the shown language, a number with its unit."""
    if isinstance(value, str):
        english = asked.get("english", [])
        return asked["shown"][english.index(value)] if value in english else value
    unit = asked.get("unit", "")
    return f"{value!r} {unit}".strip() if isinstance(value, (int, float)) else repr(value)


def _spell(guess, data):
    return data["choices"][guess][lang()] if data.get("kind") == "choice" else str(guess)


def _compare(box, id):
    """Put the last guess for `id`, the verdict and the line for it into `box`; record it once per guess."""
    with _lock:
        asked = dict(_asked.get(id, {}))
    locked = asked.get("locked")
    if not locked:
        stored = progress.latest("guess", id)
        if not stored:
            return
        data = prompts.prediction(id) or {}
        shown = asked.get("shown") or [c[lang()] for c in data.get("choices", [])]
        locked = _locked(stored, shown)
    verdict, wrong = answers.judge(locked, box.result, prompts.prediction(id) or {}, asked.get("english", []))
    unit = asked.get("unit", "")
    typed = locked["guess"] + (
        f" {unit}"
        if unit and answers.number(locked["guess"]) is not None and unit not in locked["guess"]
        else ""
    )
    with box.hold_trait_notifications():
        box.guess, box.verdict, box.thinking = typed, verdict, wrong.get(lang(), "")
    before = progress.latest("reveal", id)
    if before is None or before["guess"] != locked["guess"]:
        progress.record("reveal", id, guess=locked["guess"], right=verdict == "right")
