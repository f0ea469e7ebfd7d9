"""The question bank in a notebook: the engine of `flashlab quiz`, one step at a time."""

import os
import threading

import traitlets

from flashlab import progress
from flashlab.quiz import engine
from flashlab.text import lang, table
from flashlab.widgets._base import Widget


class QuizCard(Widget):
    """`QuizCard("learn", section="C")`: a session of one of flashlab.quiz.engine.MODES.

    Traits: `view` is what is shown (Session.view() and `turn`, which counts), `act` what the learner did:
    {"turn", "do": "answer" | "tick" | "rate" | "next" | "skip" | "stop" | "again", "value"}; an act of an
    older turn is ignored. `offline`: for pages without a kernel, questions with key points and a spoken
    answer. Callbacks may come from several threads: one lock holds the session. Raises ValueError for an
    unknown mode or section.
    """

    text_area = "quiz"
    esm_first = ("markdown.js",)
    twin_height = 460

    view = traitlets.Dict().tag(sync=True)
    act = traitlets.Dict().tag(sync=True)
    offline = traitlets.List().tag(sync=True)

    def __init__(self, mode="learn", section=None, *, seed=None, limit=None, language=None, **traits):
        code = language or lang()
        self._lock = threading.RLock()
        self._options = {"section": section, "seed": seed, "limit": limit}
        self._mode, self._code, self._turn = mode, code, 0
        self._session = self._begin()
        super().__init__(strings={"lang": code, **table("quiz", code)}, **traits)
        if os.environ.get("FLASHLAB_STATIC") == "1":
            self.offline = [
                self._static(s) for s in self._session.steps if s.kind in ("free", "card", "claim")
            ]
        self._show()
        self.observe(self._acted, "act")

    def _begin(self):
        return engine.start(
            self._mode, self._code, events=progress.events(), record=progress.record, **self._options
        )

    def _static(self, step):
        ask, points = step.ask()["ask"], []
        if step.kind == "free":
            points = [
                self._text("free", "point").format(text=k.text, level=self._text("free", k.level))
                for k in step.bank.key_points
            ]
            return {"ask": ask, "points": points, "answer": step.bank.spoken}
        if step.kind == "card":
            return {"ask": ask, "points": points, "answer": step.card.answer}
        verdict = self._text("claim", step.claim.verdict)
        return {"ask": ask, "points": points, "answer": f"**{verdict}.** {step.claim.correction}"}

    def _text(self, part, key):
        return table("quiz", self._code)[part][key]

    def _show(self):
        self._turn += 1
        self.view = {**self._session.view(), "turn": self._turn}

    def _acted(self, change):
        act = change["new"]
        with self._lock:
            if act.get("turn") != self._turn:
                return
            try:
                self._apply(act.get("do"), act.get("value"))
            except (ValueError, RuntimeError, TypeError) as problem:
                self.view = {**self.view, "message": str(problem), "turn": self._turn}
                return
            self._show()

    def _apply(self, do, value):
        session = self._session
        if do == "answer":
            session.answer(value)
        elif do == "tick":
            session.tick(value)
        elif do == "rate":
            session.rate(value)
        elif do == "next":
            session.next()
        elif do == "skip":
            session.skip()
        elif do == "stop":
            session.stop()
        elif do == "again":
            self._options["seed"] = None
            self._session = self._begin()
        else:
            raise ValueError(f"unknown act {do!r}")

    def summary(self):
        return f"{self.strings['widget']['name']}: {self.strings['modes'][self._mode]}"

    def __repr__(self):
        step = self._session.step
        return self.summary() if step is None else f"{self.summary()}\n{step.ask()['ask']}"
