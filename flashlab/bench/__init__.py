"""Measurements: each module times or weighs one thing on the machine it runs on, and says which one.

`recorded()` gives the measurements that are kept in the package, from machines that you may not have.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"


def recorded(suite=None):
    """The kept records of one suite ("kernels", "memory", "tune", ...), or of all: a list of dicts.

    Each has `suite`, `provenance` (gpu, driver, torch, triton, date, command, ...), `rows` (a dict a
    measurement) and `file`, its name in flashlab/bench/recorded. An empty list when nothing was kept.
    """
    found = [
        {**json.loads(p.read_text(encoding="utf-8")), "file": p.name} for p in sorted(FOLDER.glob("*.json"))
    ]
    return [record for record in found if suite in (None, record["suite"])]
