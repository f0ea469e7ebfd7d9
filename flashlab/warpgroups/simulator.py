"""Run a Gluon kernel on the CPU: every program of a launch, one after another, each on an SM of its own.

    with simulated("last-first"):
        kernel[grid](x_desc, y, ...)

works for the unmodified kernel, in a normal process. Inside it, launches of @gluon.jit kernels in this thread
are simulated; nothing else of Triton is changed, and that is put back.
"""

import itertools
import threading

from flashlab.warpgroups.machine import SCHEDULES, Machine

FIRST = (0, 0, 0)  # the number of a launch's first program

_entering = threading.RLock()  # one simulation at a time


class simulated:
    """Context manager. `schedule` is one of SCHEDULES or "random N"; `costs` a `timing.Costs`.

    `programs`: the program numbers to run, e.g. [(0, 0, 0)]; None: all. `logs` maps the number of each
    program that ran to its `timing.Log` (of the last launch). A launch raises a `faults.KernelFault` for a
    mistake in how the partitions wait for each other, with the program's number in front.
    """

    def __init__(self, schedule="time", costs=None, programs=None):
        Machine(schedule)  # raises for an unknown schedule
        self.schedule, self.costs, self.programs, self.logs = schedule, costs, programs, {}

    def __enter__(self):
        from triton.experimental.gluon._runtime import GluonJITFunction

        _entering.acquire()
        self.place, self.before = GluonJITFunction, vars(GluonJITFunction).get("run")
        thread, native = threading.get_ident(), GluonJITFunction.run

        def run(kernel, *args, grid, warmup=False, **kwargs):
            if threading.get_ident() != thread:
                return native(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            return self.launch(kernel, grid, args, kwargs)

        GluonJITFunction.run = run
        return self

    def __exit__(self, *exc):
        if self.before is None:
            del self.place.run
        else:
            self.place.run = self.before
        _entering.release()

    def launch(self, kernel, grid, args, kwargs):
        """Run the programs of one launch."""
        from flashlab.warpgroups.faults import KernelFault
        from flashlab.warpgroups.translate import Translation

        given = bind(kernel, args, kwargs)
        grid = grid(given) if callable(grid) else grid
        grid = tuple(grid) + (1,) * (3 - len(grid))
        translation = Translation()
        function = translation.function(kernel)
        wrapped = {name: translation.value(wrap(name, value)) for name, value in given.items()}
        self.logs = {}
        for program in itertools.product(*map(range, grid)):
            if self.programs is not None and program not in self.programs:
                continue
            machine = Machine(self.schedule, self.costs, program, grid)
            try:
                machine.run(function.__name__, lambda: function(**wrapped))
            except KernelFault as fault:
                fault.args = (f"program {program}: {fault}",)
                raise
            self.logs[program] = machine.log


def bind(kernel, args, kwargs):
    """The kernel's arguments by name; options that it does not take (num_warps) are left out."""
    names = [p.name for p in kernel.params]
    given = dict(zip(names, args, strict=False)) | {n: v for n, v in kwargs.items() if n in names}
    if "num_warps" in names:
        given.setdefault("num_warps", 4)
    return {n: given[n] for n in names if n in given}


def wrap(name, value):
    """An argument as the kernel sees it."""
    from flashlab.warpgroups.copies import Descriptor
    from flashlab.warpgroups.tiles import Int, Pointer

    if hasattr(value, "block_shape") and hasattr(value, "base"):
        return Descriptor(value, name)
    if hasattr(value, "data_ptr"):
        return Pointer(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return Int(value)
    if isinstance(value, tuple | list):
        return tuple(wrap(name, v) for v in value)
    return value


def check(launch, schedules=SCHEDULES):
    """Run `launch` (without arguments; it launches kernels) in each schedule; raises the first fault."""
    for schedule in schedules:
        with simulated(schedule):
            launch()


def simulate(attention, problem, gpu="H200", program=FIRST):
    """The `timing.Log` of one program of attention(q, k, v, causal=, scale=), which launches one kernel.

    q, k, v are CPU tensors for the `flashlab.problem.Problem`. Times are a model: see `timing`. Raises
    ValueError if the launch has no such program.
    """
    import torch

    from flashlab.problem import make_inputs
    from flashlab.warpgroups.timing import Costs

    dtype = getattr(torch, problem.dtype)
    q, k, v = (torch.from_numpy(x).to(dtype) for x in make_inputs(problem))
    with simulated("time", Costs.of(gpu, problem.dtype), [program]) as simulation:
        attention(q, k, v, causal=problem.causal, scale=problem.scale)
    if program not in simulation.logs:
        raise ValueError(f"expected the number of a program of the launch, got {program}")
    return simulation.logs[program]
