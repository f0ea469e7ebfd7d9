"""The cards as an Anki deck, Markdown and CSV."""

import csv
import io
import sqlite3
import sys
import zipfile

import pytest
import quiz_cases

from flashlab.quiz import bank_loader, export


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bank").mkdir()
    return quiz_cases.write(tmp_path / "bank")


def notes(file, tmp_path):
    """{guid: fields} of an Anki package."""
    with zipfile.ZipFile(file) as package:
        package.extract("collection.anki2", tmp_path)
    db = sqlite3.connect(tmp_path / "collection.anki2")
    found = {g: f.split("\x1f") for g, f in db.execute("SELECT guid, flds FROM notes")}
    decks = db.execute("SELECT decks FROM col").fetchone()[0]
    db.close()
    return found, decks


def test_an_anki_deck_has_every_card_once_with_ids_that_stay(folder, tmp_path):
    count = export.anki(tmp_path / "one.apkg", "en", folder)
    first, decks = notes(tmp_path / "one.apkg", tmp_path)
    assert len(first) == count and ["A06-a", "4096 × 4096 in fp16?", "32 MiB"] in first.values()
    assert str(export.DECK_IDS["en"]) in decks
    export.anki(tmp_path / "two.apkg", "en", folder)
    assert notes(tmp_path / "two.apkg", tmp_path)[0] == first
    for file in folder.glob("A.toml"):
        file.write_text(
            file.read_text(encoding="utf-8").replace('"32 MiB"', '"33554432 bytes"'), encoding="utf-8"
        )
    bank_loader.read.cache_clear()
    export.anki(tmp_path / "three.apkg", "en", folder)
    third, _ = notes(tmp_path / "three.apkg", tmp_path)
    assert set(third) == set(first) and ["A06-a", "4096 × 4096 in fp16?", "33554432 bytes"] in third.values()


def test_both_languages_go_into_two_decks(folder, tmp_path):
    both = export.anki(tmp_path / "both.apkg", "both", folder)
    found, decks = notes(tmp_path / "both.apkg", tmp_path)
    assert len(found) == both == 2 * export.anki(tmp_path / "zh.apkg", "zh", folder)
    assert all(str(i) in decks for i in export.DECK_IDS.values())


@pytest.mark.parametrize(
    "text, shown",
    [
        ("$O(N^2)$ & a < b", r"\(O(N^2)\) &amp; a &lt; b"),
        ("$$x_{i}$$", r"\[x_{i}\]"),
        ("`l` is **one**", "<code>l</code> is <b>one</b>"),
        ("5 $ a piece", "5 $ a piece"),
        ("a\nb", "a<br>b"),
    ],
)
def test_math_and_code_are_as_anki_wants_them(text, shown):
    assert export.anki_html(text) == shown


def test_markdown_is_a_table_for_each_section(folder):
    text = export.markdown("both", folder)
    assert "## A. Attention and its bottleneck" in text and "## C. 前向与在线 softmax" in text
    assert "| A06-a | 4096 × 4096 in fp16? | 32 MiB |" in text


def test_csv_reads_back(folder, tmp_path):
    rows = list(csv.DictReader(io.StringIO(export.csv_text("zh", folder))))
    assert {
        "id": "A06-b",
        "lang": "zh",
        "section": "A",
        "of": "A06",
        "question": "看哪种头数？",
        "answer": "query 头数",
    } in rows
    export.write("csv", tmp_path / "x.csv", "zh", folder)
    assert (tmp_path / "x.csv").read_bytes().startswith(b"\xef\xbb\xbf")


def test_another_language_and_a_missing_library_are_named(folder, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="en, zh or both"):
        export.markdown("fr", folder)
    monkeypatch.setitem(sys.modules, "genanki", None)
    with pytest.raises(RuntimeError, match="pip install genanki"):
        export.anki(tmp_path / "x.apkg", "en", folder)
