"""A still of who works and who waits on one SM in steps of the Hopper kernels."""

from matplotlib.patches import Patch

from flashlab import pipeline
from flashlab.figures.still import BLUE, GREEN, ORANGE, PURPLE, SKY, Still, fonts
from flashlab.text import lang, t

COLOURS = {"consume 0": BLUE, "consume 1": ORANGE, "consume 2": PURPLE, "forward_kernel": SKY}
HATCH = {"consume 1": "....", "consume 2": "---", "wait": "////"}
NAMES = {"produce": "producer"} | {f"consume {n}": f"consumer {n}" for n in range(3)}
NAMES |= {"forward_kernel": "warpgroup", "exp": "exponential", "tensor": "tensor cores"}


def pipeline_timeline(steps=(2, 4), D=128, causal=False, window=None):
    """Steps 1 to 5 of the Hopper kernels, one above the other on the same axis: copies, consumers (waits
    hatched), tensor cores, exponential and fp32 units, from `flashlab.pipeline`.

    window: (from, to) in clocks; default: 8,000 clocks inside the first query block. Raises ValueError for
    what there is not.
    """
    if not steps or any(step not in pipeline.STEPS for step in steps):
        raise ValueError(f"expected some of the steps {list(pipeline.STEPS)}, got {steps!r}")
    logs = pipeline.logs(D, causal)
    shown = {step: logs[step - 1] for step in steps}
    start, end = window or (6000, 14000)
    figure = Still(10, 2.3 * len(shown) + 1.1)
    axes = figure.subplots(len(shown), 1, squeeze=False, sharex=True)[:, 0]
    rates = {
        row["step"]: row for row in pipeline.measured() if (row["D"], bool(row["causal"])) == (D, causal)
    }
    parts = []
    for ax, (step, log) in zip(axes, shown.items(), strict=True):
        rows = _rows(log)
        for y, (name, stretches) in enumerate(rows):
            for e in stretches:
                if e.end > start and e.start < end:
                    _bar(ax, y, e, name, start, end)
        ax.set_yticks(range(len(rows)), [NAMES.get(name, name) for name, _ in rows])
        ax.set(xlim=(start, end), ylim=(len(rows) - 0.4, -0.6))
        shares = {unit: f"{100 * pipeline.busy(log, unit):.0f} %" for unit in pipeline.UNITS}
        rate = words("not_measured") if step not in rates else measured(rates[step])
        parts.append(words("still.part", step=step, clocks=f"{log['end']:,}", measured=rate, **shares))
        head = words("head", step=words("step", n=step), what=words(f"short.{step}"))
        ax.set_title(f"{head}  ·  {rate}", fontsize=9, loc="left", family=fonts())
    axes[-1].set_xlabel("clocks of one SM in a model, not a measurement")
    keys = [Patch(fc=GREEN, ec="white", label="copy")]
    used = {who: None for log in shown.values() for who in log["who"] if who in COLOURS}
    keys += [Patch(fc=COLOURS[w], ec="white", hatch=HATCH.get(w), label=NAMES[w]) for w in sorted(used)]
    keys.append(Patch(fc="white", ec="0.5", hatch=HATCH["wait"], label="waits"))
    figure.legend(handles=keys, loc="outside lower right", ncols=6, frameon=False, fontsize=9)
    (step, log), (other, before) = list(shown.items())[-1], list(shown.items())[0]
    busy, other_busy = (f"{100 * pipeline.busy(x, 'tensor'):.0f} %" for x in (log, before))
    title = words("title_one" if len(shown) == 1 else "title_two", step=step, busy=busy, other=other,
                  other_busy=other_busy)  # fmt: skip
    return figure.finish(title, words("still.alt", clocks=f"{end - start:,}", parts="; ".join(parts)))


def words(key, **values):
    """The text `pipeline.<key>` in the chosen language; in English where no font can show Chinese."""
    return t(f"pipeline.{key}", language=lang() if len(fonts()) > 1 else "en", **values)


def measured(row):
    """A row of `flashlab.pipeline.measured` in words."""
    rate = {"tflops": f"{row['tflops']:.0f}", "n": f"{row['N']:,}"}
    return words("measured", **rate, **{name: row[name] for name in ("dtype", "gpu", "date")})


def _rows(log):
    stretches = pipeline.unpack(log)
    own = [
        (who, [e for e in stretches if e.partition == who and e.unit not in ("copy", "tensor")])
        for who in log["who"]
        if who != "produce"
    ]
    rows = {unit: [e for e in stretches if e.unit == unit] for unit in pipeline.UNITS}
    return [("copy", rows.pop("copy")), *sorted(own), *rows.items()]


def _bar(ax, y, e, name, start, end):
    wait, left, right = e.unit == "wait", max(e.start, start), min(e.end, end)
    colour = "white" if wait else GREEN if name == "copy" else COLOURS[e.partition]
    hatch = HATCH.get("wait" if wait else e.partition if name != "copy" else None)
    alpha = 0.5 if e.unit in ("fp32", "shared") and name != "fp32" else 1
    ax.barh(
        y,
        right - left,
        0.8,
        left,
        color=colour,
        hatch=hatch,
        ec="0.75" if wait else "white",
        lw=0.4,
        alpha=alpha,
    )
    if right - left < (end - start) / 28 or wait or not e.tile:
        return
    letter = {"k": "S", "v": "O"}[e.tile[0]] if e.unit == "tensor" else e.tile[0].upper()
    text = f"{letter}{e.tile[1]}" if e.unit in ("tensor", "copy") else f"{e.tile[1]}"
    box = dict(fc="white", ec="none", pad=0.8)
    ax.text((left + right) / 2, y, text, ha="center", va="center", fontsize=8, bbox=box)
