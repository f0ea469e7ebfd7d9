"""Free answers: which key points were said, by their terms. The learner corrects the ticks."""

import re
import unicodedata

from flashlab.quiz.model import LEVELS

WEIGHT = {"must": 3, "strong": 1, "bonus": 0}


_SAME = str.maketrans("（）［］，：；＝＋－／０１２３４５６７８９’×·∗\u00a0", "()[],:;=+-/0123456789'*** ")
_NEGATION = re.compile(
    r"\b(?:not|never|no|nor|neither|without|instead|rather|wrong|myth|mistake|false|unlike|cannot|reversed|folklore|opposite)\b|n't"
    "|other way round|interview card|[不没非未错别勿]|而是|误解|谣|反了|相反|流传"
)
_HIT = "\0"  # in the place of a term that was found
_SPELT = {"<=": "≤", ">=": "≥", "alpha": "α", "m'": "m′"}


def plain(text):
    """Lower case, one spelling of dashes, quotes, operators and spaces: what terms are compared in."""
    text = unicodedata.normalize("NFC", text).lower().translate(_SAME)
    text = re.sub(r"[‐‑‒–—−]", "-", text)
    for typed, one in _SPELT.items():
        text = text.replace(typed, one)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" ?([-+*/=≤≥^(),\[\]]) ?", r"\1", text)  # "a + b" is "a+b"
    return re.sub(r"(?<=[\u3400-\u9fff]) | (?=[\u3400-\u9fff])", "", text)  # "Q 块" is "Q块"


def found(question, text):
    """The ids of the key points whose terms are all in `text`, as a set; not those that a misconception
    in it contradicts.
    """
    said = plain(text)
    ticked = {k.id for k in question.key_points if _all_hit(k.terms, said)}
    return ticked.difference(*(m.unticks for m in asserted(question, text)))


def asserted(question, text):
    """The misconceptions that `text` seems to state: all terms of one in one sentence, and no negation
    in the same clause ("not divided in every step" is right). What stands in quotes is not stated.
    """
    text = re.sub(r"“[^”]*”|「[^」]*」|\"[^\"]*\"", " ", text)
    sentences = [plain(part) for part in re.split(r"(?<!\d)\.|\.(?!\d)|[;!?。；！？\n]", text)]
    return [m for m in question.misconceptions if any(_states(m.terms, said) for said in sentences)]


def _states(terms, said):
    if not _all_hit(terms, said):
        return False
    for term in sorted((plain(term) for group in terms for term in group), key=len, reverse=True):
        said = said.replace(term, _HIT)
    clauses = (clause for clause in re.split("[:,、]", said) if _HIT in clause)
    return not any(_NEGATION.search(clause) for clause in clauses)


def _all_hit(terms, said):
    """Does every group of the terms have a hit? Nothing said, or no terms: no."""
    return bool(terms) and said.strip() != "" and all(any(_hit(term, said) for term in g) for g in terms)


def _hit(term, said):
    """Is the term in what was said? Short ones ("ds", "16", "gb") only as a word of their own, "8gb" too."""
    term = plain(term)
    if len(term) <= 3 and term.isascii() and term.isalnum():
        before = "[a-z0-9]" if term[0].isdigit() else "[a-z]"
        return re.search(rf"(?<!{before}){term}(?![a-z0-9])", said) is not None
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
