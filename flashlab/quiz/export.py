"""The cards elsewhere: an Anki deck (genanki), a Markdown table, a CSV file; each in one language or both."""

import csv
import hashlib
import html
import io
import re
from pathlib import Path

from flashlab.quiz import cards, model
from flashlab.text import LANGUAGES, t

MODEL_ID = 1_742_093_551  # fixed for good: Anki knows the kind of note by it
DECK_IDS = {"en": 1_742_093_601, "zh": 1_742_093_602}
STYLE = """.card { font: 20px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; text-align: left; }
.card { max-width: 32em; margin: 1em auto; padding: 0 1em; }
.id { font-size: 13px; opacity: 0.6; } hr { border: 0; border-top: 1px solid; }"""


def languages(choice):
    """("en",), ("zh",) or both. Raises ValueError for another choice."""
    if choice == "both":
        return LANGUAGES
    if choice not in LANGUAGES:
        raise ValueError(f"expected en, zh or both, got {choice!r}")
    return (choice,)


def guid(id, lang):
    """The stable id of a note, so that importing a newer deck updates it."""
    return hashlib.sha256(f"flashlab card {id} {lang}".encode()).hexdigest()[:16]


def anki_html(text):
    """Card text as Anki shows it: escaped, $math$ as \\( \\), `code` and **bold** as HTML."""
    text = html.escape(text, quote=False)
    text = re.sub(r"\$\$(.+?)\$\$", r"\\[\1\\]", text, flags=re.S)
    text = re.sub(r"(?<!\\)\$([^$\n]+)\$", r"\\(\1\\)", text)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return text.replace("\n", "<br>")


def anki(file, choice="en", folder=None):
    """Write an Anki package (.apkg) to `file`; returns the number of notes.

    Raises RuntimeError that says what to install where genanki lacks.
    """
    try:
        import genanki
    except ImportError:
        raise RuntimeError(t("quiz.cards.no_genanki")) from None
    kind = genanki.Model(
        MODEL_ID,
        "flashlab",
        fields=[{"name": name} for name in ("Id", "Question", "Answer")],
        templates=[
            {
                "name": "Card",
                "qfmt": '<p class="id">{{Id}}</p>{{Question}}',
                "afmt": '{{FrontSide}}<hr id="answer">{{Answer}}',
            }
        ],
        css=STYLE,
    )
    decks, count = [], 0
    for lang in languages(choice):
        name = t("quiz.cards.deck", lang) + (f" ({lang})" if choice == "both" else "")
        deck = genanki.Deck(DECK_IDS[lang], name)
        for card in cards.deck(lang, folder).values():
            note = genanki.Note(
                model=kind,
                fields=[card.id, anki_html(card.ask), anki_html(card.answer)],
                guid=guid(card.id, lang),
                tags=[f"flashlab::{card.section}::{card.question}"],
            )
            deck.add_note(note)
            count += 1
        decks.append(deck)
    genanki.Package(decks).write_to_file(str(file))
    return count


def markdown(choice="en", folder=None):
    """All cards as Markdown, a table for each section."""
    lines = []
    for lang in languages(choice):
        lines += [f"# {t('quiz.cards.deck', lang)}", ""]
        deck = cards.deck(lang, folder).values()
        for section in model.SECTIONS:
            mine = [c for c in deck if c.section == section]
            if mine:
                lines += [f"## {section}. {t(f'quiz.sections.{section}', lang)}", ""]
                lines += [
                    f"| | {t('quiz.cards.question', lang)} | {t('quiz.cards.answer', lang)} |",
                    "|---|---|---|",
                ]
                lines += [f"| {c.id} | {_cell(c.ask)} | {_cell(c.answer)} |" for c in mine]
                lines.append("")
    return "\n".join(lines)


def _cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def csv_text(choice="en", folder=None):
    """All cards as CSV: id, language, section, question of the bank, question, answer."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["id", "lang", "section", "of", "question", "answer"])
    for lang in languages(choice):
        for c in cards.deck(lang, folder).values():
            rows.writerow([c.id, lang, c.section, c.question, c.ask, c.answer])
    return out.getvalue()


def write(kind, file, choice="en", folder=None):
    """Write "anki", "markdown" or "csv" to `file`; returns the number of cards."""
    if kind == "anki":
        return anki(file, choice, folder)
    text = markdown(choice, folder) if kind == "markdown" else csv_text(choice, folder)
    # With a byte-order mark spreadsheets take the file for UTF-8.
    Path(file).write_text(text, encoding="utf-8-sig" if kind == "csv" else "utf-8")
    return sum(len(cards.deck(lang, folder)) for lang in languages(choice))
