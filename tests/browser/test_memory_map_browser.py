"""MemoryMap in a browser: its static twin from a file, and alive in JupyterLab."""

import re

import pytest
from panels import SLIDE, SLOW, title, title_is, type_into

from flashlab import Problem
from flashlab.text import table
from flashlab.widgets import MemoryMap

pytestmark = pytest.mark.browser

ENGLISH = {"lang": "en", **table("memory_map", "en")}
P = Problem(Hq=32, Nq=32768, D=128, dtype="bfloat16")
TITLE = "At N = 32k standard attention keeps 419 GB for the backward pass; FlashAttention 6.47 GB"


def memory_map(problem=P, **more):
    widget = MemoryMap.of(problem, **{"layers": 6, **more})
    widget.strings = ENGLISH
    return widget


def test_the_twin_states_the_finding_and_asks_the_network_for_nothing(open_twin):
    frame = open_twin(memory_map())
    title_is(frame, TITLE)
    assert frame.locator(".more").inner_text() == (
        "In the 141 GB of one H200, standard attention runs up to N = 16,372, "
        "FlashAttention up to N = 612,319."
    )
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_keys_on_the_slider_move_n_and_everything_with_it(open_twin):
    frame = open_twin(memory_map())
    frame.get_by_role("slider").focus()
    frame.get_by_role("slider").press("End")
    assert title(frame).startswith("At N = 1M standard attention keeps 422 TB")
    assert frame.get_by_role("textbox", name="Tokens N").input_value() == "1,048,576"
    assert frame.get_by_role("slider").get_attribute("aria-valuetext") == "N = 1,048,576"
    frame.get_by_role("slider").press("Home")
    assert title(frame).startswith("At N = 128 standard")


def test_inference_counts_the_cache_and_gqa_shrinks_it(open_twin):
    frame = open_twin(memory_map(Problem(Hq=32, Nq=1, Nk=8192, D=128), layers=32, training=False))
    assert title(frame).startswith("At N = 8k both need 4.3 GB: it is nearly all KV cache")
    type_into(frame, "K/V heads", "8")
    assert title(frame).startswith("At N = 8k both need 1.07 GB")
    frame.get_by_label("training", exact=True).check()
    assert "for the backward pass" in title(frame)


def test_dropout_adds_a_mask_and_the_dropped_weights(open_twin):
    frame = open_twin(memory_map())
    assert "dropout mask" not in frame.locator(".picture").inner_text()
    frame.get_by_label("dropout").check()
    assert "dropout mask 206 GB" in frame.locator(".picture").inner_text()
    assert "keeps 1.04 TB" in title(frame)


def test_another_gpu_runs_out_elsewhere(open_twin):
    frame = open_twin(memory_map())
    frame.get_by_label("GPU").select_option("T4")
    assert "In the 16 GB of one T4" in frame.locator(".more").inner_text()
    assert frame.locator(".curves .stop").count() == 2


@pytest.mark.parametrize(
    ("label", "text", "sentence"),
    [
        ("Tokens N", "0", "Tokens N: expected a whole number from 1 to 1,073,741,824, got “0”."),
        ("Tokens N", "many", "got “many”"),
        ("Layers", "2.5", "Layers: expected a whole number from 1 to 10,000, got “2.5”."),
        ("K/V heads", "5", "32 is not a multiple of 5"),
    ],
)
def test_what_does_not_fit_gives_a_sentence_and_leaves_the_picture(open_twin, label, text, sentence):
    frame = open_twin(memory_map())
    type_into(frame, label, text)
    alert = frame.get_by_role("alert")
    assert sentence in alert.inner_text() and "still shows" in alert.inner_text()
    assert title(frame) == TITLE
    type_into(frame, label, "32")
    assert not alert.is_visible()


def test_an_unknown_gpu_is_a_sentence_in_the_widget(open_twin):
    frame = open_twin(memory_map(gpu="H20O"))
    assert "unknown GPU 'H20O'. Did you mean 'H200'" in frame.get_by_role("alert").inner_text()


def test_a_short_bar_is_shown_once_more_at_full_length(open_twin):
    frame = open_twin(memory_map())
    standard, fa = frame.locator("svg.bar").all()
    assert standard.locator(".lens").count() == 0 and fa.locator(".lens").count() == 1
    widths = fa.locator("rect.part.q").evaluate_all("all => all.map((e) => +e.getAttribute('width'))")
    assert widths[1] / widths[0] == pytest.approx(74, rel=0.02)


def test_the_table_says_the_same(open_twin):
    frame = open_twin(memory_map())
    frame.get_by_role("button", name="Show as table").click()
    rows = [r.split("\t") for r in frame.locator("tbody tr").all_inner_texts()]
    assert ["P (weights)", "kept until the backward pass, in all layers", "412 GB", "–"] in rows
    assert rows[-1][-2:] == ["16,372", "612,319"]
    frame.get_by_role("slider").press("Home")
    assert "N = 128" in frame.locator("caption").inner_text()


def test_a_slider_s_move_shows_within_50_ms(open_twin):
    frame = open_twin(memory_map())
    assert frame.evaluate(SLIDE) <= 50
    frame.evaluate(SLOW)
    assert frame.evaluate(SLIDE) > 50, "the measure can fail"


@pytest.mark.parametrize("width", [420, 1400])
def test_nothing_runs_over_the_edge(open_twin, width):
    frame = open_twin(memory_map(), viewport={"width": width, "height": 900})
    frame.wait_for_selector("svg.curves")
    over = """() => [...document.querySelectorAll('.picture svg text')].filter((e) => {
      const a = e.getBoundingClientRect(), b = document.querySelector('.fl-panel').getBoundingClientRect();
      return a.width && (a.left < b.left || a.right > b.right);
    }).map((e) => e.textContent)"""
    assert frame.evaluate(over) == []


COVERED = """() => {
  const words = [...document.querySelectorAll('.curves text')];
  const all = words.map((e) => [e.textContent, e.getBoundingClientRect()]);
  return all.flatMap(([t, a], i) => all.slice(i + 1).filter(([, b]) => a.left < b.right && b.left < a.right
    && a.top + 4 < b.bottom && b.top + 4 < a.bottom).map(([u]) => [t, u]));
}"""


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gpu", ["H200", "L4"])
def test_no_words_in_the_picture_cover_others_at_any_n(open_twin, training, gpu):
    frame = open_twin(memory_map(training=training, gpu=gpu))
    frame.wait_for_selector("svg.curves")
    slider, missing = frame.get_by_role("slider"), 0
    slider.press("Home")
    for _ in range(27):
        assert frame.evaluate(COVERED) == []
        missing += 4 > frame.locator(".curves text.strong").count()  # two values, two names, the GPU
        slider.press("ArrowRight")
    assert missing == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["training", "inference", "table", "wrong", "error"])
def test_axe_finds_nothing_in_the_twin_s_own_frame(open_twin, violations, scheme, kind):
    more = {"inference": {"training": False}, "error": {"gpu": "?"}}.get(kind, {"dropout": 0.1})
    frame = open_twin(memory_map(**more), color_scheme=scheme)
    if kind == "table":
        frame.get_by_role("button", name="Show as table").click()
    if kind == "wrong":
        type_into(frame, "Layers", "0")
    assert violations(frame) == {}


def test_chinese_words_are_on_the_page_and_no_english_ones_left(open_twin):
    widget = memory_map()
    widget.strings = {"lang": "zh", **table("memory_map", "zh")}
    frame = open_twin(widget)
    title_is(frame, "N = 32k 时，标准注意力为反向传播留下 419 GB；FlashAttention 留下 6.47 GB")
    shown = frame.locator(".fl-panel").inner_text()
    allowed = r"FlashAttention|float\d+|bfloat16|dropout|delta|query|token|cache"
    assert re.findall(r"[A-Za-z]{5,}", re.sub(allowed, "", shown)) == []


SHOW = """
import flashlab as fl
here = fl.widgets.MemoryMap.of(fl.Problem(Hq=32, Nq=32768, D=128, dtype="bfloat16"), layers=6)
here
"""
ASK = "print('Python has', here.problem['Nk'], here.gpu, here.training)"


def test_alive_in_jupyterlab_heard_by_python_and_clean(lab_server, new_page, violations):
    page = new_page(viewport={"width": 1100, "height": 1500})
    lab_server.open(page, "memory.ipynb", SHOW, ASK, "here.gpu = 'T4'; here.layers = 1")
    lab_server.run_cell(page, 0)
    page.locator(".fl-memory-map .title").wait_for(timeout=60_000)
    title_is(page, TITLE)
    page.get_by_role("slider").focus()
    page.get_by_role("slider").press("End")
    page.get_by_label("inference", exact=True).check()
    lab_server.expect(page, 1, "Python has 1048576 H200 False")
    lab_server.run_cell(page, 2)
    page.wait_for_function("document.querySelector('.fl-panel .more').textContent.includes('one T4')")
    layers = page.get_by_label("Layers").element_handle()
    page.wait_for_function("box => box.value === '1'", arg=layers)
    assert violations(page, ".fl-memory-map") == {}
