"""`flashlab bench SUITE --out results.json` = `python -m flashlab.bench SUITE ...`: measure, show progress,
keep what was measured when stopped with Ctrl-C. `flashlab bench session --out FOLDER`: everything that a GPU
should be asked, in one command (flashlab/bench/session.py).
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from flashlab.bench import session
from flashlab.bench.progress import Bar
from flashlab.bench.provenance import provenance
from flashlab.errors import unknown_name

STOPPED = 130  # the exit status of a program that Ctrl-C stopped
EVERY_S = 2.0  # how often what is there so far is written
OPTIONS = ("dtypes", "dims", "lengths", "causal", "peers", "directions")


def main(argv=None):
    """Run one suite; returns the exit status."""
    return run(parser().parse_args(argv))


def run(args):
    """Run the suite of parsed arguments; returns the exit status."""
    if args.suite == "session":
        extra = [f"--{name}" for name in OPTIONS if getattr(args, name)]
        return fail(f"a session takes no {extra[0]}") if extra else session.run(args, SUITES)
    if args.suites or args.minutes is not None:
        return fail("--suites and --minutes belong to flashlab bench session")
    if args.out and not args.out.absolute().parent.is_dir():
        return fail(f"there is no folder {args.out.parent} to write {args.out.name} into")
    import torch

    if args.suite != "cpu" and not torch.cuda.is_available():
        return fail(
            f"flashlab bench {args.suite} needs an NVIDIA GPU; none was found. `flashlab doctor` says why, "
            "`flashlab bench cpu` measures here."
        )
    result = {"suite": args.suite, "provenance": None, "rows": []}
    try:
        plan = SUITES[args.suite](args)
    except ValueError as problem:  # a name or a size that cannot be
        return fail(str(problem))
    try:
        measure(plan, result, command(args), args.out)
    except KeyboardInterrupt:
        result["stopped"] = True
        print(f"stopped: {len(result['rows'])} measurements kept", flush=True)
    except BaseException:
        result["stopped"] = True
        raise
    finally:  # also when something breaks: what was measured is kept
        if args.out:
            write(args.out, result)
            print("written to", args.out)
    return STOPPED if result.get("stopped") else 0


def measure(plan, result, command, out=None):
    """Fill a result, row by row, so that what is there stays there: in `out`, too, as a stopped one."""
    result["provenance"] = provenance(command)
    result |= plan.get("about", {})
    for sentence in result.get("absent", {}).values():
        print(sentence)
    bar, written = Bar(plan.get("total")), -EVERY_S
    try:
        for row in plan["rows"](bar.say):
            result["rows"].append(row)
            bar.step()
            if out and time.monotonic() - written > EVERY_S:
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


def fail(message):
    """Say what is wrong and give the exit status for it."""
    print(message, file=sys.stderr)
    return 1


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


def plan_cpu(args):
    """NumPy and PyTorch on the CPU, by N (no GPU needed)."""
    from flashlab.bench import cpu, kernels

    which = dict(
        lengths=args.lengths or (cpu.QUICK_LENGTHS if args.quick else cpu.LENGTHS),
        causal=masks(args, [False]),
        dims=args.dims or [cpu.DIM],
        names=args.peers,
        directions=args.directions or kernels.DIRECTIONS,
    )
    how = dict(budget_ms=50.0) if args.quick else {}
    rows = lambda say: cpu.run(say=say, **which, **how)  # noqa: E731
    return dict(total=len(cpu.plan(**which)), rows=rows, about={"note": cpu.NOTE})


def plan_kernels(args):
    """Forward and backward beside the peers."""
    from flashlab.bench import kernels, peers

    lengths = args.lengths or (kernels.QUICK_LENGTHS if args.quick else kernels.LENGTHS)
    grid = list(
        kernels.cases(args.dtypes or ["float16", "bfloat16"], args.dims or [64, 128], lengths, masks(args))
    )
    which = grid, args.peers, args.directions or kernels.DIRECTIONS
    rows = lambda say: kernels.run(*which, say=say)  # noqa: E731
    about = {} if args.peers else {"absent": peers.absent()}
    return dict(total=len(kernels.plan(*which)), rows=rows, about=about)


def plan_tune(args):
    """Launch configurations of the kernels, ranked."""
    from flashlab.bench import kernels, tune

    dims, lengths, dtypes = (
        args.dims or [64, 128],
        args.lengths or kernels.LENGTHS,
        args.dtypes or ["float16"],
    )
    directions = among("direction", args.directions, tune.DIRECTIONS)
    if len(dtypes) > 1:
        raise ValueError(f"tune takes one dtype at a time, got {', '.join(dtypes)}")
    return dict(rows=lambda say: tune.run(dims, lengths, masks(args), directions, dtypes[0], say=say))


def plan_decode(args):
    """One new token against long caches, beside the peers."""
    from flashlab.bench import decode

    for name in args.peers or ():
        decode.make_peer(name)  # raises for an unknown one
    total = len(decode.CASES) * len(args.peers or decode.PEERS)
    return dict(total=total, rows=lambda say: decode.run(peers=args.peers, say=say))


def plan_hopper(args):
    """fa3 on an H100 or H200: safe first runs, correctness, then every step beside the peers."""
    from flashlab.bench import hopper, kernels

    lengths = args.lengths or (kernels.QUICK_LENGTHS if args.quick else kernels.LENGTHS)
    grid = [
        *kernels.cases(args.dtypes or ["bfloat16", "float16"], args.dims or [128, 64], lengths, masks(args))
    ]
    if not args.dims:  # no goal is set for D 256: a few of its cases will do
        grid += kernels.cases(args.dtypes or ["bfloat16"], [256], lengths[1::2], masks(args))
    return dict(rows=lambda say: hopper.run(grid, args.peers, say))


def plan_memory(args):
    """What forward and backward need beyond inputs and results."""
    from flashlab.bench import memory

    lengths = args.lengths or (memory.QUICK_LENGTHS if args.quick else memory.LENGTHS)
    which = memory.cases(args.peers, lengths)
    return dict(total=len(which), rows=lambda say: memory.run(which, say=say))


def plan_host(args):
    """What a call costs the CPU beyond the launch."""
    from flashlab.bench import host

    return dict(total=4, rows=lambda say: host.run(say=say))


def plan_traffic(args):
    """Bytes that the GPU's counters saw, beside the model."""
    from flashlab.bench import traffic

    return dict(rows=lambda say: traffic.run(say=say))


def plan_schedule(args):
    """Times of grids and orders, beside the model."""
    from flashlab.bench import schedule

    return dict(rows=lambda say: schedule.run(say=say))


def plan_dispatch(args):
    """Which SDPA backend PyTorch runs for a grid of calls, and why not the others."""
    from flashlab.bench import compact, dispatch
    from flashlab.dispatch.grid import calls

    which, tables = calls(args.quick), compact.new_tables()
    rows = lambda say: dispatch.run(which, tables=tables, say=say)  # noqa: E731
    return dict(total=len(which), rows=rows, about={"device": "cuda", "tables": tables})


SUITES = {
    "cpu": plan_cpu,
    "kernels": plan_kernels,
    "decode": plan_decode,
    "memory": plan_memory,
    "host": plan_host,
    "tune": plan_tune,
    "traffic": plan_traffic,
    "schedule": plan_schedule,
    "dispatch": plan_dispatch,
    "hopper": plan_hopper,
}


def among(kind, names, known):
    """The names asked for, all known ones where there are none. Raises ValueError for an unknown one."""
    for name in names or ():
        if name not in known:
            raise unknown_name(kind, name, known)
    return names or known


def masks(args, default=(False, True)):
    """The causal values asked for."""
    return [c == "yes" for c in args.causal] if args.causal else list(default)


def add_arguments(p):
    """The arguments, for `flashlab bench` and for `python -m flashlab.bench`."""
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.epilog = "suites:\n" + "\n".join(f"  {name:10} {plan.__doc__}" for name, plan in SUITES.items())
    p.epilog += "\n  session    all that a GPU should be asked, into a folder"
    names = [*SUITES, "session"]
    p.add_argument("suite", choices=names, metavar="SUITE", help=", ".join(names))
    p.add_argument("--out", type=Path, metavar="FILE", help="JSON for the results (session: a folder)")
    p.add_argument("--quick", action="store_true", help="less of it (cpu, kernels, memory, dispatch)")
    p.add_argument("--dtypes", nargs="+", choices=["float16", "bfloat16", "float32"])
    p.add_argument("--dims", nargs="+", type=int, metavar="D", help="head dimensions")
    p.add_argument("--lengths", nargs="+", type=int, metavar="N", help="sequence lengths")
    p.add_argument("--causal", nargs="+", choices=["no", "yes"])
    p.add_argument("--peers", nargs="+", metavar="PEER", help="an unknown one lists those that there are")
    p.add_argument("--directions", nargs="+", help="forward, backward (tune: forward, dkdv, dq)")
    of_session = p.add_argument_group("session", "each step in a process of its own, the rest goes on")
    of_session.add_argument("--suites", nargs="+", metavar="STEP", help=", ".join(session.STEPS))
    of_session.add_argument("--minutes", type=float, help=f"for all steps together ({session.MINUTES})")


def parser():
    """The parser of `python -m flashlab.bench`."""
    p = argparse.ArgumentParser(prog="flashlab bench", description="Measure attention on this machine.")
    add_arguments(p)
    return p


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to stop: as Ctrl-C
    sys.exit(main())
