"""Measurements: each module times or weighs one thing on the machine it runs on, and says which one.

`recorded()` gives the measurements that are kept in the package, from machines that you may not have.

Suites of `flashlab bench SUITE` (each is a module of that name): cpu (the only one without a GPU), kernels,
decode, memory, host (what a call costs the CPU), tune (launch configurations), traffic (the GPU's own
counters, by ncu), schedule (grids and orders), dispatch (which SDPA backend runs), hopper (fa3). `flashlab
bench session` runs all but cpu and tune. recorded/MACHINE_NAME.json is what `flashlab bench ... --out` wrote.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"


class Records(list):
    """A list of records. An empty one says in a sentence why it is empty, and so does taking its first."""

    suite = None

    def __getitem__(self, index):
        if not self and not isinstance(index, slice):
            raise IndexError(self.why_empty())
        return super().__getitem__(index)

    def __repr__(self):
        return super().__repr__() if self else f"[]  # {self.why_empty()}"

    def why_empty(self):
        """One sentence."""
        have = ", ".join(sorted({record["suite"] for record in recorded()})) or "none at all"
        of = f"of the suite {self.suite!r} " if self.suite else ""
        return f"The package keeps no measurements {of}(it keeps: {have}); `flashlab bench` measures here."


def recorded(suite=None):
    """The kept records of one suite ("kernels", "memory", "tune", ...), or of all: a list of dicts.

    Each has `suite`, `provenance` (gpu, driver, torch, triton, date, command, ...), `rows` (a dict a
    measurement) and `file`, its name in flashlab/bench/recorded. Where nothing was kept, the list is empty,
    and recorded(suite)[0] raises IndexError with a sentence that says so.

    `stopped`: the run ended before its plan did, its rows are the first ones of the plan. h200_kernels.json
    is one: of bfloat16 at D 128 it has only the forward pass at N 512 without a mask, all else is complete.
    h200_hopper.json is another: of the backward pass in float16 it has D 128 without a mask and two rows of
    the next case. The command in the provenance measures everything.
    """
    paths = sorted(FOLDER.glob("*.json"))
    found = ({**json.loads(p.read_text(encoding="utf-8")), "file": p.name} for p in paths)
    records = Records(record for record in found if suite in (None, record["suite"]))
    records.suite = suite
    return records
