"""A session in a terminal: typed lines in, lines of 80 columns out, nothing lost on Ctrl-C."""

import pytest
import quiz_cases

from flashlab import progress, text
from flashlab.cli import main
from flashlab.quiz import bank_loader, debrief, engine, items, places, terminal
from flashlab.text import textwidth


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = quiz_cases.write(tmp_path, "A06", "C02", claims=("K15", "K16"))
    monkeypatch.setattr(bank_loader, "FOLDER", made)
    bank_loader.read.cache_clear()
    yield made
    bank_loader.read.cache_clear()


@pytest.fixture(autouse=True)
def english():
    text.lang("en")
    yield
    text.lang("en")


def run(mode, typed, lang="en", **options):
    """(summary, lines) of a session with these lines typed; a typed exception is raised instead."""
    lines, typed = [], iter(typed)

    def read(prompt):
        lines.append(prompt)
        found = next(typed, EOFError)
        if not isinstance(found, str):
            raise found
        return found

    session = engine.start(mode, lang, seed=1, record=progress.record, events=progress.events(), **options)
    summary = terminal.play(session, terminal.Screen(read, lines.append, 80, lang))
    assert all(textwidth.width(line) <= 80 for line in lines), max(lines, key=textwidth.width)
    return summary, "\n".join(lines), session


def test_a_question_is_answered_ticked_and_compared(folder):
    typed = ["per batch and head, N²", "", "2", "", "m", ""]
    summary, said, _ = run("learn", typed, section="A06")
    assert "[x] 1  batch × heads × N²" in said and "[x] 2  a number with its unit" in said
    assert "marking is assisted, not" in said and "A spoken answer" in said and "The full answer" in said
    assert "• for one layer (strong)" in said and "lesson C, at C01" in said and "One matrix in all." in said
    assert summary["answered"] == 1 and progress.events("free")[0]["missed"] == ["layer"]


@pytest.mark.parametrize(
    ("lang", "given", "heard"),
    [
        (
            "en",
            "batch, head, N², but GQA shrinks it",
            "you said: “GQA shrinks it.” Against it: Query heads count.",
        ),
        (
            "zh",
            "每个 batch 每个头 N²，但 GQA 让它变小",
            "听起来你说的是：“GQA 让它变小。” 反驳：看 query 头数。",
        ),
    ],
)
def test_a_misconception_in_the_answer_is_heard_and_its_point_not_ticked(folder, lang, given, heard):
    _, said, _ = run("learn", [given, "", "", ""], lang=lang, section="A06")
    assert "[ ] 1 " in said and heard in " ".join(said.split())


def test_everything_is_chinese_with_lang_zh(folder):
    typed = ["每个 batch 每个头 N²", "", "", "m", "", "看不懂", "1"]
    _, said, _ = run("learn", typed, lang="zh", section="A06")
    assert (
        "只是辅助，不是评判" in said
        and "• 带单位的数（必答）" in said
        and "C 课 C01 处" in said
        and "完整回答" in said
    )
    assert "已停止。" in said and "接下来" in said and "What next" not in said


@pytest.mark.parametrize("ending", [KeyboardInterrupt, EOFError])
def test_ctrl_c_keeps_what_was_answered(folder, ending):
    summary, said, _ = run("folklore", ["3", "", ending])
    assert summary["answered"] == 1 and "Stopped." in said and "Everything that you answered is kept." in said
    assert len(progress.events("claim")) == 1


def test_cards_are_rated_with_one_key_each(folder):
    summary, said, session = run(
        "drill", ["", "3", "", "x", "1", "", "2", "", "4", "", "3"], section="A", limit=2
    )
    assert summary["answered"] == 3 and "32 MiB" in said and session.done
    assert [e["rating"] for e in progress.events("card")] == [3, 1, 2]


def test_an_item_that_cannot_be_read_is_asked_again_and_s_skips(folder):
    summary, said, _ = run("diagnosis", ["what?", "s", "s"], section="A06")
    assert summary["answered"] == 0 and said.count("A06") > 2
    assert "cannot read" in said or "Choose a letter" in said or "Give" in said


def test_the_exam_shows_its_clock_and_reviews_wrong_items_at_the_end(folder):
    session = engine.start("diagnosis", seed=1)
    typed = []
    for step in session.steps:
        wrong = {"choice": "a", "order": "1 2 3 4", "spot_the_error": "1"}.get(step.task.item.kind, "3")
        typed.append(wrong if not items.mark(step.task, wrong).right else "c")
    summary, said, _ = run("diagnosis", typed)
    assert "11:59 left" in said or "12:00 left" in said
    assert "Answers to look at again" in said and "You said" in said and "10 minutes" in said
    assert summary["right"] == 0


def test_q_and_s_work_at_every_prompt_and_an_empty_answer_says_so(folder):
    summary, said, _ = run("diagnosis", ["", "q"], section="A06")
    assert "Nothing typed yet; s skips this one, q ends." in said and summary["answered"] == 0
    _, said, session = run("learn", ["s", "q"], section="A06")
    assert session.at == 1 and "What did you say?" not in said, "no empty line needed after s"
    for typed in (["batch", "", "q"], ["batch", "", "", "q"], ["q"]):
        _, said, session = run("learn", typed, section="A06")
        assert session.at == 0 and said.count("Stopped.") == 1
    assert "Stopped." in run("drill", ["", "q"], section="A")[1]


def test_a_tick_that_is_no_number_is_told_so_and_the_list_is_not_shown_again(folder):
    _, said, _ = run("learn", ["batch", "", "99 x", "3", "", "", "q"], section="A06")
    assert said.count("] 2  a number with its unit") == 2 and "Numbers from 1 to 3, or Enter." in said


def test_an_item_says_how_its_own_unit_is_typed(folder):
    for lang, shown in (("en", "Your number (bytes), such as 8 GiB"), ("zh", "例如 8 GiB、8.6 GB 或 2^33：")):
        session = engine.start("diagnosis", lang, section="A06", seed=1)
        assert any(i.task.item.unit == "bytes" for i in session.steps)
        _, said, _ = run("diagnosis", ["s"] * 5, lang=lang, section="A06")
        assert shown in said
    assert items.example("tokens", "en") == items.example("", "en") == "12, 4k, 2^12 or 37/6"


def test_a_claims_check_is_run_on_r(folder):
    _, said, _ = run("folklore", ["3", "r", "", "q"], lang="zh")
    assert "    print(16)" in said and "\n  16\n" in said


def test_half_an_exam_counts_for_the_plan_and_less_does_not(folder):
    def exam(answers):
        session = engine.start("diagnosis", seed=1, record=progress.record)
        for step in session.steps[:answers]:
            session.answer(items.solution(step.task))
        session.stop()
        return progress.events("diagnosis")

    assert exam(2) == [] and len(exam(6)) == 1


def test_pages_wait_for_enter_and_q_leaves_the_rest():
    for typed, shown in (([""] * 9, 50), (["q"], 22)):
        lines, typed = [], iter(typed)
        screen = terminal.Screen(lambda prompt: next(typed), lines.append, 80, rows=24)  # noqa: B023
        with screen.paged():
            for n in range(50):
                screen.write(str(n))
        assert len(lines) == shown, "the prompts go to read, not to write"


def test_exercises_and_lessons_that_are_not_there_are_not_advised(folder):
    missed = [{"question": "A06", "anchor": a} for a in ("09_X#A06", "03_C#C05")]
    found = debrief.next_steps("learn", ["A06"], missed, {"A06": ["nowhere", "online_softmax"]}, "zh")
    said = str(found)
    assert "03_C.ipynb" in said and "09_X" not in said and "online_softmax" in said and "nowhere" not in said
    assert places.place("09_X#A06") == "lesson X, at A06 (in preparation)" and places.place("") == ""


def cli(monkeypatch, capsys, *arguments, typed=()):
    typed = iter(typed)

    def read(prompt=""):
        print(prompt)
        found = next(typed, None)
        if found is None:
            raise EOFError
        return found

    monkeypatch.setattr(terminal, "of_terminal", lambda lang: terminal.Screen(read, print, 80, lang))
    status = main(list(arguments))
    out = capsys.readouterr()
    return status, out.out, out.err


def test_flashlab_quiz_offers_a_menu_and_runs_the_mode_chosen(folder, monkeypatch, capsys):
    status, out, _ = cli(monkeypatch, capsys, "quiz", typed=["9", "5", "3"])
    assert status == 0 and "Questions answered: 0 of 2" in out and "fact or folklore" in out
    assert "Over batch and heads." in out and len(progress.events("claim")) == 1
    assert cli(monkeypatch, capsys, "quiz", typed=["q"])[1].endswith("Until next time.\n")


def test_learn_asks_for_a_section_says_what_is_none_and_offers_the_first_that_is_left(
    folder, monkeypatch, capsys
):
    assert "New here? 4 finds the gaps" in cli(monkeypatch, capsys, "quiz", typed=["q"])[1]
    _, out, _ = cli(monkeypatch, capsys, "quiz", typed=["1", "z", "c04", "c", "q"])
    assert "or Enter for A:" in out and "no section or question Z" in out and "C04 is not written" in out
    assert "1/3 · C02" in out
    progress.record("free", "A06", score=1.0, missed=[])
    _, out, _ = cli(monkeypatch, capsys, "quiz", "learn", typed=["", "q"])
    assert "or Enter for C:" in out and "1/3 · C02" in out and "New here?" not in out
    assert cli(monkeypatch, capsys, "quiz", "learn", typed=["q"])[1].endswith("Until next time.\n")


def test_flashlab_quiz_takes_mode_section_and_language(folder, monkeypatch, capsys):
    _, out, _ = cli(monkeypatch, capsys, "quiz", "learn", "--section", "C", "--lang", "zh")
    assert "注意力矩阵有多大" in out
    status, _, err = cli(monkeypatch, capsys, "quiz", "learn", "--section", "X")
    assert status == 2 and "没有 X 这一章或这道题" in err
    status, _, err = cli(monkeypatch, capsys, "quiz", "learn", "--section", "c05", "--lang", "zh")
    assert status == 2 and "C05 还没写好。C 章现有 C02。" in err
    status, _, err = cli(monkeypatch, capsys, "quiz", "learn", "--section", "C", "--limit", "-1")
    assert status == 2 and "至少是 1" in err


def test_flashlab_plan_is_made_from_the_diagnosis(folder, monkeypatch, capsys):
    _, out, _ = cli(monkeypatch, capsys, "plan", "--evenings", "1")
    assert "One evening" in out and "flashlab quiz diagnosis" in out
    progress.record("diagnosis", "all", sections={"A": {"score": 0.9}, "C": {"score": 0.2}}, missed=["C02"])
    _, out, _ = cli(monkeypatch, capsys, "plan", "--evenings", "2")
    assert "Evening 2" in out and out.index("Section C (last time 20 %)") < out.index("Section A")
    _, out, _ = cli(monkeypatch, capsys, "plan", "--evenings", "3", "--lang", "zh")
    assert "第 3 晚" in out


def test_flashlab_cards_export_writes_all_three(folder, monkeypatch, capsys, tmp_path):
    files = {k: tmp_path / f"deck.{k}" for k in ("anki", "markdown", "csv")}
    arguments = [x for k, f in files.items() for x in (f"--{k}", str(f))]
    status, out, _ = cli(monkeypatch, capsys, "cards", "export", *arguments)
    assert status == 0 and out.count("cards written") == 3 and all(f.stat().st_size for f in files.values())
    assert cli(monkeypatch, capsys, "cards", "export")[0] == 2


def test_flashlab_progress_shows_exports_and_imports(folder, monkeypatch, capsys, tmp_path):
    progress.record("free", "A06", score=1.0, missed=[])
    file = str(tmp_path / "mine.json")
    assert "1 event written" in cli(monkeypatch, capsys, "progress", "--export", file)[1]
    assert "0 new events" in cli(monkeypatch, capsys, "progress", "--import", file)[1]
    _, out, _ = cli(monkeypatch, capsys, "progress")
    assert "Questions answered: 1 of 2" in out and "Attention and its bottleneck" in out and "50 %" in out
    (tmp_path / "bad.json").write_text("{}")
    assert cli(monkeypatch, capsys, "progress", "--import", str(tmp_path / "bad.json"))[0] == 2
    for option, says in (("--import", "Cannot read"), ("--export", "Cannot write")):
        status, _, err = cli(monkeypatch, capsys, "progress", option, str(tmp_path / "none" / "x.json"))
        assert status == 2 and says in err and "Errno" not in err
