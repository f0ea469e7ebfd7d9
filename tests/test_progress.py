"""One file, several notebooks: nothing acknowledged may be lost, and nothing here may break a lesson."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from flashlab import progress, text
from flashlab.quiz import standing

WRITE = """
import sys, time
from flashlab import progress
who, count, start = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
time.sleep(max(0, start - time.time()))
for n in range(count):
    progress.events("guess", who)  # read, then write: what loses writes under a plain BEGIN
    print(n, progress.record("guess", who, guess=str(n)), flush=True)
"""


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch):
    monkeypatch.setattr(progress, "_in_memory", [])
    monkeypatch.setattr(progress, "_said", set())
    text.lang("en")


def start_writers(count, names="abc", script=WRITE):
    at = str(time.time() + 0.4)
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, who, str(count), at], stdout=subprocess.PIPE, text=True
        )
        for who in names
    ]


def acknowledged(output):
    """The numbers whose record() came back True."""
    return [int(line.split()[0]) for line in output.splitlines() if line.endswith(" True")]


def test_an_event_comes_back_as_it_was_recorded():
    assert progress.record("guess", "C-p01", guess="37/6", choice=-1) is True
    (event,) = progress.events()
    assert {k: event[k] for k in ("kind", "id", "guess", "choice")} == {
        "kind": "guess",
        "id": "C-p01",
        "guess": "37/6",
        "choice": -1,
    }
    assert event["at"].endswith("+00:00")


def test_the_file_is_where_flashlab_home_says(flashlab_home):
    progress.record("check", "online_softmax", passed=True)
    assert progress.path() == flashlab_home / "progress.sqlite"
    assert progress.path().exists()


def test_without_a_choice_the_file_is_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("FLASHLAB_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert progress.path() == tmp_path / ".flashlab" / "progress.sqlite"
    monkeypatch.delitem(sys.modules, "platformdirs")
    assert progress.path().name == "progress.sqlite" and "flashlab" in progress.path().parent.name
    if sys.platform == "linux":
        assert progress.path() == tmp_path / "data" / "flashlab" / "progress.sqlite"


def test_a_file_of_the_older_place_goes_on_being_used(monkeypatch, tmp_path):
    monkeypatch.delenv("FLASHLAB_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".flashlab").mkdir()
    (tmp_path / ".flashlab" / "progress.sqlite").touch()
    assert progress.path() == tmp_path / ".flashlab" / "progress.sqlite"


def test_flashlab_data_dir_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHLAB_DATA_DIR", str(tmp_path))
    progress.record("item", "A06-n1", right=True)
    assert progress.path() == tmp_path / "progress.sqlite" and progress.path().exists()


def test_a_file_of_the_first_version_is_brought_up_to_date_with_its_events(flashlab_home):
    with sqlite3.connect(progress.path()) as db:
        db.execute(progress.MIGRATIONS[0])
        db.execute("PRAGMA user_version = 1")
        row = ("2026-01-01T00:00:00.000+00:00", "guess", "C-p01", '{"guess": "4"}')
        db.execute("INSERT INTO event (at, kind, name, data) VALUES (?, ?, ?, ?)", row)
    db.close()
    assert [e["guess"] for e in progress.events()] == ["4"]  # reading changes nothing
    progress.record("card", "A06-a", rating=3)
    assert [e["id"] for e in progress.events()] == ["C-p01", "A06-a"]
    with sqlite3.connect(progress.path()) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (progress.SCHEMA,)
        assert db.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    db.close()


def test_an_export_read_elsewhere_gives_the_same_events_once(monkeypatch, tmp_path):
    progress.record("guess", "C-p01", guess="4")
    progress.record("free", "A06", score=0.5, missed=["number"], given="答")
    progress.export(tmp_path / "out.json")
    there = progress.events()
    monkeypatch.setenv("FLASHLAB_HOME", str(tmp_path / "other"))
    progress.record("card", "A06-a", rating=3)
    assert progress.merge(tmp_path / "out.json") == 2
    assert progress.merge((tmp_path / "out.json").read_text(encoding="utf-8")) == 0
    assert progress.events()[:2] == there and len(progress.events()) == 3


@pytest.mark.parametrize(
    "text",
    ["{}", '{"flashlab": "progress"}', "{", '{"flashlab": "progress", "events": [{"at": "x"}]}']
    + ['{"flashlab": "progress", "events": [{"at": "2026-01-01T00:00:00+00:00", "kind": "x", "id": "a"}]}'],
)
def test_what_is_no_export_is_refused_and_changes_nothing(text, tmp_path):
    (tmp_path / "in.json").write_text(text)
    with pytest.raises(ValueError, match="no export"):
        progress.merge(tmp_path / "in.json")
    assert progress.events() == []


def test_reading_before_anything_was_written_makes_no_file():
    assert progress.events() == []
    assert not progress.path().exists()


def test_events_are_chosen_by_kind_and_id():
    progress.record("guess", "C-p01", guess="1")
    progress.record("guess", "C-p02", guess="2")
    progress.record("prompt", "C05-a", known=True)
    assert [e["id"] for e in progress.events("guess")] == ["C-p01", "C-p02"]
    assert [e["kind"] for e in progress.events(id="C05-a")] == ["prompt"]
    assert progress.latest("guess", "C-p03") is None


def test_an_unknown_kind_names_the_closest_one():
    with pytest.raises(ValueError, match="'guess'"):
        progress.record("gues", "C-p01")


def test_three_processes_that_read_and_write_at_once_lose_nothing():
    writers = start_writers(60)
    for writer, who in zip(writers, "abc", strict=True):
        output, _ = writer.communicate(timeout=60)
        assert acknowledged(output) == list(range(60))
        assert [e["guess"] for e in progress.events("guess", who)] == [str(n) for n in range(60)]


def test_first_use_by_three_at_once_makes_one_table(flashlab_home):
    for _ in range(4):
        progress.path().unlink(missing_ok=True)
        for writer in start_writers(2):
            output, _ = writer.communicate(timeout=60)
            assert acknowledged(output) == [0, 1]
        assert len(progress.events()) == 6


def test_a_damaged_file_met_by_three_at_once_is_set_aside_once(flashlab_home):
    progress.path().write_bytes(b"this was never a database, " * 200)
    for writer in start_writers(5):
        output, _ = writer.communicate(timeout=60)
        assert acknowledged(output) == list(range(5))
    assert len(progress.events()) == 15
    assert len(list(flashlab_home.glob("progress.sqlite.damaged-*"))) == 1


def test_kill_minus_nine_loses_no_acknowledged_event_and_leaves_a_sound_file():
    script = WRITE.replace("for n in range(count):", "import itertools\nfor n in itertools.count():")
    for attempt in range(3):
        writers = start_writers(0, names=[f"{who}{attempt}" for who in "abc"], script=script)
        first = [writer.stdout.readline() for writer in writers]  # all three are at work
        time.sleep(0.05 + 0.03 * attempt)
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        for writer, who, line in zip(writers, "abc", first, strict=True):
            output, _ = writer.communicate(timeout=60)
            said = acknowledged((line + output).rpartition("\n")[0])
            assert said, "the writers never got to write"
            stored = [int(e["guess"]) for e in progress.events("guess", f"{who}{attempt}")]
            assert set(said) <= set(stored)
            assert stored == list(range(len(stored)))
        with sqlite3.connect(progress.path()) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()


def test_threads_may_record_at_once():
    def write(who):
        for n in range(20):
            assert progress.record("prompt", f"{who}-{n}", known=True)

    threads = [threading.Thread(target=write, args=(who,)) for who in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({e["id"] for e in progress.events("prompt")}) == 80


def test_a_damaged_file_is_kept_and_a_new_one_begins(flashlab_home, capsys):
    progress.record("guess", "C-p01", guess="4")
    progress.path().write_bytes(b"not a database at all " * 100)
    assert progress.record("guess", "C-p02", guess="3") is True
    assert progress.record("guess", "C-p03", guess="3") is True
    assert [e["id"] for e in progress.events()] == ["C-p02", "C-p03"]
    (kept,) = flashlab_home.glob("*damaged*")
    assert kept.read_bytes().startswith(b"not a database")
    said = capsys.readouterr().err
    assert said.count("was damaged") == 1 and kept.name in said


def test_a_damaged_file_takes_its_journal_along(flashlab_home):
    progress.path().write_bytes(b"damaged")
    (flashlab_home / "progress.sqlite-journal").write_bytes(b"its journal")
    progress._set_aside(progress.path(), progress._identity(progress.path()))
    kept, journal = sorted(flashlab_home.glob("*damaged*"))
    assert journal.name == kept.name + "-journal" and journal.read_bytes() == b"its journal"
    assert not progress.path().exists()


def test_a_file_that_someone_else_has_just_renewed_is_not_set_aside(flashlab_home):
    progress.record("guess", "C-p01", guess="4")
    progress._set_aside(progress.path(), ("another", "file"))
    assert len(progress.events()) == 1 and not list(flashlab_home.glob("*damaged*"))


def test_a_locked_file_is_never_set_aside(flashlab_home, monkeypatch, capsys):
    progress.record("guess", "C-p01", guess="4")
    monkeypatch.setattr(progress, "WAIT_SECONDS", 0.1)
    other = sqlite3.connect(progress.path(), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert progress.record("guess", "C-p02", guess="3") is False
    other.execute("ROLLBACK")
    other.close()
    assert not list(flashlab_home.glob("*damaged*"))
    assert "locked" in capsys.readouterr().err
    assert [e["id"] for e in progress.events()] == ["C-p01", "C-p02"], (
        "the file's events, then this session's"
    )


@pytest.mark.parametrize("why", ["a file stands where the folder should be", "the file is a folder"])
def test_a_home_that_cannot_be_used_costs_one_sentence_and_no_lesson(why, monkeypatch, tmp_path, capsys):
    home = tmp_path / "home"
    if why.startswith("a file"):
        home.write_text("not a folder")
    else:
        (home / "progress.sqlite").mkdir(parents=True)
    monkeypatch.setenv("FLASHLAB_HOME", str(home))
    assert progress.record("guess", "C-p01", guess="4") is False
    assert progress.record("guess", "C-p01", guess="5") is False
    assert progress.latest("guess", "C-p01")["guess"] == "5"
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(home) in said


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_costs_one_sentence_and_no_lesson(flashlab_home, capsys):
    flashlab_home.chmod(0o500)
    try:
        assert progress.record("guess", "C-p01", guess="4") is False
        assert progress.latest("guess", "C-p01")["guess"] == "4"
    finally:
        flashlab_home.chmod(0o700)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_read_only_file_is_still_read(flashlab_home, monkeypatch, capsys):
    progress.record("guess", "C-p01", guess="4")
    connect = sqlite3.connect
    # Root may write to a read-only file, so the mode is set where SQLite opens it.
    monkeypatch.setattr(sqlite3, "connect", lambda file, **k: connect(f"file:{file}?mode=ro", uri=True, **k))
    assert progress.record("guess", "C-p02", guess="3") is False
    assert [e["id"] for e in progress.events()] == ["C-p01", "C-p02"]
    assert "readonly" in capsys.readouterr().err


def test_a_file_of_a_newer_edition_is_left_alone(flashlab_home, capsys):
    progress.record("guess", "C-p01", guess="4")
    with sqlite3.connect(progress.path()) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = progress.path().read_bytes()
    assert progress.record("guess", "C-p02", guess="3") is False
    assert progress.path().read_bytes() == before
    assert "newer edition" in capsys.readouterr().err


def test_export_is_json_with_every_event(tmp_path):
    progress.record("guess", "C-p01", guess="四", choice=-1)
    file = tmp_path / "progress.json"
    said = progress.export(file)
    assert json.loads(said) == json.loads(file.read_text(encoding="utf-8"))
    assert json.loads(said)["events"][0]["guess"] == "四"


def test_the_summary_counts_the_last_event_of_each_id_by_lesson():
    progress.record("guess", "C-p01", guess="37/6")
    progress.record("reveal", "C-p01", guess="37/6", right=False)
    progress.record("guess", "C-p01", guess="4")
    progress.record("reveal", "C-p01", guess="4", right=True)
    progress.record("guess", "S-p01", guess="2")
    progress.record("prompt", "C05-a", known=False)
    progress.record("prompt", "C05-b", known=False)
    progress.record("prompt", "C05-b", known=True)
    progress.record("check", "online_softmax", passed=True)
    progress.record("check", "online_softmax", passed=False)
    progress.record("pretest", "C-t1", guess="1", right=False)
    progress.record("posttest", "C-t1", guess="5", right=True)
    lesson = progress.summary()["lessons"]["C"]
    assert lesson["predictions"] == {"made": 1, "right": 1, "total": 18}
    assert lesson["prompts"] == {"known": 1, "not_yet": 1, "total": 25}
    assert lesson["checks"] == ["online_softmax"], "passed once is passed"
    assert (lesson["tests"]["before"], lesson["tests"]["after"], lesson["tests"]["total"]) == (0, 1, 3)
    assert progress.summary()["lessons"]["start"]["predictions"]["made"] == 1


def test_a_question_that_no_lesson_knows_is_counted_under_its_letters():
    assert standing.lesson_of("guess", "Z-p01") == "Z"
    assert standing.lesson_of("check", "online_softmax") == "C"


@pytest.mark.parametrize("code", ["en", "zh"])
def test_the_report_shows_itself_as_text_and_as_a_table(code):
    text.lang(code)
    assert "<table" not in progress.report()._repr_html_()
    progress.record("guess", "C-p01", guess="4")
    progress.record("check", "<made up>", passed=True)
    report = progress.report()
    assert text.t("learn.progress.title") in repr(report)
    assert "18" in repr(report)
    page = report._repr_html_()
    assert '<th scope="col"' in page and "&lt;made up&gt;" in page and "<made up>" not in page
