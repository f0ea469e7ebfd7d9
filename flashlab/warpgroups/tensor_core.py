"""Asynchronous wgmma: operands in shared memory are read late, there is no result until it is waited for."""

import numpy as np

from flashlab.warpgroups.faults import NotWaitedFor
from flashlab.warpgroups.machine import here
from flashlab.warpgroups.tiles import Tile


class Wgmma:
    """One wgmma in flight; also its accumulator, which is poison until `warpgroup_mma_wait` gives it out."""

    def __init__(self, a, b, acc, use_acc):
        me = here()
        self.a, self.b, self.acc, self.use_acc, self.result = a, b, acc, use_acc, None
        self.dtype = acc.dtype
        self.tile = b.root.tile_in(b.data)
        self.place = me.where()
        self.name = what = "the wgmma" + (f" with {self.tile[0]} tile {self.tile[1]}" if self.tile else "")
        operands = [x for x in (a, b) if not isinstance(x, Tile)]
        self.accesses = [x.access("wgmma", what) for x in operands]
        (m, k), (k2, n) = a.shape, b.shape
        if k != k2 or list(acc.shape) != [m, n]:
            raise ValueError(f"{me.where()}: wgmma of {[m, k]} and {[k2, n]} into {list(acc.shape)}")
        self.end = me.machine.reserve(me, "tensor", 2 * m * n * k, "wgmma", self.tile)

    shape = property(lambda self: self.acc.shape)

    def finish(self):
        """Read the operands, now at the latest, and compute."""
        product = self.a.data.astype(np.float32) @ self.b.data.astype(np.float32)
        if self.use_acc:
            product = product + (self.acc.result if isinstance(self.acc, Wgmma) else self.acc).data
        self.result = Tile(product, self.dtype, self.tile)

    def __getattr__(self, name):
        """What only a result has: its layout, its elements."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise too_early(self)

    def __str__(self):
        return f"{self.name} of {self.place}"


def too_early(wgmma):
    return NotWaitedFor(
        f"{here().where()} uses the result of {wgmma}: no warpgroup_mma_wait has given it out"
    )


def _poison(self, *args, **kwargs):
    raise too_early(self)


for _name in "add sub mul truediv radd rsub rmul rtruediv neg lt le gt ge eq ne getitem bool".split():
    setattr(Wgmma, f"__{_name}__", _poison)
Wgmma.__hash__ = object.__hash__


def warpgroup_mma(a, b, acc, *, use_acc=True, precision=None, max_num_imprecise_acc=None, is_async=False):
    """acc + a b (a b without `use_acc`): started, in flight until waited for; without `is_async` at once."""
    me = here()
    me.machine.meet_in_time()
    if isinstance(a, Wgmma):
        raise too_early(a)
    for x in (a, acc):
        if isinstance(x, Tile):
            x.settle()
    me.wgmmas.append(Wgmma(a, b, acc, use_acc))
    return me.wgmmas[-1] if is_async else warpgroup_mma_wait(0, (me.wgmmas[-1],))


def warpgroup_mma_wait(num_outstanding=0, deps=None):
    """Wait until at most `num_outstanding` of this partition are in flight; gives out the results `deps`."""
    me = here()
    me.machine.meet()
    done = me.wgmmas[: max(len(me.wgmmas) - num_outstanding, 0)]
    del me.wgmmas[: len(done)]
    start = me.clock
    for wgmma in done:
        wgmma.finish()
        for access in wgmma.accesses:
            me.known |= access.bit
        me.clock = max(me.clock, wgmma.end)
    me.machine.note_wait(me, "wgmma", done[-1].tile if done else None, start)
    for x in deps:
        if isinstance(x, Wgmma) and x.result is None:
            raise NotWaitedFor(
                f"{me.where()} waits until {num_outstanding} wgmma are in flight, "
                f"and takes the result of one of these: {x}"
            )
    results = tuple(x.result if isinstance(x, Wgmma) else x for x in deps)
    return results[0] if len(results) == 1 else results
