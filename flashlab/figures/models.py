"""Stills of what the sizes alone say: roofline and memory."""

from dataclasses import replace

import numpy as np
from matplotlib.ticker import FuncFormatter

from flashlab import bench, gpus, memory
from flashlab import needs as in_memory
from flashlab.figures.still import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Still,
    seconds,
    short,
    si,
    tokens,
)  # fmt: skip
from flashlab.figures.still import (
    words as t,
)

NAMES = {"standard": "standard", "fa1": "FlashAttention-1", "fa2": "FlashAttention-2", "decode": "decode"}
COLOURS = {"standard": VERMILION, "fa1": ORANGE, "fa2": BLUE, "decode": GREEN}
MARKERS = {"standard": "s", "fa1": "^", "fa2": "o", "decode": "D"}
PARTS = {
    "q": SKY, "k": "#8fd0f5", "v": "#c1e4f8", "k_cache": "#8fd0f5", "v_cache": "#c1e4f8", "s": "#f0a878",
    "p": ORANGE, "p_dropped": "#f5cf6d", "mask": PURPLE, "o": "#4fbf9b", "lse": "#f0e442", "seed": "#f0e442",
    "delta": "#f0e442", "dp": ORANGE, "ds": "#f0a878", "do": "#4fbf9b", "dq": SKY, "dk": "#8fd0f5",
    "dv": "#c1e4f8",
}  # fmt: skip


def roofline(problem, gpu="H200", direction="forward", level="hbm", measured=None):
    """The algorithms under the GPU's roofs, with kept measurements of the same GPU, format, D, mask and
    direction at the nearest N (`measured`: records; default: `flashlab.bench.recorded`). Raises ValueError.
    """
    gpu = gpus.get(gpu)
    peak, ridge = gpu.peak_of(problem.dtype), gpu.ridge(problem.dtype)
    figure = Still(9, 5)
    ax = figure.subplots()
    points = {}
    for name in NAMES if direction == "forward" else ("standard", "fa1", "fa2"):
        p = replace(problem, Nq=1, causal=False) if name == "decode" else problem
        points[name] = memory.traffic(p, name, direction, level, gpu=gpu)
    low, high = (
        min(x.intensity for x in points.values()) / 3,
        max(*(x.intensity for x in points.values()), ridge) * 4,
    )
    ax.plot([low, ridge, high], [low * gpu.hbm_bandwidth, peak, peak], color="black", lw=2)
    ax.axvline(ridge, color="0.5", lw=0.8, ls=":")
    ax.text(
        high, peak * 1.08, f"{problem.dtype} matrix products: {si(peak, 'FLOP/s')}", ha="right", va="bottom"
    )
    middle = low**0.7 * ridge**0.3
    ax.annotate(
        f"HBM: {si(gpu.hbm_bandwidth, 'B/s')}", (middle, middle * gpu.hbm_bandwidth), (10, -12),
        textcoords="offset points",
    )  # fmt: skip
    for row, (name, x) in enumerate(sorted(points.items(), key=lambda item: -item[1].intensity)):
        time, _ = x.time(gpu)  # names stand above the roofs, one under the other
        rate, label_y = x.flops / time, peak * 1.9 * 1.6**row
        ax.plot([x.intensity] * 2, [rate, label_y], color="0.5", lw=0.8, zorder=1)
        ax.plot(x.intensity, rate, MARKERS[name], color=COLOURS[name], ms=9, mec="white", zorder=3)
        label = f"{NAMES[name]}: {short(x.intensity)} FLOP/byte, {seconds(time)}"
        side = "right" if x.intensity > ridge else "left" if x.intensity < ridge / 50 else "center"
        box = dict(fc="white", ec="none", pad=1)
        ax.text(x.intensity, label_y, label, fontsize=9, ha=side, va="center", bbox=box, zorder=2)
    over = _measured(problem, gpu, direction, level, measured)
    bottom, top = (
        min([low * gpu.hbm_bandwidth, *(m["rate"] / 2 for m in over)]),
        peak * 1.9 * 1.6 ** len(points),
    )
    apart = (top / bottom) ** (1 / 25)
    above = {True: np.inf, False: np.inf}  # the lowest name so far, left and right of the points
    for m in sorted(over, key=lambda m: -m["rate"]):
        left = m["intensity"] > ridge
        above[left] = min(m["rate"], above[left] / apart)
        ax.plot(m["intensity"], m["rate"], "o", mfc="none", mec=BLUE, ms=8, mew=1.5)
        ax.annotate(
            f"{m['peer']} measured: {si(m['rate'], 'FLOP/s')}", (m["intensity"], above[left]),
            (-9 if left else 9, 0), textcoords="offset points", va="center",
            ha="right" if left else "left", fontsize=8,
        )  # fmt: skip
    where = "HBM traffic" if level == "hbm" else "what programs ask for"
    ax.set(
        xscale="log", yscale="log", xlim=(low, high), xlabel=f"FLOP for each byte of {where}", ylabel="FLOP/s"
    )
    ax.set_ylim(bottom, top)
    ax.grid(alpha=0.3)
    said = []
    for name, x in points.items():
        time, bound = x.time(gpu)
        said.append(
            t("roofline_part", name=NAMES[name], x=short(x.intensity), time=seconds(time), bound=t(bound))
        )
    note = ""
    if over:
        parts = ", ".join(f"{m['peer']} {si(m['rate'], 'FLOP/s')} (N = {m['N']:,})" for m in over)
        dates = ", ".join(sorted({m["date"] for m in over}))
        note = t("measured", gpu=over[0]["gpu"], date=dates, parts=parts)
        origin = f"measured on {over[0]['gpu']}, {dates}"
        ax.text(0.99, 0.02, origin, ha="right", transform=ax.transAxes, fontsize=8)
    values = dict(bound=t(points["standard"].time(gpu)[1]), x=short(points["standard"].intensity))
    title = t("roofline", gpu=gpu.name, ridge=short(ridge), **values)
    return figure.finish(
        title, t("roofline_alt", gpu=gpu.name, dtype=problem.dtype, parts="; ".join(said), measured=note)
    )


def _measured(problem, gpu, direction, level, records):
    found = []
    for record in bench.recorded("kernels") if records is None else records:
        origin = record["provenance"]
        if gpu.name not in origin["gpu"].split(" ", 1)[-1:]:
            continue
        for row in record["rows"]:
            same = (row["dtype"], row["D"], row["causal"], row["direction"])
            if "tflops" not in row or same != (problem.dtype, problem.D, bool(problem.causal), direction):
                continue
            algorithm = row["peer"] if row["peer"] in NAMES else "fa2"
            p = replace(
                problem, B=row["B"], Hq=row["H"], Hkv=row["H"], Nq=row["N"], Nk=row["N"], causal=row["causal"]
            )
            x = memory.traffic(p, algorithm, direction, level, gpu=gpu).intensity
            values = dict(peer=row["peer"], N=row["N"], rate=row["tflops"] * 1e12, intensity=x)
            found.append({**values, "gpu": origin["gpu"], "date": origin["date"][:10]})
    nearest = min((abs(np.log2(m["N"] / problem.Nk)) for m in found), default=0)
    return [m for m in found if abs(np.log2(m["N"] / problem.Nk)) == nearest]


def memory_map(problem, gpu="H200", layers=1, dropout=0.0, training=True):
    """Bytes in memory against N, the N at which the GPU is full, and the parts at the problem's N. Raises
    ValueError.
    """
    gpu, options = gpus.get(gpu), dict(layers=layers, dropout=dropout, training=training)
    both = {"standard": ("standard", VERMILION, "--"), "fa2": ("FlashAttention", BLUE, "-")}
    figure = Still(9, 5)
    top, below = figure.subplots(2, 1, height_ratios=(3, 1.2))
    lengths = [2.0**e for e in np.arange(7, 20.01, 0.5)]
    ends, sums = {}, {}
    for y, (algorithm, (name, colour, dashes)) in enumerate(both.items()):
        sizes = [
            in_memory.total(in_memory.needs(in_memory.at(problem, int(n)), algorithm, **options))
            for n in lengths
        ]
        top.plot(lengths, sizes, dashes, color=colour, lw=2)
        top.annotate(
            name, (lengths[-1], sizes[-1]), (-6, -12), textcoords="offset points", ha="right", va="top"
        )
        ends[algorithm] = in_memory.largest(problem, algorithm, gpu.hbm_bytes, **options)
        if ends[algorithm] < lengths[-1]:
            top.plot(ends[algorithm], gpu.hbm_bytes, "o", mfc="white", mec="black", zorder=3)
            top.annotate(
                f"full at N = {ends[algorithm]:,}", (ends[algorithm], gpu.hbm_bytes), (-6, 5),
                textcoords="offset points", ha="right", fontsize=9,
            )  # fmt: skip
        parts, left = in_memory.needs(problem, algorithm, **options), 0
        sums[algorithm] = in_memory.total(parts, "kept" if training else None)
        whole = in_memory.total(parts)
        for x, (size, when) in parts.items():
            hatch = "////" if when == "work" else None
            below.barh(y, size, left=left, color=PARTS[x], hatch=hatch, ec="white", lw=0.4)
            if size > 0.04 * max(whole, gpu.hbm_bytes):
                below.text(left + size / 2, y, f"{x}\n{si(size, 'B')}", ha="center", va="center", fontsize=8)
            left += size
        below.text(left, y, f" {name}: {si(whole, 'B')}", va="center", fontsize=9)
    top.axhline(gpu.hbm_bytes, color="black", ls="--", lw=1.2)
    top.text(lengths[0], gpu.hbm_bytes * 1.2, f"{gpu.name}: {si(gpu.hbm_bytes, 'B')}", fontsize=9)
    top.axvline(problem.Nk, color="0.4", lw=0.8)
    top.set(xscale="log", yscale="log", xlabel="tokens N", ylabel="bytes")
    top.set_xticks([2**e for e in range(7, 21)], [tokens(2**e) for e in range(7, 21)], minor=False)
    top.minorticks_off()
    for axis in (top.yaxis, below.xaxis):
        axis.set_major_formatter(FuncFormatter(lambda x, _: si(x, "B")))
    top.grid(alpha=0.3)
    below.axvline(gpu.hbm_bytes, color="black", ls="--", lw=1.2)
    below.set(
        yticks=[], ylim=(1.6, -0.6), xlabel=f"bytes at N = {tokens(problem.Nk)} (hatched: one layer at work)"
    )
    below.set_xlim(0, 1.28 * max(below.get_xlim()[1], 1))
    values = dict(n=tokens(problem.Nk), standard=si(sums["standard"], "B"), fa=si(sums["fa2"], "B"))
    title = t("training" if training else "inference", **values)
    said = dict(standard=f"{ends['standard']:,}", fa=f"{ends['fa2']:,}")
    return figure.finish(title, t("memory_alt", gpu=gpu.name, memory=si(gpu.hbm_bytes, "B"), **said))
