"""Measurements as the report uses them: each with an id and a machine, or the reason why it is not used.

A measurement is one row of a JSON file of `flashlab bench`. Its id is a hash of the row and of where it comes
from: whoever changes a number gets another id. Rows that flashlab itself brings along (`flashlab.bench
.recorded`) are never the learner's own, also not under another name.
"""

import datetime
import functools
import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from flashlab import bench
from flashlab.bench.floors import flops
from flashlab.text import t

BYTES = ("peak_bytes", "extra_bytes", "kept_bytes")
METRICS = ("ms", *BYTES)
SIZES = ("B", "H", "N", "D")
# What the suite `memory` fixes for all of its rows (flashlab/bench/memory.py) and does not repeat in each.
FIXED = {"memory": {"dtype": "bfloat16", "causal": True, "B": 1, "direction": "both"}}
SUITES = ("cpu", "kernels", "memory")  # compared with standard attention; other suites answer other questions
NEEDED = ("torch", "date", "command")


@dataclass(frozen=True)
class Measurement:
    """One usable row. `own`: measured by the learner, not brought along by flashlab."""

    id: str
    suite: str
    row: dict = field(hash=False, compare=False)
    provenance: dict = field(hash=False, compare=False)
    own: bool
    file: str

    @property
    def run(self):
        """What two measurements have in common that may be compared: one suite, machine, start and file."""
        origin = self.provenance
        return self.suite, machine(origin), origin["date"], origin["command"], self.file

    @property
    def case(self):
        """(dtype, B, H, N, D, causal, direction)."""
        return tuple(self.row.get(x) for x in ("dtype", *SIZES, "causal", "direction"))


@dataclass(frozen=True)
class Refused:
    """A row (or a whole file: `row` None) that is not used, and why, in the chosen language."""

    file: str
    row: int | None
    reason: str


def machine(origin):
    """The name of the machine in a provenance block: its GPU, else its CPU with the threads used, or ""."""
    if origin.get("gpu"):
        return str(origin["gpu"]).removeprefix("NVIDIA GeForce ")
    cpu, threads = origin.get("cpu"), origin.get("threads")
    if not cpu or not threads:
        return str(cpu or "")
    return t("report.case.cpu" if threads != 1 else "report.case.cpu_one", name=cpu, threads=threads)


def version(origin):
    """Which flashlab measured: "0.1.0", "commit 182e0fc", or "" if nothing says so."""
    if origin.get("flashlab"):
        return str(origin["flashlab"])
    return f"commit {origin['commit']}" if origin.get("commit") else ""


def record_id(record, row):
    """ "kernels-1f0c2ab": the suite and a hash of the row and its provenance."""
    whole = json.dumps([record["suite"], record["provenance"], row], sort_keys=True)
    return f"{record['suite']}-{hashlib.sha256(whole.encode()).hexdigest()[:7]}"


def load(path):
    """The records in a JSON file of `flashlab bench` or of an earlier report: a list of dicts with `file`.

    Raises ValueError, in one sentence, for a file that holds something else or can't be read.
    """
    path = Path(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ValueError(t("report.file.unreadable", file=path, why=problem.strerror)) from None
    except ValueError:
        raise ValueError(t("report.file.no_json", file=path.name)) from None
    found = found if isinstance(found, list) else [found]
    if not found or not all(
        isinstance(r, dict) and "suite" in r and isinstance(r.get("rows"), list) for r in found
    ):
        raise ValueError(t("report.file.no_record", file=path.name))
    return [{**record, "file": path.name} for record in found]


def read(records, own=True):
    """(measurements, refused) of records as `load`, `flashlab.bench.recorded` or a suite gives them."""
    used, refused = [], []
    for record in records:
        file = record.get("file", record["suite"])
        if record["suite"] not in SUITES:
            if own and record["suite"] != "roofs":
                refused.append(Refused(file, None, t("report.refused.other", suite=record["suite"])))
            continue
        missing = lacking(record.get("provenance"))
        if missing:
            refused.append(Refused(file, None, t("report.refused.provenance", missing=", ".join(missing))))
            continue
        mine = own and not is_kept(record)
        for number, row in enumerate(record["rows"]):
            problem = fault(row)
            if problem:
                refused.append(Refused(file, number, problem))
                continue
            filled = FIXED.get(record["suite"], {}) | row
            used.append(
                Measurement(record_id(record, row), record["suite"], filled, record["provenance"], mine, file)
            )
    return used, refused


def lacking(origin):
    """What a provenance block does not say, as names; an empty list when it says all that a number needs."""
    if not isinstance(origin, dict):
        return ["provenance"]
    missing = [name for name in NEEDED if not origin.get(name)]
    missing += [] if machine(origin) else ["gpu/cpu"]
    missing += [] if version(origin) else ["flashlab/commit"]
    try:
        datetime.datetime.fromisoformat(str(origin.get("date")))
    except ValueError:
        missing += [] if "date" in missing else ["date"]
    return missing


def fault(row):
    """Why a row can't be used, a sentence, or "" if it can."""
    if not isinstance(row, dict):
        return t("report.refused.no_row")
    if row.get("error"):
        return t("report.refused.error", error=row["error"])
    if not isinstance(row.get("peer"), str) or not all(_count(row[x]) for x in SIZES if x in row):
        return t("report.refused.sizes")
    if not all(x in row for x in ("N", "D")):
        return t("report.refused.sizes")
    there = [m for m in METRICS if row.get(m) is not None]
    if not there or not all(_positive(row[m]) for m in there):
        return t("report.refused.number")
    if "ms" not in there:
        return ""
    if not (
        _positive(row.get("low")) and _positive(row.get("high")) and row["low"] <= row["ms"] <= row["high"]
    ):
        return t("report.refused.spread")
    if not isinstance(row.get("max_error"), int | float) or not math.isfinite(row["max_error"]):
        return t("report.refused.unchecked")
    if "tflops" in row and all(x in row for x in (*SIZES, "causal", "direction")):
        implied = flops(row, row["direction"]) / row["ms"] / 1e9
        if not _positive(row["tflops"]) or abs(row["tflops"] / implied - 1) > 2e-4:
            return t("report.refused.disagree")
    return ""


def is_kept(record):
    """Whether a record is one that flashlab brings along, or has times out of one under another name."""
    starts, times = _kept()
    return record["provenance"].get("date") in starts or any(
        _timing(row) in times for row in record["rows"] if isinstance(row, dict) and "ms" in row
    )


@functools.cache
def _kept():
    records = bench.recorded()
    times = {_timing(row) for r in records for row in r["rows"] if "ms" in row}
    return {r["provenance"]["date"] for r in records}, times


def _timing(row):
    return tuple(str(row.get(x)) for x in ("peer", *SIZES, "dtype", "direction", "ms", "low", "high"))


def _count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _positive(value):
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    )
