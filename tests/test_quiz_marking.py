"""Free answers are read for key points."""

import pytest
import quiz_cases

from flashlab.quiz import bank_loader, marking


@pytest.fixture
def question(tmp_path):
    return bank_loader.load("en", quiz_cases.write(tmp_path))[0]


def test_a_point_needs_a_hit_in_every_group_of_its_terms(question):
    assert marking.found(question, "one matrix for each BATCH and head, N²") == {"formula"}
    assert marking.found(question, "one matrix for each head, N²") == set()
    assert marking.found(question, "  ") == set() and marking.found(question, "8\u00a0GiB") == {"number"}


WRONG = "For batch and head, N squared; GQA makes it smaller."


def test_whoever_states_a_misconception_did_not_make_the_point_that_it_contradicts(question):
    assert [m.id for m in marking.asserted(question, WRONG)] == ["gqa"]
    assert marking.found(question, WRONG + " 8 GiB in one layer") == {"number", "layer"}


def test_a_misconception_is_heard_only_where_one_sentence_holds_all_its_terms(question):
    apart = "With GQA: batch × head × N². It is 1.5 times smaller in fp16"
    assert marking.asserted(question, apart) == [] and marking.found(question, apart) == {"formula"}
    assert marking.asserted(question, "") == []
    assert [m.id for m in marking.asserted(question, "GQA, 1.5 times smaller")] == ["gqa"]


@pytest.mark.parametrize(
    ("said", "is_heard"),
    [
        ("GQA shrinks it.", True),
        ("Not exactly: GQA shrinks it, the mask never does.", True),
        ("GQA never shrinks it.", False),
        ("GQA shrinks it is folklore.", False),
        ('On the card stands "GQA shrinks it".', False),
        ("Whoever says “GQA shrinks it” forgot the query heads.", False),
    ],
)
def test_what_is_denied_or_quoted_is_not_heard_and_a_no_elsewhere_changes_nothing(question, said, is_heard):
    assert bool(marking.asserted(question, said)) is is_heard


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("l <= 1", "l≤1"),
        ("a × b", "a·b"),
        ("alpha * l", "α·l"),
        ("不超过1", "不超过 1"),
        ("（m′ − m）", "(m'-m)"),
    ],
)
def test_spellings_of_one_thing_compare_equal(typed, meant):
    assert marking.plain(typed) == marking.plain(meant)


def test_the_score_counts_musts_thrice_and_passing_needs_all_of_them(question):
    assert marking.score(question, {"formula"}) == pytest.approx(3 / 7)
    assert marking.passed(question, {"formula", "number"}) and not marking.passed(
        question, {"number", "layer"}
    )


def test_what_was_missed_begins_with_the_musts(question):
    assert [k.id for k in marking.missed(question, {"formula"})] == ["number", "layer"]


def test_the_spoken_answer_says_all_its_musts(question):
    assert marking.passed(question, marking.found(question, question.spoken))
