"""TilePlayer's static twin in a browser, opened from a file without network, and how fast it draws."""

import re

import pytest
from frame_times import too_slow

import flashlab
from flashlab import Problem
from flashlab.text import table
from flashlab.widgets import TilePlayer, tile_player
from flashlab.widgets._base import twin_html

pytestmark = pytest.mark.browser

ENGLISH = {"lang": "en", **table("player", "en")}
WIDE = {"viewport": {"width": 1400, "height": 1000}}
SIXTEEN = Problem(Nq=1024)  # 16 x 16 tiles of 64
FINDING = "FA2 moves 4.46 MB where standard attention moves 8.91 MB (FA1: 11.7 MB)"


def player(problem=SIXTEEN, direction="forward", **more):
    return TilePlayer.of(problem, direction, **{"strings": ENGLISH, **more})


def small():
    """FA2 alone, on 2 x 2 tiles: few steps, each of which can be told."""
    traces = tile_player.one_head(Problem(Nq=128, D=16), algorithms=["FA2"])[0]
    return TilePlayer(traces, position=0, strings=ENGLISH)


def press(frame, name):
    frame.get_by_role("button", name=name, exact=True).click()


def says(frame, words, which=0):
    frame.wait_for_function(
        "([w, i]) => document.querySelectorAll('.now')[i].textContent === w", arg=[words, which]
    )


def position(frame):
    return float(frame.locator("input[type=range]").input_value())


def test_the_twin_states_the_finding_and_asks_the_network_for_nothing(open_twin):
    frame = open_twin(player(), **WIDE)
    assert frame.locator(".title").inner_text() == FINDING
    assert "One head, forward: 1,024 queries" in frame.locator(".setting").inner_text()
    assert frame.locator(".head b").all_inner_texts() == ["standard attention", "FA1", "FA2"]
    assert [url for url in frame.asked if re.match("(?!file:|blob:|about:|data:)", url)] == []


def test_each_step_says_what_is_read_kept_computed_and_written(open_twin):
    frame = open_twin(small())
    said = [frame.locator(".now").inner_text()]
    for _ in range(13):
        press(frame, "Step")
        said.append(frame.locator(".now").inner_text())
    assert said[:6] == [
        "Nothing has moved yet",
        "Q 1 is read: 2.05 kB",
        "K 1 is read: 2.05 kB; kept: Q 1",
        "V 1 is read: 2.05 kB; kept: Q 1, K 1",
        "S 1,1 is computed on chip: no bytes move; kept: Q 1, K 1, V 1",
        "acc 1 is updated on chip; kept: Q 1, K 1, V 1",
    ]
    assert "O 1 is written: 2.05 kB; kept: acc 1" in said
    assert said[6] == "K 2 is read: 2.05 kB; kept: Q 1, acc 1"
    press(frame, "To the end")
    says(frame, "Done")
    assert frame.get_by_role("button", name="Step", exact=True).is_disabled()
    assert frame.locator(".count").inner_text() == "25.1 kB of 25.1 kB moved"


def test_keys_step_play_and_jump_from_anywhere_in_the_widget(open_twin):
    frame = open_twin(small())
    scrub = frame.get_by_role("slider")
    scrub.focus()
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 24), ("Home", 0)):
        scrub.press(key)
        frame.wait_for_function("p => +document.querySelector('input[type=range]').value === p", arg=at)
    scrub.press(" ")
    frame.get_by_role("button", name="Pause", exact=True).wait_for()
    scrub.press(" ")
    frame.get_by_role("button", name="Play", exact=True).wait_for()


def test_play_runs_to_the_end_and_starts_again_from_there(open_twin):
    frame = open_twin(small())
    frame.get_by_label("Speed").select_option("4")
    press(frame, "Play")
    says(frame, "Done")
    frame.get_by_role("button", name="Play", exact=True).wait_for()
    press(frame, "Play")
    frame.wait_for_function("() => +document.querySelector('input[type=range]').value < 20")
    press(frame, "Pause")


def test_scrubbing_shows_the_state_at_once(open_twin):
    frame = open_twin(small())
    frame.locator("input[type=range]").evaluate(
        "e => { e.value = 4.4; e.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    says(frame, "S 1,1 is computed on chip: no bytes move; kept: Q 1, K 1, V 1")
    assert "standard" not in frame.locator("input[type=range]").get_attribute("aria-valuetext")
    assert "S 1,1 is computed" in frame.locator(".stage").get_attribute("aria-label")


def test_in_step_by_bytes_all_have_moved_as_much_and_by_steps_as_many(open_twin):
    frame = open_twin(player(position=2_000_000), **WIDE)
    moved = frame.locator(".count").all_inner_texts()
    assert [float(text.split()[0]) for text in moved] == pytest.approx([2.0] * 3, abs=0.02)
    frame.get_by_label("In step by").select_option("step")
    frame.get_by_role("slider").focus()
    frame.get_by_role("slider").press("Home")
    press(frame, "Step")
    firsts = frame.locator(".now").all_inner_texts()
    assert firsts == ["Q 1 is read: 8.19 kB", "O fp32 1 is written: 16.4 kB", "Q 1 is read: 8.19 kB"]


def test_the_l2_switch_counts_what_reaches_hbm_and_says_so(open_twin):
    made = player(position=0)
    frame = open_twin(made, **WIDE)
    frame.get_by_label("Behind a 60 MiB L2 cache (H200)").check()
    title = frame.locator(".title").inner_text()
    assert title.startswith("From HBM, through an L2 cache of 60 MiB: ")
    through = [sum(p["hbm"].values()) for p in made.players]
    shown = [text.split(" of ")[1] for text in frame.locator(".count").all_inner_texts()]
    assert shown == [f"{tile_player.bytes_text(x)} moved" for x in through]
    frame.get_by_label("Behind a 60 MiB L2 cache (H200)").uncheck()
    assert frame.locator(".title").inner_text() == FINDING


def test_the_table_holds_the_bytes_of_every_tensor_and_op(open_twin):
    traces = tile_player.one_head(SIXTEEN)[0]
    frame = open_twin(player(), **WIDE)
    press(frame, "Show as table")
    assert not frame.locator(".board").is_visible()
    for which, trace in zip(frame.locator("table").all(), traces.values(), strict=True):
        rows = [r.split("\t") for r in which.locator("tbody").inner_text().split("\n")]
        names = {"ℓ": "l", "O fp32": "o_fp32"}
        for name, *cells in rows[:-1]:
            tensor = names.get(name, name.lower())
            if "never" in cells[0]:
                assert trace.bytes(tensor=tensor) == 0 and tensor in "sp"
                continue
            want = [trace.bytes(op, tensor) for op in ("load", "store", None)]
            assert cells[:3] == [tile_player.bytes_text(x) for x in want]
        assert rows[-1][3] == tile_player.bytes_text(trace.bytes())
    press(frame, "Show as picture")
    assert frame.locator(".stage").first.is_visible()


SKY = """(player) => { // pixels of a tile in memory that has been read often
  const c = document.querySelectorAll('section')[player].querySelector('.base');
  const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) count += data[i] < 110 && data[i + 2] > 210;
  return count;
}"""


def test_tiles_that_are_read_again_and_again_turn_darker_and_back(open_twin):
    frame = open_twin(player(position=0), **WIDE)
    assert frame.evaluate(SKY, 2) == 0
    press(frame, "To the end")
    assert frame.evaluate(SKY, 2) > 2000, "K and V of FA2 are read 16 times"
    assert frame.evaluate(SKY, 0) == 0, "standard attention reads nothing that often"
    press(frame, "To the start")
    assert frame.evaluate(SKY, 2) == 0


def test_a_backward_pass_and_a_kernel_of_unknown_tensors_are_drawn(open_twin):
    frame = open_twin(player(direction="backward"), **WIDE)
    assert frame.locator(".title").inner_text().startswith("FA2 moves 9.71 MB where standard attention moves")
    events = [
        flashlab.trace.Event(0, (i,), op, name, (i,), 64)
        for i in range(5)
        for op, name in (("load", "x"), ("store", "y"))
    ]
    frame = open_twin(TilePlayer({"mine": flashlab.trace.Trace(events)}, strings=ENGLISH, position=2))
    assert frame.locator(".title").inner_text() == "mine moves 640 B"
    assert frame.locator(".now").inner_text() == "y 1 is written: 64 B; kept: x 1"


def test_with_reduced_motion_playing_leaps(open_twin):
    frame = open_twin(player(position=0), reduced_motion="reduce", **WIDE)
    press(frame, "Play")
    frame.wait_for_function("() => +document.querySelector('input[type=range]').value > 0")
    press(frame, "Pause")
    total = float(frame.locator("input[type=range]").get_attribute("max"))
    assert position(frame) % (total / 20) == pytest.approx(0, abs=1) or position(frame) > 0
    assert position(frame) <= total / 4


def test_what_cannot_be_played_is_a_sentence_and_nothing_else(open_twin):
    frame = open_twin(TilePlayer.of(Problem(Nq=0), strings=ENGLISH))
    words = "There is nothing to play: the trace of standard has no events."
    assert frame.locator(".fl-player").inner_text() == words
    assert frame.get_by_role("button").count() == 0


# A second widget beside the twin's own: `make()` renders it and returns its element and its clean-up.
SECOND = """
const text = (id) => document.getElementById(id).textContent;
const blob = new Blob([JSON.parse(text("code"))], { type: "text/javascript" });
const { default: widget } = await import(URL.createObjectURL(blob));
const heard = new Set(), make = () => {
  const state = JSON.parse(text("state")), el = document.body.appendChild(document.createElement("div"));
  const on = (e) => heard.add(e), off = (e) => heard.delete(e);
  return [el, widget.render({ model: { get: (n) => state[n], set() {}, save_changes() {}, on, off }, el })];
};
"""


def test_taking_the_widget_away_ends_its_animation(open_twin):
    frame = open_twin(player(), **WIDE)
    left = frame.evaluate(
        """async () => {"""
        + SECOND
        + """
        const [el, stop] = make(), wait = (ms) => new Promise((r) => setTimeout(r, ms));
        el.querySelector('[data-do=play]').click();
        await wait(100);
        stop();
        const ask = requestAnimationFrame;
        let asked = 0;
        globalThis.requestAnimationFrame = (f) => (asked++, ask(f));
        await wait(200);
        return [el.children.length, heard.size, asked];
      }"""
    )
    assert left == [0, 0, 0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["three", "backward", "table", "fault", "zh"])
def test_axe_finds_nothing_in_the_twin_s_own_frame(open_twin, violations, scheme, kind):
    chinese = {"lang": "zh", **table("player", "zh")}
    widget = {
        "backward": lambda: player(direction="backward"),
        "fault": lambda: TilePlayer(3, strings=ENGLISH),
        "zh": lambda: player(strings=chinese),
    }.get(kind, player)()
    frame = open_twin(widget, color_scheme=scheme, viewport={"width": 1400, "height": 1600})
    if kind == "table":
        press(frame, "Show as table")
    if kind == "zh":
        words = frame.locator(".title").inner_text()
        assert words == "FA2 只搬 4.46 MB；标准注意力 要搬 8.91 MB（FA1：11.7 MB）"
        assert (
            re.findall(
                r"[a-z]{5,}",
                frame.locator(".fl-player").inner_text().replace("float", "").replace("query", ""),
            )
            == []
        )
    assert violations(frame) == {}


CONTRAST = """() => {
  const root = document.querySelector('.fl-player'), probe = root.appendChild(document.createElement('i'));
  const light = (name) => {
    probe.style.color = `var(--fl-${name})`;
    const part = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255);
    const [r, g, b] = part.map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const ratio = (a, b) => Math.max(light(a), light(b)) / Math.min(light(a), light(b));
  const texts = ['card', 'page'].flatMap((paper) => [ratio('ink', paper), ratio('soft', paper)]);
  return { texts, marks: ['read-ink', 'write-ink', 'made-ink'].map((x) => ratio(x, 'card')) };
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_drawn_on_the_canvas_which_axe_cannot_judge_has_contrast_too(open_twin, scheme):
    found = open_twin(player(), color_scheme=scheme).evaluate(CONTRAST)
    assert min(found["texts"]) >= 4.5 and min(found["marks"]) >= 3


def play_slowly(document):
    document.get_by_label("Speed").select_option("0.5")  # up to a minute: longer than the test looks
    press(document, "Play")


@pytest.mark.parametrize("copies", [1, 3])
def test_playing_16_by_16_tiles_takes_at_most_4_ms_of_script_and_20_ms_a_frame(new_page, tmp_path, copies):
    page = new_page(viewport={"width": 1400, "height": 1000 * copies})
    file = tmp_path / "players.html"
    file.write_text(f'<!doctype html><html lang="en">{twin_html(player()) * copies}', encoding="utf-8")
    page.goto(file.as_uri())
    for node in page.query_selector_all("iframe"):
        document = node.content_frame()
        document.wait_for_selector(".fl-widget")
        play_slowly(document)
    assert too_slow(page, new_page()) is None


RECTANGLES = """(count) => {
  const c = document.body.appendChild(document.createElement('canvas')).getContext('2d');
  const draw = (at) => {
    for (let i = 0; i < count; i++) {
      c.fillStyle = i % 2 ? '#56b4e9' : '#e69f00';
      c.fillRect((i * 7 + at) % 300, (i * 3) % 150, 3, 3);
    }
    requestAnimationFrame(draw);
  };
  requestAnimationFrame(draw);
}"""


def test_the_measure_finds_100_000_rectangles_too_slow(page, new_page):
    page.evaluate(RECTANGLES, 100_000)
    assert "ms of script a frame" in too_slow(page, new_page(), tries=2)


def test_ten_thousand_events_are_shown_within_a_fifth_of_a_second(open_twin):
    trace = tile_player.one_head(Problem(Nq=3264), algorithms=["FA2"])[0]
    assert len(trace["FA2"]) > 10_000
    frame = open_twin(TilePlayer(trace, strings=ENGLISH))
    took = frame.evaluate(
        """async () => {"""
        + SECOND
        + """
        const took = [];
        for (let i = 0; i < 5; i++) {
          const start = performance.now(), [, stop] = make();
          took.push(performance.now() - start);
          stop();
        }
        return took;
      }"""
    )
    assert min(took) < 200, took
