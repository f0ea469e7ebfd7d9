"""DispatchDetective in a browser: as a static twin opened from a file, and alive in a real JupyterLab."""

import re

import pytest

import flashlab
from flashlab.text import table
from flashlab.widgets import DispatchDetective
from flashlab.widgets import dispatch_detective as module

pytestmark = pytest.mark.browser
SEVERAL = {}  # language -> the packed answers, made once


@pytest.fixture
def detective(monkeypatch):
    """`detective(language)`: the widget with its answers packed in."""

    def make(language="en"):
        flashlab.lang(language)
        try:
            SEVERAL[language] = SEVERAL.get(language) or module.packed_grid()
            monkeypatch.setattr(module, "packed_grid", lambda: SEVERAL[language])
            return DispatchDetective.of(
                offline=True, strings={"lang": language, **table("detective", language)}
            )
        finally:
            flashlab.lang("en")

    return make


def title(frame):
    return frame.locator(".title").inner_text()


def guess(frame, backend):
    frame.locator(f"[data-guess={backend}]").click()


def test_the_answer_is_hidden_until_a_guess_and_again_after_a_change(open_twin, detective):
    frame = open_twin(detective())
    assert title(frame) == "Which backend runs this call? Guess first."
    assert not frame.locator(".answer").is_visible() and frame.locator("[data-do=table]").is_disabled()
    guess(frame, "math")
    assert title(frame) == "Not quite. flash runs on cpu."
    assert frame.locator(".ladder li").all_inner_texts()[0].split() == ["flash", "●", "runs"]
    frame.get_by_label("Dropout").select_option("0.1")
    assert not frame.locator(".answer").is_visible()
    guess(frame, "math")
    assert title(frame) == "Right. math runs on cpu."
    assert "Both fused kernels do not support non-zero dropout." in frame.locator(".ladder .no").inner_text()
    assert frame.locator(".score").inner_text() == "1 of 2 guesses right"
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_on_cuda_the_basis_is_said_and_the_order_is_that_of_trying(open_twin, detective):
    frame = open_twin(detective())
    frame.get_by_label("guess before the answer").uncheck()
    frame.get_by_label("CUDA").check()
    frame.get_by_label("Mask").select_option("bool")
    assert frame.locator(".ladder .name").all_inner_texts() == ["cuDNN", "flash", "efficient", "math"]
    assert "does not support non-null attn_mask" in frame.locator(".ladder .no").inner_text()
    assert 'device="cuda"' in frame.locator(".code").inner_text()
    assert re.match(r"cudnn ran on an NVIDIA H200, torch 2\.\d+", title(frame))
    assert frame.locator(".ladder .runs").inner_text().split() == ["cuDNN", "●", "ran"]
    source = frame.locator(".source").inner_text()
    assert re.search(r"Recorded, not run here: NVIDIA H200, torch .*, cuDNN .*, \d{4}-\d\d-\d\d", source)
    assert frame.locator(".notes").inner_text() == ""


def test_a_recorded_answer_shows_its_kernels_on_demand_and_what_a_newer_version_would_do(
    open_twin, detective
):
    frame = open_twin(detective())
    assert not frame.locator(".kernels").is_visible()
    frame.get_by_label("guess before the answer").uncheck()
    frame.get_by_label("CUDA").check()
    frame.get_by_label("Dropout").select_option("0.1")
    assert "torch 2.13 (not run) it would be flash" in frame.locator(".notes").inner_text()
    assert not frame.locator(".kernels dd").first.is_visible()
    frame.locator(".kernels summary").press("Enter")
    assert "sdpa_sm90_flash_fprop" in frame.locator(".kernels dd").inner_text()
    frame.get_by_label("CPU").check()
    assert not frame.locator(".kernels").is_visible()


def test_a_call_that_raises_shows_the_error(open_twin, detective):
    frame = open_twin(detective())
    frame.get_by_label("K/V heads").select_option("2")
    guess(frame, "error")
    assert title(frame).startswith("Right. math is chosen")
    assert "must match the size of tensor b (2)" in frame.locator(".refused").inner_text()
    frame.get_by_label("enable_gqa").check()
    guess(frame, "flash")
    assert title(frame) == "Right. flash runs on cpu."


def test_everything_works_with_the_keyboard(open_twin, detective):
    frame = open_twin(detective())
    frame.locator("[data-guess=flash]").focus()
    frame.page.keyboard.press("Enter")
    assert title(frame) == "Right. flash runs on cpu."
    assert frame.evaluate("document.activeElement.dataset.guess") == "flash"
    frame.locator("[data-do=table]").focus()
    frame.page.keyboard.press("Space")
    assert frame.locator(".table tbody tr").count() == 2 and not frame.locator(".ladder").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_question_answer_kernels_error_and_table(
    open_twin, violations, detective, scheme
):
    frame = open_twin(detective(), color_scheme=scheme)
    assert violations(frame) == {}
    frame.get_by_label("guess before the answer").uncheck()
    frame.get_by_label("CUDA").check()
    frame.get_by_label("Head size D").select_option("256")
    frame.locator(".kernels summary").click()
    assert violations(frame) == {}
    frame.get_by_label("K/V heads").select_option("2")
    assert violations(frame) == {}
    frame.locator("[data-do=table]").click()
    assert violations(frame) == {}


def test_chinese_words_are_on_the_page_and_no_english_ones_left(open_twin, detective):
    frame = open_twin(detective("zh"))
    frame.locator("input[name=predict]").uncheck()
    frame.locator("select[name=mask]").select_option("learned")
    assert "运行" in title(frame)
    shown = frame.locator(".fl-detective").inner_text()
    said = re.sub(r"(?s)q = torch.*?attn_mask=mask\)", "", shown)
    known = {
        "PyTorch",
        "query",
        "flash",
        "float",
        "bfloat",
        "torch",
        "dropout",
        "enable",
        "requires",
        "causal",
    }
    assert set(re.findall(r"[A-Za-z]{5,}", said)) <= known


SHOW = """
from flashlab.widgets import DispatchDetective
w = DispatchDetective.of(Hq=4, Nq=77)
w
"""


def test_in_jupyterlab_pytorch_is_asked_about_sizes_of_ones_own(lab_server, new_page, violations):
    page = new_page(viewport={"width": 1100, "height": 1200})
    lab_server.open(page, "detective.ipynb", SHOW, "print('call', w.call['Nk'], w.answer['choice'])")
    lab_server.command(page, "notebook:run-cell-and-select-next")
    page.locator("[data-guess=flash]").click(timeout=60_000)
    page.get_by_text("Right. flash runs on cpu.").wait_for()
    page.get_by_label("Keys Nk").fill("333")
    page.get_by_label("Keys Nk").press("Enter")
    page.get_by_label("Dropout").fill("0.25")
    page.get_by_label("Dropout").press("Enter")
    page.get_by_text("Guess first.").wait_for()
    page.locator("[data-guess=math]").click()
    page.get_by_text("Right. math runs on cpu.").wait_for()
    lab_server.expect(page, 1, "call 333 math")
    page.get_by_label("Dropout").fill("2")
    page.get_by_label("Dropout").press("Enter")
    page.get_by_text("expected a number from 0 to below 1, got “2”").wait_for()
    assert violations(page, within=".fl-detective") == {}
