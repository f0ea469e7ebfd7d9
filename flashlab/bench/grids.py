"""Launches of one kernel as grids of several shapes and orders, timed against each other.

Each launch is captured in a CUDA graph, often enough for about a millisecond, because a short kernel takes
less time than the host needs to launch it. The graphs are replayed in turn, so that a clock that changes
changes all times alike; L2 stays warm within a graph. Inputs are new in each round, results are poisoned
before each replay, and those of the last one are checked before a time counts.
"""

import statistics
from typing import NamedTuple

D = 64
ROUNDS, GRAPH_MS, MOST_CALLS = 12, 1.0, 50
PATIENCE = 16  # times eps of the largest value: rounding


class Launch(NamedTuple):
    """`heads` heads of N tokens; `causal`: False or "top-left"; `order` of FA2's blocks under a mask."""

    heads: int
    n: int
    causal: bool | str = False
    order: str = "reversed"


def measure(algorithm, launches, config, *, rounds=ROUNDS, where="cuda", device=None, capture=None):
    """({Launch: median milliseconds}, [MHz before, MHz after]) of "fa1" or "fa2".

    `where`, `device` and `capture` are for tests without a GPU: the torch device, a `timing.Device`, and what
    takes the place of `decode.Graph`. Raises AssertionError where a result is wrong, or an order changes it.
    """
    from flashlab.bench.clocks import sm_mhz
    from flashlab.bench.decode import Graph, replay_in_turn
    from flashlab.bench.timing import Cuda

    device, capture = device or Cuda(flush_bytes=0), capture or Graph
    data = {(a.heads, a.n): inputs(a.heads, a.n, where) for a in launches}
    graphs, calls = {}, {}
    for a in launches:
        call = once(algorithm, data[a.heads, a.n], config, a)
        call()  # compiles
        device.synchronize()
        start = device.record()
        call()
        end = device.record()
        device.synchronize()
        calls[a] = max(1, min(MOST_CALLS, int(GRAPH_MS / max(device.elapsed(start, end), 1e-3))))
        graphs[a] = capture([call] * calls[a], keep=1)

    def renew():
        for x in (x for tensors in data.values() for x in tensors):
            x.normal_()

    before = sm_mhz()
    times = replay_in_turn(graphs, rounds, device, renew)
    clocks = [before, sm_mhz()]
    check({a: graph.results[-1] for a, graph in graphs.items()}, data)
    return {a: statistics.median(times[a]) / calls[a] for a in launches}, clocks


def once(algorithm, tensors, config, launch):
    """A function that launches the kernel once and returns o."""
    return lambda: attend(algorithm, *tensors, config, launch.causal, launch.order)[0]


def attend(algorithm, q, k, v, config, causal, order):
    """Launch one kernel: (o, lse). Without a mask there is one order, that of the shipped kernel."""
    from flashlab.bench import orders
    from flashlab.kernels import fa1

    run_kernel = fa1.forward if algorithm == "fa1" else orders.forward(order if causal else "reversed")
    return run_kernel(q, k, v, causal=causal or None, scale=D**-0.5, config=config)


def check(results, data):
    """Raise AssertionError unless each o is finite, its first and last head right up to rounding, and the
    same, bit for bit, in every order. `results`: {Launch: o}; `data`: {(heads, N): (q, k, v)}.
    """
    import torch

    from flashlab.bench.expected import error, one_head

    first = {}
    for a, o in results.items():
        if not torch.isfinite(o).all():
            raise AssertionError(f"wrong result: {a} did not write all values")
        other = first.setdefault(a[:3], o)
        if other is not o:
            if not torch.equal(other, o):
                raise AssertionError(f"wrong result: the order {a.order} changes it")
            continue
        for head in (slice(0, 1), slice(-1, None)):
            want = one_head(*(x[:, head] for x in data[a.heads, a.n]), bool(a.causal))
            error([o[:, head]], want, PATIENCE)


def inputs(heads, n, device="cuda"):
    """q, k and v [1, heads, N, D], fp16."""
    import torch

    torch.manual_seed(0)
    return [torch.randn(1, heads, n, D, device=device, dtype=torch.float16) for _ in "qkv"]


def resources(algorithm, causal, gpu):
    """(Config, programs on an SM, what limits them) of the shipped kernel, from its registers and memory."""
    from flashlab.kernels.launch import capture, config_for

    q, k, v = inputs(4, 1024)  # not 1 head: Triton compiles another kernel for the number 1
    config = config_for(q, "fa1" if algorithm == "fa1" else "forward" if causal else "forward simple")
    with capture() as calls:
        attend(algorithm, q, k, v, config, causal, "reversed")
    kernel, args, options = calls[0]
    try:
        compiled = kernel.warmup(*args, grid=(1,), **options)
        compiled._init_handles()
        registers, shared = compiled.n_regs, compiled.metadata.shared
    except Exception as problem:  # not a public interface; the shipped configurations aim at two
        return config, 2, f"assumed, because {type(problem).__name__}: {problem}"[:200]
    per_sm, limit = gpu.residents(config.num_warps, registers, shared)
    return config, max(per_sm, 1), f"{limit}: {registers} registers, {shared} bytes shared"
