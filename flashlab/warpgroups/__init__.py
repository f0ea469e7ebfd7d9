"""Kernels of several warpgroups (Gluon, Hopper) on a CPU: who waits for whom, checked, and when, as a model.

    from flashlab import warpgroups

    with warpgroups.simulated("last-first"):   # the unmodified kernel, its partitions in a chosen order
        kernel[grid](q_desc, k_desc, v_desc, o_desc, ...)

    warpgroups.check(lambda: kernel[grid](...))           # in every schedule; raises a KernelFault that says
    who log = warpgroups.simulate(attention, problem)         # what ran when on the SM: see `timing` for the
    model

What is checked: barriers (phases, parities, arrivals, bytes), copies and wgmma that run by themselves (what
they read and write, and that somebody waits for them), fences before asynchronous reads, addresses. A mistake
is found by what the partitions can know of each other, whatever order they happen to run in; a deadlock, by
there being nobody left to run. What is not: layouts, registers, what the compiler makes of it, clusters,
integers beyond 32 bits.

Modules, in reading order: faults, timing, machine, tiles, shared, barriers, copies, tensor_core, language,
translate, simulator. Nothing here is imported by `import flashlab`; it needs Triton (3.7.1 is tested) and no
GPU.
"""

from flashlab.warpgroups.faults import KINDS, Deadlock, KernelFault
from flashlab.warpgroups.machine import SCHEDULES
from flashlab.warpgroups.simulator import check, simulate, simulated
from flashlab.warpgroups.timing import Costs, Event, Log

__all__ = ["KINDS", "SCHEDULES", "Costs", "Deadlock", "Event", "KernelFault", "Log"]
__all__ += ["check", "simulate", "simulated"]
