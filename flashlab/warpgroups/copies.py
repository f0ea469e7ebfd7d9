"""TMA: tensor descriptors, copies into shared memory that land late, and stores that read late."""

import numpy as np
import triton.language as tl

from flashlab.problem import ITEMSIZE
from flashlab.warpgroups.barriers import barrier_of
from flashlab.warpgroups.faults import WrongBytes
from flashlab.warpgroups.machine import Copy, here
from flashlab.warpgroups.tiles import Int


class Descriptor:
    """A host TensorDescriptor as the kernel sees it. `name`: the tensor's, for the log."""

    def __init__(self, host, name):
        self.tensor = host.base.as_strided(tuple(host.shape), tuple(host.strides))
        self.block_shape, self.layout = [int(n) for n in host.block_shape], host.layout
        self.shape, self.strides = tuple(map(Int, host.shape)), tuple(map(Int, host.strides))
        self.name = name.removesuffix("_desc").removeprefix("desc_")

    @property
    def dtype(self):
        return getattr(tl, str(self.tensor.dtype).removeprefix("torch."))

    @property
    def nbytes(self):
        return int(np.prod(self.block_shape)) * ITEMSIZE[str(self.tensor.dtype).removeprefix("torch.")]

    nbytes_per_cta = nbytes
    block_type = property(lambda self: self)  # desc.block_type.nbytes, .shape

    def tile(self, coords):
        """(tensor, number of the tile along its rows)."""
        rows = max(len(coords) - 2, 0)
        return self.name, int(coords[rows]) // self.block_shape[rows]

    def read(self, coords):
        """The block at `coords`, 0 where it lies outside of the tensor."""
        block = np.zeros(self.block_shape, np.float32)
        inner, outer = self._clip(coords)
        block[inner] = self.tensor[outer].detach().float().numpy()
        return block

    def write(self, coords, block):
        """Write the part of `block` that lies inside of the tensor."""
        import torch

        inner, outer = self._clip(coords)
        part = np.ascontiguousarray(block.reshape(self.block_shape)[inner])
        with torch.inference_mode():  # as in `tiles.Pointer.store`
            self.tensor[outer] = torch.from_numpy(part).to(self.tensor.dtype)

    def _clip(self, coords):
        inner, outer = [], []
        for first, size, end in zip(map(int, coords), self.block_shape, self.tensor.shape, strict=True):
            low = min(max(first, 0), end)
            high = max(min(first + size, end), low)
            inner.append(slice(low - first, high - first))
            outer.append(slice(low, high))
        return tuple(inner), tuple(outer)


def load(desc, coords, barrier, view, pred=True, multicast=False):
    """Start a copy of a block into `view`. It reports to `barrier` when it lands, at a time of its own."""
    if not pred:
        return
    me = here()
    me.machine.meet()
    if view.numel != int(np.prod(desc.block_shape)):
        raise WrongBytes(f"{me.where()} copies a block {desc.block_shape} to {view}, which is {view.shape}")
    barrier = barrier_of(barrier)
    barrier.check_ready(me)
    tile = desc.tile(coords)
    access = view.access(
        "copy",
        f"the copy of {tile[0]} tile {tile[1]}",
        writes=True,
        tile=tile,
        barrier=barrier,
        phase=barrier.phase,
    )
    view.data[...] = np.nan  # from now on nobody knows what is there
    knows = me.known | access.bit
    due = me.machine.reserve(me, "copy", desc.nbytes, "load", tile) + me.machine.costs.latency
    coords = [int(c) for c in coords]

    def land():
        view.data[...] = desc.read(coords).reshape(view.data.shape)
        barrier.land(desc.nbytes, knows, due)

    me.machine.copies.append(Copy(due, land))


class Store:
    """A copy from shared memory to a tensor, in flight: it reads when it is waited for."""

    def __init__(self, desc, coords, view):
        me = here()
        self.desc, self.coords, self.view = desc, [int(c) for c in coords], view
        self.access = view.access("copy", f"the TMA store to {desc.name} tile {desc.tile(coords)[1]}")
        self.end = me.machine.reserve(me, "copy", desc.nbytes, "store", desc.tile(coords))

    def finish(self):
        self.desc.write(self.coords, self.view.data)

    def __str__(self):
        return str(self.access)


def store(desc, coords, view):
    """Start a copy of `view` to the tensor."""
    me = here()
    me.machine.meet_in_time()
    me.stores.append(Store(desc, coords, view))


def store_wait(pendings=0, **how):
    """Wait until at most `pendings` stores of this partition are in flight."""
    me = here()
    me.machine.meet_in_time()
    done = me.stores[: max(len(me.stores) - pendings, 0)]
    del me.stores[: len(done)]
    for s in done:
        s.finish()
        me.known |= s.access.bit
        me.clock = max(me.clock, s.end)
