"""How long a call takes: marks in the device's queue around each run, a cold cache, median and spread.

`measure` knows no GPU: it takes a `Device`, four methods that a test or a simulation can stand in for; `Cuda`
and `Host` are the real ones. On a GPU the flush of L2 before each run keeps the queue full, so that the
host's launch cost does not count unless the call is shorter than the flush.
"""

import statistics
import time
from typing import NamedTuple, Protocol

FLUSH_BYTES = 256 * 2**20  # several times any L2


class Timing(NamedTuple):
    """Milliseconds: the median, the 20th and 80th percentiles, and how many runs were timed."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, times):
        """The summary of a list of milliseconds, one a run."""
        times = sorted(times)
        fifth = len(times) // 5
        return cls(statistics.median(times), times[fifth], times[-1 - fifth], len(times))


class Device(Protocol):
    """What runs the work: asynchronously, as a GPU does, or at once."""

    def record(self):
        """A mark at the end of the queue as it is now."""

    def elapsed(self, start, end):
        """Milliseconds between two marks; right only after `synchronize`."""

    def synchronize(self):
        """Wait until the queue is empty."""

    def flush(self):
        """Queue what throws everything else out of the cache."""


class Cuda:
    """The current CUDA device, with events as marks."""

    def __init__(self, flush_bytes=FLUSH_BYTES):
        import torch

        self.cuda = torch.cuda
        self.buffer = torch.empty(flush_bytes, dtype=torch.int8, device="cuda")

    def record(self):
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed(self, start, end):
        return start.elapsed_time(end)

    def synchronize(self):
        self.cuda.synchronize()

    def flush(self):
        self.buffer.zero_()


class Host:
    """The CPU: a call is done when it returns. `flush` writes more than most CPUs' last cache holds."""

    buffer = None

    def record(self):
        return time.perf_counter()

    def elapsed(self, start, end):
        return 1e3 * (end - start)

    def synchronize(self):
        pass

    def flush(self):
        self.buffer = self.buffer or bytearray(FLUSH_BYTES)
        self.buffer[:] = bytes(FLUSH_BYTES)


def measure(
    call,
    device,
    *,
    sets=1,
    prepare=None,
    check=None,
    cold=True,
    budget_ms=120.0,
    least=10,
    most=200,
    warm=3,
):
    """Time `call(i)`, which works on input set i of `sets` and returns its result; gives a `Timing`.

    Sets take turns. `prepare(i, result)` comes before each run, outside the time: it gets what the last run
    of that set returned (None at first), to poison it and to renew the inputs. `check(i, result)` raises when
    a result is wrong; it sees the result of the last timed run of every set, so a time without a right result
    is never returned. `cold`: flush the cache before each run. `warm` runs do not count, as many more say how
    often to run: at least `least` times, at most `most`, in between for about `budget_ms`.
    """
    results = {}

    def run(times):
        marks = []
        for r in range(times):
            i = r % sets
            if prepare:
                prepare(i, results.pop(i, None))
            if cold:
                device.flush()
            start = device.record()
            results[i] = call(i)
            marks.append((start, device.record()))
        device.synchronize()
        return [device.elapsed(*pair) for pair in marks]

    run(warm)
    one = statistics.median(run(warm))
    timing = Timing.of(run(max(least, sets, min(most, int(budget_ms / max(one, 1e-3))))))
    for i in range(sets) if check else ():
        check(i, results[i])
    return timing


def time_cuda(call, **how):
    """Time `call()` on the current CUDA device, L2 flushed before each run; options as for `measure`."""
    return measure(lambda _: call(), Cuda(), **how)


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
    return Timing.of(times)
