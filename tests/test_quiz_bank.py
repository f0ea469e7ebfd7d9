"""The bank that is shipped follows all rules, and what it runs gives what it says."""

from flashlab import quiz
from flashlab.quiz import lint, model


def test_the_lint_finds_no_problem_in_the_bank():
    assert lint.lint().problems == []


def test_predicted_cells_give_what_their_items_expect():  # those of the claims: test_claims.py
    assert lint.lint(only=tuple(model.SECTIONS), run=True).problems == []


def test_both_languages_have_the_same_questions_items_and_claims():
    english, chinese = quiz.load("en"), quiz.load("zh")
    for e, z in zip(english, chinese, strict=True):
        assert (e.id, [i.id for i in e.items], e.anchor) == (z.id, [i.id for i in z.items], z.anchor)
        assert e.prompt != z.prompt
    assert [c.id for c in quiz.load_claims("en")] == [c.id for c in quiz.load_claims("zh")]


def test_all_forty_six_claims_are_there_with_a_verdict():
    claims = quiz.load_claims()
    assert tuple(c.id for c in claims) == model.CLAIM_IDS
    assert {c.verdict for c in claims} == set(model.VERDICTS)
