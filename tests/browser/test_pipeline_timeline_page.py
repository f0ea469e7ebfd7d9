"""PipelineTimeline in a browser: as a static twin opened from a file, and alive in a real JupyterLab."""

import re

import pytest
from panels import choose, move, title

from flashlab import pipeline
from flashlab.text import table
from flashlab.widgets import PipelineTimeline

pytestmark = pytest.mark.browser


def timeline(language="en", **how):
    strings = {"lang": language, **table("pipeline", language)}
    return PipelineTimeline.of(**{"ask": False, "strings": strings, **how})


def busy(D, step, causal=False):
    return f"{100 * pipeline.busy(pipeline.logs(D, causal)[step - 1], 'tensor'):.0f}\xa0%"


def words(step, other, D=128):
    return (
        f"Step {step} keeps the tensor cores busy {busy(D, step)} of the time, step {other} {busy(D, other)}"
    )


def drawn(frame, lane):
    """Clear width of the bars in a lane of the lower step, as a share of the picture's time."""
    return frame.evaluate(
        """(lane) => {
        const part = [...document.querySelectorAll('.step')].at(-1);
        const sum = (q) => [...part.querySelectorAll(q)].reduce((s, r) => s + +r.getAttribute('width'), 0);
        return sum(`[data-lane=${lane}]`) / sum('.idle');
        }""",
        lane,
    )


def test_the_twin_runs_from_a_file_and_asks_the_network_for_nothing(open_twin):
    frame = open_twin(timeline())
    assert title(frame) == words(4, 2)
    assert frame.locator(".step").count() == 2 and frame.locator(".head").count() == 2
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_the_reader_guesses_before_the_picture_is_shown(open_twin):
    frame = open_twin(timeline(ask=True))
    assert title(frame) == "Step 4, D = 128: which unit works most of the time?"
    show = frame.get_by_role("button", name="Show", exact=True)
    assert show.is_disabled() and not frame.locator(".picture").is_visible()
    assert busy(128, 4) not in frame.locator(".fl-pipeline").inner_text()
    frame.get_by_label("exponential units").check()
    move(frame, "guess", 80)
    show.click()
    told = frame.locator(".told").inner_text()
    assert told.startswith("You said exponential units: it is tensor cores.") and told.endswith("✓.")
    frame.get_by_role("button", name="Ask me again").click()
    assert not frame.locator(".picture").is_visible()
    frame.get_by_role("button", name="Skip").click()
    assert frame.locator(".picture").is_visible() and not frame.locator(".told").is_visible()


def test_every_choice_changes_the_finding(open_twin):
    frame = open_twin(timeline())
    choose(frame, "above", "4")
    choose(frame, "step", "5")
    assert title(frame) == words(5, 4) and "order of step 4" in frame.locator(".more").inner_text()
    choose(frame, "D", "64")
    assert title(frame) == words(5, 4, D=64)
    choose(frame, "above", "0")
    frame.get_by_label("causal").check()
    assert title(frame) == f"Step 5 keeps the tensor cores busy {busy(64, 5, True)} of the time"
    assert frame.locator(".step").count() == 1


def test_a_third_consumer_has_a_lane_a_colour_and_a_legend_of_its_own(open_twin):
    frame = open_twin(timeline(step=5, above=4))
    assert not frame.locator(".only-two").is_visible()
    choose(frame, "D", "64")
    assert frame.locator(".only-two").is_visible()
    lanes = frame.locator(".step").last.locator("svg .lane").all_text_contents()
    assert lanes[:4] == ["Producer, copies", "Consumer 0", "Consumer 1", "Consumer 2"]
    fills = frame.evaluate(
        """() => ['zero', 'one', 'two'].map((name) =>
        getComputedStyle(document.querySelector(`.step:last-child rect.${name}`)).fill)"""
    )
    assert len(set(fills)) == 3
    frame.locator(".picture").focus()
    press, said = frame.page.keyboard.press, []
    for _ in range(12):
        press("ArrowDown")
        said.append(frame.locator(".what").inner_text())
    assert any(x.startswith("Step 5, consumer 2: ") for x in said)
    assert "Consumer 2" not in frame.locator(".step").first.inner_text()


def test_the_bars_are_as_wide_as_the_numbers_say(open_twin):
    frame = open_twin(timeline())
    frame.get_by_role("button", name="Everything").click()
    assert 100 * drawn(frame, "tensor") == pytest.approx(float(busy(128, 4)[:2]), abs=2)
    frame.get_by_role("button", name="Inside a block").click()
    assert drawn(frame, "tensor") == pytest.approx(1, abs=0.01)
    frame.get_by_role("button", name="Between blocks").click()
    assert drawn(frame, "tensor") < 0.7


def test_step_1_has_one_warpgroup_and_says_so(open_twin):
    frame = open_twin(timeline(step=1, above=0))
    lanes = frame.locator("svg .lane").all_text_contents()
    assert lanes == ["Copies", "Warpgroup", "Tensor cores", "Exponential", "fp32"]
    assert frame.locator(".only-own").is_visible()


def test_the_keyboard_goes_from_bar_to_bar_and_from_lane_to_lane(open_twin):
    frame = open_twin(timeline())
    frame.locator(".picture").focus()
    said, press = [], frame.page.keyboard.press
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Home", "End", "ArrowDown", "ArrowDown"):
        press(key)
        said.append(frame.locator(".what").inner_text())
    assert said[0].startswith("Step 2, producer: ") and said[1] != said[0]
    assert said[2].startswith("Step 2, consumer 0: ")
    assert "waits at q_filled[0] for the producer's copy of its Q" in said[3]
    assert said[5].startswith("Step 2, consumer 1: ") and ": O7, the product" in said[6]
    for _ in range(3):
        press("ArrowDown")
    assert frame.locator(".what").inner_text().startswith("Step 4, ")
    ticks = frame.locator("svg .tick").all_text_contents()
    press("+")
    assert frame.locator("svg .tick").all_text_contents() != ticks


def test_the_clock_says_what_every_lane_does(open_twin):
    frame = open_twin(timeline())
    move(frame, "clock", 100)
    first = frame.locator(".now").inner_text().split("Step 4")[0]
    assert "K0" in first and "waits: Q4" in first and "idle" in first
    assert "100" in frame.locator("[name=clock]").get_attribute("aria-valuetext")


def test_what_was_not_measured_is_said_not_to_be_and_what_was_has_its_origin(open_twin):
    rate = dict(step=4, D=128, causal=False, N=4096, dtype="float16", tflops=1.0, gpu="X", date="2026-12-24")
    widget = timeline()
    widget.measured = [rate]
    frame = open_twin(widget)
    upper, lower = frame.locator(".head").all_inner_texts()
    assert "not yet measured on the H200" in upper
    assert "measured: 1 TFLOP/s (N = 4,096, float16, X, 2026-12-24)" in lower
    assert not frame.locator(".compared").is_visible()


def test_two_measured_steps_are_compared_as_the_model_compares_them(open_twin):
    rate = dict(D=128, causal=False, N=4096, dtype="float16", gpu="X", date="2026-12-24")
    widget = timeline(ask=True)
    widget.measured = [rate | dict(step=2, tflops=10.0), rate | dict(step=4, tflops=9.0)]
    frame = open_twin(widget)
    assert not frame.locator(".compared").is_visible()
    frame.get_by_role("button", name="Skip").click()
    said = frame.locator(".compared").inner_text()
    assert "step 4 runs at 0.90× the rate of step 2" in said and "wrong" in said
    choose(frame, "above", "3")
    assert not frame.locator(".compared").is_visible()
    frame.get_by_role("button", name="Show as table").click()
    row = frame.get_by_role("row", name="measured TFLOP/s").inner_text().split("\t")
    assert row[1:] == ["not yet", "10", "not yet", "9", "not yet"]


def test_names_of_query_blocks_never_lie_on_each_other(open_twin):
    for width in (420, 900):
        frame = open_twin(timeline(step=5, above=1, D=64), viewport={"width": width, "height": 900})
        frame.get_by_role("button", name="Everything").click()
        ends = frame.evaluate(
            """() => [...document.querySelectorAll('.step')].map((part) =>
            [...part.querySelectorAll('.flag, .share.dim')].map((text) => text.getBoundingClientRect())
            .filter((r) => r.width).sort((a, b) => a.left - b.left).map((r) => [r.left, r.right]))"""
        )
        assert any(ends)
        for flags in ends:
            assert all(a[1] <= b[0] for a, b in zip(flags, flags[1:], strict=False)), flags


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_question_picture_and_table(open_twin, violations, scheme):
    frame = open_twin(timeline(ask=True), color_scheme=scheme)
    assert violations(frame) == {}
    frame.get_by_role("button", name="Skip").click()
    assert violations(frame) == {}
    choose(frame, "above", "1")
    frame.get_by_role("button", name="Show as table").click()
    assert frame.locator("table").count() == 2 and busy(128, 5) in frame.locator(".table").inner_text()
    assert not frame.get_by_text("Keys in the picture:").is_visible()
    assert violations(frame) == {}


@pytest.mark.parametrize("width", [420, 900, 1400])
def test_nothing_runs_out_of_the_page(open_twin, width):
    frame = open_twin(timeline(above=1), viewport={"width": width, "height": 900})
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_chinese_words_are_on_the_page_and_no_english_ones_left(open_twin):
    frame = open_twin(timeline("zh"))
    shown = frame.locator(".fl-pipeline").inner_text()
    known = (
        "Tensor Core Producer producer Consumer consumer query causal kernel triton python flashlab pipeline"
    )
    assert "第 4 步" in title(frame)
    units = {"TFLOP", "Home", "softmax", "NVIDIA", "float"}
    assert set(re.findall(r"[A-Za-z]{4,}", shown)) - set(known.split()) <= units


SHOW = """
from flashlab.widgets import PipelineTimeline
w = PipelineTimeline.of(step=3, above=2)
w
"""


def test_in_jupyterlab_python_hears_the_guess_and_the_choices(lab_server, new_page, violations):
    page = new_page(viewport={"width": 1100, "height": 1200})
    lab_server.open(page, "timeline.ipynb", SHOW, "print('heard', w.step, w.guess_unit, w.guess_share, w.D)")
    lab_server.command(page, "notebook:run-cell-and-select-next")
    page.get_by_label("tensor cores", exact=True).check(timeout=60_000)
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("Step 3 keeps the tensor cores busy").first.wait_for()
    page.locator(".fl-pipeline select[name=step]").select_option("4")
    page.locator(".fl-pipeline select[name=D]").select_option("64")
    lab_server.expect(page, 1, "heard 4 tensor 50 64")
    assert violations(page, within=".fl-pipeline") == {}
