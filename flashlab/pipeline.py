"""Who works and who waits on one SM in steps 1 to 5 of the Hopper kernels: the simulator's log, made small.

In every step one SM of an H200 works on ROWS query rows and KEYS keys (under a causal mask on the last rows
of KEYS tokens): on 6 blocks of 64 rows in step 1, on 3 of 128, or on 2 of 192 where there are three
consumers. So the steps may be laid side by side, and their clocks compared. Each step is configured as for
TIMED keys, where its rate is measured.

The times are clocks of a model, see `flashlab.warpgroups.timing`, and not measurements. Head dims 64 and
128 are kept in the package; others are simulated when asked for, which needs Triton. `python -m
flashlab.pipeline` makes the kept file anew.
"""

import base64
import functools
import itertools
import json
import re
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "data" / "pipeline.json"
STEPS, DIMS, GPU = (1, 2, 3, 4, 5), (64, 128), "H200"
ROWS, KEYS = 384, 1024  # 384: the least number of rows that blocks of 64, 128 and 192 rows divide
TIMED = 4096  # keys; every step is timed there (`flashlab.bench.hopper.LADDER`)
UNITS = ("copy", "tensor", "exp", "fp32")
COLUMNS = ("who", "what", "tile", "block", "after", "clocks")  # after: clocks since the last one has started


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
    """The kept file: `triton` and `command` that made it, ROWS, KEYS, TIMED and `logs`."""
    return json.loads(FILE.read_text(encoding="utf-8"))


@functools.cache
def packed(D, causal, step):
    """The packed log of one step, simulated here (seconds)."""
    config, rows, _ = share(D, causal, step)
    stages = {"q": config.consumers, "k": config.num_stages, "v": config.v_stages}
    found = stretches(programs(D, causal, step), stages)
    tables = {"who": {}, "what": {}, "tile": {}}
    columns = {name: [] for name in COLUMNS}
    last = 0
    for e in found:
        for name, entry in (("who", e.partition), ("what", (e.unit, e.op)), ("tile", e.tile)):
            columns[name].append(tables[name].setdefault(entry, len(tables[name])))
        for name, number in (("block", e.block), ("after", e.start - last), ("clocks", e.end - e.start)):
            columns[name].append(number)
        last = e.start
    return {
        "order": config.order or "alone",
        "rows": rows,
        "end": max(e.end for e in found),
        **{name: [list(x) if isinstance(x, tuple) else x for x in table] for name, table in tables.items()},
        "columns": {name: _column(numbers) for name, numbers in columns.items()},
    }


def share(D, causal, step):
    """(Config, rows of a query block, work tiles) of what one of 132 SMs does, of ROWS rows of 132 heads.

    Work tiles are counted as `hopper_parts.my_tile` does. In step 5 they are program 0's share of the plan.
    In the steps before, a program is one work tile, and a GPU hands the next one to the SM that is done
    first; those of one head are taken here, so that the rows are the same.
    """
    import torch

    from flashlab.kernels import hopper_host

    config, heads = hopper_host.config_for(D, step, causal, TIMED), hopper_host.H200_SMS
    rows = hopper_host.ROWS * (config.consumers if config.order else 1)
    if not config.persistent:
        return config, rows, list(range(ROWS // rows))
    shift = KEYS - ROWS if causal else None
    shapes = (1, heads, ROWS, D), (1, 1, KEYS, D)
    plan = hopper_host.plan(heads, rows, config.block_k, shift, *shapes, torch.device("cpu")).tolist()
    return config, rows, plan[plan[0] : plan[1]]


def programs(D, causal, step):
    """The simulator's Logs of the programs that do the work tiles of `share`, in their order."""
    import torch

    from flashlab.kernels.hopper_host import H200_SMS, forward
    from flashlab.problem import Problem, make_inputs
    from flashlab.warpgroups import Costs, simulated

    config, _, tiles = share(D, causal, step)
    numbers = [(n, 0, 0) for n in ([0] if config.persistent else tiles)]
    mask = "bottom-right" if causal else None  # the rows are the last ones
    problem = Problem(Hq=H200_SMS, Hkv=1, Nq=ROWS, Nk=KEYS, D=D, causal=mask or False)
    q, k, v = (torch.from_numpy(x).to(torch.float16) for x in make_inputs(problem))
    with simulated("time", Costs.of(GPU), numbers) as simulation:
        forward(q, k, v, causal=mask, scale=problem.scale, step=step, config=config)
    return [simulation.logs[n] for n in numbers]


def stretches(programs, stages):
    """The Stretches of Logs, one after another; what takes less than a clock is left out.

    `stages`: how many tiles of each tensor ("q", "k", "v") have a place at a time.
    """
    found, clock, done = [], 0.0, 0
    for log in programs:
        events = sorted(log, key=lambda e: e.start)
        loaded = {x: [e.tile for e in events if e.op == "load" and e.tile[0] == x] for x in "qkv"}
        begins = {p: _begins(events, p) for p in log.partitions}
        for e in events:
            op, tile = e.op, e.tile
            if e.unit == "wait" and op != "wgmma":
                op, tile = _awaited(op, loaded, stages)
            block = done + _block(e, op, tile, begins[e.partition])
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


def _block(e, op, tile, begins):
    """The number of the query block that an Event serves; `begins` are its partition's."""
    query = re.match(r"q_(filled|emptied)\[\d\], phase (\d+)", e.op)
    if query:  # the place of Q is filled, and emptied for the next one, once in a block
        return int(query[2]) + (query[1] == "emptied")
    before = bisect_right(begins, e.start + 1e-6) - 1 + (op.startswith("k_filled") and tile == ("k", 0))
    return min(max(before, 0), len(begins) - 1)


def _awaited(op, loaded, stages):
    """(barrier, tile) of a wait for "k_filled[1], phase 2": the tile that was copied there at that lap."""
    name, stage, phase = re.fullmatch(r"(\w+?)(?:\[(\d+)\])?, phase (\d+)", op).groups()
    barrier, tensor = name if stage is None else f"{name}[{stage}]", name[0]
    if name == "turn":
        return barrier, None
    if name == "loaded":  # step 1: K and V together
        return barrier, ("k", int(phase))
    return barrier, loaded[tensor][int(phase) * stages[tensor] + int(stage or 0)]


def unpack(log):
    """The Stretches of a packed log, by start."""
    columns = {name: _numbers(*column) for name, column in log["columns"].items()}
    columns["after"] = itertools.accumulate(columns["after"])
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
    made = {"command": "python -m flashlab.pipeline", "triton": triton.__version__, "gpu": GPU}
    made |= {"rows": ROWS, "keys": KEYS, "timed": TIMED}
    lines = [f'"{name}": [\n' + ",\n".join(map(_json, five)) + "]" for name, five in found.items()]
    text = _json(made)[:-1] + ',\n"logs": {\n' + ",\n".join(lines) + "}}\n"  # a line for each log
    FILE.write_text(text, encoding="utf-8")


def _json(value):
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main()
