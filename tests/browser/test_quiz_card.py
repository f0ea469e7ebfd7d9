"""The quiz widget in a browser: every form, by keyboard, in both themes, and a session in JupyterLab."""

import pytest
import quiz_cases

from flashlab import text
from flashlab.quiz import bank_loader, engine
from flashlab.widgets import QuizCard

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "bank").mkdir()
    made = quiz_cases.write(tmp_path / "bank", "A06", claims=("K15", "K16"))
    monkeypatch.setattr(bank_loader, "FOLDER", made)
    bank_loader.read.cache_clear()
    text.lang("en")
    yield made
    bank_loader.read.cache_clear()
    text.lang("en")


def act(card, do, value=None):
    card.act = {"turn": card.view["turn"], "do": do, "value": value}


def at_item(kind, language="en"):
    """A card whose session stands at the item of that kind."""
    card = QuizCard("diagnosis", seed=2, language=language)
    while card._session.step.task.item.kind != kind:
        act(card, "skip")
    return card


def states(language):
    for kind in ("numeric", "choice", "order", "spot_the_error", "predict"):
        yield kind, at_item(kind, language)
    free = QuizCard("learn", "A06", seed=1, language=language)
    yield "free", free
    ticks = QuizCard("learn", "A06", seed=1, language=language)
    act(ticks, "answer", "batch, head, N² **bold**\n\n- a `list`")
    yield "ticks", ticks
    compared = QuizCard("learn", "A06", seed=1, language=language)
    act(compared, "answer", "batch")
    act(compared, "tick", ["number"])
    yield "compared", compared
    wrong = QuizCard("learn", "A06", seed=1, language=language)
    act(wrong, "skip")
    act(wrong, "answer", "c" if wrong._session.step.task.item.kind == "choice" else "2")
    yield "item answered", wrong
    claim = QuizCard("folklore", seed=1, language=language)
    yield "claim", claim
    judged = QuizCard("folklore", seed=1, language=language)
    act(judged, "answer", 0)
    yield "claim judged", judged
    card = QuizCard("drill", "A", seed=1, language=language)
    act(card, "answer", "")
    yield "card turned", card
    over = QuizCard("exam", seed=1, language=language)
    act(over, "answer", "batch")
    act(over, "tick", [])
    act(over, "stop")
    yield "over", over


@pytest.mark.parametrize(("language", "options"), [("en", {}), ("zh", {"color_scheme": "dark"})])
def test_axe_finds_nothing_in_any_state(open_twin, violations, language, options):
    found = {}
    for name, card in states(language):
        frame = open_twin(card, **options)
        found |= {f"{name}: {rule}": nodes for rule, nodes in violations(frame).items()}
    assert found == {}


def test_nothing_runs_over_a_narrow_page(open_twin):
    for name, card in states("en"):
        if name not in ("order", "spot_the_error", "compared", "over"):
            continue
        frame = open_twin(card, viewport={"width": 360, "height": 900})
        wide = frame.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, name


@pytest.mark.parametrize("name", ["numeric", "free"])
def test_what_is_typed_key_by_key_stands_in_the_box(open_twin, name):
    frame = open_twin(dict(states("en"))[name])
    frame.locator("textarea, input[type=text]").focus()
    frame.page.keyboard.type("8.6 GB a+b")
    assert frame.locator("textarea, input[type=text]").input_value() == "8.6 GB a+b"


def test_a_number_box_shows_how_its_unit_is_typed_and_a_turned_card_is_good_by_default(open_twin):
    frame = open_twin(at_item("numeric"))
    assert frame.locator("input").get_attribute("placeholder") == "8 GiB, 8.6 GB or 2^33"
    frame = open_twin(dict(states("en"))["card turned"])
    assert frame.locator(".fl-go").inner_text().startswith("Good")


def test_the_spot_and_choice_forms_are_buttons_with_their_keys(open_twin):
    frame = open_twin(at_item("choice"))
    assert frame.locator(".fl-option kbd").all_inner_texts() == ["a", "b", "c"]
    frame = open_twin(at_item("spot_the_error"))
    assert frame.locator(".fl-option kbd").all_inner_texts() == ["1", "2", "3"]


def test_steps_move_by_keyboard_and_keep_the_focus(open_twin):
    frame = open_twin(at_item("order"))
    steps = frame.locator(".fl-steps li span")
    before = steps.all_inner_texts()
    frame.get_by_role("button", name=f"Down: {before[0]}").focus()
    frame.page.keyboard.press("Enter")
    frame.page.keyboard.press("Enter")
    assert steps.all_inner_texts() == [before[1], before[2], before[0], before[3]]
    assert frame.evaluate("document.activeElement.getAttribute('aria-label')") == f"Down: {before[0]}"


def test_pages_without_a_kernel_show_points_and_an_answer(open_twin, monkeypatch, violations):
    monkeypatch.setenv("FLASHLAB_STATIC", "1")
    frame = open_twin(QuizCard("learn", "A06", seed=1))
    assert frame.get_by_text("8 GiB").count() == 0
    frame.get_by_role("button", name="I have answered").click()
    frame.get_by_label("a number with its unit").check()
    assert frame.get_by_text("8 GiB").first.is_visible() and violations(frame) == {}


SETUP = """
import os
from pathlib import Path
os.environ["FLASHLAB_HOME"] = {folder!r}  # the server's other notebooks keep progress too
from flashlab.quiz import bank_loader
from flashlab.widgets import QuizCard
bank_loader.FOLDER = Path({folder!r})
QuizCard("learn", "A06", seed=3)
"""
READ = "import flashlab as fl\nprint([(e['kind'], e['id']) for e in fl.progress.events()])"


def test_in_jupyterlab_a_question_is_answered_by_keyboard_and_kept(lab_server, new_page, violations, folder):
    page = new_page()
    lab_server.open(page, "quiz.ipynb", SETUP.format(folder=str(folder)), READ)
    lab_server.command(page, "notebook:run-cell")
    card = page.locator(".fl-quiz")
    card.wait_for(timeout=60_000)
    box = card.get_by_role("textbox", name="Your answer")
    box.focus()
    page.keyboard.type("For every batch and head, N squared")
    assert box.input_value() == "For every batch and head, N squared", "every key reaches the box"
    page.keyboard.press("Control+Enter")
    card.get_by_text("marking is assisted, not judged").wait_for()
    assert card.get_by_label("batch × heads × N²").is_checked()
    card.get_by_label("for one layer").focus()
    page.keyboard.press("Space")
    assert card.get_by_label("for one layer").is_checked()
    card.get_by_role("button", name="That is what I said").focus()
    page.keyboard.press("Enter")
    card.get_by_role("listitem").filter(has_text="a number with its unit").wait_for()
    assert violations(page, within=".fl-quiz") == {}
    assert page.evaluate("document.activeElement.innerText").startswith("Next"), "the focus is on Next"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert card.locator("details").get_attribute("open") is not None, "Enter opens the full answer"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    card.get_by_text("2 of 3").wait_for()
    assert page.locator(".jp-Notebook .jp-Cell").count() == 2, "no key reached the notebook"
    lab_server.expect(page, 1, "[('free', 'A06')]")


def test_the_diagnosis_shows_a_clock(open_twin):
    frame = open_twin(at_item("numeric"))
    assert frame.locator(".fl-clock").inner_text().strip(" ·") in ("12:00", "11:59", "11:58")
    assert engine.DIAGNOSIS_MINUTES == 12
