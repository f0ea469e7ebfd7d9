"""The report as blocks: what was measured here, what was checked without a clock, sentences, records."""

import flashlab
from flashlab.bench.report import curves, sentences
from flashlab.bench.report.blocks import Claim, Page, Section, Table, Text
from flashlab.bench.report.records import METRICS, machine, version
from flashlab.bench.report.svg import number
from flashlab.bench.sdpa_paths import readable_bytes
from flashlab.text import t

SHOWN = ("peer", "dtype", "B", "H", "N", "D", "causal", "direction")


def page(facts, origin):
    """The `Page` of `gather.Facts`, in the chosen language; `origin`: the provenance of this moment."""
    machines = list(dict.fromkeys(machine(m.provenance) for m in facts.own))
    name = " · ".join(machines) or machine(origin)
    lead = t("report.lead", date=origin["date"][:10], version=flashlab.__version__, count=len(facts.own))
    profiles = sentences.profiles(facts.own, facts.exercises, facts.traffic)
    parts = [
        _measured(facts),
        _checked(facts),
        *_sentences(profiles),
        _recorded(facts),
        _origins(facts),
        _records(facts, profiles),
    ]
    return Page(t("report.title", machine=name), lead, tuple(p for p in parts if p))


def _measured(facts):
    blocks = [] if any(m.provenance.get("gpu") for m in facts.own) else [Text(t("report.measured.no_gpu"))]
    if not facts.own:
        return Section(t("report.measured.title"), (*blocks, Text(t("report.measured.nothing"))))
    runs = [r["record"] for r in facts.runs]
    drawn = _one_each_direction(curves.groups(facts.own, "ms"))
    for group in drawn:
        blocks.append(curves.time_chart(group, runs))
        blocks.append(curves.ratio_chart(facts.own, group))
    for metric in curves.metrics(facts.own):
        kept = metric == "kept_bytes"  # what NumPy's hand-written backward pass keeps is no finding
        mine = [m for m in facts.own if not (kept and m.row["peer"].startswith("numpy"))]
        for group in _one_each_direction(curves.groups(mine, metric)):
            blocks.append(curves.memory_chart(group, metric))
    return Section(t("report.measured.title"), tuple(b for b in blocks if b))


def _one_each_direction(groups):
    """The first group of forward, of backward and of both together."""
    found = {}
    for key, group in groups.items():
        found.setdefault(key[-1], group)
    return list(found.values())


def _checked(facts):
    done = tuple(
        (t(f"report.exercise.{x['name']}"), str(x["stages"]), x["date"], x["id"]) for x in facts.exercises
    )
    head = tuple(t(f"report.table.{x}") for x in ("exercise", "stages", "date", "id"))
    blocks = [
        Table(t("report.checked.exercises"), head, done) if done else Text(t("report.checked.no_exercise"))
    ]
    check = facts.traffic
    if check.rows:
        rows = tuple(
            (f"{t(f'report.table.{op}')} {tensor}", f"{counted:,}", f"{predicted:,}")
            for op, tensor, counted, predicted in check.rows
        )
        caption = t("report.checked.traffic", sizes=check.sizes, id=check.id)
        head = tuple(t(f"report.table.{x}") for x in ("moved", "counted", "predicted"))
        blocks.append(Table(caption, head, rows))
        blocks.append(Text(t("report.checked.equal" if check.equal else "report.checked.differs")))
    else:
        blocks.append(Text(t("report.checked.no_traffic", reason=check.problem)))
    return Section(t("report.checked.title"), tuple(blocks))


def _sentences(profiles):
    blocks = [Text(t("report.sentences.how"))]
    for name, parts in profiles.items():
        blocks.append(Text(t(f"report.profile.{name}"), "head"))
        blocks += [claim(part) for part in parts]
    return [Section(t("report.sentences.title"), tuple(blocks))]


def claim(part):
    """A Sentence or a NotMeasured as a block."""
    if isinstance(part, sentences.NotMeasured):
        return Claim(str(part), False, command=part.command)
    below = t("report.sentences.below", ids=", ".join(part.ids), ask=", ".join(part.ask))
    return Claim(part.text, True, below)


def _recorded(facts):
    if not facts.recorded:
        return None
    times = curves.groups([m for m in facts.recorded if m.suite == "kernels"], "ms")
    blocks = [Text(t("report.recorded.not_yours"))]
    shown = _one_each_direction(times)[:1]
    blocks += [curves.time_chart(group, []) for group in shown]
    memory = list(curves.groups(facts.recorded, "extra_bytes").values())[:1]
    blocks += [curves.memory_chart(group, "extra_bytes") for group in memory]
    for group in shown + memory:
        origin = group[0].provenance
        values = {x: origin.get(x) for x in ("driver", "torch", "triton", "command", "commit")}
        values |= {"machine": machine(origin), "date": origin["date"][:10], "file": group[0].file}
        blocks.append(Text(t("report.recorded.origin", **values), "note"))
        if group[0].file in facts.stopped:
            blocks.append(Text(t("report.recorded.stopped"), "note"))
    return Section(t("report.recorded.title"), tuple(blocks), "recorded")


def _origins(facts):
    head = tuple(t(f"report.table.{x}") for x in ("file", "machine", "versions", "date", "command", "used"))
    rows = []
    for run in facts.runs:
        record, origin = run["record"], run["record"].get("provenance")
        origin = origin if isinstance(origin, dict) else {}
        versions = [f"flashlab {version(origin)}"] + [
            f"{x} {origin[x]}"
            for x in ("python", "torch", "triton", "driver", "cuda", "cudnn")
            if origin.get(x)
        ]
        cells = (machine(origin), ", ".join(versions), str(origin.get("date")), str(origin.get("command")))
        name = f"{record.get('file', '')} {record['suite']}".strip()
        used = "–" if record["suite"] == "roofs" else f"{run['used']} / {len(record['rows'])}"
        rows.append((name, *cells, used))
    blocks = [
        Table(t("report.origins.caption"), head, tuple(rows)) if rows else Text(t("report.origins.none"))
    ]
    if facts.refused:
        head = tuple(t(f"report.table.{x}") for x in ("file", "row", "reason"))
        rows = tuple((r.file, "–" if r.row is None else str(r.row + 1), r.reason) for r in facts.refused)
        blocks.append(Table(t("report.origins.refused"), head, rows))
    return Section(t("report.origins.title"), tuple(blocks))


def _records(facts, profiles):
    cited = {i for parts in profiles.values() for p in parts for i in getattr(p, "ids", ())}
    behind = [m for m in facts.own if m.id in cited]
    blocks = [_rows(t("report.records.cited"), behind)] if behind else []
    if facts.own:
        blocks.append(_rows(t("report.records.all", count=len(facts.own)), facts.own, folded=True))
    return Section(t("report.records.title"), (Text(t("report.records.how")), *blocks)) if blocks else None


def _rows(caption, measurements, folded=False):
    there = [x for x in (*SHOWN, *METRICS) if any(x in m.row for m in measurements)]
    head = (t("report.table.id"), *(t(f"report.column.{x}") for x in there))
    rows = tuple((m.id, *(_value(m.row, x) for x in there)) for m in measurements)
    return Table(caption, head, rows, folded)


def _value(row, name):
    value = row.get(name)
    if value is None:
        return "–"
    if name == "ms":
        return f"{number(value)} ({number(row['low'])}–{number(row['high'])})"
    if name in METRICS:
        return readable_bytes(value)
    if name == "causal":
        return t("report.case.causal" if value else "report.case.full")
    if name == "direction":
        return t(f"report.case.{value}")
    return curves.peer(value) if name == "peer" else str(value)
