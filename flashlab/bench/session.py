"""Everything that one GPU should be asked, in one command, for people whose time on it is short:

    FLASHLAB_COMMIT=$(git describe --always --dirty) flashlab bench session --out FOLDER --minutes 25

(The variable is needed only where the package is a copy without its git folder.) Each step of `STEPS` runs in
a process of its own, the most valuable first, with a share of the minutes; what a step does not use, later
ones get. FOLDER gets `STEP.json`, written while the step runs, and `STEP.log`, all that it said. A step that
takes too long is asked to stop, so that it keeps what it has, then killed with all processes that it started;
the others go on. Exit status: 0, 1 if a step failed or had not the time, 130 after Ctrl-C.

A file that is whole is kept for the course as flashlab/bench/recorded/MACHINE_STEP.json, for example
h200_schedule.json, as it is: its command, commit, date and machine are in it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from flashlab.errors import unknown_name
from flashlab.text import lang, lines, t

MINUTES = 25
GRACE_S = 10  # from "please stop" to the end
LEAST_S = 5  # not worth starting a process for less


class Step(NamedTuple):
    """A suite with its arguments, how many parts of the time it gets, and a program that it needs."""

    words: str
    parts: int
    needs: str | None = None


STEPS = {
    "schedule": Step("schedule", 3),
    "dispatch": Step("dispatch", 3),
    "hopper": Step("hopper", 6),  # 90 compilations, several at a time, before anything is timed
    "kernels": Step("kernels --peers fa2 fa3 standard sdpa-flash sdpa-cudnn sdpa-efficient", 8),
    "decode": Step("decode", 2),
    "memory": Step("memory", 2),
    "host": Step("host", 1),
    "traffic": Step("traffic", 4, needs="ncu"),
    # what takes long: compilations of FlexAttention, slow peers, and packages that few have
    "fa1": Step("kernels --dtypes float16 --causal no --lengths 1024 4096 --peers fa1 sdpa-math", 1),
    "flex": Step("kernels --dtypes float16 --lengths 1024 4096 --peers flex", 2),
}


class Outcome(NamedTuple):
    """How a step ended: "ok", "failed", "stopped" (it took too long), "no time" (not begun) or "skipped" (it
    cannot run here); its rows, how many of them are without a result, seconds, and why.
    """

    name: str
    state: str
    rows: int = 0
    errors: int = 0
    seconds: float = 0.0
    why: str = ""


def chosen(names, suites):
    """[(name, Step), ...] in the order of STEPS; all those whose suite there is, or the named ones.

    `suites`: what `flashlab bench` knows. Raises ValueError for an unknown name.
    """
    there = {name: step for name, step in STEPS.items() if step.words.split()[0] in suites}
    for name in names or ():
        if name not in there:
            raise unknown_name("step of a session", name, there)
    return [(name, step) for name, step in there.items() if not names or name in names]


def run(args, suites, say=lines.say):
    """The session of parsed arguments (out, suites, minutes, quick); returns the exit status."""
    try:
        steps, folder = chosen(args.suites, suites), prepared(args.out)
        minutes = args.minutes if args.minutes is not None else MINUTES
        if not minutes > 0:
            raise ValueError(t("bench.session.minutes", minutes=minutes))
        taken = [name for name, _ in steps if (folder / f"{name}.json").exists()]
        if taken:
            raise ValueError(t("bench.session.taken", folder=folder, steps=", ".join(taken)))
        if not all(step.words.startswith("cpu") for _, step in steps) and not has_gpu():
            raise ValueError(t("bench.wrong.no_gpu", suite="session"))
    except ValueError as problem:
        return lines.fail(problem)
    ending, outcomes, interrupted = time.monotonic() + 60 * minutes, [], False
    told = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for i, (name, step) in enumerate(steps):
            left = ending - time.monotonic()
            share = left * step.parts / sum(s.parts for _, s in steps[i:])
            outcomes.append(one(name, step, folder, share, args.quick, say))
    except KeyboardInterrupt:
        interrupted = True
        started = {outcome.name for outcome in outcomes}
        for name, _ in steps:
            if name not in started:
                rows, errors, _ = counted(folder / f"{name}.json")
                outcomes.append(Outcome(name, "stopped", rows, errors, why="Ctrl-C"))
    finally:
        signal.signal(signal.SIGTERM, told)
    say("\n" + table(outcomes))
    if interrupted:
        return 130
    return 1 if any(o.state not in ("ok", "skipped") for o in outcomes) else 0


def prepared(folder):
    """The folder, made where it is not there. Raises ValueError where none was named or can be made."""
    if folder is None:
        raise ValueError(t("bench.session.no_out"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as problem:
        why = problem.strerror or problem
        raise ValueError(t("bench.session.no_folder", folder=folder, why=why)) from None


def has_gpu():
    """Whether PyTorch finds one."""
    import torch

    return torch.cuda.is_available()


def command(name, step, folder, quick):
    """The step's command line; `--quick` where it was asked for."""
    words = [*step.words.split(), *(["--quick"] if quick else [])]
    return [sys.executable, "-m", "flashlab.bench", *words, "--out", str(folder / f"{name}.json")]


def one(name, step, folder, seconds, quick, say):
    """Run a step for at most `seconds`; its Outcome. Says each line that the step says."""
    if step.needs and not shutil.which(step.needs):
        return Outcome(name, "skipped", why=t("bench.session.not_found", program=step.needs))
    if seconds < LEAST_S:
        return Outcome(name, "no time")
    say(t("bench.session.at_most", step=name, minutes=int(seconds) // 60, seconds=int(seconds) % 60))
    start, log = time.monotonic(), folder / f"{name}.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command(name, step, folder, quick),
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True, env=environment(),
        )  # fmt: skip
    try:
        in_time = watch(process, log, start + seconds, say)
    finally:
        end(process)
    rows, errors, whole = counted(folder / f"{name}.json")
    spent = time.monotonic() - start
    if not in_time:
        return Outcome(name, "stopped", rows, errors, spent, t("bench.session.too_long", seconds=seconds))
    if process.returncode or not whole:
        why = last_line(log) or t("bench.session.silent", status=process.returncode)
        return Outcome(name, "failed", rows, errors, spent, why)
    if rows == errors:
        return Outcome(name, "failed", rows, errors, spent, first_error(folder / f"{name}.json"))
    return Outcome(name, "ok", rows, errors, spent)


def environment():
    """The environment of a step: Python writes at once, all steps are of one commit and in one language."""
    from flashlab.bench.provenance import commit

    found = commit()
    ours = {"PYTHONUNBUFFERED": "1", "FLASHLAB_LANG": lang()}
    return os.environ | ours | ({"FLASHLAB_COMMIT": found} if found else {})


def watch(process, log, until, say):
    """Say what comes into the log until the process ends (True) or time is up (False)."""
    with open(log, encoding="utf-8", errors="replace") as said:
        rest = ""
        while True:
            running = process.poll() is None
            *whole, rest = (rest + said.read()).split("\n")
            for text in whole:
                say(text)
            if not running or time.monotonic() > until:
                return not running
            time.sleep(0.1)


def end(process):
    """End a process and all that it started: ask first, then kill. One that nothing can end is left."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None or sent == signal.SIGKILL:  # its children may outlive it
            try:
                os.killpg(process.pid, sent)
            except (ProcessLookupError, PermissionError):
                pass
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                pass


def counted(path):
    """(rows, rows with "error", whether the result is whole) of a result file; (0, 0, False) without one."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0, 0, False
    return len(result["rows"]), sum("error" in row for row in result["rows"]), not result.get("stopped")


def first_error(path):
    """Why the first row has no result."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows[0]["error"] if rows else t("bench.session.nothing")


def last_line(log):
    """The last line that a step said, or ""."""
    lines = Path(log).read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def table(outcomes):
    """What became of each step: a line each, reasons below it."""
    rows = [f"{'step':10} {'state':8} {'rows':>5} {'no result':>10} {'seconds':>8}"]
    for o in outcomes:
        rows.append(f"{o.name:10} {o.state:8} {o.rows:5} {o.errors:10} {o.seconds:8.0f}")
        rows += [f"    {short(o.why)}"] if o.why else []
    return lines.folded("\n".join(rows), "")


def short(text, most=200):
    """A text that fits into three lines."""
    return text if len(text) <= most else text[: most - 2] + " …"
