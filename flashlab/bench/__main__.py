"""`flashlab bench SUITE --out results.json` = `python -m flashlab.bench SUITE ...`: measure, show progress,
keep what was measured when stopped with Ctrl-C. `flashlab bench session --out FOLDER`: everything that a GPU
should be asked, in one command (flashlab/bench/session.py).
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from flashlab.bench import files, session
from flashlab.bench.progress import Bar
from flashlab.bench.provenance import provenance
from flashlab.bench.suites import OPTIONS, SUITES, TAKES
from flashlab.text import LANGUAGES, lang, t
from flashlab.text.lines import Parser, fail, folded, say

STOPPED = 130  # the exit status of a program that Ctrl-C stopped
EVERY_S = 2.0  # how often what is there so far is written


def main(argv=None):
    """Run one suite; returns the exit status."""
    args = parser().parse_args(argv)
    if getattr(args, "lang", None):
        lang(args.lang)
    return run(args)


def run(args):
    """Run the suite of parsed arguments; returns the exit status."""
    problem = misplaced(args)
    if not problem and args.suite == "session":
        return session.run(args, SUITES)
    problem = problem or (args.out and files.problem(args.out))
    if problem:
        return fail(problem)
    try:
        import torch

        if args.suite != "cpu" and not torch.cuda.is_available():
            return fail(t("bench.wrong.no_gpu", suite=args.suite))
        plan = SUITES[args.suite](args)
    except ValueError as problem:  # a name or a size that cannot be
        return fail(problem)
    except KeyboardInterrupt:
        return fail(t("bench.stopped"), STOPPED)
    result = {"suite": args.suite, "provenance": None, "rows": []}
    written = True
    try:
        measure(plan, result, command(args), args.out)
    except KeyboardInterrupt:
        result["stopped"] = True
    except BaseException:
        result["stopped"] = True
        raise
    finally:  # also when something breaks: what was measured is kept
        written = keep(args.out, result)
    return (STOPPED if result.get("stopped") else 0) if written else 1


def misplaced(args):
    """Why an option does not belong to this suite: a sentence, or None."""
    given = [name for name in OPTIONS if getattr(args, name) and name not in TAKES.get(args.suite, ())]
    if given:
        return t("bench.wrong.option", suite=args.suite, option=given[0])
    of_session = args.suites or args.minutes is not None
    return t("bench.wrong.of_session") if of_session and args.suite != "session" else None


def measure(plan, result, command, out=None):
    """Fill a result, row by row, so that what is there stays there: in `out`, too, as a stopped one."""
    result["provenance"] = provenance(command)
    result |= plan.get("about", {})
    for sentence in result.get("absent", {}).values():
        say(sentence)
    bar, written = Bar(plan.get("total")), -EVERY_S
    try:
        for row in plan["rows"](bar.say):
            result["rows"].append(row)
            bar.step()
            if out and time.monotonic() - written > EVERY_S:
                with contextlib.suppress(OSError):  # said at the end, if it is still so
                    write(out, result | {"stopped": True})
                written = time.monotonic()
    finally:
        bar.clear()


def command(args):
    """The command that does the same again, without where its result was put."""
    words = ["python -m flashlab.bench", args.suite, *(["--quick"] if args.quick else [])]
    for name in OPTIONS:
        values = getattr(args, name)
        words += [f"--{name}", *map(str, values)] if values else []
    return " ".join(words)


def keep(path, result):
    """Write a result, if there is a path for it, and say where it is. False, with a sentence, where it could
    not be written.
    """
    rows, stopped = len(result["rows"]), result.get("stopped")
    if path is None:
        if stopped:
            say(t("bench.not_kept", rows=rows))
        return True
    try:
        write(path, result)
    except OSError as problem:
        fail(files.unwritable(path, problem))
        return False
    say(t("bench.kept" if stopped else "bench.written", file=path, rows=rows))
    return True


def write(path, result):
    """Write a result at once: whoever reads the file sees the old one or the whole new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(as_text(result), encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def as_text(result):
    """JSON with a line for each measurement, numbers to five digits."""
    rows = [
        {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in r.items()} for r in result["rows"]
    ]
    head = ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in result.items() if k != "rows")
    lines = ",\n  ".join(map(json.dumps, rows))
    return f'{{\n {head},\n "rows": [\n  {lines}\n ]\n}}\n'


def add_arguments(p):
    """The arguments, for `flashlab bench` and for `python -m flashlab.bench`."""
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.epilog = "suites, and the options that each takes:\n" + "\n".join(map(described, SUITES))
    p.epilog += "\n  session    all that a GPU should be asked, into a folder"
    names = [*SUITES, "session"]
    p.add_argument("suite", choices=names, metavar="SUITE", help=", ".join(names))
    p.add_argument("--out", type=Path, metavar="FILE", help="JSON for the results (session: a folder)")
    p.add_argument("--quick", action="store_true", help="less of it (cpu, kernels, memory, dispatch, hopper)")
    dtypes = ["float16", "bfloat16", "float32"]
    p.add_argument("--dtypes", nargs="+", choices=dtypes, metavar="DTYPE", help=", ".join(dtypes))
    p.add_argument("--dims", nargs="+", type=int, metavar="D", help="head dimensions")
    p.add_argument("--lengths", nargs="+", type=int, metavar="N", help="sequence lengths")
    p.add_argument("--causal", nargs="+", choices=["no", "yes"], metavar="MASK", help="no, yes, or both")
    p.add_argument("--peers", nargs="+", metavar="PEER", help="an unknown one lists those that there are")
    p.add_argument(
        "--directions", nargs="+", metavar="WAY", help="forward, backward (tune: forward, dkdv, dq)"
    )
    p.add_argument("--lang", choices=LANGUAGES, default=argparse.SUPPRESS, help="language")
    of_session = p.add_argument_group("session", "each step in a process of its own, the rest goes on")
    of_session.add_argument("--suites", nargs="+", metavar="STEP", help=", ".join(session.STEPS))
    of_session.add_argument("--minutes", type=float, help=f"for all steps together ({session.MINUTES})")


def described(suite):
    """A suite's line in the help."""
    options = ", ".join(f"--{name}" for name in TAKES.get(suite, ()))
    return folded(f"  {suite:10} {SUITES[suite].__doc__} {options}".rstrip(), " " * 11)


def parser():
    """The parser of `python -m flashlab.bench`."""
    p = Parser(prog="flashlab bench", description="Measure attention on this machine.")
    add_arguments(p)
    return p


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to stop: as Ctrl-C
    sys.exit(main())
