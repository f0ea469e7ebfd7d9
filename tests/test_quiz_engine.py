"""The modes: what is asked, what is kept, what comes back; no input or output anywhere."""

import json

import pytest
import quiz_cases

from flashlab.quiz import engine, items, model
from flashlab.quiz.steps import CardStep, ClaimStep, FreeStep, ItemStep


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def folder(tmp_path):
    return quiz_cases.write(tmp_path, "A06", "C02", "C03", "E03", claims=("K15", "K16", "K17"))


@pytest.fixture
def log():
    return []


def start(mode, folder, log=None, **options):
    def record(kind, id, **data):
        log.append((kind, id, data))

    options = {"seed": 1, "folder": folder, "now": Clock(), **options}
    return engine.start(mode, options.pop("lang", "en"), record=None if log is None else record, **options)


def wrong(task):
    """A response that is marked wrong."""
    if task.item.kind == "choice":
        return (items.solution(task) + 1) % len(task.shown)
    return "1 2 3 4" if task.item.kind == "order" else "3"


def solve(session, right=True):
    """Answer the current step rightly or wrongly, and go on."""
    step = session.step
    if step.kind == "free":
        session.answer(step.bank.spoken if right else "no idea")
        session.tick([p["id"] for p in step.points() if p["ticked"]])
    elif step.kind == "item":
        good = items.solution(step.task)
        session.answer(good if right else wrong(step.task))
    elif step.kind == "claim":
        session.answer(step.claim.verdict if right else "true")
    else:
        session.answer("")
        session.rate(3 if right else 1)
        return
    if not session.done and session.step is step:
        session.next()


def test_learn_goes_through_the_section_in_order_with_two_items_each(folder):
    session = start("learn", folder, section="c")
    assert [(type(s), s.question) for s in session.steps] == [
        (FreeStep, "C02"), (ItemStep, "C02"), (ItemStep, "C02"),
        (FreeStep, "C03"), (ItemStep, "C03"), (ItemStep, "C03"),
    ]  # fmt: skip
    assert {s.question for s in start("learn", folder, section="C03").steps} == {"C03"}


def test_learn_begins_with_what_was_not_passed_yet(folder):
    events = [{"kind": "free", "id": "C02", "score": 1.0}]
    assert start("learn", folder, section="C", events=events).steps[0].id == "C03"


def test_a_free_answer_is_ticked_by_its_terms_then_by_the_learner_and_kept(folder, log):
    session = start("learn", folder, log, section="A06")
    assert session.phase == "ask" and session.answer("For each batch and head, N²") == ""
    assert session.phase == "tick" and log == []
    assert {p["id"]: p["ticked"] for p in session.view()["points"]} == {
        "formula": True, "number": False, "layer": False,
    }  # fmt: skip
    session.tick(["formula", "layer", "something else"])
    ((kind, id, data),) = log
    assert (kind, id, data["missed"], data["given"]) == (
        "free",
        "A06",
        ["number"],
        "For each batch and head, N²",
    )
    feedback = session.view()["feedback"]
    assert feedback["score"] == pytest.approx(4 / 7) and feedback["right"] is False
    assert "8 GiB" in feedback["spoken"] and "8 GiB" in feedback["answer"] and feedback["misconceptions"]


def test_a_wrong_item_comes_back_with_other_numbers_and_is_kept_with_its_question(folder, log):
    session = start("learn", folder, log, section="A06")
    solve(session)
    before = len(session.steps)
    step = session.step
    solve(session, right=False)
    assert len(session.steps) == before + 1 and session.steps[-1].id == step.id
    assert session.steps[-1].task.seed != step.task.seed
    kind, id, data = log[-1]
    assert (kind, id, data["right"], data["question"]) == ("item", step.id, False, "A06")
    while not session.done:
        solve(session, right=False)
    assert len(session.steps) == before + 4  # twice each, then enough


def test_an_answer_that_cannot_be_read_is_asked_again_and_not_kept(folder, log):
    session = start("diagnosis", folder, log)
    assert session.answer("what?") and session.phase == "ask" and session.view()["message"] and log == []
    solve(session)
    assert len(log) == 1 and session.view()["message"] == ""


def test_cards_are_turned_and_rated_and_one_not_known_comes_back(folder, log):
    session = start("drill", folder, log, section="A")
    assert all(isinstance(s, CardStep) for s in session.steps)
    ask, first, count = session.view()["step"]["ask"], session.step.id, len(session.steps)
    session.answer("")
    assert session.view()["feedback"]["answer"] and "answer" not in session.view()["step"] and ask
    session.rate(1)
    assert log == [("card", first, {"rating": 1})]
    assert len(session.steps) == count + 1 and session.steps[-1].id == first
    session.answer("")
    with pytest.raises(ValueError, match="from 1 to 4"):
        session.rate(5)


def test_folklore_shows_the_correction_and_the_sentence_for_the_room(folder, log):
    session = start("folklore", folder, log)
    assert len(session.steps) == 3 and all(isinstance(s, ClaimStep) for s in session.steps)
    assert session.view()["step"]["shown"] == ["true", "partly", "false"]
    assert session.answer("perhaps") and session.phase == "ask"
    session.answer("3")
    feedback = session.view()["feedback"]
    assert feedback["right"] and feedback["polite"].startswith("I think") and feedback["code"] == "print(16)"
    assert log[0][0] == "claim" and log[0][2] == {"right": True, "given": "false"}


def test_the_diagnosis_has_fifteen_items_in_twelve_minutes_over_all_sections_and_says_nothing_before_the_end(
    folder, log
):
    session = start("diagnosis", folder, log)
    assert len(session.steps) == 15 and session.seconds == 12 * 60
    assert {s.section for s in session.steps} == {"A", "C", "E"}
    while not session.done:
        assert session.phase == "ask"
        solve(session, right=session.step.section != "E")
    summary = session.view()["summary"]
    assert {s: x["score"] for s, x in summary["sections"].items()} == {"A": 1, "C": 1, "E": 0}
    assert summary["missed_ids"] == ["E03"] and all(r["question"] == "E03" for r in summary["review"])
    kind, _, data = log[-1]
    assert kind == "diagnosis" and data["sections"]["E"]["score"] == 0


def test_the_exam_asks_each_section_freely_and_scores_it_with_the_weakest_key_points(folder, log):
    session = start("exam", folder, log)
    assert [s.section for s in session.steps if s.kind == "free"] == [
        "A",
        "C",
        "E",
    ] and session.seconds == 2400
    while not session.done:
        solve(session, right=session.step.section == "A")
    summary = session.summary()
    assert summary["sections"]["A"]["score"] == pytest.approx(1) and summary["sections"]["C"]["score"] < 0.2
    assert [m["level"] for m in summary["missed"]][:2] == ["must", "must"]
    assert {m["question"][0] for m in summary["missed"]} == {"C", "E"} and summary["missed"][0]["anchor"]
    assert set(summary["next"]) == {"10", "30", "60"} and all(summary["next"].values())


def test_when_the_time_is_over_the_exam_ends_after_the_answer_at_hand(folder, log):
    clock = Clock()
    session = start("exam", folder, log, now=clock)
    clock.seconds = 5000
    assert session.left == 0 and session.phase == "ask"
    solve(session)
    assert session.done and log[0][0] == "free" and log[-1][0] == "exam"


def test_a_session_that_is_stopped_keeps_what_was_answered(folder, log):
    session = start("learn", folder, log, section="A")
    solve(session)
    session.stop()
    assert session.phase == "done" and session.summary()["answered"] == 1 and len(log) == 1
    session.skip()
    assert session.view()["phase"] == "done"


def test_skipping_leaves_no_trace(folder, log):
    session = start("diagnosis", folder, log)
    while not session.done:
        session.skip()
    assert session.summary()["answered"] == 0 and [k for k, *_ in log] == ["diagnosis"]


@pytest.mark.parametrize("mode", engine.MODES)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_view_is_plain_data(folder, mode, lang):
    session = start(mode, folder, [], lang=lang)
    while not session.done:
        json.dumps(session.view())
        step = session.step
        if step.phase == "ask":
            session.answer(items.solution(step.task) if step.kind == "item" else "1")
            if session.phase == "tick":
                json.dumps(session.view())
        if session.phase == "tick":
            session.tick([])
        if session.phase == "feedback":
            json.dumps(session.view())
            session.rate(3) if step.kind == "card" else session.next()
    assert json.loads(json.dumps(session.view()))["summary"]["answered"] > 0


def test_the_same_seed_asks_the_same(folder):
    assert [s.id for s in start("exam", folder).steps] == [s.id for s in start("exam", folder).steps]


@pytest.mark.parametrize(
    "mode, section, says",
    [
        ("exams", None, "exam"),
        ("learn", "X", "A C E"),
        ("learn", "C05", "Section C has C02 C03"),
        ("drill", "9", "A"),
    ],
)
def test_unknown_modes_and_sections_name_the_known_ones(folder, mode, section, says):
    with pytest.raises(ValueError, match=says):
        start(mode, folder, section=section)


def test_acting_in_the_wrong_phase_is_refused(folder):
    session = start("learn", folder, section="A")
    for act in (session.next, lambda: session.tick([]), lambda: session.rate(3)):
        with pytest.raises(ValueError, match="phase"):
            act()


def test_a_predicted_cell_runs_after_the_guess_and_shows_its_code(folder):
    (item,) = [i for i in engine.bank_loader.load("en", folder)[0].items if i.kind == "predict"]
    step = ItemStep(item, 3)
    step.answer(items.solution(step.task))
    rows = step.task.draws["N"]
    assert step.feedback()["ran"] == f"The cell tiles({rows}, 64) + 0 gives {-(-rows // 64)} thread blocks."


def test_claims_and_ids_are_those_of_the_course():
    assert len(model.IDS) == 70 and len(model.CLAIM_IDS) == 46


def test_the_review_shows_the_option_that_was_chosen_not_its_number(folder, log):
    session = start("diagnosis", folder, log)
    while not session.done:
        solve(session, right=session.step.task.item.kind != "choice")
    given = {r["given"] for r in session.summary()["review"]}
    assert given and given <= {"GQA", "a mask"}
