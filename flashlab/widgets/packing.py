"""A trace as a few columns of small numbers, so that ten thousand events travel to the browser in 100 kB.

An event is (op, tensor, bytes, flops), a program and a tile. Of each there are few different ones: a table
lists them once, and a column of 1, 2 or 4 bytes an event says which. `tile_frames.js` reads the same format.
"""

import base64

import numpy as np

from flashlab.trace import Event, Trace

WIDTHS = {1: "<u1", 2: "<u2", 4: "<u4"}


def pack(trace):
    """A dict of plain JSON values that holds `trace` (a Trace or any list of Events).

    Keys: events (how many), dtype, kinds ([op, tensor, bytes, flops] each), programs, tiles (lists of
    numbers, in programs also of strings), columns (for "kind", "program", "tile": [bytes an entry, base64 of
    little-endian numbers]), and "step" where the steps are not 0, 1, 2, ... Raises TypeError for entries that
    are not events.
    """
    tables, columns = {"kind": {}, "program": {}, "tile": {}}, {"kind": [], "program": [], "tile": []}
    steps = []
    for entry in trace:
        try:
            step, program, op, tensor, tile, nbytes, flops = entry
            keys = {"kind": (op, tensor, int(nbytes), int(flops)), "program": program, "tile": tile}
        except (TypeError, ValueError):
            raise TypeError(f"expected flashlab.trace.Event entries, got {entry!r:.60}") from None
        steps.append(int(step))
        for name, key in keys.items():
            table = tables[name]
            key = key if name == "kind" else tuple(x if isinstance(x, str) else int(x) for x in key)
            columns[name].append(table.setdefault(key, len(table)))
    packed = {name: _column(numbers) for name, numbers in columns.items()}
    if steps != list(range(len(steps))):
        packed["step"] = _column(steps)
    return {
        "events": len(steps),
        "dtype": getattr(trace, "dtype", "float16"),
        "kinds": [list(key) for key in tables["kind"]],
        "programs": [list(key) for key in tables["program"]],
        "tiles": [list(key) for key in tables["tile"]],
        "columns": packed,
    }


def unpack(packed):
    """The Trace that `pack` was given."""
    columns = {name: _numbers(*column) for name, column in packed["columns"].items()}
    steps = columns.get("step", range(packed["events"]))
    trace = Trace(dtype=packed["dtype"])
    for step, kind, program, tile in zip(
        steps, columns["kind"], columns["program"], columns["tile"], strict=True
    ):
        op, tensor, nbytes, flops = packed["kinds"][kind]
        who, where = tuple(packed["programs"][program]), tuple(packed["tiles"][tile])
        trace.append(Event(int(step), who, op, tensor, where, nbytes, flops))
    return trace


def _column(numbers):
    """[bytes an entry, base64] of whole numbers from 0 to 2^32 - 1."""
    top = max(numbers, default=0)
    width = 1 if top < 1 << 8 else 2 if top < 1 << 16 else 4
    return [width, base64.b64encode(np.asarray(numbers, WIDTHS[width]).tobytes()).decode()]


def _numbers(width, text):
    return np.frombuffer(base64.b64decode(text), WIDTHS[width])
