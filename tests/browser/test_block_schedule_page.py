"""BlockSchedule in a browser: as a static twin opened from a file, and in a real JupyterLab."""

import re

import pytest
from panels import choose, move, title

import flashlab
from flashlab.text import table
from flashlab.widgets.block_schedule import BlockSchedule

pytestmark = pytest.mark.browser

ENGLISH = {"lang": "en", **table("schedule", "en")}
HEADS_16 = flashlab.Problem(B=1, Hq=16, Nq=4096, D=64, block_q=128, block_k=64)
CAUSAL = flashlab.Problem(B=4, Hq=16, Nq=4096, D=128, block_q=128, block_k=64, causal=True)
FA1 = "FA1 keeps 16 of 108 SMs busy; FA2 with the same work keeps all of them busy: 6.4× sooner"


def schedule(problem=HEADS_16, gpu="A100-80", **more):
    return BlockSchedule.of(problem, **{"gpu": gpu, "strings": ENGLISH, "ask": False, **more})


def share_of_idle(frame):
    """Share of the picture's pixels that have the colour of idle time."""
    return frame.evaluate(
        """() => {
        const c = document.querySelector('canvas'), g = c.getContext('2d');
        const pixels = g.getImageData(0, 0, c.width, c.height).data;
        const at = (x, y) => [...pixels.slice(4 * (y * c.width + x), 4 * (y * c.width + x) + 3)].join();
        const idle = at(c.width - 60, c.height - 40);
        let n = 0, all = 0;
        for (let y = 0; y < c.height - 40; y += 2)
          for (let x = 60; x < c.width - 10; x += 5) (all++, n += at(x, y) === idle);
        return n / all;
        }"""
    )


def test_the_twin_runs_from_a_file_and_asks_the_network_for_nothing(open_twin):
    frame = open_twin(schedule(algorithm="fa1"))
    assert title(frame) == FA1
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_the_reader_guesses_before_the_picture_is_shown(open_twin):
    frame = open_twin(schedule(algorithm="fa1", ask=True))
    assert title(frame) == "16 programs on 108 SMs: how busy are the SMs?"
    assert (
        not frame.locator("canvas").is_visible() and "15%" not in frame.locator(".fl-schedule").inner_text()
    )
    move(frame, "guess", 40)
    frame.get_by_role("button", name="Show", exact=True).click()
    assert title(frame) == FA1
    assert "You guessed 40%, it is 15%" in frame.locator(".facts").inner_text()
    assert frame.locator("canvas").is_visible()


def test_a_question_can_be_skipped_and_asked_again_about_other_choices(open_twin):
    frame = open_twin(schedule(ask=True))
    frame.get_by_role("button", name="Skip").click()
    assert "guessed" not in frame.locator(".facts").inner_text()
    frame.get_by_role("button", name="Ask me again").click()
    choose(frame, "algorithm", "fa1")
    assert title(frame).startswith("16 programs")
    move(frame, "guess", 15)
    frame.get_by_role("button", name="Show", exact=True).click()
    assert "✓ you had it" in frame.locator(".facts").inner_text()


def test_the_picture_is_as_idle_as_the_number_says(open_twin):
    frame = open_twin(schedule(algorithm="fa1"))
    assert share_of_idle(frame) == pytest.approx(1 - 16 / 108, abs=0.05)


def test_every_choice_changes_the_finding(open_twin):
    frame = open_twin(schedule())
    said = [title(frame)]
    for name, value in (
        ("gpu", "H200"),
        ("algorithm", "fa1"),
        ("algorithm", "persistent"),
        ("block_q", "64"),
    ):
        choose(frame, name, value)
        said.append(title(frame) + frame.locator(".compare").inner_text())
    frame.get_by_label("causal").check()
    said.append(title(frame))
    choose(frame, "order", "longest-first")
    said.append(title(frame) + frame.locator(".facts").inner_text())
    choose(frame, "algorithm", "decode")
    said.append(title(frame))
    choose(frame, "splits", "1")
    said.append(title(frame) + frame.locator(".compare").inner_text())
    choose(frame, "block_k", "32")
    said.append(title(frame) + frame.locator(".compare").inner_text())
    for name, value in (("H", "32"), ("B", "3")):
        move(frame, name, value)
        said.append(title(frame))
    move(frame, "N", 3)
    said.append(title(frame) + frame.locator(".compare").inner_text())
    assert len(set(said)) == len(said)
    assert not any(x in " ".join(said) for x in ("undefined", "NaN", "{"))


def test_a_slider_move_shows_its_result_within_50_ms(open_twin):
    frame = open_twin(schedule(CAUSAL, gpu="H200"))
    before = title(frame)
    moves = [[move(frame, "N", n)[1] for n in (6, 5)] for _ in range(6)]  # 8,192 tokens: 4,096 programs
    move(frame, "N", 6)
    assert title(frame) != before
    for times in zip(*moves, strict=True):  # what else the machine does can only make a move longer
        assert sorted(times)[1] <= 50, moves


def test_scrubbing_covers_what_is_to_come_and_says_how_many_are_busy(open_twin):
    frame = open_twin(schedule(CAUSAL, gpu="H200"))
    whole = share_of_idle(frame)
    move(frame, "time", 0.5)
    said = frame.locator(".now").inner_text()
    assert re.fullmatch(r"at 1\d\d µs: 132 of 132 SMs busy, [\d,]+ of 2,048 done", said)
    assert frame.get_by_role("slider", name="Time").get_attribute("aria-valuetext") == said
    assert share_of_idle(frame) != whole
    move(frame, "time", 1)
    assert frame.locator(".now").inner_text().endswith(": 0 of 132 SMs busy, 2,048 of 2,048 done")
    assert min(move(frame, "time", when)[0] for when in (0.6, 0.4, 0.6)) < 20


def test_play_moves_the_time_to_the_end_and_space_stops_it(open_twin):
    frame = open_twin(schedule(), reduced_motion="no-preference")
    frame.get_by_role("button", name="Play").click()
    frame.wait_for_function(
        "() => { const v = +document.querySelector('[name=time]').value; return v > 0.05 && v < 0.9 }"
    )
    frame.locator("[name=time]").press(" ")
    stopped = frame.locator("[name=time]").input_value()
    frame.wait_for_timeout(200)
    assert frame.locator("[name=time]").input_value() == stopped
    move(frame, "time", 0.97)
    frame.locator("[name=time]").press(" ")
    frame.wait_for_function("() => +document.querySelector('[name=time]').value === 1")
    frame.get_by_role("button", name="Play").wait_for()


def test_with_reduced_motion_play_shows_ten_still_pictures(open_twin):
    frame = open_twin(schedule(), reduced_motion="reduce")
    frame.get_by_role("button", name="Play").click()
    frame.wait_for_timeout(700)
    assert float(frame.locator("[name=time]").input_value()) in (0.1, 0.2, 0.3)


def test_pointer_and_arrow_keys_tell_program_head_and_block(open_twin):
    frame = open_twin(schedule(CAUSAL, gpu="H200"))
    canvas = frame.locator("canvas")
    canvas.hover(position={"x": 60, "y": 94})
    told = r"SM \d+, [\d.]+ µs to [\d.]+ µs: batch \d, head \d+, query block \d+, \d+ tile steps"
    frame.wait_for_function("() => document.querySelector('.what').textContent.startsWith('SM 31')")
    assert re.fullmatch(told, frame.locator(".what").inner_text())
    frame.locator(".title").hover()
    canvas.focus()
    canvas.press("ArrowRight")
    assert frame.locator(".what").inner_text().startswith("SM 0, 0 µs to")
    assert "batch 0, head 0, query block 0, 2 tile steps" in frame.locator(".what").inner_text()
    canvas.press("ArrowRight")
    assert "SM 0, 1.12 µs" in frame.locator(".what").inner_text()
    canvas.press("ArrowDown")
    assert frame.locator(".what").inner_text().startswith("SM 1,")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("H", "0", "H must be a whole number from 1 to 4,096"),
        ("B", "", "B must be a whole number from 1 to 4,096"),
        ("B", "2.5", "B must be a whole number"),
        ("B", "4000", "More than 100,000 programs: take larger blocks"),
    ],
)
def test_a_choice_that_cannot_be_is_a_sentence_and_the_next_one_works(open_twin, name, value, says):
    frame = open_twin(schedule())
    good = title(frame)
    move(frame, name, value)
    assert says in title(frame) and not frame.locator("canvas").is_visible()
    move(frame, name, {"H": "16", "B": "1"}[name])
    assert title(frame) == good and frame.locator("canvas").is_visible()


def test_an_unknown_gpu_is_a_sentence(open_twin):
    frame = open_twin(schedule(gpu="H20"))
    assert "unknown GPU 'H20'. Did you mean 'H200'" in frame.locator(".fl-schedule").inner_text()


def test_the_table_has_a_row_for_each_sm(open_twin):
    frame = open_twin(schedule(algorithm="fa1"))
    frame.get_by_role("button", name="Show as table").click()
    rows = frame.locator("tbody tr").all_inner_texts()
    assert (
        len(rows) == 108 and rows[0].split("\t")[:3] == ["0", "1", "100%"] and rows[16].split("\t")[1] == "0"
    )
    assert not frame.locator("canvas").is_visible()
    frame.get_by_role("button", name="Show as picture").click()
    assert frame.locator("canvas").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["ask", "picture", "table", "sentence"])
def test_axe_finds_nothing_in_the_twin_s_own_frame(open_twin, violations, scheme, kind):
    frame = open_twin(
        schedule(gpu="H20" if kind == "sentence" else "A100-80", ask=kind == "ask"), color_scheme=scheme
    )
    if kind == "table":
        frame.get_by_role("button", name="Show as table").click()
    assert violations(frame) == {}


def test_the_picture_is_painted_in_the_colours_of_the_theme(open_twin):
    def corner(scheme):
        return open_twin(schedule(algorithm="fa1"), color_scheme=scheme).evaluate(
            """() => { const c = document.querySelector('canvas');
            return [...c.getContext('2d').getImageData(c.width - 60, c.height - 60, 1, 1).data] }"""
        )

    assert sum(corner("light")[:3]) > 600 and sum(corner("dark")[:3]) < 200


def test_chinese_words_are_on_the_page_and_no_english_ones_left(open_twin):
    words = {"lang": "zh", **table("schedule", "zh")}
    frame = open_twin(schedule(algorithm="fa1", strings=words))
    assert "只让 108 个 SM 中的 16 个忙碌" in title(frame)
    shown = frame.locator(".fl-schedule").inner_text()
    assert set(re.findall(r"[A-Za-z]{5,}", shown)) <= {"token", "kernel", "query"}


SHOW = """
import flashlab as fl
from flashlab.widgets import BlockSchedule
w = BlockSchedule.of(fl.Problem(Hq=16, Nq=4096, block_q=128), gpu="A100-80", algorithm="fa1")
w
"""


def test_in_jupyterlab_python_hears_the_guess_and_can_choose_and_axe_finds_nothing(
    lab_server, new_page, violations
):
    page = new_page(viewport={"width": 1100, "height": 1500})
    lab_server.open(page, "schedule.ipynb", SHOW, "print('guess', w.guess)", "w.algorithm = 'fa2'")
    lab_server.command(page, "notebook:run-cell-and-select-next")
    page.get_by_role("button", name="Show", exact=True).click(timeout=60_000)
    assert page.locator(".fl-schedule .title").inner_text().startswith("FA1 keeps 16 of 108")
    lab_server.expect(page, 1, "guess 50")
    assert violations(page, within=".fl-schedule") == {}
    lab_server.run_cell(page, 2)
    page.wait_for_function(
        "document.querySelector('.fl-schedule .title').textContent.startsWith('FA2 keeps all')"
    )
    lab_server.command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_timeout(500)
    found = violations(page, within=".fl-schedule")
    lab_server.command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_selector('body[data-jp-theme-light="true"]', state="attached")
    assert found == {}
