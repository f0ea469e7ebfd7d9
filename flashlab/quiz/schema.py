"""What a file of the bank may hold: every field and its type, each problem named by file, entry, field."""

import difflib

from flashlab.quiz import model

TEXT = "text"  # {en = "...", zh = "..."}


def optional(kind):
    return ("optional", kind)


STRINGS = [str]
CARD = {"id": str, "en": STRINGS, "zh": STRINGS}
TERMS = {"en": [STRINGS], "zh": [STRINGS]}
KEY_POINT = {"id": str, "level": str, "en": str, "zh": str, "terms": TERMS}
WRONG = {"claim": str, "why": str, "refutes": str}
MISCONCEPTION = {
    "id": str,
    "en": WRONG,
    "zh": WRONG,
    "terms": optional(TERMS),
    "unticks": optional(STRINGS),
}
FOLLOW_UP = {
    "kind": str,
    "when": str,
    "en": optional(str),
    "zh": optional(str),
    "question": optional(str),
    "say": optional(TEXT),
}
SLIP = {"value": str, "en": str, "zh": str}
COMMON = {"id": str, "kind": str, "seconds": optional(int)}
ASK = {"ask": str}
NUMERIC = {
    **COMMON,
    "en": ASK,
    "zh": ASK,
    "unit": str,
    "tolerance": float,
    "draw": dict,
    "show": optional(dict),
    "expect": str,
    "slips": [SLIP],
    "run": optional(str),
}
CHOICE = {
    **COMMON,
    "answer": int,
    "en": {**ASK, "options": STRINGS, "because": STRINGS},
    "zh": {**ASK, "options": STRINGS, "because": STRINGS},
}
ORDER = {
    **COMMON,
    "gone": optional([int]),
    "en": {**ASK, "steps": STRINGS, "because": optional(str)},
    "zh": {**ASK, "steps": STRINGS, "because": optional(str)},
}
SPOT = {
    **COMMON,
    "answer": int,
    "code": STRINGS,
    "en": {**ASK, "because": str},
    "zh": {**ASK, "because": str},
}
ITEMS = {
    "numeric": NUMERIC,
    "predict": {**NUMERIC, "run": str},
    "choice": CHOICE,
    "order": ORDER,
    "spot_the_error": SPOT,
}
QUESTION = {
    "id": str,
    "section": str,
    "level": int,
    "asked": str,
    "anchor": str,
    "exercises": STRINGS,
    "sources": STRINGS,
    "values": optional(dict),
    "intent": TEXT,
    "prompt": TEXT,
    "spoken": TEXT,
    "answer": TEXT,
    "key_point": [KEY_POINT],
    "misconception": [MISCONCEPTION],
    "follow_up": [FOLLOW_UP],
    "item": [dict],
    "card": [CARD],
}
CLAIM = {
    "id": str,
    "text": TEXT,
    "verdict": str,
    "correction": TEXT,
    "polite": TEXT,
    "sources": STRINGS,
    "check": {"en": str, "zh": str, "code": optional(str), "shows": optional(str)},
    "questions": optional(STRINGS),
    "anchor": optional(str),
    "values": optional(dict),
}
NAMES = {str: "a string", int: "a whole number", float: "a number", dict: "a table"}
MAY_BE_EMPTY = {"exercises", "slips", "draw", "unit"}


def problems(entry, shape, where):
    """Lines that say what is wrong with `entry`, a table of a bank file, against `shape`."""
    found = []
    for name in entry:
        if name not in shape:
            close = difflib.get_close_matches(name, shape, 1)
            found.append(f"{where}: unknown field {name!r}" + (f", meant {close[0]!r}?" if close else ""))
    for name, kind in shape.items():
        if name in entry:
            kind = kind[1] if isinstance(kind, tuple) else kind
            found += _value(entry[name], kind, f"{where}: {name}", name in MAY_BE_EMPTY)
        elif not isinstance(kind, tuple):
            found.append(f"{where}: {name!r} is missing")
    return found


def _value(value, kind, where, may_be_empty=False):
    if kind == TEXT:
        kind = {"en": str, "zh": str}
    if isinstance(kind, dict):
        return (
            problems(value, kind, where)
            if isinstance(value, dict)
            else [f"{where}: expected a table with {', '.join(kind)}, got {value!r}"]
        )
    if isinstance(kind, list):
        if not isinstance(value, list):
            return [f"{where}: expected a list, got {value!r}"]
        if not value and not may_be_empty:
            return [f"{where}: is empty"]
        return [p for n, v in enumerate(value) for p in _value(v, kind[0], f"{where} {_label(v, n)}")]
    right = (int, float) if kind is float else kind
    if not isinstance(value, right) or (kind is not bool and isinstance(value, bool)):
        return [f"{where}: expected {NAMES[kind]}, got {value!r}"]
    if kind is str and not value.strip() and not may_be_empty:
        return [f"{where}: is empty"]
    return []


def _label(value, n):
    return repr(value["id"]) if isinstance(value, dict) and "id" in value else str(n + 1)


def question_problems(raw, where):
    """All problems of the form of one `[[question]]`."""
    found = problems(raw, QUESTION, where)
    if found and any("missing" in f or "expected" in f for f in found):
        nested = [i for i in raw.get("item", []) if isinstance(i, dict)]
        return found + [p for i in nested for p in item_problems(i, where)]
    if raw["id"] not in model.IDS:
        found.append(f"{where}: id {raw['id']!r} is none of the 70 questions")
    if raw["section"] != raw["id"][0]:
        found.append(f"{where}: section {raw['section']!r} does not fit the id {raw['id']!r}")
    points = {k["id"] for k in raw["key_point"]}
    for point in raw["key_point"]:
        found += _one_of(point["level"], model.LEVELS, f"{where}: key_point {point['id']!r}: level")
    for m in raw["misconception"]:
        here = f"{where}: misconception {m['id']!r}"
        if "unticks" in m and "terms" not in m:
            found.append(f"{here}: unticks without terms")
        for id in m.get("unticks", ()):
            found += _one_of(id, points, f"{here}: unticks")
    for n, step in enumerate(raw["follow_up"]):
        here = f"{where}: follow_up {n + 1}"
        found += _one_of(step["kind"], model.FOLLOW_UPS, f"{here}: kind")
        found += _one_of(step["when"], ["always", *(f"missed:{p}" for p in points)], f"{here}: when")
        if "question" in step:
            found += _one_of(step["question"], model.IDS, f"{here}: question")
        elif not ("en" in step and "zh" in step):
            found.append(f"{here}: needs en and zh, or question")
    for part in ("key_point", "misconception", "item", "card"):
        ids = [entry.get("id") for entry in raw[part]]
        found += [
            f"{where}: {part} {i!r} is there twice" for i in sorted({i for i in ids if ids.count(i) > 1})
        ]
    for card in raw["card"]:
        for lang in ("en", "zh"):
            if len(card[lang]) != 2:
                found.append(f"{where}: card {card['id']!r}: {lang} must be [question, answer]")
    for entry in raw["item"]:
        for name in sorted(set(entry.get("draw", {})) & set(raw.get("values", {}))):
            found.append(f"{where}: item {entry['id']!r}: draw {name!r} has the name of a value")
    return found + [p for i in raw["item"] for p in item_problems(i, where)]


def item_problems(raw, where):
    """All problems of the form of one `[[question.item]]`."""
    where = f"{where}: item {raw.get('id', '?')!r}"
    kind = "spot_the_error" if raw.get("kind") == "spot" else raw.get("kind")
    if kind not in ITEMS:
        return _one_of(kind, ITEMS, f"{where}: kind")
    found = problems(raw, ITEMS[kind], where)
    if found:
        return found
    if kind in ("numeric", "predict"):
        found += [
            f"{where}: draw {name}: expected a list of values, got {values!r}"
            for name, values in raw["draw"].items()
            if not isinstance(values, list) or not values
        ]
    if kind == "choice":
        for lang in ("en", "zh"):
            options, because = raw[lang]["options"], raw[lang]["because"]
            if len(options) != len(because):
                found.append(f"{where}: {lang}: {len(options)} options and {len(because)} explanations")
            if not 0 <= raw["answer"] < len(options):
                found.append(f"{where}: answer must be a position in options, 0 to {len(options) - 1}")
    if kind == "spot_the_error" and not 1 <= raw["answer"] <= len(raw["code"]):
        found.append(f"{where}: answer must be a line of code, 1 to {len(raw['code'])}")
    if kind == "order" and any(not 0 <= g < len(raw["en"]["steps"]) for g in raw.get("gone", [])):
        found.append(f"{where}: gone must be positions in steps, from 0")
    for part in ("options", "steps"):
        if part in raw.get("en", {}) and len(raw["en"][part]) != len(raw["zh"][part]):
            found.append(f"{where}: {part} must be as many in both languages")
    return found


def claim_problems(raw, where):
    """All problems of the form of one `[[claim]]`."""
    found = problems(raw, CLAIM, where)
    if "id" in raw:
        found += _one_of(raw["id"], model.CLAIM_IDS, f"{where}: id")
    if "verdict" in raw:
        found += _one_of(raw["verdict"], model.VERDICTS, f"{where}: verdict")
    for id in raw.get("questions", []):
        found += _one_of(id, model.IDS, f"{where}: questions")
    return found


def _one_of(value, known, where):
    if value in known:
        return []
    close = difflib.get_close_matches(str(value), list(known), 3, 0.3) or list(known)[:6]
    return [f"{where}: {value!r} is unknown; closest: {', '.join(map(str, close))}"]
