"""What follows the set-up: JupyterLab on the start page, or every check. Standard library, Python 3.8."""

import json
import os
import platform
import shutil
import socket
import subprocess
import time
from pathlib import Path

from . import bootstrap, machine, pip_run
from .pip_run import SetupError

START = "/lab/tree/notebooks/00_start.ipynb"
# Beside the pinned Triton: versions whose private API flashlab/interpreter.py follows. CI tests them too.
OTHER_TRITONS = ("3.8.0", "3.9.0")
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
}


def say(text):
    """Print at once, also where the output is a pipe."""
    print(text, flush=True)


def lab(args):
    """Set up if needed, then become JupyterLab on the start page, with `args`; Ctrl-C stops it."""
    try:
        bootstrap.install({"lab"}, say)
        write_settings(bootstrap.VENV)
    except SetupError as error:
        if bootstrap.read_stamp()[0] is None:
            raise
        say("flashlab: {} Starting what is installed already.".format(error))
    port, others = split_port(args)
    free = free_port(port)
    if free != port:
        say("Port {} is taken: using {}.".format(port, free))
    command = lab_command(free, others)
    say("JupyterLab starts; stop it with Ctrl-C.")
    if os.name == "nt":
        return subprocess.call(command, cwd=str(bootstrap.ROOT))
    os.chdir(str(bootstrap.ROOT))
    os.execv(command[0], command)


def lab_command(port, args=(), uid=None):
    """Return the command line of JupyterLab."""
    command = [str(bootstrap.venv_python()), "-m", "jupyterlab", "--port={}".format(port)]
    command += ["--LabApp.default_url={}".format(START), "--ServerApp.log_level=WARN"]
    uid = getattr(os, "geteuid", lambda: 1)() if uid is None else uid
    if uid == 0:
        command.append("--allow-root")
    return command + list(args)


def split_port(args, default=8888):
    """Return (port, the other arguments); the port comes as --port=N, --port N or --ServerApp.port=N."""
    port, others, args = default, [], list(args)
    while args:
        arg = args.pop(0)
        name, _, value = arg.partition("=")
        if name not in ("--port", "--ServerApp.port"):
            others.append(arg)
            continue
        value = value or (args.pop(0) if args else "")
        if not value.isdigit() or not 0 < int(value) < 65536:
            raise SetupError("--port needs a number from 1 to 65535, and got {!r}.".format(value))
        port = int(value)
    return port, others


def free_port(port, tries=50):
    """Return the first port from `port` on that nobody listens at on this machine."""
    for candidate in range(port, min(port + tries, 65536)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name != "nt":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", candidate))
                return candidate
            except OSError:
                continue
    raise SetupError("No free port from {} on: name another with --port=N.".format(port))


def write_settings(venv):
    """Tell this .venv's JupyterLab to ask nothing about news at first and to show Markdown rendered."""
    folder = Path(venv, "share", "jupyter", "lab", "settings")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overrides.json").write_text(json.dumps(SETTINGS, indent=2) + "\n")


def test(args):
    """Set up if needed, then lint and the whole test suite; return 0 only if every step passed."""
    if args:
        raise SetupError(
            "test takes no arguments; for single tests: .venv/bin/python -m pytest tests/test_tiled.py"
        )
    start = time.monotonic()
    ci = os.environ.get("CI") == "true"
    bootstrap.install({"lab", "test"}, say)
    debian_packages()
    lacking = machine.browser_problem()
    results = []
    for name, command in steps() + (other_tritons() if ci else []):
        if name == "browser tests" and lacking and not ci:
            results.append((name, None, "skipped: {}".format(lacking)))
            continue
        say("\n== {}".format(name))
        began = time.monotonic()
        environment = step_environment()
        if name.startswith("triton "):
            try:
                version = name.split()[1]
                environment.update(PYTHONPATH=str(side_install(version)), FLASHLAB_SIDE_TRITON=version)
            except SetupError as error:
                results.append((name, None, "skipped: {}".format(error)))
                continue
        code = subprocess.call(command, cwd=str(bootstrap.ROOT), env=environment)
        ended = (
            "failed: no test ran" if code == 5 and "pytest" in command else "failed (exit {})".format(code)
        )
        results.append((name, time.monotonic() - began, ended if code else "passed"))
    say("\n" + summary(results, time.monotonic() - start))
    return 1 if any(ended.startswith("failed") for _, _, ended in results) else 0


def steps():
    """Return [(name, command)]: lint, the built files, then the tests, each kind in a process of its own."""
    python = str(bootstrap.venv_python())
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m"]
    return [
        ("ruff check", [python, "-m", "ruff", "check", "."]),
        ("ruff format", [python, "-m", "ruff", "format", "--check", "."]),
        ("built notebooks", [python, "course/build.py", "--check"]),
        ("tests", [*pytest, "not gpu and not notebook and not browser"]),
        ("notebook tests", [*pytest, "notebook and not gpu"]),
        ("browser tests", [*pytest, "browser and not gpu"]),
    ]


def other_tritons(system=None):
    """Return the steps that CI adds: the interpreter and its records on the other supported Tritons."""
    if (system or platform.system()) != "Linux":
        return []
    command = [str(bootstrap.venv_python()), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not gpu and not gate", "-k", "interpreter or kernels_fa2 or 1-fa"]
    files = ["tests/test_interpreter.py", "tests/test_kernels_fa2.py", "tests/test_memory.py"]
    return [("triton " + version, command + files) for version in OTHER_TRITONS]


def side_install(version, venv=None):
    """Install that Triton beside the .venv's own, unless it is there; return the folder for PYTHONPATH."""
    venv = Path(venv or bootstrap.VENV)
    folder, unfinished = venv / "side" / version, venv / "side" / (version + ".unfinished")
    if not folder.exists():
        shutil.rmtree(str(unfinished), ignore_errors=True)
        pip = [str(bootstrap.venv_python(venv)), "-m", "pip"]
        args = ["install", "--no-deps", "--target", str(unfinished), "triton==" + version]
        pip_run.run_pip(pip, args, venv / "install.log", tmp=None, say=say, label="Triton " + version)
        unfinished.rename(folder)
    return folder


def step_environment():
    """Return the environment of a step: the .venv's commands first on PATH, one thread, no windows."""
    folder = str(bootstrap.venv_python().parent)
    path = os.pathsep.join([folder, os.environ.get("PATH", "")])
    return dict(os.environ, PATH=path, VIRTUAL_ENV=str(bootstrap.VENV), OMP_NUM_THREADS="1", MPLBACKEND="Agg")


def summary(results, seconds):
    """Return the last lines: each step with its time and how it ended, then all of it."""
    lines = []
    for name, took, ended in results:
        lines.append("{:<16}{:>8}  {}".format(name, "" if took is None else "{:.1f} s".format(took), ended))
    bad = [name for name, _, ended in results if ended.startswith("failed")]
    verdict = "failed: {}".format(", ".join(bad)) if bad else "all passed"
    skipped = [name for name, _, ended in results if ended.startswith("skipped")]
    if skipped and not bad:
        verdict = "all that ran passed; skipped: {}".format(", ".join(skipped))
    return "\n".join(lines + ["{:<16}{:>8}  {}".format("make test", "{:.1f} s".format(seconds), verdict)])


def debian_packages(missing=None, root=None):
    """Install what the browser tests need, where apt is and we are root; elsewhere do nothing."""
    if missing is None:
        here = (machine.find_chromium(), machine.has_libatomic(), machine.has_cjk_font())
        missing = [name for name, there in zip(machine.DEBIAN_PACKAGES, here) if not there]
    root = (getattr(os, "geteuid", lambda: 1)() == 0) if root is None else root
    if not missing or not root or shutil.which("apt-get") is None:
        return
    say("Installing with apt, for the browser tests: {}".format(", ".join(missing)))
    log = bootstrap.VENV / "apt.log"
    began = time.monotonic()
    apt = ["apt-get", "-q", "-y", "-o", "Dpkg::Use-Pty=0"]
    with open(str(log), "ab") as out:
        for command in ([*apt, "update"], [*apt, "install", "--no-install-recommends", *missing]):
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
            if subprocess.call(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment):
                if "install" in command:
                    say("apt could not install them: see {}".format(log))
                    return
    say("  installed in {:.0f} s".format(time.monotonic() - began))
