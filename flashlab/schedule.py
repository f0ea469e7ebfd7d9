"""Which multiprocessor (SM) works on which block, and when: the programs of a launch as a timeline.

The hardware hands out programs in the order of their numbers: the next one goes to the first SM with room.
That is all there is to waves, tails and causal imbalance, and it is what `simulate` does. Time is counted in
tile steps: one query block meets one key block in one step, on an SM that works at full speed.
"""

import heapq
import math
from dataclasses import dataclass
from typing import NamedTuple

from flashlab import gpus
from flashlab.errors import unknown_name
from flashlab.flows import Tiles
from flashlab.sharing import speeds
from flashlab.splits import choose_splits, part_of, rows_of_tile

ORDERS = ("natural", "reversed", "longest-first")
ALGORITHMS = ("fa1", "fa2", "decode")
MOST_PROGRAMS = 200_000  # more cannot be shown, and take minutes


class Program(NamedTuple):
    """One program (of a persistent grid: one of its work items): where and when it ran.

    `start` and `end` in tile steps; `head` is batch * heads + head, `block` its query block (FA1: 0), `work`
    its tile steps, `split` its part of the keys (decode).
    """

    sm: int
    slot: int
    start: float
    end: float
    head: int
    block: int
    work: float
    split: int = 0


class Item(NamedTuple):
    """One piece of work before it is placed."""

    head: int
    block: int
    work: float
    split: int = 0


@dataclass(frozen=True)
class Timeline:
    """What `simulate` found. `step_flops`: matrix FLOPs of one tile step."""

    programs: list
    gpu: gpus.GPU
    programs_per_sm: int
    step_flops: int
    dtype: str

    @property
    def makespan(self):
        """Tile steps until the last program has ended."""
        return max((p.end for p in self.programs), default=0.0)

    @property
    def busy(self):
        """Tile steps in which an SM has at least one program, summed over SMs."""
        return sum(end - start for spans in self._spans().values() for start, end in spans)

    @property
    def utilisation(self):
        """Share of all SMs' time, until the end, in which they have a program: 0 to 1."""
        return self.busy / (self.makespan * self.gpu.sms) if self.makespan else 0.0

    @property
    def idle(self):
        """Seconds of SM time, summed over SMs, without a program before the end."""
        return self.seconds(self.makespan * self.gpu.sms - self.busy)

    @property
    def waves(self):
        """How many times the GPU would have to be filled to run all programs: 1.008 for 133 on 132 SMs."""
        return len(self.programs) / (self.gpu.sms * self.programs_per_sm)

    @property
    def tail(self):
        """Tile steps at the end in which not all SMs have work any more."""
        if not self.programs:
            return 0.0
        last = dict.fromkeys(range(self.gpu.sms), 0.0)
        for p in self.programs:
            last[p.sm] = max(last[p.sm], p.end)
        return self.makespan - min(last.values())

    def seconds(self, steps):
        """`steps` tile steps of one SM in seconds, at the GPU's peak: a lower bound."""
        return steps * self.step_flops / (self.gpu.peak_of(self.dtype) / self.gpu.sms)

    def _spans(self):
        spans = {}
        for p in sorted(self.programs, key=lambda p: p.start):
            mine = spans.setdefault(p.sm, [])
            if mine and p.start <= mine[-1][1]:
                mine[-1][1] = max(mine[-1][1], p.end)
            else:
                mine.append([p.start, p.end])
        return spans


def simulate(
    problem, algorithm, gpu, order=None, splits=None, persistent=False,
    *, programs_per_sm=1, alone=1.0, overhead=0.0,
):  # fmt: skip
    """The `Timeline` of a forward launch: "fa1" (one program a head), "fa2" (one a query block) or "decode".

    `order` of FA2's blocks: "natural", "reversed" (each head's last block first), "longest-first" (of all
    heads); default: what the kernels do, reversed under a causal mask. `splits` (decode): parts of the keys,
    default: what the kernel chooses. `persistent`: as many programs as fit, each taking every G-th item.
    `programs_per_sm` (see `GPU.residents`) share an SM evenly; one by itself has `alone` of its full speed
    (1/n: latency-bound, n programs do n times the work), some have what `flashlab.sharing` says. `overhead`:
    steps that a program costs beside its tiles. Raises ValueError.
    """
    gpu = gpus.get(gpu)
    if algorithm not in ALGORITHMS:
        raise unknown_name("algorithm", algorithm, ALGORITHMS)
    if order is None:
        order = "natural" if problem.causal is False or algorithm != "fa2" else "reversed"
    if order not in ORDERS:
        raise unknown_name("order", order, ORDERS)
    if not overhead >= 0:
        raise ValueError(f"expected overhead >= 0, got {overhead!r}")
    items = [i._replace(work=i.work + overhead) for i in work_items(problem, algorithm, gpu, order, splits)]
    programs = place(items, gpu.sms, programs_per_sm, alone, persistent)
    block_q = problem.block_q
    if algorithm == "decode":
        block_q = rows_of_tile(problem.Hq // problem.Hkv * problem.Nq, block_q)
    step_flops = 4 * block_q * problem.block_k * problem.D
    return Timeline(programs, gpu, programs_per_sm, step_flops, problem.dtype)


def work_items(problem, algorithm, gpu, order="natural", splits=None):
    """The launch's programs in the order of their numbers, as `Item`s. Raises ValueError for too many."""
    p, tiles = problem, Tiles(problem)
    if algorithm == "decode":
        return _decode_items(p, gpus.get(gpu), splits)
    if algorithm == "fa1":
        work = sum(tiles.last)
        return _within_reason([Item(head, 0, work) for head in range(p.B * p.Hq)])
    blocks = list(enumerate(tiles.last))
    if order == "reversed":
        blocks.reverse()
    _within_reason(range(len(blocks) * p.B * p.Hq))
    items = [Item(head, block, work) for head in range(p.B * p.Hq) for block, work in blocks]
    if order == "longest-first":
        items.sort(key=lambda item: -item.work)
    return items


def _decode_items(p, gpu, splits):
    rows = p.Hq // p.Hkv * p.Nq
    blocks = math.ceil(rows / rows_of_tile(rows, p.block_q))
    splits = splits or choose_splits(p.B, p.Hkv, blocks, p.Nk, gpu.sms)
    _within_reason(range(p.B * p.Hkv * splits * blocks))

    def steps(split):
        start, end = part_of(p.Nk, split, splits, p.block_k)
        return math.ceil((end - start) / p.block_k)

    return [
        Item(head, block, steps(split), split)
        for head in range(p.B * p.Hkv)
        for split in range(splits)
        for block in range(blocks)
    ]


def _within_reason(items):
    if len(items) > MOST_PROGRAMS:
        raise ValueError(
            f"{len(items):,} programs are too many to follow one by one (at most {MOST_PROGRAMS:,}): "
            "take larger blocks or fewer heads"
        )
    return items


def place(items, sms, per_sm=1, alone=1.0, persistent=False):
    """Run `items` (in order) on `sms` SMs with `per_sm` slots each; returns [Program, ...] by start time."""
    shared, queues = speeds(per_sm, alone), None
    if persistent:  # program g takes the items g, g + G, ...
        grid = min(sms * per_sm, len(items))
        queues = [items[g::grid] for g in range(grid)]
        items = [queue[0] for queue in queues]
    machines = [_SM(number, shared) for number in range(sms)]
    done, waiting = [], iter(enumerate(items))
    for slot in range(per_sm):  # every SM gets a first program before any gets a second
        for sm in machines:
            number, item = next(waiting, (None, None))
            if item is not None:
                sm.start(0.0, slot, item, number)
    events = [(sm.next_end(), sm.number) for sm in machines if sm.running]
    heapq.heapify(events)
    while events:
        now, number = heapq.heappop(events)
        sm = machines[number]
        for slot, item, start, origin in sm.finish(now):
            done.append(Program(number, slot, start, now, item.head, item.block, item.work, item.split))
            if queues is not None:
                queues[origin].pop(0)
                following = (origin, queues[origin][0]) if queues[origin] else (None, None)
            else:
                following = next(waiting, (None, None))
            if following[1] is not None:
                sm.start(now, slot, following[1], following[0])
        if sm.running:
            heapq.heappush(events, (sm.next_end(), number))
    return sorted(done, key=lambda p: (p.start, p.sm, p.slot))


class _SM:
    """One SM whose programs share its speed evenly; `speeds`: that with one program, two, ..."""

    def __init__(self, number, speeds):
        self.number, self.speeds = number, speeds
        self.now, self.running = 0.0, {}  # slot -> [steps left, item, start, number]

    def rate(self):
        """Tile steps per time of each program that runs now."""
        n = len(self.running)
        return self.speeds[n - 1] / n

    def advance(self, now):
        if self.running and now > self.now:
            done = (now - self.now) * self.rate()
            for entry in self.running.values():
                entry[0] -= done
        self.now = now

    def start(self, now, slot, item, number):
        self.advance(now)
        self.running[slot] = [float(item.work), item, now, number]

    def next_end(self):
        return self.now + max(min(entry[0] for entry in self.running.values()), 0.0) / self.rate()

    def finish(self, now):
        """End the programs that have nothing left: [(slot, item, start, number), ...]."""
        self.advance(now)
        least = min(entry[0] for entry in self.running.values())
        ended = [slot for slot, entry in self.running.items() if entry[0] <= least + 1e-9]
        return [(slot, *self.running.pop(slot)[1:]) for slot in ended]
