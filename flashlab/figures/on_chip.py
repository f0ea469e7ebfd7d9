"""Stills of what happens on the chip: tiles that move, programs on SMs, what fits on one SM."""

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from flashlab import gpus
from flashlab import tile_budget as budgets
from flashlab.figures.still import Still, fonts, short, si
from flashlab.figures.still import words as t

ORDER = ("q", "k", "v", "s", "p", "o", "do", "dp", "ds", "dq", "dk", "dv")
MATRICES = {x: x[:-1] + x[-1].upper() for x in ORDER}


def tile_player(traces, step=None):
    """Tiles shaded by how often they were moved; matrices that never were are dashed outlines.

    traces: a `flashlab.trace.Trace` or a dict name -> Trace; only the first `step` events count. Raises
    ValueError when there is nothing to show.
    """
    traces = traces if isinstance(traces, dict) else {"trace": traces}
    if not traces or not all(traces.values()):
        raise ValueError("expected traces with at least one event")
    done = {name: [e for e in trace[:step] if e.op in ("load", "store")] for name, trace in traces.items()}
    tensors = sorted(
        {e.tensor for events in done.values() for e in events},
        key=lambda x: (ORDER.index(x) if x in ORDER else len(ORDER), x),
    )
    figure = Still(1.2 * max(len(tensors), 5), 1.6 * len(traces) + 0.5)
    axes = figure.subplots(len(traces), len(tensors), squeeze=False)
    most = max((n for events in done.values() for n in _visits(events).values()), default=1)
    shapes = {
        x: np.max([e.tile for v in done.values() for e in v if e.tensor == x], axis=0) + 1 for x in tensors
    }
    sums = {name: sum(e.bytes for e in events) for name, events in done.items()}
    for row, (name, events) in zip(axes, done.items(), strict=True):
        visits = _visits(events)
        for ax, x in zip(row, tensors, strict=True):
            _tiles(ax, x, shapes[x], visits, most)
            moved = sum(e.bytes for e in events if e.tensor == x)
            ax.set_xlabel(si(moved, "B") if moved else "not moved", fontsize=9)
        row[0].set_ylabel(f"{name}\n{si(sums[name], 'B')}", rotation=0, ha="right", va="center", fontsize=10)
    least = min(sums, key=sums.get)
    largest = "standard" if "standard" in sums and least != "standard" else max(sums, key=sums.get)
    title = t("tiles_one", name=least, bytes=si(sums[least], "B"))
    if len(sums) > 1:
        values = dict(least=least, least_bytes=si(sums[least], "B"))
        title = t("tiles", most=largest, most_bytes=si(sums[largest], "B"), **values)
    said = {
        n: ", ".join(f"{x} {si(_bytes(done[n], x), 'B')}" for x in tensors if _bytes(done[n], x))
        for n in done
    }
    parts = "; ".join(t("tiles_part", name=n, tensors=text) for n, text in said.items())
    return figure.finish(title, t("tiles_alt", parts=parts))


def _bytes(events, tensor):
    return sum(e.bytes for e in events if e.tensor == tensor)


def _visits(events):
    found = {}
    for e in events:
        found[e.tensor, e.tile] = found.get((e.tensor, e.tile), 0) + 1
    return found


def _tiles(ax, tensor, shape, visits, most):
    """One tensor as a grid: S and P by query and key block, K and V lying as they meet S, others standing."""
    rows, columns = (
        shape if len(shape) == 2 else (1, shape[0]) if tensor in ("k", "v", "dk", "dv") else (shape[0], 1)
    )
    counts = np.zeros((rows, columns))
    for (name, tile), n in visits.items():
        if name == tensor:
            counts[
                tile if len(tile) == 2 else (0, tile[0]) if columns > 1 or rows == 1 else (tile[0], 0)
            ] += n
    ghost = not counts.any()
    ax.imshow(np.ma.masked_equal(counts, 0), cmap="Blues", vmin=0, vmax=1.4 * most, aspect="equal")
    if not ghost and max(rows, columns) <= 8:
        for (i, j), n in np.ndenumerate(counts):
            ax.text(j, i, f"{n:g}", ha="center", va="center", fontsize=8, color="w" if n > most / 2 else "k")
    for side in ax.spines.values():
        side.set(linestyle=(0, (3, 3)) if ghost else "-", color="0.5")
    ax.set(xticks=[], yticks=[], xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    ax.set_title(MATRICES.get(tensor, tensor), fontsize=10)


def block_schedule(timelines):
    """Programs on SMs over time. timelines: a `flashlab.schedule.Timeline`, or a dict name -> Timeline; all
    share one scale in microseconds. Raises ValueError when there is none.
    """
    timelines = timelines if isinstance(timelines, dict) else {"schedule": timelines}
    if not timelines:
        raise ValueError("expected at least one timeline")
    figure = Still(9, 2.6 * len(timelines) + 0.6)
    axes = figure.subplots(len(timelines), 1, squeeze=False, sharex=True)[:, 0]
    titles = []
    for ax, (name, line) in zip(axes, timelines.items(), strict=True):
        scale, slots = line.seconds(1) * 1e6, line.programs_per_sm
        bars = [
            Rectangle((p.start * scale, p.sm + p.slot / slots), (p.end - p.start) * scale, 1 / slots)
            for p in line.programs
        ]
        drawn = PatchCollection(bars, cmap="cividis", edgecolor="white", linewidth=0.2)
        drawn.set_array([p.head for p in line.programs])
        ax.add_collection(drawn)
        ax.set(ylim=(line.gpu.sms, 0), ylabel=f"SMs of {line.gpu.name}")
        values = dict(gpu=line.gpu.name, sms=line.gpu.sms, busy=f"{100 * line.utilisation:.0f}")
        titles.append(
            t("schedule", name=name, programs=f"{len(line.programs):,}", waves=short(line.waves), **values)
        )
        ax.set_title(titles[-1], fontsize=10, loc="left", family=fonts())
    longest = max(line.makespan * line.seconds(1) * 1e6 for line in timelines.values())
    axes[-1].set(xlim=(0, longest or 1), xlabel="time at peak speed, µs (bars of one colour: one head)")
    title, first = titles[0], next(iter(timelines.values()))
    if len(titles) == 1:
        axes[0].set_title("")
    else:
        busy = ", ".join(f"{name} {100 * line.utilisation:.0f} %" for name, line in timelines.items())
        title = t("schedules", gpu=first.gpu.name, busy=busy)
    return figure.finish(title, t("schedule_alt", parts="; ".join(titles)))


def tile_budget(gpu="A100-80", head_dim=128, *, itemsize=2, warps=4, stages=2, n=4096):
    """Programs on an SM for each pair of block sizes, the bytes that a head moves, and what binds. Raises
    ValueError.
    """
    gpu, sizes = gpus.get(gpu), budgets.BLOCKS
    options = dict(itemsize=itemsize, warps=warps, stages=stages, n=n)
    found = {(q, k): budgets.tile_budget(gpu, q, k, head_dim, **options) for q in sizes for k in sizes}
    figure = Still(8, 5.2)
    ax = figure.subplots()
    counts = np.array([[found[q, k].programs for k in sizes] for q in sizes])
    ax.imshow(
        np.ma.masked_equal(counts, 0), cmap="Blues", vmin=0, vmax=1.5 * max(counts.max(), 1), aspect="auto"
    )
    for (i, j), count in np.ndenumerate(counts):
        b = found[sizes[i], sizes[j]]
        words = {"too big": "too big", "spills": f"{count} (spills)"}.get(b.status, str(count))
        if b.status != "fits":
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="..", ec="0.6", lw=0))
        ax.text(j, i - 0.15, words, ha="center", va="center", fontsize=11, fontweight="bold")
        ax.text(j, i + 0.22, f"{si(b.moved, 'B')}\n{b.binds}", ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(sizes)), sizes)
    ax.set_yticks(range(len(sizes)), sizes)
    ax.set(xlabel="key block, rows", ylabel="query block, rows")
    fitting = {pair: b for pair, b in found.items() if b.status == "fits"}
    title = t("budget_none", gpu=gpu.name, d=head_dim)
    if fitting:  # fewest bytes, then most programs
        q, k = min(fitting, key=lambda pair: (fitting[pair].moved, -fitting[pair].programs))
        values = dict(
            block_q=q, block_k=k, programs=fitting[q, k].programs, bytes=si(fitting[q, k].moved, "B")
        )
        title = t("budget", gpu=gpu.name, d=head_dim, **values)
    said = ", ".join(f"{q} x {k}: {b.programs} ({b.status})" for (q, k), b in found.items())
    return figure.finish(title, t("budget_alt", parts=said))
