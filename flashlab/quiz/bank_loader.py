"""Read the question bank: bank/*.toml -> checked tables -> questions and claims in one language.

The files are bank/A.toml to G.toml (`[[question]]`), claims.toml (`[[claim]]`) and glossary.toml. `read`
checks their form and computes every `values` expression once; `question` and `claim` put the numbers into
the texts.
"""

import functools
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from flashlab.errors import unknown_name
from flashlab.quiz import formulas, model, schema, units
from flashlab.text import LANGUAGES

FOLDER = Path(__file__).parent / "bank"


@dataclass
class Bank:
    """Checked tables by id, their values, and the problems that were found."""

    questions: dict = field(default_factory=dict)
    claims: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)  # id -> file name
    glossary: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)


def collect(folder=None):
    """A Bank of everything in `folder` that can be used, with the problems of the rest (none raised)."""
    bank = Bank()
    for file in sorted(Path(folder or FOLDER).glob("*.toml")):
        try:
            raw = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            bank.problems.append(f"{file.name}: {problem}")
            continue
        if file.stem == "glossary":
            bank.glossary = raw
            continue
        for part, check, into in (
            ("question", schema.question_problems, bank.questions),
            ("claim", schema.claim_problems, bank.claims),
        ):
            for n, entry in enumerate(raw.get(part, [])):
                _take(bank, entry, f"{file.name}: {entry.get('id', f'{part} {n + 1}')}", file, check, into)
        for other in set(raw) - {"question", "claim"}:
            bank.problems.append(f"{file.name}: unknown table {other!r}")
    return bank


def _take(bank, entry, where, file, check, into):
    found = check(entry, where)
    id = entry.get("id")
    if id in bank.files:
        found.append(f"{where}: is there twice, also in {bank.files[id]}")
    values = {}
    for name, expression in entry.get("values", {}).items():
        try:
            values[name] = formulas.evaluate(str(expression), **values)
        except ValueError as problem:
            found.append(f"{where}: values: {name}: {problem}")
    if not found:
        for lang in LANGUAGES:
            try:
                (question if into is bank.questions else claim)(entry, lang, values)
            except ValueError as problem:
                found.append(f"{where}: {lang}: {problem}")
    bank.problems += found
    if not found:
        into[id], bank.values[id], bank.files[id] = entry, values, file.name


@functools.cache
def read(folder=None):
    """The Bank in `folder` (default: the package's). Raises ValueError that lists file, id and field of each
    problem.
    """
    bank = collect(folder)
    if bank.problems:
        raise ValueError("the question bank cannot be read:\n" + "\n".join(bank.problems[:40]))
    return bank


def load(lang="en", folder=None):
    """All questions in `lang`, in the order of their ids. Raises ValueError for another language."""
    bank = read(_language(lang) and folder)
    return [question(bank.questions[i], lang, bank.values[i]) for i in sorted(bank.questions)]


def load_claims(lang="en", folder=None):
    """All claims in `lang`, in the order of their ids. Raises ValueError for another language."""
    bank = read(_language(lang) and folder)
    return [claim(bank.claims[i], lang, bank.values[i]) for i in sorted(bank.claims)]


def _language(lang):
    if lang not in LANGUAGES:
        raise unknown_name("language", lang, LANGUAGES)
    return True


def question(raw, lang, values):
    """A Question from its checked table. Raises ValueError where a text asks for a number there is not."""

    def fill(text, where):
        try:
            return units.fill(text.strip(), values, lang)
        except ValueError as problem:
            raise ValueError(f"{where}: {problem}") from None

    def terms(raw, id):
        return tuple(tuple(fill(term, f"terms of {id!r}") for term in group) for group in raw)

    return model.Question(
        **{k: raw[k] for k in ("id", "section", "level", "asked", "anchor")},
        **{k: fill(raw[k][lang], k) for k in ("intent", "prompt", "spoken", "answer")},
        sources=tuple(raw["sources"]),
        exercises=tuple(raw["exercises"]),
        key_points=tuple(
            model.KeyPoint(
                k["id"],
                k["level"],
                fill(k[lang], f"key_point {k['id']!r}"),
                terms(k["terms"][lang], k["id"]),
            )
            for k in raw["key_point"]
        ),
        misconceptions=tuple(
            model.Misconception(
                m["id"],
                *(fill(m[lang][p], m["id"]) for p in ("claim", "why", "refutes")),
                terms(m.get("terms", {lang: ()})[lang], m["id"]),
                tuple(m.get("unticks", ())),
            )
            for m in raw["misconception"]
        ),
        follow_ups=tuple(
            model.FollowUp(
                f["kind"],
                f["when"],
                fill(f.get(lang, ""), "follow_up"),
                f.get("question", ""),
                fill(f.get("say", {}).get(lang, ""), "follow_up: say"),
            )
            for f in raw["follow_up"]
        ),
        items=tuple(item(i, raw["id"], lang, values) for i in raw["item"]),
        cards=tuple(
            model.Card(c["id"], *(fill(text, f"card {c['id']!r}") for text in c[lang])) for c in raw["card"]
        ),
        lang=lang,
    )


def item(raw, question, lang, values):
    """An Item from its checked table; texts with draws are filled when it is drawn."""
    own = raw[lang]
    because = own.get("because", ())
    return model.Item(
        id=raw["id"],
        kind="spot_the_error" if raw["kind"] == "spot" else raw["kind"],
        lang=lang,
        question=question,
        ask=own["ask"].strip(),
        values=values,
        unit=raw.get("unit", ""),
        tolerance=raw.get("tolerance", 0),
        draws=raw.get("draw", {}),
        shown=raw.get("show", {}),
        expect=raw.get("expect", ""),
        slips=tuple(model.Slip(s["value"], s[lang]) for s in raw.get("slips", [])),
        run=raw.get("run", ""),
        options=tuple(own.get("options", ())),
        because=(because,) if isinstance(because, str) else tuple(because),
        answer=raw.get("answer", 0),
        steps=tuple(own.get("steps", ())),
        gone=tuple(raw.get("gone", ())),
        code=tuple(raw.get("code", ())),
    )


def claim(raw, lang, values):
    """A Claim from its checked table."""
    return model.Claim(
        id=raw["id"],
        verdict=raw["verdict"],
        sources=tuple(raw["sources"]),
        code=raw["check"].get("code", "").strip(),
        shows=raw["check"].get("shows", "").strip(),
        questions=tuple(raw.get("questions", ())),
        anchor=raw.get("anchor", ""),
        lang=lang,
        **{
            k: units.fill(raw[k][lang].strip(), values, lang)
            for k in ("text", "correction", "polite", "check")
        },
    )
