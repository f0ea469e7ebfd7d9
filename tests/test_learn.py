"""What makes a notebook a lesson, without a browser: what is shown and recorded, and that nothing waits."""

import threading

import numpy as np
import pytest

import flashlab as fl
from flashlab import learn, progress, text
from flashlab.quiz import answers, prompts
from flashlab.widgets._base import twin_document
from flashlab.widgets.source import without_docstring


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch):
    monkeypatch.setattr(learn, "_asked", {})
    learn._shown.clear()
    monkeypatch.setattr(progress, "_in_memory", [])
    monkeypatch.setattr(progress, "_said", set())
    yield
    text.lang("en")


def guess(box, typed, choice=-1):
    """What the browser does when Enter is pressed."""
    box.locked = {"guess": typed, "choice": choice}


# --- predict and reveal ---


def test_a_guess_is_stored_and_stands_beside_the_value():
    guess(fl.predict("C-p01", "First number?"), "4")
    box = fl.reveal("C-p01", 4.0)
    assert (box.value, box.guess, box.verdict, box.thinking) == ("4.0", "4", "right", "")
    assert progress.latest("guess", "C-p01")["guess"] == "4"
    assert progress.latest("reveal", "C-p01")["right"] is True


@pytest.mark.parametrize("code", ["en", "zh"])
@pytest.mark.parametrize("typed", ["37/6", "6.167", "6.17"])
def test_a_common_wrong_guess_reads_what_it_was_thinking(typed, code):
    text.lang(code)
    guess(fl.predict("C-p01"), typed)
    box = fl.reveal("C-p01", np.float64(4.0))
    assert box.verdict == "close"
    assert box.thinking == prompts.prediction("C-p01")["wrong"][0][code]


def test_a_wrong_guess_that_nobody_foresaw_is_just_not_quite_right():
    guess(fl.predict("C-p01"), "123")
    box = fl.reveal("C-p01", 4.0)
    assert (box.verdict, box.thinking) == ("close", "")


def test_without_a_guess_only_the_value_is_shown_and_nothing_recorded():
    fl.predict("C-p02", "What mass?")
    box = fl.reveal("C-p02", 3.0)
    assert (box.value, box.guess, box.verdict, box.thinking) == ("3.0", "", "", "")
    assert progress.events() == []


def test_reveal_without_predict_shows_the_value():
    assert fl.reveal("C-p02", 3.0).value == "3.0"
    assert fl.reveal("nobody-asked", {"a": 1}).value == "{'a': 1}"


@pytest.mark.parametrize(
    "value", [4.0, np.float64(4.0), (3.0, -1.0), "attention", np.array([1.0, 2.0]), None]
)
def test_plain_text_is_the_repr_of_the_value_and_nothing_else(value):
    guess(fl.predict("C-p01"), "4")
    box = fl.reveal("C-p01", value)
    data, _ = box._repr_mimebundle_()
    assert repr(box) == data["text/plain"] == repr(value)
    assert "application/vnd.jupyter.widget-view+json" in data and "text/html" not in data


def test_a_guess_after_the_value_was_shown_updates_it():
    asked = fl.predict("C-p01")
    box = fl.reveal("C-p01", 4.0)
    guess(asked, "4")
    assert (box.guess, box.verdict) == ("4", "right")


def test_a_guess_of_an_earlier_session_is_remembered():
    progress.record("guess", "C-p01", guess="37/6", choice=-1)
    assert fl.predict("C-p01").locked == {"guess": "37/6", "choice": -1}
    assert fl.reveal("C-p01", 4.0).guess == "37/6"


def test_running_reveal_again_records_the_same_guess_once():
    guess(fl.predict("C-p01"), "4")
    fl.reveal("C-p01", 4.0)
    fl.reveal("C-p01", 4.0)
    assert len(progress.events("reveal")) == 1
    guess(fl.predict("C-p01"), "5")
    fl.reveal("C-p01", 4.0)
    assert [e["right"] for e in progress.events("reveal")] == [True, False]


@pytest.mark.parametrize(
    ("id", "typed", "value", "verdict"),
    [
        ("C-p10", "17", 17, "right"),
        ("C-p10", "17 %", 17, "right"),
        ("C-p10", "0.17", 17, "right"),
        ("C-p10", "100", 17, "close"),
        ("C-p10", "17", "17% of 2664 rows", "right"),  # a sentence: the data knows the answer
        ("C-p11", "3, -1", (3.0, -1.0), "right"),
        ("C-p11", "3, 3", (3.0, -1.0), "close"),
        ("C-p11", "3", (3.0, -1.0), "close"),
        ("C-p01", "4", (np.ones(6), 20.0, np.ones(2)), "right"),
        ("C-p01", "no idea", 4.0, "close"),
        ("no-data", "4", 4, "right"),
        ("no-data", "seven", "Seven", "right"),
        ("no-data", "seven", np.ones((3, 3)), ""),
    ],
)
def test_a_guess_is_judged_by_the_kind_of_the_question(id, typed, value, verdict):
    guess(fl.predict(id, "How much?"), typed)
    assert fl.reveal(id, value).verdict == verdict


def test_a_value_that_the_learner_changed_counts_more_than_the_data():
    guess(fl.predict("C-p01"), "7.5")
    assert fl.reveal("C-p01", 7.5).verdict == "right"


def test_every_foreseen_wrong_guess_gets_its_own_line():
    for lesson in prompts.lessons().values():
        for id, entry in lesson.predictions.items():
            for wrong in entry["wrong"]:
                kind = entry.get("kind", "number")
                choice = wrong["guess"] if kind == "choice" else -1
                typed = entry["choices"][choice]["en"] if kind == "choice" else wrong["guess"]
                guess(fl.predict(id), typed, choice)
                assert fl.reveal(id, entry["answer"]).thinking == wrong["en"], (id, wrong["guess"])


def test_a_choice_is_compared_by_its_position_in_any_language():
    text.lang("zh")
    box = fl.predict(
        "C-p08", "Which?", choices=["to none: it is unfinished", "over keys 0 to 3", "over block 2"]
    )
    data = prompts.prediction("C-p08")
    assert box.question == data["zh"] and box.choices == [c["zh"] for c in data["choices"]]
    guess(box, box.choices[2], 2)
    shown = fl.reveal("C-p08", "over keys 0 to 3")
    assert shown.value == box.choices[1] and repr(shown) == "'over keys 0 to 3'"
    assert (shown.verdict, shown.thinking) == ("close", data["wrong"][1]["zh"])
    assert progress.latest("guess", "C-p08")["guess"] == "over block 2", "stored as the notebook spells it"
    text.lang("en")
    assert fl.predict("C-p08").locked["guess"] == data["choices"][2]["en"]


def test_choices_without_data_are_compared_by_their_text():
    guess(fl.predict("no-data", "Which?", choices=["a", "b"]), "b", 1)
    assert fl.reveal("no-data", "b").verdict == "right"
    assert fl.reveal("no-data", "a").verdict == "close"


def test_the_english_question_of_the_notebook_wins_over_the_data():
    assert fl.predict("C-p01", "My own words?").question == "My own words?"
    assert fl.predict("C-p01").question == prompts.prediction("C-p01")["en"]


def test_a_unit_stands_beside_value_and_guess():
    guess(fl.predict("C-p10", "Which part?", unit="%"), "17")
    box = fl.reveal("C-p10", 17)
    assert (box.value, box.guess, repr(box)) == ("17 %", "17 %", "17")


def test_predict_refuses_what_it_cannot_ask():
    with pytest.raises(ValueError, match="'C-p1'. Did you mean 'C-p1"):
        fl.predict("C-p1")
    with pytest.raises(ValueError, match="has 3 choices in the lesson's data, got 2"):
        fl.predict("C-p08", "Which?", choices=["a", "b"])


def test_callbacks_may_come_from_another_thread():
    """JupyterLab runs them in the main thread or in one of its subshells."""
    box = fl.predict("C-p01")
    shown = fl.reveal("C-p01", 4.0)
    cards = fl.review("C-1")
    failed = []

    def callback():
        try:
            guess(box, "4")
            cards.marks = {"C02-a": True}
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=callback)
    thread.start()
    thread.join()
    assert failed == [] and shown.verdict == "right"
    assert {e["kind"] for e in progress.events()} == {"guess", "reveal", "prompt"}


def test_a_home_that_cannot_be_used_does_not_break_the_lesson(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLASHLAB_HOME", str(tmp_path / "file"))
    box = fl.predict("C-p01")
    guess(box, "4")
    assert box.saved is False
    assert fl.reveal("C-p01", 4.0).verdict == "right"
    fl.review("C-1").marks = {"C02-a": False}
    assert fl.review("C-2").cards[0]["id"] == "C02-a"
    assert capsys.readouterr().err.count("\n") == 1


# --- review ---


def test_a_stop_shows_its_prompts_in_order():
    assert [c["id"] for c in fl.review("C-1").cards] == ["C02-a", "C03-a", "C03-b"]


def test_what_was_not_known_returns_at_the_next_stop_until_it_is_known():
    box = fl.review("C-1")
    box.marks = {"C02-a": True}
    box.marks = {"C02-a": True, "C03-a": False}
    box.marks = {"C02-a": True, "C03-a": False, "C03-b": False}
    assert [(e["id"], e["known"]) for e in progress.events("prompt")] == [
        ("C02-a", True),
        ("C03-a", False),
        ("C03-b", False),
    ]
    later = fl.review("C-2")
    assert [c["id"] for c in later.cards if c["returning"]] == ["C03-a", "C03-b"]
    assert len(later.cards) == 2 + 5
    later.marks = {"C03-a": True, "C03-b": False}
    assert [c["id"] for c in fl.review("C-3").cards if c["returning"]] == ["C03-b"]
    assert not any(c["returning"] for c in fl.review("C-1").cards), "only earlier stops return"


def test_the_same_card_may_be_marked_again():
    box = fl.review("C-1")
    box.marks = {"C02-a": False}
    box.marks = {"C02-a": True}
    assert [e["known"] for e in progress.events("prompt")] == [False, True]


def test_only_the_last_stop_says_that_it_is_the_last():
    assert [fl.review(stop).last for stop in prompts.lesson("C").stops] == [False] * 5 + [True]


def test_an_unknown_stop_names_the_closest():
    with pytest.raises(ValueError, match="'C-6'"):
        fl.review("C-66")


# --- before and after ---


def test_before_nothing_is_shown_and_after_both_results_stand_side_by_side():
    before = fl.pretest("C")
    before.given = {
        "C-t1": {"guess": "1", "choice": -1},
        "C-t2": {"guess": "1.875", "choice": -1},
        "C-t3": {"guess": "yes, always", "choice": 0},
    }
    assert before.results == []
    assert not any("expected" in item for item in before.items)
    after = fl.posttest("C")
    assert after.results == []
    after.given = {
        "C-t1": {"guess": "5", "choice": -1},
        "C-t2": {"guess": "2", "choice": -1},
        "C-t3": {"guess": "not in general", "choice": 1},
    }
    assert [row["before"]["right"] for row in after.results] == [False, True, False]
    assert [row["after"]["right"] for row in after.results] == [True, True, True]
    assert after.results[0]["before"]["expected"] == "3" and after.results[0]["after"]["expected"] == "5"
    assert [e["right"] for e in progress.events("pretest")] == [False, True, False]
    assert [e["right"] for e in progress.events("posttest")] == [True, True, True]


def test_an_item_left_empty_is_no_answer():
    after = fl.posttest("C")
    after.given = {"C-t1": {"guess": "5", "choice": -1}}
    assert [row["after"]["guess"] for row in after.results] == ["5", "", ""]
    assert after.results[2]["after"]["right"] is False
    assert [e["id"] for e in progress.events("posttest")] == ["C-t1"]


# --- say it, source ---


@pytest.mark.parametrize("code", ["en", "zh"])
def test_say_shows_its_points_and_records_what_was_ticked(code):
    text.lang(code)
    box = fl.say("C01")
    assert box.seconds == 60 and len(box.points) == 6
    box.ticked = [0, 2]
    assert progress.latest("say", "C01")["ticked"] == [0, 2]
    assert not {"block", "tile", "块"} & set(answers.re.findall(r"[a-z]+|块", box.answer)), (
        "it keeps its own rule"
    )


def test_show_source_shows_what_is_behind_decorators():
    import functools

    def decorate(f):
        return functools.wraps(f)(lambda *a: f(*a))

    @decorate
    def double(x):
        """Twice x."""
        return 2 * x

    shown = fl.show_source(double)
    assert repr(shown).startswith("@decorate\ndef double(x):") and repr(shown).endswith("return 2 * x")
    assert "Twice x" in repr(shown)
    assert repr(fl.show_source(double, docstring=False)) == "@decorate\ndef double(x):\n    return 2 * x"
    assert 'class="fl-source"' in shown._repr_html_()


def test_show_source_finds_the_function_in_a_triton_kernel():
    class Kernel:
        fn = staticmethod(guess)

    assert repr(fl.show_source(Kernel())).startswith("def guess(")


def test_a_docstring_that_is_all_there_is_stays():
    assert without_docstring('def f():\n    """Only this."""') == 'def f():\n    """Only this."""'


@pytest.mark.parametrize("thing", [len, 3, "text"])
def test_show_source_says_what_it_cannot_show(thing):
    with pytest.raises(TypeError, match="written in Python"):
        fl.show_source(thing)


# --- offline ---


def test_the_offline_pages_hold_no_one_s_guesses(monkeypatch):
    progress.record("guess", "C-p01", guess="37/6", choice=-1)
    progress.record("prompt", "C02-a", known=False)
    monkeypatch.setenv("FLASHLAB_STATIC", "1")
    assert fl.predict("C-p01").locked == {}
    box = fl.reveal("C-p01", 4.0)
    assert box.guess == "" and box.offline and len(box.mistakes) == 4
    assert not any(c["returning"] for c in fl.review("C-2").cards)
    for widget in (box, fl.predict("C-p01"), fl.review("C-2"), fl.posttest("C"), fl.say("C01")):
        data, _ = widget._repr_mimebundle_()
        assert "srcdoc=" in data["text/html"]
        assert "37/6" not in twin_document(widget) or widget is box


def test_the_words_of_a_widget_come_from_the_table_of_the_language():
    text.lang("zh")
    assert fl.predict("C-p01").strings["predict"]["enter"] == "锁定"
    text.lang("en")
    assert fl.predict("C-p01").strings["predict"]["enter"] == "Lock it in"


def test_both_tables_have_the_same_keys_and_blanks():
    def flat(table, before=""):
        for key, value in table.items():
            if isinstance(value, dict):
                yield from flat(value, f"{before}{key}.")
            else:
                yield before + key, set(answers.re.findall(r"\{\w+\}", value))

    assert dict(flat(text.table("learn", "en"))) == dict(flat(text.table("learn", "zh")))
