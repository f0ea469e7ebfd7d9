"""A session in a terminal: typed lines in, lines of 80 columns out, nothing lost on Ctrl-C."""

import pytest
import quiz_cases

from flashlab import progress, text
from flashlab.cli import main
from flashlab.quiz import bank_loader, engine, items, terminal, textwidth


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
    assert "Missing: for one layer" in said and "03_C#C01" in said and "One matrix in all." in said
    assert summary["answered"] == 1 and progress.events("free")[0]["missed"] == ["layer"]


@pytest.mark.parametrize(
    ("lang", "given", "heard"),
    [
        ("en", "batch, head, N², but GQA shrinks it", "you said: GQA shrinks it. Query heads count."),
        ("zh", "每个 batch 每个头 N²，但 GQA 让它变小", "听起来你说的是：GQA 让它变小。看 query 头数。"),
    ],
)
def test_a_misconception_in_the_answer_is_heard_and_its_point_not_ticked(folder, lang, given, heard):
    _, said, _ = run("learn", [given, "", "", ""], lang=lang, section="A06")
    assert "[ ] 1 " in said and heard in said.replace("\n", " ")


def test_everything_is_chinese_with_lang_zh(folder):
    typed = ["每个 batch 每个头 N²", "", "", "m", "", "看不懂", "1"]
    _, said, _ = run("learn", typed, lang="zh", section="A06")
    assert "只是辅助，不是评判" in said and "漏了：带单位的数；只是一层" in said and "完整回答" in said
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


def cli(monkeypatch, capsys, *arguments, typed=()):
    typed = iter(typed)

    def read(prompt=""):
        print(prompt)
        found = next(typed, None)
        if found is None:
            raise EOFError
        return found

    monkeypatch.setattr(terminal.Screen.__init__, "__defaults__", (read, print, 80, "en"))
    status = main(list(arguments))
    out = capsys.readouterr()
    return status, out.out, out.err


def test_flashlab_quiz_offers_a_menu_and_runs_the_mode_chosen(folder, monkeypatch, capsys):
    status, out, _ = cli(monkeypatch, capsys, "quiz", typed=["9", "5", "3"])
    assert status == 0 and "Questions answered: 0 of 2" in out and "fact or folklore" in out
    assert "Over batch and heads." in out and len(progress.events("claim")) == 1
    assert cli(monkeypatch, capsys, "quiz", typed=["q"])[1].endswith("Until next time.\n")


def test_flashlab_quiz_takes_mode_section_and_language(folder, monkeypatch, capsys):
    _, out, _ = cli(monkeypatch, capsys, "quiz", "learn", "--section", "C", "--lang", "zh")
    assert "注意力矩阵有多大" in out
    status, _, err = cli(monkeypatch, capsys, "quiz", "learn", "--section", "X")
    assert status == 2 and "closest" in err.lower() or "known" in err.lower() or "A06" in err


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
    assert "1 events written" in cli(monkeypatch, capsys, "progress", "--export", file)[1]
    assert "0 new events" in cli(monkeypatch, capsys, "progress", "--import", file)[1]
    _, out, _ = cli(monkeypatch, capsys, "progress")
    assert "Questions answered: 1 of 2" in out and "Attention and its bottleneck" in out and "50 %" in out
    (tmp_path / "bad.json").write_text("{}")
    assert cli(monkeypatch, capsys, "progress", "--import", str(tmp_path / "bad.json"))[0] == 2
    assert cli(monkeypatch, capsys, "progress", "--import", str(tmp_path / "none.json"))[0] == 2
