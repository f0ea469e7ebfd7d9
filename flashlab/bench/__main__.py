"""`python -m flashlab.bench SUITE --out results.json`: measure, show progress, keep what was measured when
stopped.
"""

import argparse
import json
import sys
from pathlib import Path

from flashlab.bench.provenance import provenance


def main(argv=None):
    """Run one suite; returns the exit status."""
    args = parser().parse_args(argv)
    import torch

    if not torch.cuda.is_available():
        print(
            f"flashlab bench {args.suite} needs an NVIDIA GPU; none was found. `flashlab doctor` says why.",
            file=sys.stderr,
        )
        return 1
    rows = []
    try:
        for row in SUITES[args.suite](args):
            rows.append(row)
    except KeyboardInterrupt:
        print(f"\nstopped: {len(rows)} measurements kept")
    if args.out:
        result = {"suite": args.suite, "provenance": provenance(), "rows": rows}
        args.out.write_text(as_text(result))
        print("written to", args.out)
    return 0


def as_text(result):
    """JSON with a line for each measurement, numbers to five digits."""
    rows = [
        {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in r.items()} for r in result["rows"]
    ]
    head = ",\n ".join(f"{json.dumps(k)}: {json.dumps(result[k])}" for k in ("suite", "provenance"))
    lines = ",\n  ".join(map(json.dumps, rows))
    return f'{{\n {head},\n "rows": [\n  {lines}\n ]\n}}\n'


def run_kernels(args):
    """Forward and backward beside the peers."""
    from flashlab.bench import kernels

    grid = list(kernels.cases(args.dtypes, args.dims, args.lengths, masks(args)))
    return kernels.run(grid, args.peers, args.directions or ("forward", "backward"))


def run_tune(args):
    """Launch configurations of the kernels, ranked."""
    from flashlab.bench import tune

    return tune.run(args.dims, args.lengths, masks(args), args.directions or tune.DIRECTIONS, args.dtypes[0])


def run_decode(args):
    """One new token against long caches, beside the peers."""
    from flashlab.bench import decode

    return decode.run(peers=args.peers)


def run_memory(args):
    """What forward and backward need beyond inputs and results."""
    from flashlab.bench import memory

    return memory.run(**({"peers": args.peers} if args.peers else {}))


def run_host(args):
    """What a call costs the CPU beyond the launch."""
    from flashlab.bench import host

    return host.run()


def run_traffic(args):
    """Bytes that the GPU's counters saw, beside the model."""
    from flashlab.bench import traffic

    return traffic.run()


def run_schedule(args):
    """Times of grids and orders, beside the model."""
    from flashlab.bench import schedule

    return schedule.run()


SUITES = {
    "kernels": run_kernels,
    "decode": run_decode,
    "memory": run_memory,
    "host": run_host,
    "tune": run_tune,
    "traffic": run_traffic,
    "schedule": run_schedule,
}


def masks(args):
    """The causal values asked for."""
    return [c == "yes" for c in args.causal]


def parser():
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m flashlab.bench", description=__doc__)
    p.add_argument("suite", choices=sorted(SUITES))
    p.add_argument("--out", type=Path, help="JSON file for the results and where they come from")
    p.add_argument("--dtypes", nargs="+", default=["float16", "bfloat16"])
    p.add_argument("--dims", nargs="+", type=int, default=[64, 128])
    p.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048, 4096, 8192, 16384])
    p.add_argument("--causal", nargs="+", choices=["no", "yes"], default=["no", "yes"])
    p.add_argument("--peers", nargs="+", default=None)
    p.add_argument("--directions", nargs="+", default=None)
    return p


if __name__ == "__main__":
    sys.exit(main())
