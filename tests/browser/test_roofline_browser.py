"""Roofline in a browser: its static twin from a file, and alive in JupyterLab."""

import re

import pytest
from panels import SLIDE, SLOW, title, title_is, type_into

from flashlab import Problem
from flashlab.text import table
from flashlab.widgets import Roofline

pytestmark = pytest.mark.browser

ENGLISH = {"lang": "en", **table("roofline", "en")}
P = Problem(B=4, Hq=16, Nq=4096, D=128, dtype="float16", block_q=128, block_k=64)
TITLE = (
    "Standard attention is memory-bound: 62 FLOP/byte, the H200's ridge is at 206; "
    "FlashAttention-2 reaches 2,040"
)


def roofline(problem=P, **more):
    widget = Roofline.of(problem, **more)
    widget.strings = ENGLISH
    return widget


def test_the_twin_states_the_finding_and_asks_the_network_for_nothing(open_twin):
    frame = open_twin(roofline())
    title_is(frame, TITLE)
    assert "At least 1.85 ms for standard attention" in frame.locator(".more").inner_text()
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_every_point_stands_on_a_roof_and_measurements_below(open_twin):
    frame = open_twin(roofline())
    assert frame.locator(".point").count() == 4
    assert frame.locator(".measured.near").count() == 7  # fa2, fa3, standard, three of SDPA's, fa1
    label = frame.locator("svg.chart").get_attribute("aria-label")
    assert "standard: 62 FLOP/byte, at least 1.85 ms, memory-bound" in label
    centre = "e => { const b = e.getBBox(); return b.y + b.height / 2; }"
    roof = frame.locator(".point.fa2").evaluate(centre)
    assert all(y > roof for y in frame.locator(".measured.near").evaluate_all(f"all => all.map({centre})"))
    note = frame.locator(".note").inner_text()
    assert "NVIDIA H200" in note and re.search(r"20\d\d-\d\d-\d\d", note) and "N = 4,096" in note


def test_backward_has_three_points_and_its_own_measurements(open_twin):
    frame = open_twin(roofline())
    frame.get_by_label("backward", exact=True).check()
    assert frame.locator(".point").count() == 3
    assert "decoded token" not in frame.locator(".more").inner_text()
    assert "71 FLOP/byte" in title(frame) and frame.locator(".measured.near").count() == 7


def test_without_an_l2_flashattention_2_is_memory_bound_too(open_twin):
    frame = open_twin(roofline())
    frame.get_by_label("all asked for (no L2)").check()
    assert "FlashAttention-2, at 124, is still memory-bound" in title(frame)
    frame.get_by_label("Query block").select_option("256")
    assert "FlashAttention-2 reaches 241" in title(frame)


def test_where_nothing_was_measured_the_note_says_so(open_twin):
    frame = open_twin(roofline())
    frame.get_by_role("combobox", name="GPU").select_option("A100-80")
    assert frame.locator(".note").inner_text() == (
        "No measurement for A100-80, float16, D = 128, no mask, forward is kept."
    )
    assert "the A100-80's ridge is at 153" in title(frame)


def test_a_number_format_that_the_gpu_lacks_is_a_sentence_and_can_be_left(open_twin):
    frame = open_twin(roofline())
    frame.get_by_role("combobox", name="GPU").select_option("T4")
    frame.get_by_label("Number format").select_option("bfloat16")
    assert title(frame) == (
        "The T4 has no matrix units for bfloat16 in this table. Number formats it has: float16, float32."
    )
    assert frame.locator("svg.chart").count() == 0
    frame.get_by_role("combobox", name="GPU").select_option("L4")
    assert frame.locator("svg.chart").count() == 1


@pytest.mark.parametrize(
    ("label", "text", "sentence"),
    [
        ("Tokens N", "0", "Tokens N: expected a whole number from 1 to 4,194,304, got “0”."),
        ("K/V heads", "3", "16 is not a multiple of 3"),
        ("Batch B", "-1", "Batch B: expected a whole number from 1 to 65,536, got “-1”."),
    ],
)
def test_what_does_not_fit_gives_a_sentence_and_leaves_the_picture(open_twin, label, text, sentence):
    frame = open_twin(roofline())
    type_into(frame, label, text)
    assert sentence in frame.get_by_role("alert").inner_text() and title(frame) == TITLE


def test_an_unknown_gpu_is_a_sentence_in_the_widget(open_twin):
    frame = open_twin(roofline(gpu="H20O"))
    assert "unknown GPU 'H20O'. Did you mean 'H200'" in frame.get_by_role("alert").inner_text()


def test_the_table_holds_model_and_measurements(open_twin):
    frame = open_twin(roofline())
    frame.get_by_role("button", name="Show as table").click()
    model, measured = frame.locator("table").all()
    rows = [r.split("\t") for r in model.locator("tbody tr").all_inner_texts()]
    assert rows[0] == ["standard", "550 G", "8.86 GB", "62.1", "memory", "1.85 ms", "298 T"]
    assert len(rows) == 4 and measured.locator("tbody tr").count() == 7


def test_a_slider_s_move_shows_within_50_ms(open_twin):
    assert open_twin(roofline()).evaluate(SLIDE) <= 50
    frame = open_twin(roofline(Problem(B=8, Hq=32, Nq=4096, causal=True, block_q=16)))
    assert frame.evaluate(SLIDE) <= 50
    frame.evaluate(SLOW)
    assert frame.evaluate(SLIDE) > 50, "the measure can fail"


LABELS = """() => {
  const box = document.querySelector('.fl-panel').getBoundingClientRect();
  const names = document.querySelectorAll('.chart text.strong:not([transform])');
  const all = [...names].map((e) => [e.textContent, e.getBoundingClientRect()]);
  const bad = all.filter(([, a]) => a.left < box.left || a.right > box.right).map(([t]) => t);
  for (const [t, a] of all) for (const [u, b] of all)
    if (t < u && a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
      bad.push(t + ' on ' + u);
  return bad;
}"""


@pytest.mark.parametrize("width", [500, 1400])
@pytest.mark.parametrize("n", [128, 4096, 2**20])
def test_the_names_of_the_points_cover_neither_each_other_nor_the_edge(open_twin, width, n):
    frame = open_twin(
        roofline(Problem(B=1, Hq=16, Nq=n, D=128, block_q=128)), viewport={"width": width, "height": 900}
    )
    frame.wait_for_selector("svg.chart")
    assert frame.evaluate(LABELS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["forward", "backward", "table", "wrong", "error"])
def test_axe_finds_nothing_in_the_twin_s_own_frame(open_twin, violations, scheme, kind):
    more = {"backward": {"direction": "backward", "level": "sm"}, "error": {"gpu": "?"}}.get(kind, {})
    frame = open_twin(roofline(**more), color_scheme=scheme)
    if kind == "table":
        frame.get_by_role("button", name="Show as table").click()
    if kind == "wrong":
        type_into(frame, "Batch B", "0")
    assert violations(frame) == {}


def test_chinese_words_are_on_the_page_and_no_english_ones_left(open_twin):
    widget = roofline()
    widget.strings = {"lang": "zh", **table("roofline", "zh")}
    frame = open_twin(widget)
    assert title(frame).startswith("标准注意力受显存带宽限制：62 FLOP/字节，H200 的拐点在 206")
    shown = frame.locator(".fl-panel").inner_text()
    allowed = r"FlashAttention|[TP]FLOP|b?float\d+|query|token|torch|triton|driver|NVIDIA|kernel|causal|cudnn"
    allowed += "|sdpa-efficient|standard 实测"  # what programs are called
    assert re.findall(r"[A-Za-z]{5,}", re.sub(allowed + "|flash", "", shown)) == []


SHOW = """
import flashlab as fl
here = fl.widgets.Roofline.of(fl.Problem(B=4, Hq=16, Nq=4096, D=128, block_q=128))
here
"""
ASK = "print('Python has', here.problem['Nk'], here.direction, here.level)"


def test_alive_in_jupyterlab_heard_by_python_and_clean(lab_server, new_page, violations):
    page = new_page(viewport={"width": 1100, "height": 1500})
    lab_server.open(page, "roofline.ipynb", SHOW, ASK, "here.gpu = 'B200'")
    lab_server.run_cell(page, 0)
    page.locator(".fl-roofline .title").wait_for(timeout=60_000)
    title_is(page, TITLE)
    page.get_by_role("slider").focus()
    page.get_by_role("slider").press("Home")
    page.get_by_label("backward", exact=True).check()
    lab_server.expect(page, 1, "Python has 128 backward hbm")
    lab_server.run_cell(page, 2)
    page.wait_for_function("document.querySelector('.fl-panel .title').textContent.includes('B200')")
    assert violations(page, ".fl-roofline") == {}
