"""Shared memory: buffers, views of them, and the rule that tells a race.

Every access has a bit. A partition's `known` holds the bits of the accesses that it can be sure are over: its
own, and those that reached it through a barrier for which it waited. An access that meets one not in `known`,
where one of the two writes, is a race: on a GPU it goes wrong some day, in whatever order things happened
here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from flashlab.warpgroups.faults import MissingFence, NotWaitedFor, Overwritten, ReadTooEarly
from flashlab.warpgroups.machine import here
from flashlab.warpgroups.names import find_name
from flashlab.warpgroups.tiles import Tile, round_to


@dataclass(eq=False)
class Access:
    """One read or write of `data`, a part of a buffer: by whom, by which unit, what for.

    `unit` is "threads" for ordinary loads and stores, else "copy" or "wgmma" (which run by themselves). A
    copy into shared memory reports to a `barrier` in one of its phases. `fenced`: asynchronous units may see
    it.
    """

    partition: Any
    unit: str
    what: str
    data: np.ndarray
    writes: bool
    bit: int
    place: str
    tile: tuple | None = None
    barrier: Any = None
    phase: int = 0
    fenced: bool = True

    def __str__(self):
        return f"{self.what} of {self.place}"


class Buffer:
    """One allocation. `data` begins as nan: what nobody wrote spoils the result."""

    def __init__(self, shape, dtype):
        self.data = np.full(shape, np.nan, np.float32)
        self.dtype, self.name = dtype, None
        self.live = []  # the accesses that a later one may meet: the last writes and the reads since then
        here().machine.buffers.append(self)

    def touch(self, access, known):
        """Write `access` down; raises the fault that it is."""
        met = [other for other in self.live if np.shares_memory(other.data, access.data)]
        if not access.writes and not any(other.writes for other in met):
            raise ReadTooEarly(f"{access} reads {self.part(access.data)}, which nothing has written yet")
        for other in met:
            if (access.writes or other.writes) and not known & other.bit:
                raise self.race(access, other)
            if access.unit != "threads" and not other.fenced:
                raise MissingFence(
                    f"{access} may not see {other}: fence_async_shared is missing between them"
                )
        if access.writes:
            low, high = byte_bounds(access.data)
            covered = [low <= byte_bounds(o.data)[0] and byte_bounds(o.data)[1] <= high for o in self.live]
            whole = access.data.flags.c_contiguous
            self.live = [o for o, gone in zip(self.live, covered, strict=True) if not (gone and whole)]
        self.live.append(access)

    def race(self, access, other):
        part = self.part(access.data)
        if not access.writes:
            return ReadTooEarly(
                f"{access} reads {part}, where {other} may still be writing: {missed(access, other)}"
            )
        last = access.partition.last_wait
        waited = f"before, it waited for {last.story(other)}" if last else "it has waited for nothing before"
        verb = "be writing to" if other.writes else "be reading"
        return Overwritten(f"{access} overwrites {part}, while {other} may still {verb} it: {waited}")

    def part(self, data):
        """ "k[1]": the name of a part, by its index on the first axis where it has one."""
        if self.name is None:
            find_name(self)
        name, step = self.name or "shared memory", self.data.strides[0]
        (low, high), base = byte_bounds(data), byte_bounds(self.data)[0]
        one = len(self.data) > 1 and self.data.ndim > 2 and high - low <= step
        return f"{name}[{(low - base) // step}]" if one else name

    def tile_in(self, data):
        """What was copied to that part last: (tensor, tile number), or None."""
        held = [a.tile for a in self.live if a.writes and np.shares_memory(a.data, data)]
        return held[-1] if held else None

    def check_nothing_left(self, known):
        """Raises NotWaitedFor if a copy is left that may not have landed when the program ends."""
        for access in self.live:
            if access.unit == "copy" and access.writes and not known & access.bit:
                raise NotWaitedFor(
                    f"the program ends, and nobody has waited for {access} to {self.part(access.data)}"
                )


def missed(access, other):
    """Why the reader cannot know that the write `other` is over."""
    reader, barrier = access.partition, other.barrier
    if barrier is None:
        return f"no barrier that {reader} has waited for says that it is done"
    want = f"it completes {barrier}, phase {other.phase} (parity {other.phase & 1})"
    if barrier not in reader.credited:
        return f"{want}, for which {reader} has never waited"
    have = reader.credited[barrier]
    if have < 0:
        return f"{want}, but the wait of {reader} for parity 1 passes before phase 0"
    return (
        f"{want}, but {reader} has waited for phase {have} (parity {have & 1}) at most: "
        "its parity is wrong, or the tile was overwritten before it was read"
    )


class View:
    """A part of a buffer, as Gluon's shared_memory_descriptor."""

    def __init__(self, root, data):
        self.root, self.data = root, data

    dtype = property(lambda self: self.root.dtype)
    shape = property(lambda self: list(self.data.shape))
    rank = property(lambda self: self.data.ndim)
    numel = property(lambda self: self.data.size)
    nbytes = property(lambda self: self.data.size * self.dtype.primitive_bitwidth // 8)

    def index(self, index):
        if not 0 <= index < len(self.data):
            raise IndexError(f"{self} has {len(self.data)} parts, asked for part {index}")
        return View(self.root, self.data[int(index)])

    def slice(self, start, length, dim=0):
        return View(self.root, self.data[(slice(None),) * dim + (slice(start, start + length),)])

    def permute(self, order):
        return View(self.root, self.data.transpose(order))

    def reshape(self, shape):
        view = self.data.view()
        view.shape = [int(n) for n in shape]  # raises instead of copying
        return View(self.root, view)

    def access(self, unit, what, writes=False, **more):
        """Touch this part for the partition that runs now; returns the `Access`."""
        me = here()
        more.setdefault("tile", self.root.tile_in(self.data))
        made = Access(me, unit, what, self.data, writes, me.machine.new_bit(), me.where(), **more)
        self.root.touch(made, me.known)
        return made

    def load(self, layout=None):
        """An ordinary load: the tile, at once."""
        me = here()
        me.machine.meet_in_time()
        access = self.access("threads", "the load")
        me.known |= access.bit
        me.work("shared", self.nbytes, "load", access.tile)
        return Tile(self.data.copy(), self.dtype, access.tile)

    def store(self, value):
        """An ordinary store: asynchronous units see it after a fence only."""
        me = here()
        me.machine.meet_in_time()
        access = self.access("threads", "the store", writes=True, tile=value.tile, fenced=False)
        me.unfenced.append(access)
        me.known |= access.bit
        value.settle()
        self.data[...] = round_to(np.broadcast_to(value.data, self.data.shape), self.dtype)
        me.work("shared", self.nbytes, "store", value.tile)

    def _keep_alive(self):
        pass

    def __str__(self):
        return self.root.part(self.data)


def allocate(dtype, shape):
    """A view of a whole new buffer."""
    buffer = Buffer([int(n) for n in shape], dtype)
    return View(buffer, buffer.data)
