"""`python -m flashlab.bench kernels --out results.json`: measure, show progress, keep what was measured
even when stopped.
"""

import argparse
import json
import sys
from pathlib import Path

from flashlab.bench import kernels
from flashlab.bench.provenance import provenance


def main(argv=None):
    """Run one suite; returns the exit status."""
    args = parser().parse_args(argv)
    import torch

    if not torch.cuda.is_available():
        print(
            "flashlab bench kernels needs an NVIDIA GPU; none was found. `flashlab doctor` says why.",
            file=sys.stderr,
        )
        return 1
    grid = kernels.cases(args.dtypes, args.dims, args.lengths, [c == "yes" for c in args.causal])
    rows = []
    try:
        for row in kernels.run(list(grid), args.peers, args.directions):
            rows.append(row)
    except KeyboardInterrupt:
        print(f"\nstopped: {len(rows)} measurements kept")
    if args.out:
        args.out.write_text(
            json.dumps({"suite": args.suite, "provenance": provenance(), "rows": rows}, indent=1)
        )
        print("written to", args.out)
    return 0


def parser():
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m flashlab.bench", description=__doc__)
    p.add_argument("suite", choices=["kernels"])
    p.add_argument("--out", type=Path, help="JSON file for the results and where they come from")
    p.add_argument("--dtypes", nargs="+", default=["float16", "bfloat16"])
    p.add_argument("--dims", nargs="+", type=int, default=[64, 128])
    p.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048, 4096, 8192, 16384])
    p.add_argument("--causal", nargs="+", choices=["no", "yes"], default=["no", "yes"])
    p.add_argument("--peers", nargs="+", default=None)
    p.add_argument("--directions", nargs="+", default=["forward", "backward"])
    return p


if __name__ == "__main__":
    sys.exit(main())
