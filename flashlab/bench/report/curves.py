"""Charts with their tables, out of measurements: time by N beside its floors, memory by N, flash against
standard attention by N.
"""

from flashlab.bench.report import svg
from flashlab.bench.report.blocks import Chart, Table
from flashlab.bench.report.pairs import DTYPES, FLASH, STANDARD, compare
from flashlab.bench.report.records import BYTES
from flashlab.bench.report.roofs import floors, roofs
from flashlab.bench.report.wording import case
from flashlab.bench.sdpa_paths import readable_bytes
from flashlab.text import t

LIKED = (*FLASH[:2], *STANDARD, *FLASH[2:])  # the first five are drawn; tables hold all
LOOKS = ("s0", "s1", "s2", "s3", "s4")
LOOK = {"fa2": "s0", "numpy-fa2": "s0", "standard": "s1", "sdpa-math": "s2", "fa1": "s2", "sdpa-flash": "s3"}


def groups(measurements, metric):
    """Measurements of one metric that make one chart: {(run, dtype, D, causal, direction): [...]}; first the
    one with the most points (of equally many: 16 bits before 32, D = 64 before 128, no mask before causal).
    """
    found = {}
    for m in measurements:
        if metric in m.row:
            key = (m.run, *(m.row.get(x) for x in ("dtype", "D", "causal", "direction")))
            found.setdefault(key, []).append(m)

    def order(item):
        (_, dtype, d, causal, direction), ms = item
        return (
            -len(ms),
            DTYPES.index(dtype) if dtype in DTYPES else 9,
            d,
            bool(causal),
            direction != "forward",
        )

    return dict(sorted(found.items(), key=order))


def time_chart(group, records):
    """Median time by N of each peer, with the two floors where the machine's rates are known."""
    first = group[0]
    found = roofs(first.provenance, first.row.get("dtype"), records)
    extra, source = [], found and found.source
    if found and all(x in first.row for x in ("B", "H", "causal")):
        at = {m.row["N"]: floors(m.row, found) for m in group}
        if source == "measured" and any(m.row["ms"] < max(at[m.row["N"]]) for m in group):
            at, source = {}, "beaten"
        for i, name in enumerate(("bytes", "flops") if at else ()):
            extra.append((t(f"report.floor.{name}"), {n: both[i] for n, both in at.items()}))
    return _chart(group, "ms", "time", extra, svg.number, floor_source=source)


def memory_chart(group, metric):
    """Bytes by N of each peer."""
    return _chart(group, metric, metric, [], readable_bytes, base=2)


def ratio_chart(measurements, group):
    """Standard attention's time divided by flash's, by N, for the pairs of one group; None without pairs."""
    row = group[0].row
    wanted = {x: row[x] for x in ("dtype", "D", "causal") if x in row}
    mine = [m for m in measurements if m.run == group[0].run]
    pairs = sorted(compare(mine, "ms", (row["direction"],), **wanted), key=lambda c: c.flash[0].row["N"])
    pairs = [c for c in pairs if c.flash[0].row["peer"] == pairs[0].flash[0].row["peer"]]
    if not pairs:
        return None
    flash = pairs[0].flash[0].row["peer"]
    names = [peer(side[0].row["peer"]) for side in (pairs[0].standard, pairs[0].flash)]
    caption = t("report.chart.ratio", standard=names[0], flash=names[1], case=_case(group))
    points = tuple((c.flash[0].row["N"], c.ratio, None, None) for c in pairs)
    rows = tuple((str(c.flash[0].row["N"]), _says(c), ", ".join(c.ids)) for c in pairs)
    table = Table(caption, (t("report.table.n"), t("report.table.ratio"), t("report.table.ids")), rows)
    drawn = svg.chart(
        [svg.Line(names[1], points, looks([flash])[flash])],
        caption, t("report.axis.n"), t("report.axis.ratio"),
        lambda v: f"{svg.number(v)}×", mark=1.0,
    )  # fmt: skip
    return Chart(drawn, caption, table)


def peer(name):
    """A peer's short name."""
    return t(f"report.short.{name}") if name in t("report.short") else name


def looks(peers):
    """{peer: class}: the same in every chart as far as possible, never one twice in a chart."""
    found = {}
    for who in sorted(peers, key=lambda p: p not in LOOK):
        free = [x for x in LOOKS if x not in found.values()]
        found[who] = LOOK[who] if LOOK.get(who) in free else free[-1]
    return {who: found[who] for who in peers}


def _chart(group, metric, name, extra, show, base=10, floor_source=None):
    by = {}
    for m in group:
        by.setdefault(m.row["peer"], {})[m.row["N"]] = m
    order = sorted(by, key=lambda p: LIKED.index(p) if p in LIKED else len(LIKED))
    lines = []
    for who, look in looks(order[: len(LOOKS)]).items():
        points = tuple(
            (n, m.row[metric], *(m.row.get(x) if metric == "ms" else None for x in ("low", "high")))
            for n, m in sorted(by[who].items())
        )
        lines.append(svg.Line(peer(who), points, look))
    for title, at in extra:
        lines.append(svg.Line(title, tuple((n, y, None, None) for n, y in sorted(at.items())), "floor"))
    caption = t(f"report.chart.{name}", case=_case(group))
    if floor_source:
        caption += t("report.chart.gap") + t(f"report.floor.{floor_source}")
    lengths = sorted({m.row["N"] for m in group})
    head = (t("report.table.n"), *map(peer, order), *(title for title, _ in extra))
    rows = tuple(
        (
            str(n),
            *(_cell(by[who].get(n), metric, show) for who in order),
            *(show(at[n]) for _, at in extra),
        )
        for n in lengths
    )
    drawn = svg.chart(
        lines, caption, t("report.axis.n"), t("report.axis.ms" if metric == "ms" else "report.axis.bytes"),
        svg.number if metric == "ms" else readable_bytes, base,
    )  # fmt: skip
    return Chart(drawn, caption, Table(caption, head, rows))


def _cell(measurement, metric, show):
    if measurement is None:
        return "–"
    row = measurement.row
    spread = f" ({svg.number(row['low'])}–{svg.number(row['high'])})" if metric == "ms" else ""
    return show(row[metric]) + spread


def _case(group):
    return case(group[0].row, several=[m.row for m in group])


def _says(comparison):
    key = "report.table." + {"less": "faster", "same": "same", "more": "slower"}[comparison.verdict]
    return t(key, ratio=comparison.printed)


def metrics(measurements):
    """The kinds of memory that some measurement holds."""
    return [m for m in BYTES if any(m in x.row for x in measurements)]
