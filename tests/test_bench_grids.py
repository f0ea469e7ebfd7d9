"""Launches timed against each other in the interpreter, and the GPU as the models get it (no GPU needed)."""

from types import SimpleNamespace

import pytest
import torch
from test_bench_decode import Clock, Replay

from flashlab.bench import device, floors, grids
from flashlab.bench.grids import Launch


@pytest.fixture
def small(monkeypatch):
    pytest.importorskip("triton")
    from flashlab.kernels.launch import Config

    monkeypatch.setattr(grids, "D", 16)
    return dict(config=Config(16, 16), rounds=1, where="cpu", device=Clock(), capture=Replay)


ORDERS = [Launch(1, 20, "top-left", order) for order in ("natural", "reversed", "longest-first")]


@pytest.mark.parametrize(
    ("algorithm", "launches"), [("fa1", [Launch(2, 16)]), ("fa2", [Launch(1, 16), *ORDERS])]
)
def test_each_launch_gets_the_time_of_one_call_with_the_clocks(small, algorithm, launches):
    ms, clocks = grids.measure(algorithm, launches, **small)
    assert ms == dict.fromkeys(launches, 1.0) and clocks == [None, None]  # one call: the device's millisecond


def test_a_graph_that_replays_nothing_gets_no_time(small):
    class Idle(Replay):
        def replay(self):
            pass

    with pytest.raises(AssertionError, match="wrong result: .*did not write all values"):
        grids.measure("fa2", [Launch(1, 16)], **(small | dict(capture=Idle)))


def test_a_kernel_that_is_wrong_in_one_order_gets_no_time(small, monkeypatch):
    real = grids.attend

    def attend(algorithm, q, k, v, config, causal, order):
        o, lse = real(algorithm, q, k, v, config, causal, order)
        return (o + 2**-10 if order == "natural" else o), lse

    monkeypatch.setattr(grids, "attend", attend)
    with pytest.raises(AssertionError, match="wrong result: the order"):
        grids.measure("fa2", ORDERS[::-1], **small)


def test_a_kernel_that_computes_something_else_gets_no_time(small, monkeypatch):
    real = grids.attend
    monkeypatch.setattr(grids, "attend", lambda a, q, k, v, *how: real(a, q, k * 1.1, v, *how))
    with pytest.raises(AssertionError, match="wrong result: largest error"):
        grids.measure("fa2", [Launch(2, 16)], **small)


def properties(name, **more):
    """What PyTorch says of a CUDA device, on some versions."""
    fields = dict(
        multi_processor_count=84, L2_cache_size=6 * 2**20, major=8, minor=6, total_memory=24 * 2**30
    )
    return SimpleNamespace(name=name, **fields | more)


def test_a_gpu_of_the_table_keeps_its_peaks_and_has_its_own_size():
    gpu, note = device.described(properties("NVIDIA H200", multi_processor_count=66))
    assert note is None and gpu.sms == 66 and gpu.l2_bytes == 6 * 2**20 and gpu.l2_partitions == 2
    assert gpu.peak == floors.known("NVIDIA H200").peak


def test_a_gpu_that_is_not_in_the_table_is_no_h200_and_that_is_said():
    more = dict(shared_memory_per_multiprocessor=100 * 1024, max_threads_per_multi_processor=1536)
    gpu, note = device.described(properties("NVIDIA RTX A5000", **more, clock_rate=1_695_000))
    assert note.startswith("NVIDIA RTX A5000 is not in flashlab's table of GPUs")
    assert gpu.name == "NVIDIA RTX A5000" and gpu.sms == 84 and gpu.shared_per_sm == 100 * 1024
    assert gpu.clock_ghz == 1.695 and gpu.l2_partitions == 1 and gpu.residents(4, 64, 1024)[0] == 8
    with pytest.raises(ValueError, match="NVIDIA RTX A5000 has no float16 peak here"):
        gpu.peak_of("float16")


@pytest.mark.gpu
def test_on_a_gpu_grids_are_timed_and_the_shipped_kernels_resources_are_read():
    gpu, _ = device.this_gpu()
    for algorithm, causal in (("fa1", False), ("fa2", False), ("fa2", "top-left")):
        config, per_sm, limit = grids.resources(algorithm, causal, gpu)
        assert per_sm >= 1 and "assumed" not in limit
        orders = ("natural", "reversed", "longest-first") if causal else ("natural",)
        launches = [Launch(heads, 1024, causal, order) for heads in (1, 8) for order in orders]
        ms, clocks = grids.measure(algorithm, launches, config, rounds=3)
        assert all(0 < t < 100 for t in ms.values()) and clocks[1] > 200
    assert torch.cuda.is_available()
