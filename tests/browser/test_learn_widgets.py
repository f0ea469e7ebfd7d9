"""Predictions, reviews and the rest in a browser: their offline twins, and a walk through JupyterLab."""

import pytest

import flashlab as fl
from flashlab import learn, text

pytestmark = pytest.mark.browser

DARK = {"color_scheme": "dark"}


@pytest.fixture(autouse=True)
def english(monkeypatch):
    monkeypatch.setattr(learn, "_asked", {})
    text.lang("en")
    yield
    text.lang("en")


@pytest.fixture
def offline(monkeypatch):
    """Widgets made from now on are those of the offline pages."""
    monkeypatch.setenv("FLASHLAB_STATIC", "1")


def press(frame, name):
    frame.get_by_role("button", name=name).click()


# --- offline twins ---


def test_offline_a_prediction_is_a_question_with_a_button_that_opens_the_answer(offline, open_twin):
    asked = open_twin(fl.predict("C-p07"))
    assert asked.get_by_text("first number of the new accumulator").is_visible()
    frame = open_twin(fl.reveal("C-p07", 6.0))
    assert frame.get_by_text("6.0", exact=True).count() == 0
    press(frame, "Show the answer")
    assert frame.get_by_text("6.0", exact=True).is_visible()
    assert frame.get_by_text("15 forgot to convert").is_visible()
    press(frame, "Hide the answer")
    assert frame.get_by_text("6.0", exact=True).count() == 0


def test_offline_a_guess_can_be_locked_and_made_again(offline, open_twin):
    frame = open_twin(fl.predict("C-p01"))
    box = frame.get_by_role("textbox", name="Your guess")
    box.press_sequentially("37/6")  # key by key, as it is typed
    box.press("Enter")
    assert frame.locator("input").count() == 0
    press(frame, "Guess again")
    assert frame.locator("input").input_value() == "37/6"


def test_offline_cards_flip_by_keys_and_by_buttons(offline, open_twin):
    frame = open_twin(fl.review("C-1"))
    frame.locator(".fl-review").focus()
    page = frame.page
    answer = frame.get_by_text("Its denominator needs the score of every key.")
    assert answer.count() == 0
    page.keyboard.press("j")  # before the answer is seen, J does nothing
    assert frame.get_by_text("1 of 3").is_visible()
    page.keyboard.press("Space")
    assert answer.is_visible()
    page.keyboard.press("j")
    assert frame.get_by_text("2 of 3").is_visible()
    press(frame, "Show the answer")
    press(frame, "Not yet")
    page.keyboard.press("Space")
    page.keyboard.press("f")
    assert frame.get_by_text("2 come back at the next stop").is_visible()


def test_escape_skips_the_whole_stop(offline, open_twin):
    frame = open_twin(fl.review("C-2"))
    frame.locator(".fl-review").focus()
    frame.page.keyboard.press("Escape")
    assert frame.get_by_text("Skipped.").is_visible()


def test_the_timer_ends_in_points_to_tick_beside_the_model_answer(open_twin):
    box = fl.say("C01")
    box.seconds = 1
    frame = open_twin(box)
    press(frame, "Start the 1 seconds")
    frame.get_by_text("Time. Tick what you said.").wait_for()
    frame.get_by_label("one division by the row sum").check()
    assert frame.get_by_text("1 of 6 said").is_visible()
    assert frame.get_by_text("No N × N matrix").is_visible()


def test_offline_the_questions_after_the_lesson_show_what_was_expected(offline, open_twin):
    before = open_twin(fl.pretest("C"))
    press(before, "Record my answers")
    assert before.locator("table").count() == 0
    after = open_twin(fl.posttest("C"))
    press(after, "Show both results")
    assert after.locator("tbody td").all_inner_texts() == [
        "expected 5",
        "expected 2",
        "expected not in general",
    ]


def states():
    """Every widget in every state that looks different: (name, widget, what to press)."""
    asked = fl.predict("C-p01")
    yield "open question", asked, ()
    chosen = fl.predict("C-p08")
    chosen.locked = {"guess": chosen.choices[2], "choice": 2}
    yield "locked choice", chosen, ()
    asked.locked = {"guess": "37/6", "choice": -1}
    yield "locked guess", asked, ()
    yield "wrong guess", fl.reveal("C-p01", 4.0), ()
    yield "review", fl.review("C-2"), ()
    yield "review, turned", fl.review("C-2"), ("Show the answer",)
    yield "before", fl.pretest("C"), ()
    after = fl.posttest("C")
    after.given = {"C-t1": {"guess": "5", "choice": -1}, "C-t2": {"guess": "3", "choice": -1}}
    yield "after", after, ()
    yield "say", fl.say("C01"), ("Show the points",)


@pytest.mark.parametrize(("code", "options"), [("en", {}), ("zh", DARK)], ids=["en, light", "zh, dark"])
def test_axe_finds_nothing_in_any_state(open_twin, violations, options, code):
    found = {}
    for name, widget, presses in states():
        if code == "zh":
            text.lang("zh")
            widget.strings = {"lang": "zh", **text.table("learn", "zh")}
            presses = [
                text.t({"Show the answer": "learn.review.show", "Show the points": "learn.say.skip"}[p])
                for p in presses
            ]
        frame = open_twin(widget, **options)
        for button in presses:
            press(frame, button)
        found |= {f"{name}: {rule}": nodes for rule, nodes in violations(frame).items()}
        text.lang("en")
    assert found == {}


def test_axe_finds_a_planted_violation_in_the_frame(open_twin, violations):
    frame = open_twin(fl.review("C-1"))
    frame.evaluate(
        "document.querySelector('.fl-review').insertAdjacentHTML('beforeend', '<button></button>')"
    )
    assert "button-name" in violations(frame)


# --- JupyterLab ---

ASK = """
import os
os.environ["FLASHLAB_HOME"] = {folder!r}  # the server's other notebooks keep progress too
import flashlab as fl
fl.predict("C-p01", "First number of query 5's output?")
"""
TELL = 'fl.reveal("C-p01", 4.0)'
STOP = 'fl.review("C-1")'
READ = "print([(e['kind'], e['id'], e.get('guess', e.get('known'))) for e in fl.progress.events()])"


def output(page, index):
    return page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-OutputArea-output")


def test_in_jupyterlab_a_guess_stands_beside_the_value_and_keys_answer_the_cards(
    lab_server, new_page, violations, tmp_path
):
    page = new_page()
    lab_server.open(page, "learn.ipynb", ASK.format(folder=str(tmp_path)), TELL, STOP, READ)
    lab_server.command(page, "notebook:run-cell")
    box = page.get_by_role("textbox", name="Your guess")
    box.wait_for(timeout=60_000)
    box.fill("37/6")
    box.press("Enter")
    page.get_by_text("Locked: 37/6").wait_for()
    # Enter gave the notebook its keys back: Shift+Enter runs the cell again, and the guess is still there.
    page.keyboard.press("Shift+Enter")
    page.get_by_text("Locked: 37/6").wait_for()
    page.keyboard.press("Shift+Enter")
    shown = output(page, 1).locator(".fl-reveal")
    shown.wait_for()
    assert "37/6 is the plain average" in shown.inner_text() and "4.0" in shown.inner_text()
    name, value = (shown.locator(f".fl-value {part}").bounding_box() for part in (".fl-name", ".fl-is"))
    assert name["y"] + name["height"] <= value["y"], "JupyterLab's own styles put one over the other"
    lab_server.run_cell(page, 2)
    cards = output(page, 2).locator(".fl-review")
    cards.wait_for()
    active = page.locator(".jp-Notebook .jp-Cell.jp-mod-active").get_attribute("data-windowed-list-index")
    cards.get_by_role("button", name="Show the answer").focus()
    for key in ("Space", "j", "Space", "f", "Space", "j"):
        page.keyboard.press(key)
    cards.get_by_text("One comes back at the next stop.").wait_for()
    assert page.locator(".jp-Notebook .jp-Cell").count() == 4, "no key reached the notebook"
    after = page.locator(".jp-Notebook .jp-Cell.jp-mod-active").get_attribute("data-windowed-list-index")
    assert after == active
    told = ["('guess', 'C-p01', '37/6')", "('reveal', 'C-p01', '37/6')"]
    told += ["('prompt', 'C02-a', True)", "('prompt', 'C03-a', False)", "('prompt', 'C03-b', True)"]
    lab_server.expect(page, 3, f"[{', '.join(told)}]")
    for part in (".fl-ask", ".fl-reveal", ".fl-review"):
        assert violations(page, within=part) == {}


def test_run_all_waits_for_no_answer(lab_server, new_page, tmp_path):
    page = new_page()
    cells = [
        ASK.format(folder=str(tmp_path)).replace("C-p01", "C-p02"),
        'fl.reveal("C-p02", 3.0)',
        'fl.pretest("C")',
        STOP,
        'fl.posttest("C")',
        'fl.say("C01")',
        "print('got to the ' + 'end')",
    ]
    lab_server.open(page, "all-learn.ipynb", *cells)
    lab_server.command(page, "notebook:run-all-cells")
    page.get_by_text("got to the end").wait_for(timeout=60_000)
    assert output(page, 1).locator(".fl-reveal").inner_text().split() == ["Value", "3.0"]
