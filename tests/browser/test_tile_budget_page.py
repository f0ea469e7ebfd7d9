"""TileBudget in a browser: as a static twin opened from a file, and in a real JupyterLab."""

import re

import pytest
from panels import choose, move, title

import flashlab
from flashlab.text import table
from flashlab.widgets.tile_budget import TileBudget

pytestmark = pytest.mark.browser

ENGLISH = {"lang": "en", **table("budget", "en")}


def budget(gpu="H200", dim=128, **more):
    return TileBudget.of(flashlab.Problem(Nq=4096, D=dim), gpu=gpu, **{"strings": ENGLISH, **more})


def cell(frame, block_q, block_k):
    return frame.locator(f"[data-r='{block_q}'][data-c='{block_k}']")


def test_the_twin_runs_from_a_file_and_asks_the_network_for_nothing(open_twin):
    frame = open_twin(budget())
    said = title(frame)
    assert said.startswith(
        "2 programs with 128 × 64 tiles fit an SM of the H200, limited by shared memory and registers (96 KB"
    )
    assert said.endswith("69.2 MB moved per head")
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_cells_say_how_many_programs_fit_or_why_none_does(open_twin):
    frame = open_twin(budget())
    assert cell(frame, 128, 64).inner_text().split() == ["2", "★"]
    assert "spills" in cell(frame, 256, 64).inner_text() and "too big" in cell(frame, 16, 256).inner_text()
    assert cell(frame, 128, 64).get_attribute("aria-label") == "Br 128, Bc 64: 2 per SM ★ shipped by flashlab"
    other = "Br 128, Bc 128: spills ☆ shipped by flashlab with 8 warps, 3 stages"
    assert cell(frame, 128, 128).get_attribute("aria-label") == other
    cell(frame, 256, 64).click()
    assert title(frame).startswith("256 × 64 spills on the H200: it wants 476 registers a thread")
    cell(frame, 16, 256).click()
    assert "does not fit the H200" in title(frame) and "227 KB" in title(frame)
    assert "none can start" in frame.locator(".bars").inner_text()


def test_more_stages_take_more_shared_memory_and_programs(open_twin):
    frame = open_twin(budget())
    bars = frame.locator(".bars")
    assert "K × 2 32 KB" in bars.inner_text() and "96 KB of 227 KB" in bars.inner_text()
    move(frame, "stages", 4)
    assert "K × 4 64 KB" in bars.inner_text() and "160 KB of 227 KB" in bars.inner_text()
    assert title(frame).startswith("1 program ")
    move(frame, "stages", 1)
    assert "K, then V 16 KB" in bars.inner_text()


def test_the_bytes_of_a_row_halve_with_twice_its_rows_and_grow_with_n(open_twin):
    frame = open_twin(budget())
    moved = frame.locator("tbody td.move span").all_inner_texts()
    assert moved == ["539 MB", "271 MB", "136 MB", "69.2 MB", "35.7 MB"]
    move(frame, "n", 5)
    assert frame.locator(".at.wide").inner_text() == "8,192"
    assert frame.locator("tbody td.move span").nth(3).inner_text() == "273 MB"


def test_a_shipped_configuration_is_one_press_away(open_twin):
    frame = open_twin(budget())
    button = frame.get_by_role("button", name="default: 128 × 128, 8 warps, 3 stages")
    button.click()
    assert title(frame).startswith("1 program with 128 × 128 tiles fits an SM of the H200")
    assert "(224 of 227 KB, 188 of 255 registers" in title(frame)
    assert button.get_attribute("aria-pressed") == "true"
    choose(frame, "gpu", "T4")
    assert "ships no configuration" in frame.locator(".ships").inner_text()


def test_every_choice_changes_the_finding(open_twin):
    frame = open_twin(budget(block_q=64, block_k=32))
    said = [title(frame)]
    for name, value in (("gpu", "A100-80"), ("headDim", "64"), ("itemsize", "4"), ("warps", "8")):
        choose(frame, name, value)
        said.append(title(frame))
    for name, value in (("stages", 4), ("n", 2)):
        move(frame, name, value)
        said.append(title(frame))
    assert len(set(said)) == len(said)


def test_arrow_keys_choose_cells_and_stop_at_the_edge(open_twin):
    frame = open_twin(budget())
    cell(frame, 128, 64).focus()
    for key, at in (("ArrowUp", (64, 64)), ("ArrowRight", (64, 128)), ("ArrowRight", (64, 256))):
        frame.locator("[aria-pressed=true][data-r]").press(key)
        assert cell(frame, *at).get_attribute("aria-pressed") == "true"
        assert cell(frame, *at).evaluate("e => e === document.activeElement")
    cell(frame, 64, 256).press("ArrowRight")
    assert cell(frame, 64, 256).get_attribute("aria-pressed") == "true"
    assert frame.locator("[data-r][tabindex='0']").count() == 1


def test_a_slider_move_shows_its_result_within_50_ms(open_twin):
    frame = open_twin(budget())
    for name in ("stages", "n"):
        before = title(frame), frame.locator(".bars").inner_text()
        moves = [[move(frame, name, n)[1] for n in (3, 1)] for _ in range(6)]
        assert (title(frame), frame.locator(".bars").inner_text()) != before
        for times in zip(*moves, strict=True):  # what else the machine does can only make a move longer
            assert sorted(times)[1] <= 50, moves


def test_the_table_has_a_row_for_each_pair_of_blocks_and_marks_the_chosen_one(open_twin):
    frame = open_twin(budget())
    frame.get_by_role("button", name="Show as table").click()
    assert frame.locator(".table tbody tr").count() == 25
    chosen = frame.locator("tr[aria-current] > *").all_inner_texts()
    assert chosen == ["128", "64", "2 per SM ★", "96", "252", "2", "shared memory and registers", "69.2 MB"]
    assert not frame.locator(".grid").is_visible()
    frame.get_by_role("button", name="Show as picture").click()
    assert frame.locator(".grid").is_visible()


def test_both_traps_are_named_with_the_numbers_of_the_gpu(open_twin):
    frame = open_twin(budget(gpu="A100-80"))
    trap = frame.locator(".trap").inner_text()
    assert "“192 KB”" in trap and "at most 163 KB" in trap and "(256 KB)" in trap and "(164 KB)" in trap


@pytest.mark.parametrize(
    ("gpu", "dim", "says"), [("H20", 64, "unknown GPU 'H20'"), ("H200", 512, "at most 256")]
)
def test_what_cannot_be_shown_is_a_sentence(open_twin, gpu, dim, says):
    frame = open_twin(budget(gpu=gpu, dim=dim))
    assert says in frame.locator(".fl-budget").inner_text()
    assert frame.locator("button").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["picture", "too big", "table", "sentence"])
def test_axe_finds_nothing_in_the_twin_s_own_frame(open_twin, violations, scheme, kind):
    frame = open_twin(budget(gpu="H20" if kind == "sentence" else "H200"), color_scheme=scheme)
    if kind == "too big":
        cell(frame, 256, 256).click()
    if kind == "table":
        frame.get_by_role("button", name="Show as table").click()
    assert violations(frame) == {}


def test_chinese_words_are_on_the_page_and_no_english_ones_left(open_twin):
    frame = open_twin(budget(strings={"lang": "zh", **table("budget", "zh")}))
    assert "受限于共享内存" in title(frame)
    shown = frame.locator(".fl-budget").inner_text()
    assert set(re.findall(r"[A-Za-z]{5,}", shown)) <= {"flashlab", "query", "Hopper", "Triton"}


SHOW = """
import flashlab as fl
from flashlab.widgets import TileBudget
w = TileBudget.of(fl.Problem(Nq=4096, D=128), gpu="H200")
w
"""


def test_in_jupyterlab_python_hears_the_choice_and_can_choose_and_axe_finds_nothing(
    lab_server, new_page, violations
):
    page = new_page(viewport={"width": 1100, "height": 1500})
    lab_server.open(page, "budget.ipynb", SHOW, "print('chosen', w.block_q, w.block_k)", "w.warps = 8")
    lab_server.command(page, "notebook:run-cell-and-select-next")
    cell(page, 64, 32).click(timeout=60_000)
    lab_server.expect(page, 1, "chosen 64 32")
    before = page.locator(".fl-budget .title").inner_text()
    lab_server.run_cell(page, 2)
    page.wait_for_function("t => document.querySelector('.fl-budget .title').textContent !== t", arg=before)
    assert violations(page, within=".fl-budget") == {}
    lab_server.command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_timeout(500)
    found = violations(page, within=".fl-budget")
    lab_server.command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_selector('body[data-jp-theme-light="true"]', state="attached")
    assert found == {}
