"""Read what a learner typed and compare it with a value: 4, 4.0, 8/2, 2^2, 400 % and (3, -1) are numbers."""

import math
import re

RELATIVE = 0.01  # a guess within one percent counts as right, where the data says nothing else

_REAL = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_NUMBER = re.compile(rf"(?P<top>{_REAL})(?:(?P<op>/|\^|\*\*)(?P<low>{_REAL}))?(?P<percent>%?)", re.I)
_SIGNS = str.maketrans("−–／％，、。；;（）", "--/%,,.,,()")  # what other keyboards type


def number(text):
    """The number in `text` (a fraction, a power and a percentage are numbers too), or None."""
    text = re.sub(r"\s", "", str(text).translate(_SIGNS)).strip("=≈~")
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)  # 2,048
    if text.lower() in {"inf", "+inf", "-inf", "nan"}:
        return float(text)
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    value = float(found["top"])
    if found["op"]:
        low = float(found["low"])
        try:
            value = value / low if found["op"] == "/" else value**low
        except (ZeroDivisionError, OverflowError):
            return None
    if isinstance(value, complex):
        return None
    return value / 100 if found["percent"] else value


def numbers(text):
    """The list of numbers in "(3, -1)" or "3 -1" or "3 and -1", or None."""
    text = str(text).translate(_SIGNS).strip().strip("()[]")
    parts = [p for p in re.split(r",\s*|\s+and\s+|和|\s+", text) if p]
    found = [number(p) for p in parts]
    return None if not found or None in found else found


def same(guess, answer, kind="number", right=None):
    """Does the typed `guess` (a string, or a position for kind "choice") mean `answer`?

    `kind`: number | share | numbers | choice | text. `right`: largest absolute difference, default one
    percent of the answer.
    """
    if kind == "choice":
        return guess == answer
    if kind == "text":
        return str(guess).strip().casefold() == str(answer).strip().casefold()
    if kind == "numbers":
        found = numbers(guess)
        return (
            found is not None
            and len(found) == len(answer)
            and all(_near(g, a, right) for g, a in zip(found, answer, strict=True))
        )
    found = number(guess)
    if found is None:
        return False
    if kind == "share" and "%" not in str(guess).translate(_SIGNS) and abs(found) > 1:
        found /= 100  # "60" for sixty percent
    return _near(found, float(answer), right)


def value_kind(value):
    """("number" | "numbers" | "text", plain value) of a Python or NumPy value, or None if it cannot be
    guessed in one line.
    """
    if isinstance(value, str):
        return "text", value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (int, float)):
        return "number", value
    if isinstance(value, (tuple, list)) and 0 < len(value) <= 4:
        plain = [v.tolist() if hasattr(v, "tolist") else v for v in value]
        if all(isinstance(v, (int, float)) for v in plain):
            return "numbers", plain
    return None


def judge(locked, value, data, choices=()):
    """Compare a locked guess with `value`.

    Returns ("right" | "close" | "", the entry of data["wrong"] that the guess is, or {}). `locked`: {"guess":
    text, "choice": position or -1}; `data`: the prediction's entry, or {}; `choices`: those offered, in
    English. Where `value` is not what was asked for (an array, a sentence) data["answer"] counts.
    """
    kind, answer, right = data.get("kind"), data.get("answer"), data.get("right")
    found = value_kind(value)
    guess = locked["guess"]
    if kind == "choice" or locked["choice"] >= 0:
        guess = locked["choice"]
        if kind != "choice":
            kind, answer = "choice", list(choices).index(value) if value in choices else None
    elif kind is None and found:
        kind, answer = found
    elif found and found[0] == "number" and kind in ("number", "share"):
        answer = found[1] / 100 if kind == "share" and found[1] > 1 else found[1]
    elif found and found[0] == kind == "numbers":
        answer = found[1]
    if kind is None or answer is None:
        return "", {}
    if same(guess, answer, kind, right):
        return "right", {}
    read = {"numbers": numbers, "choice": int}.get(kind, number)
    return "close", next((w for w in data.get("wrong", []) if same(guess, read(w["guess"]), kind)), {})


def _near(found, answer, right):
    if math.isnan(answer) or math.isinf(answer):
        return found == answer or (math.isnan(answer) and math.isnan(found))
    return abs(found - answer) <= (RELATIVE * abs(answer) if right is None else right) + 1e-9
