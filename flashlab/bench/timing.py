"""How long a call takes on a GPU: CUDA events, a cold L2 cache, the median of many runs and its spread.

A time is taken only of work that is ready to run: the queue is kept full by the flush of L2 before each run,
so that the host's launch cost does not count unless the call is shorter than the flush.
"""

import statistics
from typing import NamedTuple

FLUSH_BYTES = 256 * 2**20  # several times any L2


class Timing(NamedTuple):
    """Milliseconds: the median, the 20th and 80th percentiles, and how many runs were timed."""

    median: float
    low: float
    high: float
    runs: int


def time_cuda(call, *, budget_ms=120.0, least=10, most=200):
    """Time `call()` on the current CUDA device with L2 flushed before each run; warm-up runs do not count.

    `budget_ms` bounds the summed time of the timed runs (at least `least` and at most `most` of them).
    """
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    for _ in range(3):
        call()
    one = _run(call, flush, 3)
    runs = max(least, min(most, int(budget_ms / max(statistics.median(one), 1e-3))))
    times = sorted(_run(call, flush, runs))
    return Timing(statistics.median(times), times[len(times) // 5], times[-1 - len(times) // 5], runs)


def time_graph(call, *, budget_ms=60.0, least=3, most=30):
    """Time `call()` inside a CUDA graph, so that the host's cost of a launch does not count; L2 stays warm.

    A run replays a graph of as many calls as take about a millisecond, one at least.
    """
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    calls = max(1, min(50, int(1 / max(start.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times = []
    graph.replay()
    while len(times) < least or (sum(times) * calls < budget_ms and len(times) < most):
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / calls)
    times.sort()
    return Timing(statistics.median(times), times[len(times) // 5], times[-1 - len(times) // 5], len(times))


def _run(call, flush, runs):
    import torch

    start = [torch.cuda.Event(enable_timing=True) for _ in range(runs)]
    end = [torch.cuda.Event(enable_timing=True) for _ in range(runs)]
    for a, b in zip(start, end, strict=True):
        flush.zero_()
        a.record()
        call()
        b.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(start, end, strict=True)]
