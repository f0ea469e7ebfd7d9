"""The trainer's modes as one state machine without input and output: learn, drill, exam, diagnosis, folklore.

A Session holds steps. Its phase is "ask" (then `answer`), "tick" (free answers: then `tick`), "feedback"
(then `next`; cards: `rate`) or "done". `view` is all that a terminal or a widget shows, as plain data.
Everything that was answered has been handed to `record` by then, so a session may end at any moment.
"""

import random
import time

from flashlab.errors import unknown_name
from flashlab.quiz import bank_loader, cards, debrief, model
from flashlab.quiz.steps import CardStep, ClaimStep, FreeStep, ItemStep
from flashlab.text import t

MODES = ("learn", "drill", "exam", "diagnosis", "folklore")
EXAM_MINUTES, DIAGNOSIS_MINUTES, DIAGNOSIS_ITEMS = 40, 12, 15
ROUNDS = 3  # how often learn brings a wrong item back


class Session:
    """`steps` in order; `seconds` or None; `silent`: feedback only at the end (exam, diagnosis).

    `record(kind, id, **data)` keeps what was answered; `now()` gives seconds.
    """

    def __init__(
        self, mode, steps, lang="en", *, seconds=None, silent=False, record=None, now=time.monotonic
    ):
        self.mode, self.steps, self.lang = mode, list(steps), lang
        self.seconds, self.silent, self.now = seconds, silent, now
        self.record = record or (lambda kind, id, **data: None)
        self.at, self.done, self.message = 0, not self.steps, ""
        self.begun, self.retries, self.total = now(), {}, len(self.steps)

    @property
    def step(self):
        """The current step, or None at the end."""
        return None if self.done else self.steps[self.at]

    @property
    def phase(self):
        """ask | tick | feedback | done"""
        return "done" if self.done else self.step.phase

    @property
    def left(self):
        """Seconds left, never below 0, or None without a clock."""
        return None if self.seconds is None else max(0.0, self.seconds - (self.now() - self.begun))

    def answer(self, response):
        """Answer the current step. Returns "" or a sentence saying why the answer cannot be read."""
        self._expect("ask")
        self.message = self.step.answer(response)
        if not self.message and self.phase == "feedback" and self.step.kind != "card":
            self._keep()
            if self.silent:
                self.next()
        return self.message

    def tick(self, ids):
        """The ticks of a free answer, as the learner corrected them."""
        self._expect("tick")
        self.step.tick(ids)
        self._keep()
        if self.silent:
            self.next()

    def rate(self, rating):
        """How well a card was known, 1 to 4; goes on. A card rated 1 comes back at the end."""
        self._expect("feedback")
        self.step.rate(rating)
        self._keep()
        if rating == 1:
            self._again(CardStep(self.step.card, self.lang))
        self.next()

    def next(self):
        """Go on after the feedback; in learn a wrong item comes back later with other numbers."""
        self._expect("feedback")
        step = self.step
        if self.mode == "learn" and step.kind == "item" and not step.right:
            self._again(ItemStep(step.task.item, step.task.seed + 1))
        self._advance()

    def skip(self):
        """Leave the current step unanswered."""
        if not self.done:
            self._advance()

    def stop(self):
        """End the session; what was answered is kept. An exam or diagnosis of which half was answered counts
        for the plan.
        """
        answered = sum(s.right is not None for s in self.steps)
        if not self.done and 2 * answered >= len(self.steps):
            self._keep_scores()
        self.done = True

    def view(self):
        """All there is to show, as plain data (JSON)."""
        step = self.step
        seen = {
            "mode": self.mode,
            "phase": self.phase,
            "lang": self.lang,
            "number": min(self.at + 1, len(self.steps)),
            "total": len(self.steps),
            "left": None if self.left is None else int(self.left),
            "message": self.message,
        }
        if step is None:
            return {**seen, "summary": self.summary()}
        seen.update(id=step.id, kind=step.kind, section=step.section, question=step.question, step=step.ask())
        if self.phase == "tick":
            seen.update(points=step.points(), given=step.given)
        if self.phase == "feedback":
            seen["feedback"] = step.feedback()
        return seen

    def summary(self):
        """What came of it: see flashlab.quiz.debrief.summarise."""
        return debrief.summarise(self.mode, self.steps, self.lang)

    def _keep(self):
        for kind, id, data in self.step.events():
            self.record(kind, id, **data)

    def _again(self, step):
        self.retries[step.id] = self.retries.get(step.id, 0) + 1
        if self.retries[step.id] < ROUNDS:
            self.steps.append(step)

    def _advance(self):
        self.message = ""
        self.at += 1
        if self.at >= len(self.steps) or self.left == 0:
            self.done = True
        if self.done:
            self._keep_scores()

    def _keep_scores(self):
        if self.mode in ("exam", "diagnosis"):
            summary = self.summary()
            self.record(self.mode, "all", sections=summary["sections"], missed=summary["missed_ids"])

    def _expect(self, phase):
        if self.phase != phase:
            raise ValueError(f"expected the phase {phase!r}, the session is in {self.phase!r}")


def start(
    mode,
    lang="en",
    *,
    section=None,
    seed=None,
    folder=None,
    events=(),
    record=None,
    now=time.monotonic,
    limit=None,
):
    """A Session of one of MODES. `section` (a letter, or an id in learn) narrows it; `events`: what was
    answered before (flashlab.progress). Raises ValueError for an unknown mode or section, RuntimeError
    where fsrs lacks.
    """
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    rng = random.Random(seed)
    questions = bank_loader.load(lang, folder)
    if section and mode != "folklore":
        wanted = str(section).upper()
        known = {c.section for c in cards.deck(lang, folder).values()} if mode == "drill" else ()
        problem = unknown_section(wanted, questions, lang)
        if problem and wanted not in known:
            raise ValueError(problem)
        questions = [q for q in questions if wanted in (q.section, q.id)]
        section = wanted
    options = {"record": record, "now": now}
    if mode == "learn":
        return Session(mode, _learn(questions, rng, events, limit), lang, **options)
    if mode == "drill":
        due = cards.due(lang, limit=limit or 20, section=section, folder=folder, events=list(events))
        return Session(mode, [CardStep(c, lang) for c in due], lang, **options)
    if mode == "folklore":
        claims = bank_loader.load_claims(lang, folder)
        rng.shuffle(claims)
        return Session(mode, [ClaimStep(c) for c in claims[: limit or 10]], lang, **options)
    if mode == "exam":
        steps, minutes = _exam(questions, rng, limit), EXAM_MINUTES
    else:
        steps, minutes = _diagnosis(questions, rng, limit or DIAGNOSIS_ITEMS), DIAGNOSIS_MINUTES
    return Session(mode, steps, lang, seconds=60 * minutes, silent=True, **options)


def unknown_section(wanted, questions, lang):
    """ "" for a section or question of the bank, else why it is none: not written yet, or no such thing."""
    letters = sorted({q.section for q in questions})
    if wanted in letters or any(q.id == wanted for q in questions):
        return ""
    if wanted in model.IDS and wanted[0] in letters:
        there = " ".join(q.id for q in questions if q.section == wanted[0])
        return t("quiz.modes.not_written", lang, wanted=wanted, section=wanted[0], there=there)
    return t("quiz.modes.unknown_section", lang, wanted=wanted, letters=" ".join(letters))


def _learn(questions, rng, events, limit):
    """Each question freely, then two of its items; what was passed before comes last."""
    passed = {e["id"] for e in events if e["kind"] == "free" and e.get("score", 0) >= 0.99}
    right = {e["id"] for e in events if e["kind"] == "item" and e.get("right")}
    steps = []
    for q in sorted(questions, key=lambda q: q.id in passed)[: limit or None]:
        chosen = sorted(q.items, key=lambda i: (i.id in right, rng.random()))[:2]
        steps += [FreeStep(q), *(ItemStep(i, rng.randrange(10**6)) for i in chosen)]
    return steps


def _by_section(questions):
    found = {}
    for q in questions:
        found.setdefault(q.section, []).append(q)
    return found


def _exam(questions, rng, limit):
    """From every section one free question (the core ones first) and two items of other questions."""
    steps = []
    for _, asked in sorted(_by_section(questions).items()):
        core = [q for q in asked if q.asked == "core"] or asked
        free = rng.choice(core)
        others = [i for q in asked if q.id != free.id for i in q.items] or list(free.items)
        chosen = rng.sample(others, min(2, len(others)))
        steps += [FreeStep(free), *(ItemStep(i, rng.randrange(10**6)) for i in chosen)]
    return steps[: limit or None]


def _diagnosis(questions, rng, count):
    """`count` items in turn over the sections, no question twice while others are left."""
    piles = {}
    for section, asked in _by_section(questions).items():
        asked = rng.sample(asked, len(asked))
        first = [rng.choice(q.items) for q in asked]
        rest = [i for q in asked for i in q.items if i not in first]
        piles[section] = first + rng.sample(rest, len(rest))
    chosen = []
    while len(chosen) < count and any(piles.values()):
        chosen += [pile.pop(0) for _, pile in sorted(piles.items()) if pile]
    return [ItemStep(i, rng.randrange(10**6)) for i in sorted(chosen[:count], key=lambda i: i.id)]
