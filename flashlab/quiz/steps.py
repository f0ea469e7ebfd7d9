"""What a session asks, one step at a time: an item, a free answer, a card, a claim.

A step knows how to show itself (plain dicts, the same for terminal and notebook), how to take an answer,
and what to record. It goes through the phases "ask", for free answers "tick", then "feedback".
"""

from flashlab.quiz import items, marking, model, places
from flashlab.text import t


class Step:
    """`section`, `question` (an id or ""); `right` is None before the answer, then a share from 0 to 1."""

    kind = ""

    def __init__(self, id, section, question, lang):
        self.id, self.section, self.question, self.lang = id, section, question, lang
        self.phase, self.right, self.given = "ask", None, ""

    def ask(self):
        """What is shown with the question: a dict of plain data."""
        raise NotImplementedError

    def answer(self, response):
        """Take an answer. Returns "" or a sentence that says why it cannot be read (then ask again)."""
        raise NotImplementedError

    def feedback(self):
        """What is shown after the answer: a dict of plain data."""
        raise NotImplementedError

    def events(self):
        """[(kind, id, data)] to record, once the step is answered."""
        return []


class ItemStep(Step):
    """An item that is marked automatically."""

    kind = "item"

    def __init__(self, item, seed):
        super().__init__(item.id, item.question[0], item.question, item.lang)
        self.task = items.draw(item, seed)
        self.result = None
        self._feedback = None

    def ask(self):
        item = self.task.item
        return {
            "form": item.kind,
            "ask": self.task.ask,
            "shown": list(self.task.shown),
            "unit": items.unit_name(item.unit, self.lang) if item.unit else "",
            "example": items.example(item.unit, self.lang),
            "gone": len(item.gone),
        }

    def answer(self, response):
        result = items.mark(self.task, response)
        if result.right is None:
            return result.message
        self.result, self.given, self.right = result, response, float(result.right)
        self.phase = "feedback"
        return ""

    def feedback(self):
        if self._feedback is None:
            r = self.result
            self._feedback = {
                "right": r.right,
                "message": r.message,
                "expected": r.expected,
                "explained": [list(e) for e in r.explained],
                "ran": self._ran(),
            }
        return self._feedback

    def said(self):
        """The answer as text: of a choice the option itself."""
        if self.task.item.kind == "choice":
            return self.task.shown[items.position(self.given, len(self.task.shown))]
        if isinstance(self.given, (list, tuple)):
            order = self.given[0] if self.task.item.gone and len(self.given) == 2 else self.given
            return " → ".join(self.task.shown[n] for n in order)
        return str(self.given)

    def _ran(self):
        if not self.task.item.run:
            return ""
        try:
            value = items.outcome(self.task)
        except ValueError as problem:
            return t("quiz.item.no_run", self.lang, problem=problem)
        from flashlab.quiz import units

        unit = self.task.item.unit
        text = units.quantity(value, unit, self.lang, items.unit_name(unit, self.lang))
        return t("quiz.item.ran", self.lang, code=self._code(), value=text)

    def _code(self):
        """The cell's code with the numbers drawn in place of their names."""
        import re

        code = self.task.item.run
        for name, value in self.task.draws.items():
            code = re.sub(rf"(?<![\w.])(?<!'){name}\b(?!\s*=(?!=))(?!')", repr(value), code)
        return code

    def events(self):
        data = {"right": bool(self.right), "question": self.question, "given": self.said()}
        if self.result.slip is not None:
            data["slip"] = self.result.slip
        return [("item", self.id, data)]


class FreeStep(Step):
    """A question answered in one's own words: typed, or spoken and then ticked."""

    kind = "free"

    def __init__(self, question, ask="", follow_up=None):
        super().__init__(question.id, question.section, question.id, question.lang)
        self.bank, self.text, self.ticked = question, ask or question.prompt, set()

    def ask(self):
        return {"form": "free", "ask": self.text, "intent": self.bank.intent, "seconds": 60}

    def answer(self, response):
        self.given = str(response)
        self.ticked = marking.found(self.bank, self.given)
        self.phase = "tick"
        return ""

    def points(self):
        """The key points with the ticks that the terms gave."""
        return [
            {"id": k.id, "level": k.level, "text": k.text, "ticked": k.id in self.ticked}
            for k in self.bank.key_points
        ]

    def tick(self, ids):
        """The learner's own ticks."""
        known = {k.id for k in self.bank.key_points}
        self.ticked = set(ids) & known
        self.right = marking.score(self.bank, self.ticked)
        self.phase = "feedback"

    def missed(self):
        """The key points not said, the musts first."""
        return marking.missed(self.bank, self.ticked)

    def feedback(self):
        q = self.bank
        return {
            "right": marking.passed(q, self.ticked),
            "score": self.right,
            "given": self.given,
            "points": self.points(),
            "spoken": q.spoken,
            "answer": q.answer,
            "heard": _plain(marking.asserted(q, self.given)),
            "misconceptions": _plain(q.misconceptions),
            "sources": list(q.sources),
            "anchor": q.anchor,
            "place": places.place(q.anchor, self.lang),
            "exercises": places.exercises(q.exercises),
        }

    def events(self):
        missed = [k.id for k in self.missed()]
        data = {"score": self.right, "ticked": sorted(self.ticked), "missed": missed, "given": self.given}
        return [("free", self.id, data)]


def _plain(misconceptions):
    return [{"claim": m.claim, "why": m.why, "refutes": m.refutes} for m in misconceptions]


class CardStep(Step):
    """A six-second card: turn it, then say how well it was known (1 again to 4 easy)."""

    kind = "card"

    def __init__(self, card, lang):
        super().__init__(card.id, card.section, card.question, lang)
        self.card, self.rating = card, None

    def ask(self):
        return {"form": "card", "ask": self.card.ask}

    def answer(self, response):
        self.given = str(response or "")
        self.phase = "feedback"
        return ""

    def rate(self, rating):
        """1 again, 2 hard, 3 good, 4 easy. Raises ValueError otherwise."""
        if rating not in (1, 2, 3, 4):
            raise ValueError(f"expected a rating from 1 to 4, got {rating!r}")
        self.rating, self.right = rating, float(rating > 1)

    def feedback(self):
        return {"answer": self.card.answer, "given": self.given}

    def events(self):
        return [] if self.rating is None else [("card", self.id, {"rating": self.rating})]


class ClaimStep(Step):
    """A claim: fact, partly, or folklore?"""

    kind = "claim"

    def __init__(self, claim):
        super().__init__(claim.id, "K", (claim.questions or ("",))[0], claim.lang)
        self.claim = claim

    def ask(self):
        verdicts = [t(f"quiz.claim.{v}", self.lang) for v in model.VERDICTS]
        return {"form": "claim", "ask": self.claim.text, "shown": verdicts}

    def answer(self, response):
        found = _verdict(response, self.lang)
        if found is None:
            return t("quiz.claim.choose", self.lang)
        self.given, self.right, self.phase = found, float(found == self.claim.verdict), "feedback"
        return ""

    def feedback(self):
        c = self.claim
        return {
            "right": bool(self.right),
            "verdict": t(f"quiz.claim.{c.verdict}", self.lang),
            "correction": c.correction,
            "polite": c.polite,
            "check": c.check,
            "code": c.code,
            "shows": c.shows,
            "sources": list(c.sources),
        }

    def events(self):
        return [("claim", self.id, {"right": bool(self.right), "given": self.given})]


def _verdict(response, lang):
    """The verdict that a position, a letter or a word means, or None."""
    if isinstance(response, int) and not isinstance(response, bool):
        return model.VERDICTS[response] if 0 <= response < 3 else None
    text = str(response).strip().lower()
    for n, verdict in enumerate(model.VERDICTS):
        if text and text in (verdict, "abc"[n], str(n + 1), t(f"quiz.claim.{verdict}", lang).lower()):
            return verdict
    return None
