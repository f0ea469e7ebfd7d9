"""The widget's side in Python: acts move the session, old ones do not, threads do not meet."""

import json
import threading

import pytest
import quiz_cases

from flashlab import progress, text
from flashlab.quiz import bank_loader, items
from flashlab.widgets import QuizCard
from flashlab.widgets._base import twin_state


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    made = quiz_cases.write(tmp_path, "A06", "C02", claims=("K15", "K16"))
    monkeypatch.setattr(bank_loader, "FOLDER", made)
    bank_loader.read.cache_clear()
    text.lang("en")
    yield made
    bank_loader.read.cache_clear()
    text.lang("en")


def act(card, do, value=None, turn=None):
    card.act = {"turn": card.view["turn"] if turn is None else turn, "do": do, "value": value}


def test_a_session_runs_by_acts_and_is_recorded():
    card = QuizCard("learn", "A06", seed=1)
    assert card.view["phase"] == "ask" and "attention matrix" in card.view["step"]["ask"]
    act(card, "answer", "batch and head, N²")
    assert [p["ticked"] for p in card.view["points"]] == [True, False, False]
    act(card, "tick", ["formula", "number"])
    assert card.view["feedback"]["right"] and progress.events("free")[0]["missed"] == ["layer"]
    act(card, "next")
    task = card._session.step.task
    act(card, "answer", items.solution(task))
    assert card.view["feedback"]["right"] and card.view["feedback"] == json.loads(
        json.dumps(card.view["feedback"])
    )
    act(card, "stop")
    assert card.view["phase"] == "done" and card.view["summary"]["answered"] == 2
    act(card, "again")
    assert card.view["phase"] == "ask"


def test_a_second_click_does_not_answer_the_next_question():
    card = QuizCard("folklore", seed=1)
    turn = card.view["turn"]
    act(card, "answer", 2)
    shown = dict(card.view)
    act(card, "answer", 0, turn=turn)
    assert card.view == shown and len(progress.events("claim")) == 1


@pytest.mark.parametrize(
    "do, value", [("answer", "what?"), ("rate", 3), ("dance", None), ("answer", [1, "x"])]
)
def test_what_cannot_be_done_gives_a_sentence_and_no_error(do, value):
    card = QuizCard("diagnosis", seed=1)
    act(card, do, value)
    assert card.view["message"] and card.view["phase"] == "ask" and progress.events("item") == []


def test_acts_from_many_threads_answer_each_step_once():
    card = QuizCard("folklore", seed=1)
    turn = card.view["turn"]
    threads = [
        threading.Thread(target=card._acted, args=({"new": {"turn": turn, "do": "answer", "value": n % 3}},))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(progress.events("claim")) == 1


def test_the_language_is_that_of_the_session():
    card = QuizCard("learn", "A06", language="zh")
    assert card.strings["lang"] == "zh" and "注意力矩阵" in card.view["step"]["ask"]
    assert "注意力矩阵" in repr(card) and card.summary() == "练习: 学习"


def test_pages_without_a_kernel_get_the_questions_with_points_and_an_answer(monkeypatch):
    monkeypatch.setenv("FLASHLAB_STATIC", "1")
    card = QuizCard("learn", "A06", seed=1)
    assert (
        len(card.offline) == 1
        and "8 GiB" in card.offline[0]["answer"]
        and len(card.offline[0]["points"]) == 3
    )
    assert json.dumps(twin_state(card)) and QuizCard("folklore", seed=1).offline[0]["answer"].startswith(
        "**false.**"
    )


def test_unknown_modes_are_refused():
    with pytest.raises(ValueError, match="'drill'"):
        QuizCard("dril")
