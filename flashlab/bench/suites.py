"""The suites of `flashlab bench`: what each measures with the arguments given, and which options it takes."""

from flashlab.errors import unknown_name

OPTIONS = ("dtypes", "dims", "lengths", "causal", "peers", "directions")
TAKES = {  # suite: its options; every suite takes --out and --quick
    "cpu": ("dims", "lengths", "causal", "peers", "directions"),
    "kernels": OPTIONS,
    "decode": ("peers",),
    "memory": ("lengths", "peers"),
    "tune": ("dtypes", "dims", "lengths", "causal", "directions"),
    "hopper": ("dtypes", "dims", "lengths", "causal", "peers"),
}


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
    """fa3 on an H100 or H200: safe first runs, correctness, then every step."""
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
