"""What follows the set-up: flashlab/commands.py, and conftest's rule for skipped browser tests."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flashlab import bootstrap, commands, machine
from flashlab.__main__ import main
from flashlab.pip_run import SetupError

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("args", [["--port=9000"], ["--port", "9000"], ["--ServerApp.port=9000"]])
def test_the_port_is_read_and_other_arguments_are_kept(args):
    assert commands.split_port(["--no-browser", *args]) == (9000, ["--no-browser"])


@pytest.mark.parametrize("args", [["--port=abc"], ["--port"], ["--port=0"], ["--port=70000"]])
def test_a_port_that_is_no_port_is_refused_with_what_was_expected(args):
    with pytest.raises(SetupError, match="1 to 65535"):
        commands.split_port(args)


def test_the_administrator_may_start_jupyterlab_and_others_do_not_need_to():
    assert "--allow-root" in commands.lab_command(8888, uid=0)
    command = commands.lab_command(8889, ["--no-browser"], uid=1000)
    assert "--allow-root" not in command and "--no-browser" in command and "--port=8889" in command
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start.ipynb" in command


@pytest.fixture
def started(monkeypatch):
    """Catch the command that would become JupyterLab."""
    commands_started = []
    monkeypatch.setattr(os, "execv", lambda path, command: commands_started.append(command))
    monkeypatch.setattr(os, "chdir", lambda folder: None)
    monkeypatch.setattr(bootstrap, "install", lambda extras, say: False)
    monkeypatch.setattr(commands, "write_settings", lambda venv: None)
    return commands_started


def test_a_taken_port_is_said_and_the_next_one_taken(started, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        commands.lab([f"--port={taken}", "--no-browser"])
    assert f"Port {taken} is taken: using " in capsys.readouterr().out
    (command,) = started
    port = next(int(arg.split("=")[1]) for arg in command if arg.startswith("--port="))
    assert taken < port < taken + 50


def test_a_free_port_is_taken_without_a_word(started, capsys):
    port = commands.free_port(20_000)
    commands.lab([f"--port={port}"])
    assert "taken" not in capsys.readouterr().out and f"--port={port}" in started[0]


def offline(extras, say):
    raise SetupError("No network: ...")


def test_without_network_what_is_installed_already_still_starts(started, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "install", offline)
    monkeypatch.setattr(bootstrap, "read_stamp", lambda: ("older", {"lab"}))
    commands.lab(["--no-browser"])
    assert len(started) == 1 and "No network" in capsys.readouterr().out


def test_without_network_and_without_a_set_up_there_is_one_sentence(started, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "install", offline)
    monkeypatch.setattr(bootstrap, "read_stamp", lambda: (None, set()))
    assert main(["lab"]) == 1
    assert capsys.readouterr().err == "No network: ...\n" and started == []


def test_a_command_that_is_not_known_is_told(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["labb"])
    assert caught.value.code == 2 and "labb" in capsys.readouterr().err


def run_steps(monkeypatch, steps, problem=None, ci="false", others=()):
    monkeypatch.setattr(commands, "other_tritons", lambda: list(others))
    monkeypatch.setattr(bootstrap, "install", lambda extras, say: False)
    monkeypatch.setattr(commands, "debian_packages", lambda: None)
    monkeypatch.setattr(machine, "browser_problem", lambda: problem)
    monkeypatch.setattr(
        commands, "steps", lambda: [(name, [sys.executable, "-c", code]) for name, code in steps]
    )
    monkeypatch.setenv("CI", ci)
    return commands.test([])


def test_all_steps_run_and_one_failure_is_the_exit_status(monkeypatch, capfd):
    steps = [
        ("ruff check", "print('one')"),
        ("tests", "raise SystemExit(1)"),
        ("notebook tests", "print('three')"),
    ]
    assert run_steps(monkeypatch, steps) == 1
    said = capfd.readouterr().out
    assert "one" in said and "three" in said
    assert said.strip().splitlines()[-1].endswith("failed: tests")
    assert "failed (exit 1)" in said


def test_when_every_step_passes_the_exit_status_is_0(monkeypatch, capfd):
    assert run_steps(monkeypatch, [("ruff check", ""), ("browser tests", "")]) == 0
    assert capfd.readouterr().out.strip().endswith("all passed")


def test_without_a_browser_its_tests_are_skipped_with_a_word_on_what_to_install(monkeypatch, capfd):
    steps = [("tests", ""), ("browser tests", "print('ran')")]
    assert run_steps(monkeypatch, steps, machine.NO_CHROMIUM) == 0
    said = capfd.readouterr().out
    assert "apt-get install chromium" in said and "ran\n" not in said


def test_in_ci_the_browser_tests_run_and_so_fail_without_a_browser(monkeypatch, capfd):
    assert (
        run_steps(monkeypatch, [("browser tests", "raise SystemExit(1)")], machine.NO_CHROMIUM, ci="true")
        == 1
    )


def test_each_kind_of_test_has_a_process_of_its_own_and_none_runs_gpu_tests():
    expressions = [command[-1] for name, command in commands.steps() if "pytest" in command]
    assert expressions == [
        "not gpu and not notebook and not browser",
        "notebook and not gpu",
        "browser and not gpu",
    ]


PATH = "import os; print('path', os.environ.get('PYTHONPATH'))"


def test_ci_runs_the_interpreter_on_the_other_tritons_too_and_nobody_else_fetches_them(
    monkeypatch, capfd, tmp_path
):
    other = ("triton 3.9.0", [sys.executable, "-c", PATH + "; raise SystemExit(1)"])
    monkeypatch.setattr(commands, "side_install", lambda version: tmp_path / version)
    assert run_steps(monkeypatch, [("tests", "")], others=[other]) == 0
    assert "3.9.0" not in capfd.readouterr().out
    assert run_steps(monkeypatch, [("tests", PATH)], ci="true", others=[other]) == 1
    said = capfd.readouterr().out
    assert f"path {tmp_path / '3.9.0'}\n" in said and said.count(str(tmp_path)) == 1
    assert said.strip().endswith("failed: triton 3.9.0")


def test_a_triton_that_the_index_lacks_is_skipped_and_said(monkeypatch, capfd):
    def lacking(version):
        raise SetupError("The package index has no triton==3.9.0 for this machine and this Python.")

    monkeypatch.setattr(commands, "side_install", lacking)
    others = [("triton 3.9.0", [sys.executable, "-c", "raise SystemExit(1)"])]
    assert run_steps(monkeypatch, [("tests", "")], ci="true", others=others) == 0
    said = capfd.readouterr().out
    assert "skipped: The package index has no triton==3.9.0" in said
    assert said.strip().endswith("all that ran passed; skipped: triton 3.9.0")


def test_the_other_tritons_are_supported_versions_and_their_tests_exist():
    names = [name for name, _ in commands.other_tritons("Linux")]
    assert names == ["triton 3.8.0", "triton 3.9.0"] and commands.other_tritons("Darwin") == []
    for _, command in commands.other_tritons("Linux"):
        files = [part for part in command if part.startswith("tests/")]
        assert files and all((ROOT / file).exists() for file in files)


def test_a_side_install_that_broke_off_is_made_again_and_a_whole_one_is_kept(monkeypatch, tmp_path):
    asked = []

    def pip(pip, args, log, **_):
        asked.append(args[-1])
        folder = Path(args[args.index("--target") + 1])
        assert not folder.exists()
        folder.mkdir(parents=True)
        if len(asked) == 1:
            raise SetupError("No network")

    monkeypatch.setattr(commands.pip_run, "run_pip", pip)
    with pytest.raises(SetupError):
        commands.side_install("3.9.0", tmp_path)
    folder = commands.side_install("3.9.0", tmp_path)
    assert folder.is_dir() and commands.side_install("3.9.0", tmp_path) == folder
    assert asked == ["triton==3.9.0"] * 2


@pytest.mark.parametrize(
    "chromium, libatomic, word",
    [
        ("", True, "apt-get install chromium"),
        ("/bin/chromium", False, "libatomic1"),
        ("/bin/chromium", True, None),
    ],
)
def test_what_the_browser_tests_lack_is_named(chromium, libatomic, word):
    problem = machine.browser_problem(chromium, libatomic)
    assert problem is None if word is None else word in problem


def test_the_named_browser_comes_first():
    found = machine.find_chromium({"FLASHLAB_CHROMIUM": "/x/chrome"}, which=lambda name: name)
    assert found == "/x/chrome"
    assert machine.find_chromium({}, which=lambda name: name if "google" in name else None) == "google-chrome"


SKIPPING = """
import pytest

@pytest.mark.browser
def test_page():
    pytest.skip("no browser here")

@pytest.mark.browser
def test_fixture(missing):
    pass

@pytest.fixture
def missing():
    pytest.skip("no browser here")

def test_other():
    pytest.skip("this one may")
"""


@pytest.mark.parametrize("ci, counted", [("true", "1 failed, 1 skipped, 1 error"), ("false", "3 skipped")])
def test_a_skipped_browser_test_is_a_failure_in_ci_only(tmp_path, ci, counted):
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
        "test_skipping.py",
    ]
    environment = dict(os.environ, CI=ci, PYTHONPATH=str(ROOT / "tests"))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert counted in done.stdout, done.stdout + done.stderr
    assert done.returncode == (1 if ci == "true" else 0)
