"""mbarriers: a count of arrivals and of bytes for each phase, and what a wait for a phase makes known.

A phase is over when all arrivals are in and all expected bytes have come; then the next one begins. A wait
names its phase by parity only: it passes when the phase that runs now has the other parity. So what passes
here may pass by luck; a wait is therefore credited with the earliest phase that lets it pass, and with what
was known then. And a barrier may not end two phases before a wait sees the first: whoever ends the second
must know of the wait.
"""

from flashlab.warpgroups.faults import MissedPhase, WrongArrivals, WrongBytes
from flashlab.warpgroups.machine import here
from flashlab.warpgroups.names import find_name


class Barriers:
    """An allocation of barriers. `arrivers`: who has ever arrived at one of them; `holders`: who got them."""

    def __init__(self, count):
        self.name, self.arrivers, self.holders = None, {}, {}
        self.all = [Barrier(self, i) for i in range(count)]

    root = property(lambda self: self)

    def index(self, index):
        if not 0 <= index < len(self.all):
            raise IndexError(f"{self.name or 'these'} are {len(self.all)} barriers, asked for number {index}")
        return self.all[int(index)]


def barrier_of(thing):
    """The barrier that a kernel means: an allocation of one barrier is that barrier."""
    return thing.all[0] if isinstance(thing, Barriers) and len(thing.all) == 1 else thing


class Barrier:
    """One mbarrier. `over[n]`: what is known once phase n is over, the clock of that, and who arrived.
    `seen[n]`: the waits that have seen the end of phase n, as (bit, partition's name).
    """

    def __init__(self, root, index):
        self.root, self.number, self.count = root, index, None
        self.over, self.seen = [], {}
        self.begin_phase()

    def begin_phase(self):
        self.arrived, self.expected, self.came = [], 0, 0
        self.knows, self.clock = self.over[-1][0] if self.over else 0, 0.0

    phase = property(lambda self: len(self.over))
    pending = property(lambda self: self.count - len(self.arrived))

    def index(self, index):
        """A barrier of its own may be indexed once more: shape [n, 1]."""
        return self

    def init(self, count):
        self.count = int(count)

    def arrive(self, partition, count=1, expect=0):
        """`partition` arrives, and says how many bytes are to come besides."""
        self.check_ready(partition)
        if count > self.pending:
            open_bytes = f", and {self.expected - self.came} bytes are still to come" if self.expected else ""
            who = ", ".join(self.arrived) or "nobody"
            raise WrongArrivals(
                f"{partition.where()} arrives {count} time(s) at {self}, whose phase {self.phase} has had "
                f"{len(self.arrived)} of {self.count} arrivals ({who}){open_bytes}: "
                "its count is too low, or a wait for the end of this phase is missing"
            )
        self.root.arrivers.setdefault(partition.name)
        self.arrived += [partition.name] * count
        self.expected += expect
        self.knows |= partition.known
        self.clock = max(self.clock, partition.clock)
        self.maybe_over()

    def land(self, nbytes, knows, clock):
        """A copy has brought `nbytes`."""
        self.came += nbytes
        self.knows |= knows
        self.clock = max(self.clock, clock)
        self.maybe_over()

    def maybe_over(self):
        if self.pending == 0 and self.came > self.expected:
            raise WrongBytes(
                f"{self}, phase {self.phase}: the copies bring {self.came} bytes, "
                f"but only {self.expected} are expected"
            )
        if self.pending == 0 and self.came == self.expected:
            for bit, who in self.seen.pop(self.phase - 1, ()):
                if not self.knows & bit:
                    self.miss(who, self.phase - 1)
            self.over.append((self.knows, self.clock, self.arrived))
            self.begin_phase()

    def check_ready(self, partition):
        if self.count is None:
            raise WrongArrivals(f"{partition.where()} uses {self} before mbarrier.init")

    def wait(self, parity):
        """Let the running partition wait for the phase of that parity, and know what is known then."""
        me = here()
        self.check_ready(me)
        wait = Wait(self, int(parity) & 1, me)
        me.wait(wait)
        me.credited[self], me.last_wait = wait.phase, wait
        if wait.phase >= 0:
            me.known |= self.over[wait.phase][0]
        if self.phase > wait.phase + 1:
            self.miss(me.name, wait.phase)
        bit = me.machine.new_bit()
        me.known |= bit
        self.seen.setdefault(wait.phase, []).append((bit, me.name))

    def miss(self, who, phase):
        """Phase `phase` + 1 ends, and nobody who arrives there knows that `who` has seen the one before."""
        awaited = f"the end of phase {phase}" if phase >= 0 else "nothing yet (parity 1, before phase 0)"
        arrived = ", ".join(self.arrived or self.over[-1][2])
        raise MissedPhase(
            f"{who} waits at {self} for {awaited}, and phase {phase + 1} may be over before it looks: "
            f"whoever arrives there ({arrived}) has not waited for {who}"
        )

    def __str__(self):
        if self.root.name is None:
            find_name(self.root)
        name = self.root.name or "a barrier"
        return f"{name}[{self.number}]" if len(self.root.all) > 1 else name


class Wait:
    """A wait of `partition` for a phase of `barrier`: the next one of that parity, by what it saw so far."""

    def __init__(self, barrier, parity, partition):
        self.barrier, self.parity, self.partition = barrier, parity, partition
        seen = partition.credited.get(barrier, -1)
        self.phase = seen if seen & 1 == parity else seen + 1

    def passes(self):
        return self.barrier.phase & 1 != self.parity

    over = passes

    def clock(self):
        return self.barrier.over[self.phase][1] if self.phase >= 0 else 0.0

    def story(self, other):
        """What this wait was, and why it did not keep its partition from running into the access `other`."""
        b = self.barrier
        if self.phase < 0:
            return f"{b} with parity 1, which passes before its phase 0"
        arrived, who = b.over[self.phase][2], other.partition.name
        text = f"{b}, phase {self.phase} (count {b.count}; arrived: {', '.join(arrived)})"
        if who in arrived:
            return f"{text}, and {who} arrives there before that is over"
        return f"{text}, and {who} has not arrived there"

    def explain(self):
        """Why it does not pass, for a deadlock."""
        b = self.barrier
        text = (
            f"waits for {b}, phase {b.phase} (parity {self.parity}): {len(b.arrived)} of {b.count} arrivals"
        )
        if b.arrived:
            text += f" ({', '.join(b.arrived)})"
        if b.expected != b.came:
            text += f", {b.came} bytes have come of {b.expected} expected"
        if self.phase < b.phase - 1:
            meant = f"for phase {self.phase}" if self.phase >= 0 else "to pass before phase 0"
            text += f"; by its parity this wait is meant {meant}, and the barrier has moved on: "
            text += "wrong parity, or more arrivals in a phase than its count"
        elif b.pending:
            text += self.who_is_missing()
        return text

    def who_is_missing(self):
        """Who arrives at these barriers, and has not arrived in this phase."""
        b = self.barrier
        others = [name for name in b.root.holders if name not in (*b.arrived, self.partition.name)]
        missing = [name for name in b.root.arrivers if name in others] or others
        if not missing:
            return "; whoever could arrive has arrived: its count is too high"
        text = f"; still to arrive: {' or '.join(missing)}"
        if self.parity == 0 and b.phase == 0 and not b.root.arrivers:
            text += " (if nobody: the first wait on a fresh barrier passes with parity 1)"
        return text

    def __str__(self):
        return f"{self.barrier}, phase {self.phase}"
