"""Cards come back by FSRS, replayed from what was recorded."""

import datetime
import sys

import pytest
import quiz_cases

from flashlab import progress
from flashlab.quiz import bank_loader, cards

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
def folder(tmp_path):
    return quiz_cases.write(tmp_path, "A06", "C02")


def at(**later):
    return (START + datetime.timedelta(**later)).isoformat()


def review(rating, id="A06-a", **later):
    return {"kind": "card", "id": id, "rating": rating, "at": at(**later)}


def states(folder, events):
    return cards.states(events, cards.deck("en", folder), cards.exercises_of(bank_loader.load("en", folder)))


def test_the_deck_holds_the_banks_cards_and_the_lessons_prompts_in_both_languages(folder):
    deck = cards.deck("en", folder)
    assert deck["A06-a"].answer == "32 MiB" and deck["C02-b"].section == "C"
    assert deck["C04-a"].question == "C04" and "query row" in deck["C04-a"].ask  # a lesson's
    assert cards.deck("zh", folder)["C04-a"].ask.startswith("每行") and list(deck) == sorted(deck)
    assert deck["C02-a"].ask == "4096 × 4096 in fp16?"  # the bank's goes first


def test_good_answers_space_a_card_out_and_a_lapse_brings_it_back(folder):
    events = [review(3), review(3, minutes=10), review(3, days=2, minutes=10), review(1, days=13)]
    gaps = [states(folder, events[: n + 1])["A06-a"] for n in range(4)]
    days = [(s.due - s.last).total_seconds() / 86400 for s in gaps]
    assert days == pytest.approx([10 / 1440, 2, 11, 10 / 1440], abs=0.1)
    assert gaps[-1].reviews == 4


def test_the_same_events_give_the_same_dates(folder):
    events = [review(3), review(2, hours=1), review(4, days=3)]
    assert states(folder, events)["A06-a"].due == states(folder, events)["A06-a"].due


def test_a_prompt_in_a_lesson_counts_as_a_review(folder):
    known = [{"kind": "prompt", "id": "C04-a", "known": True, "at": at()}]
    not_yet = [{"kind": "prompt", "id": "C04-a", "known": False, "at": at()}]
    assert states(folder, known)["C04-a"].due > states(folder, not_yet)["C04-a"].due


def test_a_wrong_item_and_a_failed_exercise_make_the_questions_cards_due(folder):
    settled = [review(4, "A06-a"), review(4, "C02-a")]
    wrong = {"kind": "item", "id": "A06-n1", "right": False, "question": "A06", "at": at(hours=1)}
    right = {**wrong, "right": True}
    failed = {"kind": "check", "id": "online_softmax", "passed": False, "at": at(hours=2)}
    assert states(folder, [*settled, right])["A06-a"].called is False
    after = states(folder, [*settled, wrong])
    assert after["A06-a"].due == START + datetime.timedelta(hours=1) and not after["C02-a"].called
    assert after["A06-b"].called  # never seen, now due
    assert states(folder, [*settled, failed])["C02-a"].called
    again = states(folder, [*settled, wrong, review(3, "A06-a", hours=2)])
    assert not again["A06-a"].called and again["A06-a"].due > START + datetime.timedelta(hours=2)


def test_due_cards_come_first_then_new_ones_and_never_more_than_asked(folder):
    events = [review(1, "C02-a"), review(4, "A06-a")]
    later = START + datetime.timedelta(hours=1)
    chosen = cards.due("en", later, limit=5, new=3, folder=folder, events=events)
    assert [c.id for c in chosen][:2] == ["C02-a", "A06-b"] and len(chosen) == 4
    assert all(c.section == "A" for c in cards.due("en", later, section="A", folder=folder, events=events))
    assert len(cards.due("en", later, limit=2, folder=folder, events=events)) == 2


def test_a_review_recorded_in_the_file_moves_the_card(folder):
    progress.record("card", "A06-a", rating=3)
    assert "A06-a" not in [c.id for c in cards.due("en", section="A", folder=folder)]
    assert cards.counts("en", folder=folder)["seen"] == 1


def test_without_the_library_one_sentence_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsrs", None)
    with pytest.raises((RuntimeError, ImportError), match="fsrs"):
        cards.due("en", folder=folder, events=[])
    with pytest.raises(RuntimeError, match="pip install fsrs"):
        cards.scheduler()
