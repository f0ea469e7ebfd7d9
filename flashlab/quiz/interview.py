"""A mock interview as a state machine without input and output: no marks while it runs, one screen after it.

A pitch against the clock, threads (a question, then the follow-ups that the answer triggered), a
whiteboard task, two numbers to 25 %, a claim that the interviewer asserts, a transfer question, and what
you would take back.
"""

import functools
import random
import time
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from flashlab.errors import unknown_name
from flashlab.quiz import bank_loader, interview_debrief, items, marking, model, whiteboard
from flashlab.text import t

MINUTES = {15: (1, 1), 30: (2, 2), 45: (4, 2)}  # threads, follow-ups in each
ROLES = ("training", "inference", "intern")
NUMBERS, TOLERANCE = 2, 0.25


@functools.cache
def data():
    """The tables of interview.toml."""
    return tomllib.loads(Path(__file__).with_name("interview.toml").read_text(encoding="utf-8"))


@dataclass
class Turn:
    """One thing the interviewer says. `kind`: pitch, question, follow_up, whiteboard, number, claim,
    transfer or back; `seconds` for the clock or 0; the rest is what the debrief needs.
    """

    kind: str
    text: str
    seconds: int = 0
    question: model.Question | None = None
    follow_up: model.FollowUp | None = None
    task: object = None
    claim: model.Claim | None = None
    answer: str = ""
    took: int | None = None
    found: set = field(default_factory=set)
    result: object = None


class Interview:
    """`turn` is the current Turn (None at the end); `answer(text)` goes on; `debrief()` afterwards."""

    def __init__(self, minutes, role, lang, questions, claims, rng, record, now):
        self.minutes, self.role, self.lang, self.now = minutes, role, lang, now
        self.record, self.rng = record or (lambda kind, id, **data: None), rng
        self.questions = {q.id: q for q in questions}
        self.begun, self.turns, self.asked = now(), [], set()
        self.plan = self._plan(questions, claims)
        self.turn = None
        self._go_on()

    @property
    def left(self):
        """Seconds left, not below 0."""
        return max(0.0, 60 * self.minutes - (self.now() - self.begun))

    def answer(self, text, took=None):
        """Take what was said to the current turn, without a word about it, and go on. `took`: seconds that
        the pitch lasted.
        """
        turn = self.turn
        if turn is None:
            raise ValueError("the interview is over")
        turn.answer, turn.took = str(text), took
        turn.result = self._judge(turn)
        self.turns.append(turn)
        self._go_on(turn)

    def unreadable(self, text):
        """ "" or a sentence, where a number is wanted and `text` is none; no word on right or wrong."""
        if self.turn is None or self.turn.kind != "number" or not text.strip():
            return ""
        found = items.mark(self.turn.task, text)
        return found.message if found.right is None else ""

    def stop(self):
        """End here; the debrief holds what was answered."""
        self._end()

    def debrief(self):
        """Plain data for one screen; see `flashlab.quiz.interview_terminal`."""

        return interview_debrief.collect(self)

    def _plan(self, questions, claims):
        """What comes, in order: functions that make a Turn (or None) when their time has come."""
        sections = data()["roles"][self.role]
        threads, self.most = MINUTES[self.minutes]
        pool = sorted(
            questions, key=lambda q: (sections.index(q.section), q.asked != "core", self.rng.random())
        )
        chosen, seen = [], set()
        for q in pool:  # one of each section before a second of any
            if q.section not in seen and len(chosen) < threads:
                chosen.append(q)
                seen.add(q.section)
        chosen += [q for q in pool if q not in chosen][: threads - len(chosen)]
        boards = [w for w in data()["whiteboard"] if self.role in w["roles"]]
        board = self.rng.choice(boards[-2:])
        numeric = [i for q in pool[:12] for i in q.items if i.kind == "numeric"]
        self.rng.shuffle(numeric)
        numbers = sorted(numeric, key=lambda i: i.unit in ("", "number", "value"))[:NUMBERS]
        wrong = [c for c in claims if c.verdict != "true"] or claims
        claim = self.rng.choice(wrong) if wrong else None
        steps = [self._pitch, *(functools.partial(self._question, q) for q in chosen)]
        steps.insert(2, functools.partial(self._whiteboard, board))
        steps += [functools.partial(self._number, i) for i in numbers]
        if claim:
            steps.append(functools.partial(self._claim, claim))
        return [*steps, functools.partial(self._transfer, pool), self._back]

    def _go_on(self, last=None):
        self.turn = None
        if last is not None and last.kind in ("question", "follow_up") and self.left > 60:
            self.turn = self._follow_up()
        if self.left == 0 and len(self.plan) > 1:
            self.plan = self.plan[-1:]
        while self.turn is None and self.plan:
            self.turn = self.plan.pop(0)()
        if self.turn is None:
            self._end()

    def _end(self):
        self.turn, self.plan = None, []
        if self.turns and not getattr(self, "kept", False):
            self.kept = True
            self.record("interview", self.role, minutes=self.minutes, weak=self.debrief()["weak"])

    def _pitch(self):
        pitch = data()["pitch"]
        return Turn("pitch", pitch[self.lang], pitch["seconds"])

    def _question(self, question):
        self.asked.add(question.id)
        self.thread = {"question": question, "used": [], "count": 0, "found": set()}
        return Turn("question", question.prompt, 0, question)

    def _follow_up(self):
        """The first whose key point was missed, else the next that is for always; None when there were
        enough.
        """
        thread = self.thread
        if thread["count"] >= self.most:
            return None
        missed = {f"missed:{k.id}" for k in marking.missed(thread["question"], thread["found"])}
        left = [f for f in thread["question"].follow_ups if f not in thread["used"] and self._text(f)]
        step = next((f for f in left if f.when in missed), None)
        step = step or next((f for f in left if f.when == "always" and f.kind != "transfer"), None)
        if step is None:
            return None
        thread["used"].append(step)
        thread["count"] += 1
        text = self._text(step)  # before the question that it leads to counts as asked
        if step.question:
            self.asked.add(step.question)
        return Turn("follow_up", text, 0, thread["question"], step)

    def _text(self, step):
        """What a follow-up says; "" where it leads to a question that is not written or was asked."""
        if step.text:
            return step.text
        known = self.questions.get(step.question)
        return known.prompt if known and known.id not in self.asked else ""

    def _whiteboard(self, board):
        return Turn("whiteboard", board[self.lang], 60 * board["minutes"], task=board)

    def _number(self, item):
        task = items.draw(replace(item, tolerance=TOLERANCE), self.rng.randrange(10**6))
        return Turn("number", task.ask, task=task)

    def _claim(self, claim):
        return Turn("claim", t("quiz.interview.claim", self.lang, claim=claim.text), claim=claim)

    def _transfer(self, pool):
        found = [
            (q.id not in self.asked, q, f)
            for q in pool
            for f in q.follow_ups
            if f.kind == "transfer" and f.text
        ]
        if not found:
            return None
        near = [x for x in found if not x[0]] or found
        _, question, step = self.rng.choice(near)
        return Turn("transfer", step.text, 0, question, step)

    def _back(self):
        return Turn("back", t("quiz.interview.back", self.lang))

    def _judge(self, turn):
        if turn.kind in ("question", "follow_up"):
            turn.found = marking.found(turn.question, turn.answer)
            self.thread["found"] |= turn.found
        if turn.kind == "question":
            data_ = {
                "score": marking.score(turn.question, turn.found),
                "given": turn.answer,
                "interview": True,
            }
            missed = [k.id for k in marking.missed(turn.question, turn.found)]
            if turn.answer.strip():
                self.record("free", turn.question.id, ticked=sorted(turn.found), missed=missed, **data_)
        if turn.kind == "pitch":
            said, points = marking.plain(turn.answer), data()["pitch"]["point"]
            hit = [
                all(any(marking.plain(w) in said for w in g) for g in p["terms"][self.lang]) for p in points
            ]
            left = [p[self.lang] for p, h in zip(points, hit, strict=True) if not h]
            return {
                "said": sum(hit),
                "of": len(points),
                "missed": left,
                "took": turn.took,
                "seconds": turn.seconds,
                "spoken": data()["pitch"]["spoken"][self.lang],
            }
        if turn.kind == "whiteboard":
            fault = whiteboard.check(turn.task, turn.answer)
            return {
                "fault": fault,
                "solution": turn.task["solution"].strip(),
                "question": turn.task["question"],
            }
        if turn.kind == "number":
            found = items.mark(turn.task, turn.answer)
            wanted = items.units.quantity(
                turn.task.expect,
                turn.task.item.unit,
                self.lang,
                items.unit_name(turn.task.item.unit, self.lang),
            )
            return {
                "right": bool(found.right),
                "expected": wanted,
                "message": found.message if found.right is False else "",
            }
        if turn.kind == "claim":
            claim = turn.claim
            return {
                "verdict": t(f"quiz.claim.{claim.verdict}", self.lang),
                "polite": claim.polite,
                "id": claim.id,
            }
        return None


def start(
    minutes=30,
    role="training",
    lang="en",
    *,
    seed=None,
    record=None,
    events=(),
    now=time.monotonic,
    folder=None,
):
    """An Interview. Raises ValueError for other minutes than 15, 30, 45, an unknown role, or an empty
    bank.
    """
    if minutes not in MINUTES:
        raise ValueError(f"expected 15, 30 or 45 minutes, got {minutes!r}")
    if role not in ROLES:
        raise unknown_name("role", role, ROLES)
    questions, claims = bank_loader.load(lang, folder), bank_loader.load_claims(lang, folder)
    if not questions:
        raise ValueError(t("quiz.modes.nothing", lang))
    return Interview(minutes, role, lang, questions, claims, random.Random(seed), record, now)
