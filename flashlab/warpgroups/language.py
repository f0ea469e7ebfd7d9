"""The Gluon subset: for each function of the dialect, what it does in the simulator. Layouts are ignored.

`SUBSET` finds them by the end of the original's module and its name, e.g. "mbarrier.wait".
"""

import numpy as np
import triton.language as tl

from flashlab.warpgroups import copies, names, tensor_core
from flashlab.warpgroups.barriers import Barriers, barrier_of
from flashlab.warpgroups.machine import Others, here
from flashlab.warpgroups.shared import View, allocate
from flashlab.warpgroups.tiles import Int, Tile, round_to, work_on

SUBSET = {
    "tma.async_copy_global_to_shared": copies.load,
    "tma.async_load": copies.load,
    "tma.async_copy_shared_to_global": copies.store,
    "tma.async_store": copies.store,
    "tma.store_wait": copies.store_wait,
    "hopper.warpgroup_mma": tensor_core.warpgroup_mma,
    "hopper.warpgroup_mma_wait": tensor_core.warpgroup_mma_wait,
}


def subset(module):
    """Register a function under its own name, less a last underscore, in `module`."""

    def register(function):
        SUBSET[f"{module}.{function.__name__.rstrip('_')}"] = function
        return function

    return register


# programs and partitions


@subset("core")
def program_id(axis):
    return Int(here().machine.program[axis])


@subset("core")
def num_programs(axis):
    return Int(here().machine.grid[axis])


@subset("core")
def num_ctas():
    return 1


@subset("core")
def num_warps():
    return 4


@subset("core")
def warp_specialize(functions_and_args, worker_num_warps, worker_num_regs=None):
    """Run all functions as partitions until all have ended; the result is that of the first."""
    me, machine = here(), here().machine
    names.give_names()
    if len(worker_num_warps) != len(functions_and_args) - 1:
        raise ValueError(f"expected warps for {len(functions_and_args) - 1} workers, got {worker_num_warps}")
    titles = [function.__name__ for function, _ in functions_and_args]
    started = []
    for i, (function, args) in enumerate(functions_and_args):
        title = titles[i]
        if titles.count(title) > 1:
            title += f" {titles[:i].count(title)}"
        for _, value in names.parts("", tuple(args)):
            if isinstance(value, Barriers):
                value.holders.setdefault(title)
        started.append(machine.add(title, lambda f=function, a=args: f(*a), me.known, me.clock))
    me.wait(Others(started))
    for partition in started:
        me.known |= partition.known
    return started[0].result


# shared memory and barriers


@subset("core")
def allocate_shared_memory(element_ty, shape, layout=None, value=None):
    if layout == "MBarrierLayout":
        return Barriers(int(shape[0]))
    view = allocate(element_ty, shape)
    if value is not None:
        view.store(value)
    return view


@subset("hopper")
def fence_async_shared(cluster=False):
    me = here()
    for access in me.unfenced:
        access.fenced = True
    me.unfenced.clear()


@subset("mbarrier")
def init(mbarrier, count):
    barrier_of(mbarrier).init(count)


@subset("mbarrier")
def invalidate(mbarrier):
    barrier_of(mbarrier).count = None


@subset("mbarrier")
def expect(mbarrier, bytes_per_cta=None, pred=True):
    if pred:
        here().machine.meet_in_time()
        barrier_of(mbarrier).arrive(here(), 1, int(bytes_per_cta))


@subset("mbarrier")
def arrive(mbarrier, *, count=1, pred=True):
    if pred:
        here().machine.meet()
        barrier_of(mbarrier).arrive(here(), int(count))


@subset("mbarrier")
def wait(mbarrier, phase, pred=True, deps=()):
    if pred:
        barrier_of(mbarrier).wait(phase)


# tiles


@subset("core")
def arange(start, end, layout=None):
    return Tile(np.arange(int(start), int(end), dtype=np.int32), tl.int32)


@subset("core")
def full(shape, value, dtype, layout=None):
    return Tile(round_to(np.full([int(n) for n in shape], value), dtype), dtype)


@subset("standard")
def zeros(shape, dtype, layout=None):
    return full(shape, 0, dtype)


@subset("standard")
def full_like(input, value, shape=None, dtype=None, layout=None):
    return full(input.shape if shape is None else shape, value, dtype or input.dtype)


@subset("standard")
def zeros_like(input, shape=None, dtype=None, layout=None):
    return full_like(input, 0, shape, dtype)


@subset("core")
def convert_layout(value, layout, assert_trivial=False):
    return value


@subset("core")
def expand_dims(input, axis):
    return Tile(np.expand_dims(input.data, axis), input.dtype, input.tile)


@subset("core")
def reshape(input, *shape):
    return input.reshape(*shape)


@subset("core")
def permute(input, *dims):
    dims = dims[0] if isinstance(dims[0], tuple | list) else dims
    if isinstance(input, View):
        return input.permute(dims)
    return Tile(input.data.transpose(dims), input.dtype, input.tile)


@subset("core")
def where(condition, x, y):
    if not any(isinstance(v, Tile) for v in (condition, x, y)):
        return x if condition else y
    return work_on("fp32", "fp32", np.where, condition, x, y)


@subset("core")
def maximum(x, y):
    return _larger(np.fmax, max, x, y)


@subset("core")
def minimum(x, y):
    return _larger(np.fmin, min, x, y)


def _larger(of_tiles, of_numbers, x, y):
    if isinstance(x, Tile) or isinstance(y, Tile):
        return work_on("fp32", "fp32", of_tiles, x, y)
    best = of_numbers(x, y)
    return Int(best) if isinstance(best, int) else best


@subset("standard")
def max_(input, axis=None, **how):
    return _reduce(np.fmax.reduce, input, axis)


@subset("standard")
def min_(input, axis=None, **how):
    return _reduce(np.fmin.reduce, input, axis)


@subset("standard")
def sum_(input, axis=None, **how):
    return _reduce(np.add.reduce, input, axis)


def _reduce(function, x, axis):
    here().work("fp32", x.settle().data.size, "fp32", x.tile)
    return Tile(function(x.data, axis=axis), x.dtype, x.tile)


def _of_one(name, function, unit, op):
    SUBSET[f"math.{name}"] = lambda x: (
        work_on(unit, op, function, x) if isinstance(x, Tile) else float(function(np.float32(x)))
    )


for _name in ("exp", "exp2", "log", "log2", "sqrt"):
    _of_one(_name, getattr(np, _name), "exp", _name)
_of_one("rsqrt", lambda x: 1 / np.sqrt(x), "exp", "rsqrt")
_of_one("abs", np.abs, "fp32", "fp32")


@subset("math")
def fma(x, y, z):
    return x * y + z


@subset("math")
def fdiv(x, y, **how):
    return x / y


# scalars and global memory


@subset("standard")
def cdiv(x, div):
    return (Int(x) + (div - 1)) // div


@subset("core")
def load(pointer, mask=None, other=None, **how):
    return pointer.load(mask, other)


@subset("core")
def store(pointer, value, mask=None, **how):
    pointer.store(value, mask)


@subset("core")
def atomic_add(pointer, val, mask=None, **how):
    here().machine.meet()
    old = pointer.load(mask, 0)
    pointer.store(old + val, mask)
    return old


@subset("core")
def static_assert(cond, msg=""):
    assert cond, msg


@subset("core")
def device_assert(cond, msg="", mask=None):
    assert np.all(getattr(cond, "data", cond)), msg


def _the_same(x, *args, **how):
    return x


for _name in ("multiple_of", "max_contiguous", "max_constancy", "to_tensor", "set_auto_layout"):
    SUBSET[f"core.{_name}"] = _the_same
SUBSET["hopper.warpgroup_mma_init"] = _the_same
for _name in ("assume", "barrier", "thread_barrier", "static_print", "device_print"):
    SUBSET[f"core.{_name}"] = lambda *args, **how: None
