"""The stepper's static twin in a browser: opened from a file, no network, no kernel."""

import re

import pytest

import flashlab
from flashlab import data
from flashlab.text import table
from flashlab.widgets._base import twin_html

pytestmark = pytest.mark.browser

q, k, v = data.tiny()
ENGLISH = {"lang": "en", **table("stepper", "en")}
CONVERTED = "Block 2: max 1 → 3, old sum and accumulator × ¼"
ADDED = "Block 2: sum 1.875, accumulator 6, answer so far 3.2"


def stepper(rows=5, **more):
    return flashlab.SoftmaxStepper(q[rows] @ k.T, v, **{"strings": ENGLISH, **more})


def press(frame, name):
    frame.get_by_role("button", name=name, exact=True).click()


def title_is(frame, text):
    frame.wait_for_function("t => document.querySelector('.title').textContent === t", arg=text)


def at_rest(frame, position):
    """Wait until the movement has arrived at a position."""
    frame.wait_for_function("p => +document.querySelector('input[type=range]').value === p", arg=position)


def width(frame, which, part):
    return float(frame.locator(f".bar.{which} rect.{part}").get_attribute("width"))


def put_at(frame, position):
    """Drag the position slider there without letting go."""
    frame.locator("input[type=range]").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", position
    )


def test_the_twin_runs_from_a_file_and_asks_the_network_for_nothing(open_twin):
    frame = open_twin(stepper())
    title_is(frame, "Nothing seen yet: max −∞, sum 0, accumulator 0")
    press(frame, "Step")
    title_is(frame, "Block 1: the max becomes 1, nothing in the book to convert")
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_stepping_forth_and_back_visits_every_frame(open_twin):
    frame = open_twin(stepper())
    for n in range(1, 7):
        press(frame, "Step")
        at_rest(frame, n)
    title_is(frame, "Block 3: all keys seen, answer 10 / 2.5 = 4")
    assert frame.get_by_role("button", name="Step", exact=True).is_disabled()
    press(frame, "Back")
    at_rest(frame, 5)
    title_is(frame, "Block 3: the max stays 3, nothing to convert")


def test_the_old_part_of_both_bars_shrinks_by_alpha_before_the_new_part_lands(open_twin):
    frame = open_twin(stepper(step=2))
    seen = []
    for position in (2.3, 2.6, 2.8, 3):
        put_at(frame, position)
        assert frame.locator(".bar rect.new").count() == 0
        seen.append(width(frame, "l", "old"))
    assert seen == sorted(seen, reverse=True) and len(set(seen)) == 4
    for bar in ("l", "acc"):
        assert width(frame, bar, "old") == pytest.approx(width(frame, bar, "ghost") / 4, abs=0.1)
    put_at(frame, 4)
    assert width(frame, "l", "new") == pytest.approx(4 * width(frame, "l", "old"), abs=0.1)  # 1.5 on 0.375
    assert width(frame, "acc", "new") == pytest.approx(width(frame, "acc", "old"), abs=0.1)  # 3 on 3


def test_the_shrinking_is_an_animation_and_ends_at_the_factor(open_twin):
    frame = open_twin(stepper(step=2))
    frame.evaluate(
        """() => { window.seen = []; const look = () => {
        const old = document.querySelector('.bar.l rect.old');
        if (old) window.seen.push(+old.getAttribute('width'));
        requestAnimationFrame(look); }; look(); }"""
    )
    press(frame, "Step")
    at_rest(frame, 3)
    widths = frame.evaluate("window.seen")
    shrinking = sorted({w for w in widths if w > 0})
    assert len(shrinking) > 8, "the bar must pass through widths between, not jump"
    assert min(shrinking) == pytest.approx(max(shrinking) / 4, rel=0.01)


def test_play_runs_to_the_end_stops_there_and_starts_over(open_twin):
    frame = open_twin(stepper(), reduced_motion="no-preference")
    put_at(frame, 4.9)
    press(frame, "Play")
    assert frame.locator(".title").get_attribute("aria-live") == "off"
    at_rest(frame, 6)
    frame.get_by_role("button", name="Play", exact=True).wait_for()
    assert frame.locator(".title").get_attribute("aria-live") == "polite"
    press(frame, "Play")
    frame.wait_for_function("() => +document.querySelector('input[type=range]').value < 3")
    press(frame, "Pause")
    frame.get_by_role("button", name="Play", exact=True).wait_for()


def test_keys_step_play_and_jump_from_anywhere_in_the_widget(open_twin):
    frame = open_twin(stepper())
    scrub = frame.get_by_role("slider")
    scrub.focus()
    for key, position in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 6), ("Home", 0)):
        scrub.press(key)
        at_rest(frame, position)
    scrub.press(" ")
    frame.get_by_role("button", name="Pause", exact=True).wait_for()
    scrub.press(" ")
    frame.get_by_role("button", name="Play", exact=True).wait_for()
    switch = frame.get_by_label("do not convert the sum")
    switch.focus()
    switch.press(" ")
    assert switch.is_checked()


def test_scrubbing_moves_within_a_frame_and_settles_on_a_whole_one(open_twin):
    frame = open_twin(stepper())
    put_at(frame, 2.9)
    title_is(frame, CONVERTED)
    assert frame.get_by_role("slider").get_attribute("aria-valuetext") == CONVERTED
    frame.locator("input[type=range]").dispatch_event("change")
    at_rest(frame, 3)


def test_a_fast_second_step_is_not_lost(open_twin):
    frame = open_twin(stepper(step=2))
    press(frame, "Step")
    press(frame, "Step")
    at_rest(frame, 4)
    title_is(frame, ADDED)


@pytest.mark.parametrize(
    ("switches", "answer", "off_by"),
    [
        (["do not convert the accumulator"], "7.6", "3.6"),
        (["do not convert the sum"], "2.759", "−1.241"),
        (["do not convert the sum", "do not convert the accumulator"], "5.241", "1.241"),
        (["α upside down"], "6.769", "2.769"),
    ],
)
def test_a_knock_out_turns_the_tick_into_a_cross_with_the_difference(open_twin, switches, answer, off_by):
    frame = open_twin(stepper(step=6))
    said = frame.locator(".answer")
    assert "= 4" in said.inner_text() and "✓ agrees" in said.inner_text()
    for name in switches:
        frame.get_by_label(name).check()
    assert f"= {answer}" in said.inner_text() and f"✗ off by {off_by}" in said.inner_text()
    for name in switches:
        frame.get_by_label(name).uncheck()
    assert "✓ agrees" in said.inner_text()


def test_a_max_that_starts_at_0_shows_nan_where_every_weight_underflows(open_twin):
    frame = open_twin(flashlab.SoftmaxStepper(q[5] @ k.T - 2000, v, step=6, strings=ENGLISH))
    assert "✓ agrees" in frame.locator(".answer").inner_text()
    frame.get_by_label("start the max at 0").check()
    said = frame.locator(".answer").inner_text()
    assert "✗" in said and "off by −4" in said or "NaN" in said


def test_alpha_is_large_when_it_is_not_1_and_a_sentence_otherwise(open_twin):
    frame = open_twin(stepper(step=3))
    alpha = frame.locator(".alpha strong")
    assert alpha.inner_text() == "¼"
    assert alpha.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 28
    put_at(frame, 5)
    assert frame.locator(".alpha").count() == 0
    assert "α = 1, nothing to convert" in frame.locator(".rate").inner_text()


def test_two_rows_have_an_alpha_each(open_twin):
    frame = open_twin(stepper(rows=slice(2, 4), row_names=["row 2", "row 3"], step=3))
    first, second = frame.locator("section").all()
    assert first.locator(".alpha strong").inner_text() == "½"
    assert "nothing to convert" in second.inner_text()
    assert frame.locator(".strip").first.get_attribute("aria-label").startswith("Block 2: row 2: max 1 → 2")


def test_the_table_holds_the_same_numbers_and_marks_the_current_block(open_twin):
    frame = open_twin(stepper(step=4))
    press(frame, "Show as table")
    assert not frame.locator(".rows").is_visible()
    cells = frame.locator("tr[aria-current] > *").all_inner_texts()
    assert cells == ["2", "2 3", "3", "¼", "1.875", "6", "3.2 ✓", "3.2", "1"]
    press(frame, "Step")
    title_is(frame, "Block 3: the max stays 3, nothing to convert")
    assert frame.locator("tr[aria-current] th").inner_text() == "3"
    press(frame, "Show as picture")
    assert frame.locator(".strip").is_visible()


def test_the_second_output_is_the_mass_and_its_bar_is_the_row_sum(open_twin):
    frame = open_twin(stepper(step=4))
    frame.get_by_label("Output number").select_option("1")
    assert width(frame, "acc", "new") == pytest.approx(width(frame, "l", "new"), abs=0.1)
    assert "= 1" in frame.locator(".answer").inner_text()


def test_in_base_e_scores_and_max_change_and_sum_accumulator_and_answer_do_not(open_twin):
    frame = open_twin(stepper(step=4))
    before = frame.locator(".line").all_inner_texts(), frame.locator(".answer").inner_text()
    frame.get_by_label("Base").select_option("e")
    assert "row max m = 2.079" in frame.locator(".rate").inner_text()  # 3 ln 2
    after = frame.locator(".line").all_inner_texts(), frame.locator(".answer").inner_text()
    assert [t.split("=")[-1] for t in before[0]] == [t.split("=")[-1] for t in after[0]]
    assert before[1] == after[1]


def test_with_reduced_motion_a_step_is_there_at_once(open_twin):
    frame = open_twin(stepper(step=2), reduced_motion="reduce")
    press(frame, "Step")
    assert float(frame.get_by_role("slider").input_value()) == 3
    assert frame.locator(".title").inner_text() == CONVERTED


def test_the_frame_takes_the_height_that_the_widget_needs(open_twin):
    frame = open_twin(stepper())
    holder = frame.frame_element()
    frame.wait_for_timeout(300)
    needed = frame.locator(".fl-stepper").evaluate("e => e.getBoundingClientRect().height")
    assert abs(holder.bounding_box()["height"] - needed) <= 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["one row", "two rows", "table", "broken", "many tokens"])
def test_axe_finds_nothing_in_the_twin_s_own_frame(open_twin, violations, scheme, kind):
    widget = {
        "one row": lambda: stepper(step=3),
        "two rows": lambda: stepper(rows=slice(2, 4), step=3),
        "table": lambda: stepper(step=4),
        "broken": lambda: stepper(step=4, knock_out=["acc"]),
        "many tokens": lambda: flashlab.SoftmaxStepper(
            range(-20, 20), [[1.0]] * 40, block=8, unit="e", step=5
        ),
    }[kind]()
    frame = open_twin(widget, color_scheme=scheme)
    if kind == "table":
        press(frame, "Show as table")
    assert violations(frame) == {}


INK = """() => [...document.querySelectorAll('.strip text')].map((e) => {
  const style = getComputedStyle(e), light = (colour) => {
    const part = colour.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255);
    const [r, g, b] = part.map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const [a, b] = [light(style.fill), light(style.stroke)]; // the stroke is a halo in the colour of the paper
  return Math.max(a, b) / Math.min(a, b);
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_inside_the_picture_which_axe_cannot_judge_has_contrast_too(open_twin, scheme):
    frame = open_twin(stepper(step=3), color_scheme=scheme)
    ratios = frame.evaluate(INK)
    assert len(ratios) > 20 and min(ratios) >= 4.5


def test_axe_finds_what_is_planted_in_the_twin_s_frame_but_not_from_outside(open_twin, violations):
    frame = open_twin(stepper())
    frame.evaluate(
        """() => document.querySelector('.fl-stepper').insertAdjacentHTML('beforeend',
        '<button></button><input type="range"><p style="color:#bbb;background:#fff">faint</p>')"""
    )
    assert {"button-name", "label", "color-contrast"} <= set(violations(frame))
    assert not {"button-name", "label"} & set(violations(frame.page)), (
        "the outer page cannot see into the frame"
    )


def test_dark_and_light_differ_and_both_have_ink_on_paper(open_twin):
    def colours(scheme):
        frame = open_twin(stepper(), color_scheme=scheme)
        return frame.locator(".fl-stepper").evaluate(
            "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"
        )

    light, dark = colours("light"), colours("dark")
    assert light == ["rgb(31, 35, 40)", "rgb(255, 255, 255)"]
    assert dark == ["rgb(230, 232, 235)", "rgb(22, 24, 28)"]


@pytest.mark.parametrize("background, paper", [("white", 255), ("black", 0)])
def test_the_twin_follows_the_colour_of_its_page_against_the_system_s(new_page, tmp_path, background, paper):
    page = new_page(color_scheme="dark" if background == "white" else "light")
    file = tmp_path / "page.html"
    file.write_text(f'<body style="background:{background}">{twin_html(stepper())}', encoding="utf-8")
    page.goto(file.as_uri())
    frame = page.locator("iframe").element_handle().content_frame()
    frame.wait_for_selector(f'html[data-jp-theme-light="{str(background == "white").lower()}"] .fl-widget')
    ink = "getComputedStyle(document.querySelector('.fl-widget')).color"
    red = int(re.search(r"\d+", frame.evaluate(ink)).group())
    assert abs(red - paper) > 128
    assert not page.locator(".fl-twin-summary").is_visible()


def test_chinese_words_are_on_the_page_and_no_english_ones_left(open_twin):
    words = {"lang": "zh", **table("stepper", "zh")}
    frame = open_twin(stepper(step=3, strings=words))
    title_is(frame, "第 2 块：最大值 1 → 3，旧的行和与累加器 × ¼")
    shown = frame.locator(".fl-stepper").inner_text()
    assert frame.get_by_role("button", name="播放").is_visible()
    assert re.findall(r"[A-Za-z]{5,}", shown.replace("value", "")) == []


def test_the_preview_page_is_alive_without_network_and_clean(new_page, violations):
    from flashlab.widgets._base import _HERE

    page = new_page(reduced_motion="reduce")
    page.context.set_offline(True)
    page.goto((_HERE.parents[1] / "course" / "preview.html").as_uri())
    for _ in range(3):
        page.get_by_role("button", name="Step", exact=True).click()
    assert page.locator(".title").inner_text() == CONVERTED
    assert violations(page) == {}
