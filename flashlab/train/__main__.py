"""`python -m flashlab.train --backend fa2 --steps 20 --figure losses.svg`: train, compare, print, plot."""

import argparse
import dataclasses
import sys
from pathlib import Path

WIDTH = 40  # columns of the curve in the terminal


def main(argv=None):
    """Run one comparison; exit status 1 if the curves part by more than rounding explains."""
    args = parser().parse_args(argv)
    import torch

    from flashlab.train import char_model, run

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    sizes = char_model.GPU if device == "cuda" else char_model.SMALL
    chosen = {name: value for name, value in vars(args).items() if name in SIZES and value}
    try:
        sizes = dataclasses.replace(sizes, **chosen)
        dtype = getattr(torch, args.dtype)
        print(f"{args.backend} and sdpa on {device}, {args.dtype}, seed {args.seed}, {sizes}", flush=True)
        print(f"{'step':>5} {args.backend:>9} {'sdpa':>9} {'difference':>11}")
        rows = []
        for row in run.compare(args.backend, args.steps, sizes, seed=args.seed, device=device, dtype=dtype):
            rows.append(row)
            print(line(row, rows[0]["sdpa"]), flush=True)
    except (ValueError, NotImplementedError, RuntimeError) as error:
        print(f"flashlab.train: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nstopped after {len(rows)} steps")
    if not rows:
        return 2
    found = run.parted(rows, sizes, dtype)
    print(
        "largest difference {largest:.2g}; PyTorch's own two backends part by {control:.2g}, "
        "so rounding explains up to {allowed:.2g}".format(**found)
    )
    if args.figure:
        figure(rows, args.backend).savefig(args.figure)
        print("written to", args.figure)
    return int(found["largest"] > found["allowed"])


def line(row, first):
    """One step as text: both losses, their difference, and both curves: o where they fall on one column."""
    bar = [" "] * (WIDTH + 1)
    for name, mark in (("sdpa", "s"), ("loss", "x")):
        column = min(max(round(WIDTH * row[name] / first), 0), WIDTH)
        bar[column] = mark if bar[column] == " " else "o"
    difference = row["loss"] - row["sdpa"]
    numbers = f"{row['step']:>5} {row['loss']:>9.5f} {row['sdpa']:>9.5f} {difference:>11.1e}  "
    return numbers + "".join(bar).rstrip()


def figure(rows, backend):
    """Both curves above, their differences below, as a matplotlib Figure."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(7, 5), layout="constrained")
    above, below = made.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    steps = [row["step"] for row in rows]
    above.plot(steps, [row["sdpa"] for row in rows], linewidth=4, alpha=0.4, label="sdpa")
    above.plot(steps, [row["loss"] for row in rows], linewidth=1.2, color="black", label=backend)
    above.set_ylabel("loss, nats a character")
    above.legend()
    for name, label in (("loss", backend), ("naive", "naive (control)")):
        below.plot(steps, [abs(row[name] - row["sdpa"]) for row in rows], ".-", label=f"|{label} - sdpa|")
    below.set_yscale("symlog", linthresh=1e-7)
    below.set_xlabel("step")
    below.legend()
    return made


SIZES = ("context", "batch", "width", "heads", "kv_heads", "layers")


def parser():
    """The arguments; sizes default to a tiny model on a CPU and a small one on a GPU."""
    top = argparse.ArgumentParser(prog="python -m flashlab.train", description=__doc__)
    top.add_argument(
        "--backend",
        default="fa2",
        help="as for flashlab.attention (default: fa2; on a CPU auto is sdpa itself)",
    )
    top.add_argument("--steps", type=positive, default=20)
    top.add_argument("--seed", type=int, default=0)
    top.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    top.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    top.add_argument("--figure", type=Path, help="where to write the curves (.png, .svg, .pdf)")
    for name in SIZES:
        top.add_argument("--" + name.replace("_", "-"), type=positive)
    return top


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
