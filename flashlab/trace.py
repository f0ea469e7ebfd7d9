"""What an algorithm did, event by event: the one contract between the algorithms and the pictures drawn of
them.

A step is a load of a tile, a store of a tile, or a computation on tiles. Bytes are what the memory format
says (fp16: 2 an element; statistics and FA1's running output: 4), not what NumPy happens to use.
"""

import math
from typing import NamedTuple

import numpy as np

from flashlab.errors import unknown_name
from flashlab.problem import ITEMSIZE

FP32_TENSORS = ("lse", "m", "l", "delta", "o_fp32", "dq_fp32")
OPS = ("load", "store", "scores", "update", "finish")


class Event(NamedTuple):
    """One step: which program did which op on which tile of which tensor, the bytes that it moved, its
    matmul FLOPs.
    """

    step: int
    program: tuple
    op: str
    tensor: str
    tile: tuple
    bytes: int = 0
    flops: int = 0


class Trace(list):
    """A list of events. `dtype` is how Q, K, V and O are stored: it sets the bytes of an element."""

    def __init__(self, events=(), dtype="float16"):
        super().__init__(events)
        if dtype not in ITEMSIZE:
            raise unknown_name("dtype", dtype, ITEMSIZE)
        self.dtype = dtype

    def bytes(self, op=None, tensor=None):
        """Bytes moved by events of `op` ("load", "store"; None: both) on `tensor` (None: all)."""
        return sum(e.bytes for e in self if op in (None, e.op) and tensor in (None, e.tensor))

    def flops(self):
        """Matrix-product FLOPs of all events."""
        return sum(e.flops for e in self)


class HBM:
    """The slow memory as an algorithm sees it: named tensors [N, ...] cut into blocks of rows, loaded and
    stored one block at a time.

    `tensors` maps a name to (array, rows in a block). What is loaded is a copy in the working format, so that
    a change stays on chip until it is stored. With a `trace` (a list), every load and store is written down
    there.
    """

    def __init__(self, tensors, trace=None, program=()):
        self.tensors, self.trace, self.program = tensors, trace, program
        self.itemsize = ITEMSIZE[getattr(trace, "dtype", "float16")]

    def blocks(self, name):
        """How many blocks a tensor has; the last one may be shorter."""
        array, size = self.tensors[name]
        return math.ceil(len(array) / size)

    def rows(self, name, i):
        """The row numbers of block i."""
        array, size = self.tensors[name]
        return np.arange(i * size, min((i + 1) * size, len(array)))

    def load(self, name, i, end=None):
        """Bring block i on chip, without its rows from `end` on, if given."""
        array, size = self.tensors[name]
        tile = array[i * size : min((i + 1) * size, len(array) if end is None else end)].copy()
        self.note("load", name, (i,), elements=tile.size)
        return tile

    def store(self, name, i, tile):
        """Write block i back."""
        array, size = self.tensors[name]
        array[i * size : (i + 1) * size] = tile
        self.note("store", name, (i,), elements=array[i * size : (i + 1) * size].size)

    def note(self, op, tensor, tile, elements=0, flops=0):
        """Write one event down, if anyone listens."""
        if self.trace is not None:
            size = 4 if tensor in FP32_TENSORS else self.itemsize
            self.trace.append(Event(len(self.trace), self.program, op, tensor, tile, elements * size, flops))
