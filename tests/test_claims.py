"""The claims of the bank: complete in both languages, and every check prints what it says."""

import contextlib
import io
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import flashlab.quiz

FILE = Path(flashlab.quiz.__file__).parent / "bank" / "claims.toml"
CLAIMS = tomllib.loads(FILE.read_text(encoding="utf-8"))["claim"]  # as written
LOADED = {lang: {c.id: c for c in flashlab.quiz.load_claims(lang)} for lang in ("en", "zh")}  # as shown
IDS = [f"K{i:02}" for i in range(1, 47)]
SECTIONS = dict(A=10, B=10, C=15, D=8, E=10, F=9, G=8)
QUESTIONS = {f"{section}{i:02}" for section, count in SECTIONS.items() for i in range(1, count + 1)}
VERDICTS = dict(
    true="K01 K03 K09 K10 K12 K22 K29 K32 K34 K37 K39 K41".split(),
    partly="K02 K04 K05 K07 K08 K11 K13 K19 K21 K26 K27 K28 K31 K40 K42 K43 K44".split(),
    false="K06 K14 K15 K16 K17 K18 K20 K23 K24 K25 K30 K33 K35 K36 K38 K45 K46".split(),
)
each = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["id"])
ENDS = dict(en=r"[.!?](?=\s|\"|$)", zh=r"[。！？]")
TEXTS = ("text", "correction", "polite", "check")


def texts(claim, lang):
    """The claim's texts as a learner sees them in one language, by name."""
    return {name: getattr(LOADED[lang][claim["id"]], name) for name in TEXTS}


def sentences(text, lang):
    return len(re.findall(ENDS[lang], text))


def test_all_46_claims_are_there_in_order():
    assert [claim["id"] for claim in CLAIMS] == IDS


def test_verdicts_are_those_of_the_audit():
    assert {v: [c["id"] for c in CLAIMS if c["verdict"] == v] for v in VERDICTS} == VERDICTS
    assert Counter(claim["verdict"] for claim in CLAIMS) == dict(true=12, partly=17, false=17)


@each
def test_a_claim_is_complete_in_both_languages(claim):
    for lang in ("en", "zh"):
        for name, text in texts(claim, lang).items():
            assert len(text) > 8, name
            assert not re.search(r"TODO|FIXME|XXX|TBD|\{\w+(:\w+)?\}|待补|\\\n", text), name
            assert bool(re.search("[\u4e00-\u9fff]", text)) == (lang == "zh"), name
    assert len({claim[name]["en"] for name in TEXTS}) == len(TEXTS)
    assert claim["sources"] and all(len(s) > 15 for s in claim["sources"])


@each
def test_a_correction_takes_two_to_four_sentences_and_the_polite_one_is_one_sentence(claim):
    for lang in ("en", "zh"):
        filled = texts(claim, lang)
        assert 2 <= sentences(filled["correction"], lang) <= 4, (lang, filled["correction"])
        assert sentences(filled["polite"], lang) == 1, (lang, filled["polite"])
        assert filled["polite"][-1] in ".!?。！？"


@each
def test_a_polite_sentence_can_be_said_in_a_breath(claim):
    assert len(claim["polite"]["en"].split()) <= 45
    assert len(claim["polite"]["zh"]) <= 90


@each
def test_chinese_text_uses_chinese_punctuation(claim):
    for name, text in texts(claim, "zh").items():
        assert not re.search("[\u4e00-\u9fff][,;:?!()]|[,;?!][\u4e00-\u9fff]", text), (name, text)


def test_the_loader_gives_all_claims_in_order_in_both_languages():
    for lang in ("en", "zh"):
        assert [claim.id for claim in flashlab.quiz.load_claims(lang)] == IDS


@each
def test_the_related_questions_exist(claim):
    assert claim["questions"] and set(claim["questions"]) <= QUESTIONS
    assert len(set(claim["questions"])) == len(claim["questions"])


@each
def test_every_computed_value_is_used_in_both_languages(claim):
    for lang in ("en", "zh"):
        text = " ".join(claim[name][lang] for name in TEXTS)
        unused = [name for name in claim.get("values", {}) if not re.search(rf"\{{{name}[:}}]", text)]
        assert not unused, (lang, unused)


@each
def test_check_code_fits_a_terminal_and_prints_what_it_shows(claim):
    loaded = LOADED["en"][claim["id"]]
    if not loaded.code:
        assert claim["id"] == "K46"  # nothing to run: it is about titles
        return
    lines = loaded.code.strip().splitlines()
    assert len(lines) <= 6 and max(map(len, lines)) <= 79
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(loaded.code, claim["id"], "exec"), {"__name__": claim["id"]})
    assert printed.getvalue().strip() == loaded.shows.strip()
