"""The mock interview: it says nothing while it runs, follows what was missed, and fits its minutes."""

import json

import pytest
import quiz_cases

from flashlab import text
from flashlab.quiz import (
    bank_loader,
    interview,
    interview_terminal,
    marking,
    model,
    terminal,
    whiteboard,
)
from flashlab.text import textwidth

BOARDS = {w["id"]: w for w in interview.data()["whiteboard"]}


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def folder(tmp_path):
    ids = ("A06", "B04", "C02", "C03", "D01", "E03", "F02", "G01")
    return quiz_cases.write(tmp_path, *ids, claims=model.CLAIM_IDS[:6])


def start(folder, minutes=30, role="training", lang="en", log=None, **options):
    def record(kind, id, **data):
        log.append((kind, id, data))

    options = {"seed": 4, "now": Clock(), **options}
    return interview.start(
        minutes, role, lang, folder=folder, record=None if log is None else record, **options
    )


def run(talk, reply=lambda turn: ""):
    """The kinds of all turns, in order, with `reply(turn)` answered to each."""
    kinds = []
    while talk.turn is not None:
        kinds.append(talk.turn.kind)
        talk.answer(reply(talk.turn))
    return kinds


def perfect(turn):
    if turn.kind == "pitch":
        return interview.data()["pitch"]["spoken"]["en"]
    if turn.kind == "question":
        return turn.question.spoken
    if turn.kind == "whiteboard":
        return turn.task["solution"]
    return repr(float(turn.task.expect) * 1.2) if turn.kind == "number" else "as I said"


def test_it_has_every_part_in_its_order_and_the_pitch_has_thirty_seconds(folder):
    talk = start(folder)
    assert talk.turn.kind == "pitch" and talk.turn.seconds == 30
    kinds = run(talk)
    order = ["pitch", "question", "whiteboard", "number", "claim", "transfer", "back"]
    assert sorted(order, key=kinds.index) == order and set(kinds) - {"follow_up"} == set(order)
    assert kinds.count("number") == 2 and kinds.count("claim") == 1 and kinds[-1] == "back"


@pytest.mark.parametrize("minutes, threads", [(15, 1), (30, 2), (45, 4)])
@pytest.mark.parametrize("role, first", [("training", "D"), ("inference", "F"), ("intern", "A")])
def test_minutes_and_role_choose_the_threads(folder, minutes, threads, role, first):
    talk = start(folder, minutes, role)
    asked = []
    run(talk, lambda turn: asked.append(turn) or "")
    questions = [x.question.id for x in asked if x.kind == "question"]
    assert len(questions) == threads == len(set(questions)) and questions[0][0] == first
    board = next(x for x in asked if x.kind == "whiteboard")
    assert role in board.task["roles"]


def test_a_missed_key_point_brings_its_follow_up_and_a_good_answer_the_next(folder):
    def texts(reply):
        said = []
        run(start(folder, 15), lambda turn: said.append(turn) or reply(turn))
        return [x.text for x in said if x.kind == "follow_up"]

    assert texts(lambda turn: "") == ["And for 32 layers?"]
    assert texts(perfect) == []  # nothing missed, and what is for always is the transfer question


def test_nothing_it_says_marks_an_answer(folder):
    good, bad = start(folder), start(folder)
    said = {"good": [], "bad": []}
    run(good, lambda turn: said["good"].append(turn.text) or perfect(turn))
    run(bad, lambda turn: said["bad"].append(turn.text) or "no idea")
    for line in said["good"] + said["bad"]:
        assert not any(word in line.lower() for word in ("right", "wrong", "correct", "missing"))


def test_the_debrief_holds_what_was_missed_and_what_was_right(folder):
    log = []
    good = start(folder, log=log)
    run(good, perfect)
    found = json.loads(json.dumps(good.debrief()))
    assert (
        found["pitch"]["missed"] == [] and found["weak"] == [] and all(n["right"] for n in found["numbers"])
    )
    assert [b["fault"] for b in found["whiteboard"]] == [""] and found["back"] == ["as I said"]
    assert [k for k, *_ in log].count("interview") == 1 and log[-1][2]["weak"] == []
    bad = start(folder)
    run(bad, lambda turn: "no idea")
    found = bad.debrief()
    assert (
        found["pitch"]["said"] == 0
        and len(found["weak"]) == 2
        and not any(n["right"] for n in found["numbers"])
    )
    assert found["threads"][0]["musts"] and found["whiteboard"][0]["fault"].startswith("error")
    assert found["claims"][0]["polite"] and found["transfer"][0]["anchor"]


def test_when_the_time_is_over_only_the_last_question_is_left(folder):
    clock = Clock()
    talk = start(folder, now=clock)
    clock.seconds = 31 * 60
    assert talk.left == 0
    assert run(talk) == ["pitch", "back"]


def test_stopping_leaves_a_debrief(folder):
    log = []
    talk = start(folder, log=log)
    talk.answer("exact")
    talk.stop()
    assert talk.turn is None and talk.debrief()["pitch"]["said"] == 1 and log[-1][0] == "interview"
    with pytest.raises(ValueError, match="over"):
        talk.answer("more")


@pytest.mark.parametrize("options, says", [({"minutes": 20}, "15, 30 or 45"), ({"role": "boss"}, "training")])
def test_other_minutes_and_roles_are_refused(folder, options, says):
    with pytest.raises(ValueError, match=says):
        start(folder, **options)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_in_a_terminal_it_runs_by_keyboard_and_ends_with_one_screen(folder, lang):
    lines, typed = (
        [],
        iter(["", "exact", "", "batch", "", "", "", "def absorb(m, l, acc, s, v):", "    return 1", "."]),
    )

    def read(prompt):
        lines.append(prompt)
        found = next(typed, "")
        return found

    talk = start(folder, 15, "intern", lang)
    screen = terminal.Screen(read, lines.append, 80, lang)
    interview_terminal.play(talk, screen)
    assert talk.turn is None and all(textwidth.width(line) <= 80 for line in lines)
    head = "Debrief" if lang == "en" else "总结"
    after = lines[next(n for n, line in enumerate(lines) if line.startswith(head)) :]
    assert len(after) <= 40, "one screen"


def test_ctrl_c_ends_it_with_the_debrief(folder):
    lines = []

    def read(prompt):
        if lines.count("stop"):
            raise KeyboardInterrupt
        lines.append("stop")
        return ""

    text.lang("en")
    talk = start(folder, 15)
    interview_terminal.play(talk, terminal.Screen(read, lines.append, 80, "en"))
    assert "Stopped." in lines


def spoken(talk, typed, lang="en"):
    """What the terminal shows of an interview with these lines typed, then empty ones."""
    lines, typed = [], iter(typed)

    def read(prompt):
        lines.append(prompt)
        return next(typed, "")

    interview_terminal.play(talk, terminal.Screen(read, lines.append, 80, lang))
    return lines


def test_a_follow_up_that_leads_to_another_question_asks_it(tmp_path):
    leads = {'en = "And for 32 layers?"\nzh = "32 层呢？"': 'question = "C02"'}
    made = quiz_cases.write(tmp_path, "A06", "C02", claims=model.CLAIM_IDS[:2], **leads)
    talk, asked = start(made, 15, "intern"), []
    run(talk, lambda turn: asked.append(turn) or "")
    follow_up = next(x for x in asked if x.kind == "follow_up")
    assert follow_up.text == "How large is the attention matrix?" and all(x.text for x in asked)


def test_what_is_said_to_a_follow_up_counts_in_the_debrief(folder):
    def reply(turn):
        return {"question": "batch, head, n², 8 GiB", "follow_up": "times 32, one for each layer"}.get(
            turn.kind, ""
        )

    talk = start(folder, 15)
    run(talk, reply)
    assert talk.debrief()["threads"][0]["strong"] == [] and talk.debrief()["threads"][0]["score"] == 1


@pytest.mark.parametrize(
    "lang, said, shown",
    [
        ("en", "GQA shrinks it.", ["said: “GQA shrinks it.”", "Against it: Query heads count."]),
        ("zh", "GQA 让它变小。", ["你说的是：“GQA 让它变小。”", "反驳：看 query 头数。"]),
    ],
)
def test_a_misconception_is_told_in_the_debrief_with_what_refutes_it_and_not_before(
    folder, lang, said, shown
):
    talk = start(folder, 15, lang=lang)
    lines = spoken(talk, ["", "", "", said, ""], lang)
    assert talk.turns[1].answer == said
    head = next(n for n, x in enumerate(lines) if x.startswith(("Debrief", "总结")))
    assert all(x in "\n".join(lines[head:]) and x not in "\n".join(lines[:head]) for x in shown)


@pytest.mark.parametrize(
    "lang, english", [("en", ()), ("zh", ("wrong", "error", "no function", "slow", "said"))]
)
@pytest.mark.parametrize("code", ["def f(): pass", "def absorb(:", "def absorb(m, l, acc, s, v): return 1"])
def test_the_whiteboards_fault_is_told_in_the_language(folder, lang, english, code):
    talk = start(folder, 15, "intern", lang)
    while talk.turn.kind != "whiteboard":
        talk.answer("")
    lines = spoken(talk, [code, "."], lang)
    board = [x for x in lines if "hiteboard:" in x or "白板题：" in x]
    assert len(board) == 1 and not any(word in board[0] for word in english)


def test_a_number_that_cannot_be_read_is_asked_once_more(folder):
    talk = start(folder, 15)
    while talk.turn.kind != "number":
        talk.answer("")
    lines = spoken(talk, ["about some", "3"])
    assert talk.turns[-4].answer == "3" or any(x.answer == "3" for x in talk.turns)
    assert sum("cannot read this as a number" in x for x in lines) == 1


def test_the_board_can_be_wiped_and_pasted_at_once(folder):
    talk = start(folder, 15, "intern")
    while talk.turn.kind != "whiteboard":
        talk.answer("")
    spoken(talk, ["rubbish", "!", BOARDS["absorb"]["solution"].strip() + "\n."])
    assert talk.debrief()["whiteboard"][0]["fault"] == ""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_debrief_of_the_longest_interview_of_the_real_bank_fits_one_screen(lang):
    bank_loader.read.cache_clear()
    for seed in range(3):
        lines = spoken(interview.start(45, "training", lang, seed=seed, now=Clock()), [], lang)
        head = next(n for n, x in enumerate(lines) if x.startswith(("Debrief", "总结")))
        assert len(lines) - head <= 40 and all(textwidth.width(x) <= 80 for x in lines)
        asked = [lines[n + 2] for n, x in enumerate(lines) if "0:00 left" not in x and x.endswith((" left",))]
        assert all(x.strip() and not x.startswith(("Your answer", "你的回答")) for x in asked)


def test_the_clock_runs_where_there_is_a_terminal(capsys):
    import time

    screen = terminal.Screen(lambda prompt: time.sleep(1.2), print, 80, rows=24)
    assert screen.clock(1) == 1
    assert "0:01" in (out := capsys.readouterr().out) and "0:00" in out and "\a" in out


CLOSE = {
    "absorb": [
        ("a * acc + ", "acc + "),
        ("a * l + ", "l + "),
        ("max(m, s.max())", "s.max()"),
        ("return new", "return m"),
    ],
    "merge": [
        ("lse1 - lse", "lse - lse1"),
        ("np.logaddexp(lse1, lse2)", "lse1 + lse2"),
        ("* o2, lse", "* o2, lse1"),
    ],
    "ds": [
        ("- delta[:, None]", ""),
        ("- lse[:, None]", ""),
        ("p * (dp", "(dp"),
        ("delta[:, None]", "delta.sum()"),
    ],
}


@pytest.mark.parametrize("id", BOARDS)
def test_each_whiteboard_task_takes_its_solution_and_refuses_what_is_close(id):
    task = BOARDS[id]
    good = task["solution"]
    assert whiteboard.check(task, good) == ""
    for old, new in CLOSE[id]:
        assert old in good
        assert whiteboard.check(task, good.replace(old, new)) == "wrong", (old, new)


@pytest.mark.parametrize(
    "code, fault",
    [
        ("", "empty"),
        ("x = 1", "error: no function absorb"),
        ("def absorb(", "error: SyntaxError"),
        ("def absorb(m, l, acc, s, v): raise KeyError('x')", "error: KeyError"),
        ("def absorb(m, l, acc, s, v): return None", "wrong"),
        ("def absorb(m, l, acc, s, v): return 'abc'", "wrong"),
        ("def absorb(m, l, acc, s, v):\n    while True: pass", "slow"),
        ("import sys; sys.exit()", "error: SystemExit"),
    ],
)
def test_what_is_written_badly_is_told_apart(code, fault):
    assert whiteboard.check(BOARDS["absorb"], code).startswith(fault)


def test_the_pitch_says_all_its_own_points_in_both_languages():
    pitch = interview.data()["pitch"]
    for lang in ("en", "zh"):
        said = marking.plain(pitch["spoken"][lang])
        for point in pitch["point"]:
            assert all(any(w in said for w in g) for g in point["terms"][lang]), point[lang]
        assert len(pitch["spoken"]["en"].split()) <= 100


def test_every_text_of_the_interview_is_there_in_both_languages():
    for entry in (interview.data()["pitch"], *interview.data()["whiteboard"]):
        assert entry["en"] and entry["zh"]
    for board in BOARDS.values():
        assert board["question"] in model.IDS and set(board["roles"]) <= set(interview.ROLES)
    assert set(interview.data()["roles"]) == set(interview.ROLES)
    assert all(sorted(s) == sorted(model.SECTIONS) for s in interview.data()["roles"].values())


def test_the_real_bank_gives_an_interview_in_both_languages():
    bank_loader.read.cache_clear()
    for lang in ("en", "zh"):
        talk = interview.start(45, "inference", lang, seed=1, now=Clock())
        assert len(run(talk)) >= 10
