"""Who works and who waits on one SM in steps 1 to 5 of the Hopper kernels: the simulator's log, made small.

In every step one SM of an H200 works on the same 256 query rows (the last and the middle block of a head with
1024 keys), so that the steps may be laid side by side. The times are clocks of a model, see
`flashlab.warpgroups.timing`, and not measurements. Head dims 64 and 128 are kept in the package; others are
simulated when asked for, which needs Triton. `python -m flashlab.pipeline` makes the kept file anew.
"""

import base64
import functools
import json
import re
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "data" / "pipeline.json"
STEPS, DIMS, KEYS, GPU = (1, 2, 3, 4, 5), (64, 128), 1024, "H200"
UNITS = ("copy", "tensor", "exp", "fp32")
COLUMNS = ("who", "what", "tile", "block", "start", "clocks")


class Stretch(NamedTuple):
    """An `Event` of `flashlab.warpgroups` in whole clocks, with the number of the query block it serves.

    Of a wait, `op` is the barrier ("k_filled[0]") or "wgmma", and `tile` the tile that is waited for.
    """

    partition: str
    unit: str
    op: str
    tile: tuple | None
    block: int
    start: int
    end: int


def logs(D=128, causal=False):
    """A list of five packed logs, of steps 1 to 5: plain JSON values. `unpack` gives their Stretches.

    Raises ValueError for a head dim that the kernels do not have, and ImportError where it is not kept and
    there is no Triton to simulate with.
    """
    if isinstance(D, bool) or not isinstance(D, int) or not 8 <= D <= 256 or D % 8:
        raise ValueError(f"expected D to be a multiple of 8 from 8 to 256, got {D!r}")
    if causal not in (False, True):
        raise ValueError(f"expected causal to be False or True, got {causal!r}")
    found = kept()["logs"].get(key(D, causal))
    return found or [packed(D, bool(causal), step) for step in STEPS]


def key(D, causal):
    """The name of a pair of choices in the kept file."""
    return f"{D}{' causal' if causal else ''}"


@functools.cache
def kept():
    """The kept file: `triton` and `command` that made it, and `logs`."""
    return json.loads(FILE.read_text(encoding="utf-8"))


@functools.cache
def packed(D, causal, step):
    """The packed log of one step, simulated here (seconds)."""
    from flashlab.kernels.hopper_host import config_for

    config = config_for(D, step)
    found = stretches(programs(D, causal, step), config.num_stages)
    tables = {"who": {}, "what": {}, "tile": {}}
    columns = {name: [] for name in COLUMNS}
    for e in found:
        for name, entry in (("who", e.partition), ("what", (e.unit, e.op)), ("tile", e.tile)):
            columns[name].append(tables[name].setdefault(entry, len(tables[name])))
        for name, number in (("block", e.block), ("start", e.start), ("clocks", e.end - e.start)):
            columns[name].append(number)
    return {
        "order": config.order or "alone",
        "end": max(e.end for e in found),
        **{name: [list(x) if isinstance(x, tuple) else x for x in table] for name, table in tables.items()},
        "columns": {name: _column(numbers) for name, numbers in columns.items()},
    }


def programs(D, causal, step):
    """The simulator's Logs of the programs in which one SM meets the 256 rows of `step`, in their order.

    33 heads have 264 blocks of 128 rows: of 132 SMs the first one gets block 7 (the last) and block 3.
    """
    import torch

    from flashlab.kernels.hopper_host import forward
    from flashlab.problem import Problem, make_inputs
    from flashlab.warpgroups import Costs, simulated

    problem = Problem(Hq=33, Hkv=1, Nq=KEYS, D=D, causal=causal)
    numbers = {1: (0, 1, 264, 265), 5: (0,)}.get(step, (0, 132))  # step 1 has blocks of 64 rows
    q, k, v = (torch.from_numpy(x).to(torch.float16) for x in make_inputs(problem))
    with simulated("time", Costs.of(GPU), [(n, 0, 0) for n in numbers]) as simulation:
        forward(q, k, v, causal="top-left" if causal else None, scale=problem.scale, step=step)
    return [simulation.logs[n, 0, 0] for n in numbers]


def stretches(programs, stages):
    """The Stretches of Logs, one after another; what takes less than a clock is left out."""
    found, clock, done = [], 0.0, 0
    for log in programs:
        events = sorted(log, key=lambda e: e.start)
        loaded = {x: [e.tile for e in events if e.op == "load" and e.tile[0] == x] for x in "qkv"}
        begins = {p: _begins(events, p) for p in log.partitions}
        for e in events:
            op, tile = e.op, e.tile
            if e.unit == "wait" and op != "wgmma":
                op, tile = _awaited(op, loaded, stages)
            block = bisect_right(begins[e.partition], e.start + 1e-6) - 1 + op.startswith("q_filled")
            block = done + min(max(block, 0), len(begins[e.partition]) - 1)
            start, end = round(clock + e.start), round(clock + e.end)
            if end > start:
                found.append(Stretch(e.partition, e.unit, op, tile, block, start, end))
        clock, done = clock + log.end, done + max(map(len, begins.values()))
    return sorted(found, key=lambda e: (e.start, e.end))


def _begins(events, partition):
    """When a partition begins a query block: with its first key tile's copy or product."""
    first = "load" if partition == "produce" else "wgmma"
    mine = [e for e in events if e.partition == partition and e.unit != "wait"]
    return [e.start for e in mine if e.op == first and e.tile == ("k", 0)]


def _awaited(op, loaded, stages):
    """(barrier, tile) of a wait for "k_filled[1], phase 2": the tile that was copied there at that lap."""
    name, stage, phase = re.fullmatch(r"(\w+?)(?:\[(\d+)\])?, phase (\d+)", op).groups()
    barrier, tensor = name if stage is None else f"{name}[{stage}]", name[0]
    if name == "turn":
        return barrier, None
    if name == "loaded":  # step 1: K and V together
        return barrier, ("k", int(phase))
    number = int(phase) * (2 if tensor == "q" else stages) + int(stage or 0)
    return barrier, loaded[tensor][number]


def unpack(log):
    """The Stretches of a packed log, by start."""
    columns = {name: _numbers(*column) for name, column in log["columns"].items()}
    tiles = [None if tile is None else tuple(tile) for tile in log["tile"]]
    return [
        Stretch(log["who"][who], *log["what"][what], tiles[tile], block, start, start + clocks)
        for who, what, tile, block, start, clocks in zip(*(columns[c] for c in COLUMNS), strict=True)
    ]


def busy(log, unit):
    """Share of the time of a packed log in which `unit` works: 0 to 1."""
    return sum(e.end - e.start for e in unpack(log) if e.unit == unit) / log["end"]


def measured(records=None):
    """Measured rates of the steps' forward pass, each {step, D, causal, N, dtype, tflops, gpu, date}: of each
    step, D and mask one, at N = 4096 and in fp16 where that was timed.

    `records`: those of the suite "hopper" (default: the kept ones, of which there may be none).
    """
    from flashlab import bench

    found = {}
    for record in bench.recorded("hopper") if records is None else records:
        origin = record["provenance"]
        for row in record["rows"]:
            step = re.fullmatch(r"fa3 step (\d)", row.get("peer", ""))
            if not step or "tflops" not in row or row.get("direction") != "forward":
                continue
            mine = dict(step=int(step[1]), gpu=str(origin["gpu"]), date=str(origin["date"])[:10])
            mine |= {name: row[name] for name in ("D", "causal", "N", "dtype", "tflops")}
            which = (mine["step"], mine["D"], bool(mine["causal"]))
            rank = (mine["N"] == 4096, mine["dtype"] == "float16", mine["N"])  # every step is timed at 4096
            if which not in found or rank > found[which][0]:
                found[which] = rank, mine
    return [mine for _, mine in found.values()]


def _column(numbers):
    """[bytes a number, base64 of little-endian numbers]."""
    width = next(w for w in (1, 2, 4) if max(numbers) < 1 << 8 * w)
    data = b"".join(n.to_bytes(width, "little") for n in numbers)
    return [width, base64.b64encode(data).decode()]


def _numbers(width, text):
    data = base64.b64decode(text)
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]


def main():
    """Simulate and keep all steps of DIMS."""
    import triton

    found = {key(D, c): [packed(D, c, step) for step in STEPS] for D in DIMS for c in (False, True)}
    made = {"command": "python -m flashlab.pipeline", "triton": triton.__version__, "gpu": GPU, "keys": KEYS}
    lines = [f'"{name}": [\n' + ",\n".join(map(_json, five)) + "]" for name, five in found.items()]
    text = _json(made)[:-1] + ',\n"logs": {\n' + ",\n".join(lines) + "}}\n"  # a line for each log
    FILE.write_text(text, encoding="utf-8")


def _json(value):
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main()
