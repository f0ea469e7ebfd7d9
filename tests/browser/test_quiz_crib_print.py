"""The crib sheet in print."""

import re

import pytest

from flashlab.quiz import crib


@pytest.mark.browser
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_prints_on_one_sheet(lang, page, tmp_path):
    file = tmp_path / "crib.html"
    file.write_text(crib.page(lang), encoding="utf-8")
    page.goto(file.as_uri())
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
