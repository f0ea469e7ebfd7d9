"""Run a Gluon kernel on the CPU: every program of a launch, one after another, each on an SM of its own.

    with simulated("last-first"):
        kernel[grid](x_desc, y, ...)

works for the unmodified kernel, in a normal process. Inside it, launches of @gluon.jit kernels in this thread
are simulated; nothing else of Triton is changed, and that is put back.
"""

import functools
import itertools
import threading

from flashlab.kernels import require_triton
from flashlab.warpgroups.machine import SCHEDULES, Machine

_entering = threading.RLock()  # one simulation at a time


class simulated:
    """Context manager. `schedule` is one of SCHEDULES or "random N"; `costs` a `timing.Costs`.

    `programs`: the program numbers to run, e.g. [(0, 0, 0)]; None: all. `logs` maps the number of each
    program that ran to its `timing.Log` (of the last launch). A launch raises a `faults.KernelFault` for a
    mistake in how the partitions wait for each other, with the program's number in front. Raises RuntimeError
    without Triton.
    """

    def __init__(self, schedule="time", costs=None, programs=None):
        Machine(schedule)  # raises for an unknown schedule
        self.schedule, self.costs, self.programs, self.logs = schedule, costs, programs, {}

    def __enter__(self):
        require_triton()
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


def simulate(kernel, problem, gpu="H200", programs=1):
    """The `timing.Log` of what one SM does in the forward pass of a `problem.Problem`: a model of time.

    `kernel` is a step, 1 to 5, of the Hopper kernels, or a function (q, k, v, *, causal, scale) of CPU
    tensors that launches one Gluon kernel; causal is None, "top-left" or "bottom-right". The SM runs the
    first `programs` of programs 0, S, 2 S ... of the launch on S SMs, as far as there are so many, one after
    another. Raises ValueError for what the kernel or `timing.Costs` does not know, and a `faults.KernelFault`
    for a kernel that is wrong.
    """
    import torch

    from flashlab import gpus
    from flashlab.problem import make_inputs
    from flashlab.warpgroups.timing import Costs, Log

    if isinstance(kernel, int):
        from flashlab.kernels.hopper_host import forward

        kernel = functools.partial(forward, step=kernel)
    q, k, v = (torch.from_numpy(x).to(getattr(torch, problem.dtype)) for x in make_inputs(problem))
    causal = {False: None, True: "top-left"}.get(problem.causal, problem.causal)
    numbers = [(i * gpus.get(gpu).sms, 0, 0) for i in range(programs)]
    with simulated("time", Costs.of(gpu, problem.dtype), numbers) as simulation:
        kernel(q, k, v, causal=causal, scale=problem.scale)
    log = Log(clock_ghz=gpus.get(gpu).clock_ghz)
    for one in simulation.logs.values():
        start = log.end
        log.extend(e._replace(start=e.start + start, end=e.end + start) for e in one)
    return log
