"""Free answers: which key points were said, by their terms. The learner corrects the ticks."""

import re
import unicodedata

from flashlab.quiz.model import LEVELS

WEIGHT = {"must": 3, "strong": 1, "bonus": 0}


def plain(text):
    """Lower case, one kind of dash, quote and space: what terms are compared in."""
    text = unicodedata.normalize("NFC", text).lower()
    text = re.sub(r"[‐‑‒–—−]", "-", text)
    text = text.replace("’", "'").replace("\u00a0", " ")
    return re.sub(r"\s+", " ", text)


def found(question, text):
    """The ids of the key points whose terms are all in `text`, as a set."""
    said = plain(text)
    if not said.strip():
        return set()
    return {k.id for k in question.key_points if all(any(_hit(term, said) for term in g) for g in k.terms)}


def _hit(term, said):
    """Is the term in what was said? Short ones ("ds", "16", "lse") only as a word of their own."""
    term = plain(term)
    if len(term) <= 3 and term.isascii() and term.isalnum():
        return re.search(rf"(?<![a-z0-9]){term}(?![a-z0-9])", said) is not None
    return term in said


def missed(question, ticked):
    """The key points that are not in `ticked`, must before strong before bonus."""
    left = [k for k in question.key_points if k.id not in ticked]
    return sorted(left, key=lambda k: LEVELS.index(k.level))


def score(question, ticked):
    """0 to 1: must counts three times a strong point, bonus nothing."""
    weights = {k.id: WEIGHT[k.level] for k in question.key_points}
    return sum(w for id, w in weights.items() if id in ticked) / sum(weights.values())


def passed(question, ticked):
    """Were all musts said?"""
    return all(k.id in ticked for k in question.key_points if k.level == "must")
