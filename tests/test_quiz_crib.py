"""The crib sheet: numbers from the tables, folklore from the claims, one printed page."""

import re

import pytest
import quiz_cases

from flashlab import gpus
from flashlab.quiz import crib


@pytest.mark.parametrize(
    "lang, words", [("en", ("Thirty seconds", "8 GiB", "+16.7 %")), ("zh", ("三十秒", "+16.7%"))]
)
def test_the_page_holds_pitch_numbers_and_formulas(lang, words):
    page = crib.page(lang)
    assert (
        all(word in page for word in words) and f'<html lang="{"zh-CN" if lang == "zh" else "en"}">' in page
    )
    assert str(gpus.get("H200").sms) in page and "m′ = max(m, max s)" in page
    assert (
        "http" not in page
        and "<script" not in page
        and "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    )


def test_folklore_is_the_false_claims_with_the_sentence_that_corrects_them(tmp_path):
    folder = quiz_cases.write(tmp_path, claims=("K15", "K01"))
    page = crib.page("en", folder)
    assert page.count("I think it was batch and heads.") == 2
