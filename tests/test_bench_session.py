"""`flashlab bench session`, with suites that fail, hang, and leave processes behind (no GPU needed)."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from flashlab.bench import __main__ as bench
from flashlab.bench import session

# What a step does instead of measuring; `out` is its file. ROWS writes a whole result.
WRITE = "import json, os, sys, time, subprocess; out = sys.argv[1]\n"
WRITE += "def write(rows, **more): open(out, 'w').write(json.dumps(dict(rows=rows, **more)))\n"
GOOD = "print('measured'); write([dict(ms=1.0), dict(error='no such peer')])"
BAD = "print('one'); sys.exit('the GPU fell off the bus')"
HANG = "write([dict(ms=1.0)], stopped=True); print('begun'); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
DEAF += "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
DEAF += "print('child', child.pid); time.sleep(60)"


@pytest.fixture
def steps(monkeypatch):
    """Put programs in the place of the steps: steps(name=code, ...)."""

    def put(**codes):
        monkeypatch.setattr(session, "STEPS", {name: session.Step("cpu", 1) for name in codes})
        run = lambda name, step, folder, quick: [  # noqa: E731
            *(sys.executable, "-c", WRITE + codes[name], str(folder / f"{name}.json"))
        ]
        monkeypatch.setattr(session, "command", run)
        monkeypatch.setattr(session, "GRACE_S", 0.5)
        monkeypatch.setattr(session, "LEAST_S", 0.1)

    return put


def run(folder, *words):
    return bench.main(["session", "--out", str(folder), *words])


def test_each_step_runs_by_itself_and_the_table_says_what_failed_and_why(steps, tmp_path, capsys):
    steps(
        one=GOOD, two=BAD, three="write([])", four="write([dict(error='no memory')])", five="pass", six=GOOD
    )
    assert run(tmp_path / "new" / "folder") == 1
    said = capsys.readouterr().out
    rows = {
        line.split()[0]: line.split()[1:4] for line in said.split("step ", 1)[1].split("\n") if line[:1] > " "
    }
    assert rows["one"] == rows["six"] == ["ok", "2", "1"]
    assert rows["two"] == ["failed", "0", "0"] and "    the GPU fell off the bus\n" in said
    assert rows["three"][0] == "failed" and "    nothing was measured\n" in said
    assert rows["four"] == ["failed", "1", "1"] and "    no memory\n" in said
    assert rows["five"][0] == "failed" and "exit status 0, nothing said" in said
    assert said.index("== one") < said.index("measured") < said.index("== two")
    assert (tmp_path / "new/folder/two.log").read_text() == "one\nthe GPU fell off the bus\n"


def test_only_good_steps_are_exit_status_0(steps, tmp_path):
    steps(one=GOOD)
    assert run(tmp_path) == 0


def test_a_step_that_hangs_is_stopped_and_the_rest_goes_on(steps, tmp_path, capsys):
    steps(one=HANG, two=GOOD)
    start = time.monotonic()
    assert run(tmp_path, "--minutes", "0.1") == 1  # 3 s each
    assert time.monotonic() - start < 12
    said = capsys.readouterr().out
    assert "stopped      1          0" in said and "not done after 3 s" in said and "two        ok" in said


def alive(pid):
    """Whether a process runs (one that ended, but that nobody has waited for, does not)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
def test_a_step_that_does_not_listen_is_killed_with_the_processes_that_it_started(steps, tmp_path):
    steps(one=DEAF)
    assert run(tmp_path, "--minutes", "0.02") == 1
    child = int((tmp_path / "one.log").read_text().split()[1])
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def test_steps_for_which_no_time_is_left_are_not_begun(steps, tmp_path, capsys, monkeypatch):
    steps(one=GOOD, two=GOOD)
    monkeypatch.setattr(session, "LEAST_S", 1e9)
    assert run(tmp_path) == 1 and os.listdir(tmp_path) == []
    assert capsys.readouterr().out.count("no time") == 2


def test_a_step_whose_program_is_not_here_is_skipped_and_is_no_failure(steps, tmp_path, capsys, monkeypatch):
    steps(one=GOOD, two=GOOD)
    monkeypatch.setitem(session.STEPS, "two", session.Step("cpu", 1, needs="no-such-profiler"))
    assert run(tmp_path) == 0
    assert "skipped" in (said := capsys.readouterr().out) and "no-such-profiler was not found" in said


def test_all_time_that_a_step_leaves_goes_to_the_later_ones(steps, tmp_path, monkeypatch):
    steps(one=GOOD, two=GOOD, three=GOOD)
    given, real = [], session.one
    monkeypatch.setattr(session, "one", lambda *a: given.append(a[3]) or real(*a))
    assert run(tmp_path, "--minutes", "1") == 0
    assert given == pytest.approx([20, 30, 60], abs=4)


def test_ctrl_c_ends_the_running_step_and_shows_the_table(tmp_path):
    code = "import sys; sys.path.insert(0, 'tests'); import test_bench_session as t\n"
    code += "from flashlab.bench import session\n"
    code += "session.STEPS = {n: session.Step('cpu', 1) for n in ('one', 'two')}\n"
    code += "session.command = lambda name, step, folder, quick: "
    code += "[sys.executable, '-c', t.WRITE + t.HANG, str(folder / f'{name}.json')]\n"
    code += f"sys.exit(t.run({str(tmp_path)!r}))"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        while "begun" not in (line := process.stdout.readline()):
            assert line
        process.send_signal(signal.SIGTERM)  # a scheduler's way of saying it; SIGINT takes the same path
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130 and said.count("Ctrl-C") == 2 and "stopped      1" in said


def test_what_cannot_be_is_one_sentence_and_nothing_is_run(steps, tmp_path, capsys):
    steps(one=GOOD)
    (tmp_path / "one.json").write_text("{}")
    for words, sentence in {
        (): "needs --out FOLDER",
        ("--out", str(tmp_path)): "already holds one",
        ("--out", str(tmp_path / "one.json")): "cannot be a folder for the results: File exists",
        ("--out", str(tmp_path / "x"), "--suites", "won"): "unknown step of a session 'won'",
        ("--out", str(tmp_path / "x"), "--minutes", "0"): "--minutes above 0, got 0",
        ("--out", str(tmp_path / "x"), "--dims", "64"): "flashlab bench session takes no --dims",
    }.items():
        assert bench.main(["session", *words]) == 1
        assert sentence in " ".join(capsys.readouterr().err.split()), words
    assert bench.main(["cpu", "--minutes", "3"]) == 1
    assert "belong to flashlab bench session" in capsys.readouterr().err


def test_the_steps_are_suites_with_arguments_that_the_command_line_takes(tmp_path):
    steps = session.chosen(None, bench.SUITES)
    assert [name for name, _ in steps][:2] == ["schedule", "dispatch"]
    assert {step.words.split()[0] for _, step in steps} >= {"kernels", "decode", "memory", "host", "traffic"}
    for name, step in steps:
        words = session.command(name, step, tmp_path, True)[3:]
        args = bench.parser().parse_args(words)
        assert args.quick and args.out == tmp_path / f"{name}.json"
        assert callable(bench.SUITES[args.suite](args)["rows"])
    assert [name for name, _ in session.chosen(["host", "memory"], bench.SUITES)] == ["memory", "host"]
    assert "hopper" not in dict(session.chosen(None, ["kernels"]))


def test_the_table_stays_within_80_columns():
    long = session.Outcome("dispatch", "failed", 768, 12, 1234.5, "word " * 200)
    assert all(len(line) < 80 for line in session.table([long]).split("\n"))


def test_a_step_gets_the_commit_that_the_session_was_told(monkeypatch):
    monkeypatch.setenv("FLASHLAB_COMMIT", "abc1234")
    assert session.environment()["FLASHLAB_COMMIT"] == "abc1234"


def test_a_real_step_is_written_while_it_runs_and_is_whole_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "STEPS", {"cpu": session.Step("cpu --lengths 32 --peers standard", 1)})
    assert run(tmp_path, "--quick", "--minutes", "2") == 0
    result = json.loads((tmp_path / "cpu.json").read_text())
    assert "stopped" not in result and len(result["rows"]) == 2
    assert result["provenance"]["command"].endswith("cpu --quick --lengths 32 --peers standard")


def test_the_commands_in_the_readme_and_the_docstring_are_commands():
    from pathlib import Path

    from flashlab import cli

    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8") + session.__doc__
    lines = [line.split("#")[0].strip() for line in text.split("\n")]
    found = [line[line.index("flashlab bench ") :].split()[1:] for line in lines if "flashlab bench " in line]
    found = [words for words in found if "--out" in words]
    assert len(found) == 4
    for words in found:
        assert cli.parser().parse_args(words).suite == words[1]


def test_every_suite_is_named_where_the_suites_are_listed():
    from flashlab import bench as package

    named = package.__doc__.replace(",", " ").split()
    assert set(bench.SUITES) <= set(named)
    left = set(bench.SUITES) - {step.words.split()[0] for _, step in session.chosen(None, bench.SUITES)}
    assert left == {"cpu", "tune"}
