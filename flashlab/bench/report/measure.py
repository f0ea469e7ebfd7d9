"""Measuring for a report: the suites of `flashlab bench` that this machine can run, then its two roofs.

Each finished measurement is said at once, above a bar; Ctrl-C keeps what is there.
"""

from flashlab.bench import __main__ as command
from flashlab.bench.progress import Bar
from flashlab.bench.provenance import provenance
from flashlab.bench.report import roofs
from flashlab.text import t

KERNELS = "kernels --dtypes float16 --dims 64{} --peers fa2 sdpa-flash sdpa-cudnn standard"
MEMORY = "memory{} --peers fa2 sdpa-flash standard"
GPU = (KERNELS.format(""), MEMORY.format(""))
GPU_QUICK = (KERNELS.format(" --lengths 512 2048 8192"), MEMORY.format(" --lengths 4096 8192"))
CPU, CPU_QUICK = ("cpu",), ("cpu --quick --lengths 256 512 1024",)


def measure(quick=False, say=print):
    """Run what this machine can; returns a list of records (suite, provenance, rows)."""
    import torch

    suites = (GPU_QUICK if quick else GPU) if torch.cuda.is_available() else (CPU_QUICK if quick else CPU)
    found = []
    try:
        steps = ("roofs", *suites, "roofs")  # twice: on a busy machine the better one is nearer to the truth
        for number, words in enumerate(steps, 1):
            title = t("report.measure.roofs") if words == "roofs" else words
            say(t("report.measure.suite", suite=title, number=number, total=len(steps)))
            suite = words.split()[0]
            told, total, rows = _plan(words)
            record = {"suite": suite, "provenance": provenance(told), "rows": []}
            found.append(record)
            _fill(record["rows"], rows, total)
    except KeyboardInterrupt:
        say(t("report.measure.stopped", rows=sum(len(r["rows"]) for r in found)))
    return found


def _plan(words):
    """(the command that measures the same, how many rows there will be, function of `say` that yields
    them).
    """
    if words == "roofs":
        return "flashlab report", 2, roofs.measure
    args = command.parser().parse_args(words.split())
    plan = command.SUITES[args.suite](args)
    return command.command(args), plan.get("total"), plan["rows"]


def _fill(rows, source, total):
    bar = Bar(total)
    try:
        for row in source(bar.say):
            rows.append(row)
            bar.step()
    finally:
        bar.clear()
