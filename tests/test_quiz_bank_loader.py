"""The bank is read, checked, and each problem named by file, entry and field."""

import pytest
import quiz_cases

from flashlab import quiz
from flashlab.quiz import bank_loader


def read(folder):
    bank_loader.read.cache_clear()
    return bank_loader.read(folder)


def test_a_good_bank_gives_questions_in_both_languages(tmp_path):
    quiz_cases.write(tmp_path, "A06", "C02")
    for lang, word in (("en", "attention matrix"), ("zh", "注意力矩阵")):
        first, second = bank_loader.load(lang, tmp_path)
        assert (first.id, second.id, second.section) == ("A06", "C02", "C")
        assert word in first.prompt and "8 GiB" in first.spoken and "8 GiB" in first.answer
        assert [k.level for k in first.key_points] == ["must", "must", "strong"]
        assert first.key_points[0].terms[0][0] == "batch" and len(first.items) == 5
        assert first.misconceptions[0].refutes and first.follow_ups[0].when == "missed:layer"
        assert first.cards[0].answer == "32 MiB" and first.exercises == ("online_softmax",)


def test_a_claim_has_its_verdict_and_its_sentence(tmp_path):
    (claim,) = bank_loader.load_claims("zh", quiz_cases.write(tmp_path))
    assert (claim.id, claim.verdict, claim.polite) == ("K15", "false", "我记得是 batch 和头。")


@pytest.mark.parametrize(
    "old, new, says",
    [
        ('asked = "core"\n', "", "A.toml: A06: 'asked' is missing"),
        ('asked = "core"', 'askd = "core"', "unknown field 'askd', meant 'asked'"),
        ('section = "A"', 'section = "B"', "section 'B' does not fit"),
        ("level = 1", 'level = "1"', "level: expected a whole number, got '1'"),
        ("score_bytes(B=1, ", "scores(B=1, ", "values: one: cannot compute"),
        ("{all:GiB} for", "{al:GiB} for", "en: spoken: {al:GiB} is no value here"),
        ("{all:GiB} for", "{all:Gib} for", "en: spoken: unknown format 'Gib'"),
        ('zh = "注意力矩阵有多大？"', "", "prompt: 'zh' is missing"),
        ('"missed:layer"', '"missed:layers"', "follow_up 1: when: 'missed:layers' is unknown"),
        ('level = "strong"', 'level = "stong"', "level: 'stong' is unknown; closest: strong"),
        ('kind = "choice"', 'kind = "choise"', "item 'A06-c1': kind: 'choise' is unknown; closest: choice"),
        ("answer = 1", "answer = 3", "answer must be a position in options, 0 to 2"),
        ("answer = 2", "answer = 4", "answer must be a line of code, 1 to 3"),
        ("gone = [2]", "gone = [4]", "gone must be positions in steps"),
        ('"A06-b"', '"A06-a"', "card 'A06-a' is there twice"),
        (', "a mask"]', "]", "en: 2 options and 3 explanations"),
        ("draw = {N = [100", "draw = {all = [7], N = [100", "draw 'all' has the name of a value"),
        ('"online_softmax"', "3", "exercises 1: expected a string, got 3"),
    ],
)  # fmt: skip
def test_a_problem_is_named_by_file_entry_and_field(tmp_path, old, new, says):
    quiz_cases.write(tmp_path, **{old: new})
    with pytest.raises(ValueError) as problem:
        read(tmp_path)
    assert says in str(problem.value)


def test_an_id_that_is_none_of_the_seventy_is_refused(tmp_path):
    (tmp_path / "A.toml").write_text(quiz_cases.question("A11"), encoding="utf-8")
    with pytest.raises(ValueError, match="'A11' is none of the 70 questions"):
        read(tmp_path)


def test_the_same_id_twice_is_refused(tmp_path):
    quiz_cases.write(tmp_path, "A06", "A06")
    with pytest.raises(ValueError, match="is there twice, also in A.toml"):
        read(tmp_path)


def test_a_file_that_is_no_toml_is_named(tmp_path):
    (tmp_path / "A.toml").write_text("id = A06", encoding="utf-8")
    with pytest.raises(ValueError, match="A.toml: Invalid value"):
        read(tmp_path)


def test_another_language_is_refused_with_the_known_ones():
    for load in (quiz.load, quiz.load_claims):
        with pytest.raises(ValueError, match="en"):
            load("fr")
