"""`flashlab bench`: one parser with `python -m flashlab.bench`, a bar, a file that is whole, Ctrl-C."""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from flashlab import cli, text
from flashlab.bench import __main__ as command
from flashlab.bench import files, kernels, progress, provenance
from flashlab.text import lines, textwidth

SMALL = ["cpu", "--quick", "--lengths", "32", "--peers", "sdpa-flash", "standard"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def said(text):
    """What was printed, however it was folded."""
    return " ".join(text.split())


def suite(monkeypatch, rows, **plan):
    """Put a suite in the place of `cpu` that yields what `rows(say)` yields."""
    monkeypatch.setitem(command.SUITES, "cpu", lambda args: dict(rows=rows, **plan))


def test_both_commands_have_the_same_arguments():
    line = [*SMALL, "--causal", "yes", "--out", "x.json"]
    args, other = cli.parser().parse_args(["bench", *line]), command.parser().parse_args(line)
    assert vars(args).items() >= vars(other).items() and args.run is command.run


def test_help_names_every_suite_and_imports_nothing_heavy():
    code = "import sys; from flashlab import cli; cli.parser(); "
    code += "print([m for m in ('torch', 'triton', 'numpy', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
    text = command.parser().format_help()
    assert all(f"\n  {name} " in text for name in command.SUITES)


def test_the_suite_cpu_runs_and_is_written_with_note_and_provenance(tmp_path, capsys):
    out = tmp_path / "x.json"
    assert cli.main(["bench", *SMALL, "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert list(result) == ["suite", "provenance", "note", "rows"] and "not say how fast" in result["note"]
    assert [(r["direction"], r["peer"]) for r in result["rows"]] == [
        (direction, peer) for direction in ("forward", "backward") for peer in ("sdpa-flash", "standard")
    ]
    assert all(r["N"] == 32 and r["ms"] > 0 and r["peak_bytes"] > 0 for r in result["rows"])
    where = result["provenance"]
    assert where["command"] == "python -m flashlab.bench " + " ".join(SMALL)
    assert where["threads"] >= 1 and where["cpu"] and where["gpu"] is None
    assert str(tmp_path) not in out.read_text() and os.listdir(tmp_path) == ["x.json"]
    assert capsys.readouterr().err == ""  # no bar where there is no terminal


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    out = tmp_path / "x.json"
    words = ["cpu", "--quick", "--lengths", *["64"] * 4000, "--peers", "sdpa-flash", "--out", str(out)]
    run = subprocess.Popen(
        [sys.executable, "-m", "flashlab.bench", *words],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        head, *lines = [run.stdout.readline() for _ in range(4)]
        run.send_signal(signal.SIGINT)
        rest, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert all("sdpa-flash" in line for line in lines) and "Traceback" not in rest
    assert head.split() == "direction dtype D N mask peer FLOP/s ms".split()
    assert run.returncode == 130
    result = json.loads(out.read_text())
    assert result["stopped"] is True and 3 <= len(result["rows"]) < 4000
    assert said(rest).endswith(f"stopped; measurements in {out}: {len(result['rows'])}")
    assert result["provenance"]["torch"]


def test_ctrl_c_without_a_file_says_that_nothing_is_kept(monkeypatch, capsys):
    def rows(say):
        yield dict(ms=1.0)
        raise KeyboardInterrupt

    suite(monkeypatch, rows)
    assert command.main(["cpu"]) == 130
    assert "measurements made: 1, kept in no file (--out FILE keeps them)" in said(capsys.readouterr().out)


def test_a_suite_that_breaks_keeps_what_was_measured_and_still_breaks(tmp_path, monkeypatch):
    def rows(say):
        yield dict(ms=1.0)
        raise RuntimeError("the GPU fell off the bus")

    suite(monkeypatch, rows)
    with pytest.raises(RuntimeError, match="fell off"):
        command.main(["cpu", "--out", str(tmp_path / "x.json")])
    assert json.loads((tmp_path / "x.json").read_text())["rows"] == [dict(ms=1.0)]


def test_an_old_file_stays_whole_when_writing_fails(tmp_path, monkeypatch):
    out = tmp_path / "x.json"
    out.write_text("old")
    monkeypatch.setattr(os, "replace", lambda a, b: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        command.write(out, dict(suite="cpu", rows=[]))
    assert out.read_text() == "old" and os.listdir(tmp_path) == ["x.json"]


def test_what_cannot_be_is_said_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    for words, sentence in {
        ("cpu", "--out", str(tmp_path / "no" / "x.json")): "there is no folder",
        ("cpu", "--out", str(tmp_path)): "is a folder; give the name of a file",
        ("cpu", "--out", str(tmp_path / "pipe")): "is no ordinary file and would be replaced",
        ("cpu", "--peers", "sdpa-flsh"): "Did you mean 'sdpa-flash'",
        ("cpu", "--dtypes", "float16"): "flashlab bench cpu takes no --dtypes",
        ("kernels",): "needs an NVIDIA GPU",
    }.items():
        assert command.main([*words]) == 1
        assert sentence in said(capsys.readouterr().err), words
    with pytest.raises(SystemExit):
        command.main(["cpus"])


def test_a_file_that_cannot_be_written_is_said_before_and_after(tmp_path, capsys, monkeypatch):
    def closed(**_):
        raise PermissionError(13, "Permission denied")

    suite(monkeypatch, lambda say: iter([dict(ms=1.0)]))
    with monkeypatch.context() as patched:
        patched.setattr(files.tempfile, "TemporaryFile", closed)
        assert command.main(["cpu", "--out", str(tmp_path / "x.json")]) == 1
        assert "x.json cannot be written: Permission denied" in said(capsys.readouterr().err)
    monkeypatch.setattr(
        os, "replace", lambda a, b: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    assert command.main(["cpu", "--out", str(tmp_path / "x.json")]) == 1
    assert "x.json cannot be written: No space left on device" in said(capsys.readouterr().err)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_that_is_printed_fits_80_columns_in_both_languages(language, capsys, monkeypatch):
    monkeypatch.setattr(text, "_chosen", language)
    monkeypatch.setenv("COLUMNS", "80")
    for words in (["kernels"], ["cpu", "--minutes", "3"], ["cpu", "--dtypes", "float16"], ["session"]):
        assert command.main(words) == 1
    row = dict(direction="backward", dtype="bfloat16", D=256, N=16384, causal=True, peer="flash-attn-4")
    slow = row | dict(ms=12345.678, tflops=1234.5, percent_of_floor=100.0)
    for line in (kernels.HEAD, kernels.line(slow), kernels.line(row | dict(error="no kernel " * 30))):
        lines.say(line)
    for words in (["bench", "cpu", "--dtypes", "a" * 30], ["bench", "--help"]):
        with pytest.raises(SystemExit):
            cli.main(words)
    out, err = capsys.readouterr()
    assert len(out.splitlines()) > 30 and len(err.splitlines()) > 5
    assert max(map(textwidth.width, (out + err).splitlines())) <= 80


def test_every_suite_has_a_plan_that_names_its_size_or_says_nothing(monkeypatch):
    for name, plan in command.SUITES.items():
        found = plan(command.parser().parse_args([name]))
        assert callable(found["rows"]) and found.get("total", 1) > 0
        assert set(found) <= {"total", "rows", "about"}


def test_the_command_in_a_record_does_the_same_again():
    words = ["kernels", "--quick", "--dims", "64", "--causal", "no", "yes", "--directions", "forward"]
    args = command.parser().parse_args([*words, "--out", "x.json"])
    again = command.command(args).removeprefix("python -m flashlab.bench ").split()
    assert vars(command.parser().parse_args(again)) == vars(args) | {"out": None}


def test_the_bar_shows_how_much_is_done_and_how_long_the_rest_takes():
    now = iter(range(0, 1000, 30))
    stream = Terminal()
    bar = progress.Bar(4, stream, lambda: next(now))
    bar.step()
    assert stream.getvalue().endswith("[######..................] 1/4 about 1:30 left")
    bar.total = None
    assert bar.text() == "1 done"


def test_lines_are_printed_above_the_bar_and_the_bar_goes_away(capsys):
    stream = Terminal()
    bar = progress.Bar(2, stream, time.monotonic)
    bar.say("a measurement")
    assert capsys.readouterr().out == "a measurement\n" and stream.getvalue().count("0/2") == 2
    bar.clear()
    assert stream.getvalue().endswith("\r\033[K")


def test_without_a_terminal_there_is_no_bar():
    stream = io.StringIO()
    bar = progress.Bar(2, stream)
    bar.step()
    bar.clear()
    assert stream.getvalue() == ""


def test_provenance_holds_no_host_name_and_no_path():
    import socket

    where = provenance.provenance("python -m flashlab.bench cpu")
    text = json.dumps(where)
    assert os.getcwd() not in text and os.path.expanduser("~") + "/" not in text
    assert len(socket.gethostname()) < 4 or socket.gethostname() not in text
    names = "gpu driver sm_clock sm_clock_max power_limit torch triton cuda cudnn python cpu cores threads "
    assert where.keys() == set((names + "date command flashlab commit").split())


def test_the_commit_is_flashlabs_and_not_that_of_the_folder_one_stands_in(tmp_path, monkeypatch):
    here = provenance.commit()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLASHLAB_COMMIT", raising=False)
    assert provenance.commit() == here
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "site-packages" / "flashlab")
    assert provenance.commit() is None
    monkeypatch.setenv("FLASHLAB_COMMIT", "abc1234")
    assert provenance.commit() == "abc1234"


def test_arguments_can_be_added_to_any_parser():
    p = argparse.ArgumentParser()
    command.add_arguments(p)
    assert p.parse_args(["decode"]).suite == "decode"
