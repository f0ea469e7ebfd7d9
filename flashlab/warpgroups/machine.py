"""One program on one SM: its partitions take turns, in an order that is chosen, never left to luck.

Each partition is a thread, but only one runs at a time. Wherever partitions can meet (a barrier, a copy, a
wgmma) the running one stops, and the schedule says who goes on. That no partition can go on is a deadlock; no
clock is needed to see it.

Copies land by themselves: in the schedule "time" when they are due, in all others as late as the barriers
allow (when no partition can run without them), last in first out or in random order.
"""

import random
import threading

import numpy as np

from flashlab.errors import unknown_name
from flashlab.warpgroups import names
from flashlab.warpgroups.faults import Deadlock, NotWaitedFor
from flashlab.warpgroups.timing import WAIT, Costs, Event, Log

TURN = 128  # clocks for which a unit serves one partition while another one waits for it
SCHEDULES = ("time", "round-robin", "first-first", "last-first", "random 0", "random 1", "random 2")
_thread = threading.local()


def here():
    """The partition that runs in this thread."""
    return _thread.partition


class Stopped(BaseException):
    """Ends the thread of a partition after another one has failed."""


class Partition:
    """One of the program's warp groups, as `warp_specialize` divides it.

    `known` is what it can be sure of: a set, as the bits of an int, of accesses to shared memory (see
    `shared`) and of waits (see `barriers`) that are over. `credited` says, for each barrier, the latest phase
    that it has waited for.
    """

    def __init__(self, machine, name, call, known=0, clock=0.0):
        self.machine, self.name, self.call = machine, name, call
        self.known, self.clock = known, clock
        self.credited, self.unfenced = {}, []
        self.wgmmas, self.stores = [], []  # in flight, oldest first
        self.waits_for, self.last_wait = None, None
        self.ended, self.result = False, None
        self.turn = threading.Semaphore(0)
        self.thread = threading.Thread(target=self.run, daemon=True, name=name)

    def run(self):
        _thread.partition = self
        self.turn.acquire()
        try:
            self.machine.check_running()
            with np.errstate(all="ignore"):
                self.result = self.call()
            self.check_nothing_left()
            self.ended = True
            self.machine.pass_on()
        except Stopped:
            pass
        except BaseException as error:
            self.ended = True
            self.machine.stop(error)

    def check_nothing_left(self):
        if self.wgmmas:
            raise NotWaitedFor(f"{self.name} ends while {self.wgmmas[0]} may still be in flight")
        if self.stores:
            raise NotWaitedFor(
                f"{self.name} ends while {self.stores[0]} may still read shared memory: store_wait is missing"
            )

    def can_run(self):
        return not self.ended and (self.waits_for is None or self.waits_for.over())

    def ready(self):
        """The clock at which it can go on."""
        return self.clock if self.waits_for is None else max(self.clock, self.waits_for.clock())

    def wait(self, condition):
        """Let others run until `condition` is over, and write the waiting down."""
        self.waits_for = condition
        self.machine.meet()
        self.waits_for, start = None, self.clock
        self.clock = max(self.clock, condition.clock())
        if not isinstance(condition, Others):
            self.machine.note_wait(self, str(condition), None, start)

    def work(self, unit, amount, op, tile=None):
        """Spend the time that `unit` takes for `amount`, in turns with others who want the unit too."""
        if not self.machine.timed:
            return
        turns = max(1, round(self.machine.costs.clocks(unit, amount) / TURN))
        for _ in range(turns):
            self.machine.meet()
            self.clock = self.machine.reserve(self, unit, amount / turns, op, tile)

    def where(self):
        """ "consumer 0 (release, line 12)": what it executes now, for messages."""
        place = names.place(self.thread.ident)
        return f"{self.name} ({place})" if place else self.name

    def __str__(self):
        return self.name


class Others:
    """The condition that all of some partitions have ended."""

    def __init__(self, partitions):
        self.partitions = partitions

    def over(self):
        return all(p.ended for p in self.partitions)

    def clock(self):
        return max(p.clock for p in self.partitions)

    def explain(self):
        return "waits for its partitions to end"

    def __str__(self):
        return "partitions"


class Copy:
    """A copy in flight: `land()` when it arrives, `due` on the clock."""

    def __init__(self, due, land):
        self.due, self.land = due, land


class Machine:
    """The SM on which one program runs. `schedule` is one of SCHEDULES or "random N" with any seed N.

    Raises ValueError for an unknown schedule.
    """

    def __init__(self, schedule="time", costs=None, program=(0, 0, 0), grid=(1, 1, 1)):
        kind, _, seed = str(schedule).partition(" ")
        if schedule not in SCHEDULES and not (kind == "random" and seed.isdigit()):
            raise unknown_name("schedule", schedule, SCHEDULES)
        self.kind, self.random = kind, random.Random(int(seed or 0))
        self.timed = kind == "time"
        self.costs = costs or Costs.of()
        self.program, self.grid = program, grid
        self.log, self.free = Log(clock_ghz=self.costs.clock_ghz), {}
        self.partitions, self.copies, self.current, self.bits = [], [], None, 0
        self.buffers = []  # of shared memory
        self.failure, self.over = None, threading.Event()

    def run(self, name, call):
        """Run `call` as the program's first partition, and all that it starts. Raises what they raise."""
        self.add(name, call)
        try:
            self.pass_on()
            self.over.wait()
        finally:
            self.stop(None)
            for p in self.partitions:
                p.thread.join()
        if self.failure is not None:
            raise self.failure
        for buffer in self.buffers:
            buffer.check_nothing_left(self.partitions[0].known)

    def add(self, name, call, known=0, clock=0.0):
        partition = Partition(self, name, call, known, clock)
        self.partitions.append(partition)
        partition.thread.start()
        return partition

    def new_bit(self):
        self.bits += 1
        return 1 << self.bits

    def reserve(self, partition, unit, amount, op, tile, start=None):
        """Let `unit` do something as soon as it is free; returns when it ends."""
        start = max(partition.clock if start is None else start, self.free.get(unit, 0.0))
        self.free[unit] = end = start + self.costs.clocks(unit, amount)
        self.log.add(Event(partition.name, unit, op, tile, start, end))
        return end

    def note_wait(self, partition, what, tile, start):
        """Write down that `partition` has waited since `start`."""
        self.log.add(Event(partition.name, WAIT, what, tile, start, partition.clock))

    def meet(self):
        """The running partition stops here until it is its turn (again)."""
        me = here()
        chosen = self.choose()
        if chosen is not me:
            chosen.turn.release()
            me.turn.acquire()
            self.check_running()

    def meet_in_time(self):
        """The same in the schedule "time" only: for what only the shared units notice."""
        if self.timed:
            self.meet()

    def pass_on(self):
        """The running partition has ended: another one goes on."""
        if all(p.ended for p in self.partitions):
            self.over.set()
        else:
            self.choose().turn.release()

    def choose(self):
        """The partition that goes on. Raises Deadlock if there is none."""
        while True:
            can = [p for p in self.partitions if p.can_run()]
            pick = self.pick(can)
            if pick is None:
                raise Deadlock(self.explain_deadlock())
            if pick in can:
                self.current = pick
                return pick
            self.copies.remove(pick)
            pick.land()

    def pick(self, can):
        """One of the partitions that can run, or a copy that lands, or None."""
        if self.kind == "time":
            due = [(c.due, 0, i, c) for i, c in enumerate(self.copies)]
            now = [(p.ready(), p is not self.current, self.partitions.index(p), p) for p in can]
            first_copy, first = min(due, default=None), min(now, default=None)
            both = [x for x in (first_copy, first) if x is not None]
            return min(both, key=lambda x: x[0])[-1] if both else None
        if self.kind == "random":
            if self.copies and (not can or self.random.random() < 0.2):
                return self.random.choice(self.copies)
            return self.random.choice(can) if can else None
        if not can:
            return self.copies[-1] if self.copies else None
        if self.kind == "round-robin":
            order = self.partitions
            at = order.index(self.current) if self.current in order else -1
            return min(can, key=lambda p: (order.index(p) - at - 1) % len(order))
        return can[0] if self.kind == "first-first" else can[-1]

    def explain_deadlock(self):
        lines = ["no partition can run, and no copy is in flight"]
        for p in self.partitions:
            if isinstance(p.waits_for, Others):
                continue
            lines.append(f"{p.name} has ended" if p.ended else f"{p.where()} {p.waits_for.explain()}")
        return "\n  ".join(lines)

    def check_running(self):
        if self.over.is_set():
            raise Stopped

    def stop(self, error):
        """End everything: because of `error`, or (None) since it is done or was interrupted."""
        if self.failure is None:
            self.failure = error
        self.over.set()
        for p in self.partitions:
            p.turn.release()
