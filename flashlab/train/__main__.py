"""`flashlab train --backend fa2 --steps 20 --figure losses.svg`: train, compare, print, plot."""

import argparse
import dataclasses
import sys
from pathlib import Path

from flashlab.text import LANGUAGES, lang, t
from flashlab.text.lines import Parser, fail, say

WIDTH = 38  # columns of the curve in the terminal
FORMATS = (".png", ".svg", ".pdf")


def main(argv=None):
    """Run one comparison; exit status 1 if the curves part by more than rounding explains."""
    args = parser().parse_args(argv)
    if getattr(args, "lang", None):
        lang(args.lang)
    return run(args)


def run(args):
    """Train as the parsed arguments say; returns the exit status."""
    problem = args.figure and unwritable(args.figure)
    if problem:
        return fail(f"flashlab train: {problem}", 2)
    import torch

    from flashlab.train import char_model
    from flashlab.train import run as training

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    sizes = char_model.GPU if device == "cuda" else char_model.SMALL
    sizes = dataclasses.replace(sizes, **{name: getattr(args, name) for name in SIZES if getattr(args, name)})
    dtype, rows = getattr(torch, args.dtype), []
    try:
        how = dict(seed=args.seed, device=device, dtype=dtype)
        for row in training.compare(args.backend, args.steps, sizes, **how):
            if not rows:
                about = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(sizes).items())
                say(f"{args.backend}, sdpa: {device}, {args.dtype}, seed {args.seed}, {about}")
                say(t("train.head", step="step", backend=args.backend))
            rows.append(row)
            say(line(row, rows[0]["sdpa"]))
    except (ValueError, NotImplementedError, RuntimeError) as error:
        return fail(f"flashlab train: {error}", 2)
    except KeyboardInterrupt:
        say("\n" + t("train.stopped", steps=len(rows)))
    if not rows:
        return 130
    found = training.parted(rows, sizes, dtype)
    say(t("train.found", **{name: f"{value:.2g}" for name, value in found.items()}))
    if args.figure:
        figure(rows, args.backend).savefig(args.figure)
        say(t("train.written", file=args.figure))
    return int(found["largest"] > found["allowed"])


def unwritable(path):
    """Why no figure can be written to `path`: a sentence, or None."""
    from flashlab.bench import files

    if path.suffix not in FORMATS:
        return t("train.format", file=path, formats=", ".join(FORMATS))
    return files.problem(path)


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


def add_arguments(p):
    """The arguments, for `flashlab train` and `python -m flashlab.train`."""
    p.add_argument("--backend", default="fa2", help="as for flashlab.attention (fa2; on a CPU auto is sdpa)")
    p.add_argument("--steps", type=positive, default=20, help="(20)")
    p.add_argument("--seed", type=int, default=0, help="of weights and batches (0)")
    p.add_argument("--device", choices=("cpu", "cuda"), help="cuda where there is one")
    p.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(float32)")
    p.add_argument("--figure", type=Path, metavar="FILE", help=f"the curves: {', '.join(FORMATS)}")
    p.add_argument("--lang", choices=LANGUAGES, default=argparse.SUPPRESS, help="language")
    sizes = p.add_argument_group("sizes", "by default tiny on a CPU, small on a GPU")
    for name in SIZES:
        sizes.add_argument("--" + name.replace("_", "-"), type=positive, metavar="N")


def parser():
    """The parser of `python -m flashlab.train`."""
    p = Parser(prog="flashlab train", description="Train a character model on two backends.")
    add_arguments(p)
    return p


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
