"""torch.cuda's part of the benchmarks, played by the CPU: every line runs, no time means anything.

What asks for "cuda" gets the CPU. A graph is captured by running its calls; a replay runs nothing.
"""

import contextlib
import time
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """Inside, tensors that are made on "cuda" are made on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


class Event:
    def __init__(self, enable_timing=False):
        self.timing = enable_timing

    def record(self, stream=None):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        assert self.timing and end.timing, "an event without timing"
        return max(1e3 * (end.at - self.at), 1e-4)


class Stream:
    def wait_stream(self, stream):
        assert isinstance(stream, Stream)


class Graph:
    captured, replays = False, 0

    def replay(self):
        assert self.captured, "replayed before it was captured"
        self.replays += 1


@contextlib.contextmanager
def capturing(graph):
    yield
    graph.captured = True


PROPERTIES = SimpleNamespace(
    name="NVIDIA H200", multi_processor_count=132, L2_cache_size=60 * 2**20, uuid="0-1", major=9, minor=0
)


@contextlib.contextmanager
def fake_cuda(monkeypatch):
    """Inside, torch.cuda is the CPU with an H200's name."""
    one, generator = Stream(), torch.Generator
    played = dict(
        Event=Event, Stream=Stream, CUDAGraph=Graph, graph=capturing, current_stream=lambda: one,
        stream=lambda s: contextlib.nullcontext(), synchronize=lambda: None, empty_cache=lambda: None,
        _sleep=lambda cycles: time.sleep(cycles * 1e-9 / 2), get_device_name=lambda *a: PROPERTIES.name,
        get_device_properties=lambda *a: PROPERTIES, current_device=lambda: 0, is_available=lambda: True,
        get_device_capability=lambda *a: (9, 0), mem_get_info=lambda: (2**40, 2**40),
        memory_allocated=lambda: 0, max_memory_allocated=lambda: 1000, reset_peak_memory_stats=lambda: None,
    )  # fmt: skip
    for name, thing in played.items():
        monkeypatch.setattr(torch.cuda, name, thing)
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator("cpu"))
    with OnCpu():
        yield
