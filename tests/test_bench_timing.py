"""The timing loop on a simulated device: what counts, what does not, and what makes a time worthless."""

import pytest

from flashlab.bench import timing


class Queue:
    """A device whose work takes the time that it says, and only once somebody waits or time passes."""

    def __init__(self):
        self.now, self.flushes, self.waited, self.log = 0.0, 0, True, []

    def work(self, ms, name="work"):
        self.now += ms
        self.waited = False
        self.log.append(name)

    def record(self):
        self.log.append("mark")
        return self.now

    def elapsed(self, start, end):
        assert self.waited, "a mark is read before the queue is empty"
        return end - start

    def synchronize(self):
        self.waited = True

    def flush(self):
        self.flushes += 1
        self.work(50.0, "flush")


def test_only_the_call_is_timed_not_the_flush_nor_the_preparation():
    device = Queue()
    found = timing.measure(
        lambda i: device.work(2.0), device, prepare=lambda i, r: device.work(7.0, "prepare"), budget_ms=40
    )
    assert found == timing.Timing(2.0, 2.0, 2.0, 20)
    assert device.log[:6] == ["prepare", "flush", "mark", "work", "mark", "prepare"]


def test_the_first_calls_do_not_count():
    device, times = Queue(), iter([900.0, 300.0, 80.0])
    found = timing.measure(lambda i: device.work(next(times, 1.0)), device)
    assert found.median == found.high == 1.0


def test_the_median_and_the_spread_are_of_all_runs():
    device, times = Queue(), iter([1.0] * 6 + [1, 1, 2, 3, 3, 3, 4, 4, 90, 95])
    found = timing.measure(lambda i: device.work(next(times)), device, most=10)
    assert found == timing.Timing(3, 2, 4, 10)


@pytest.mark.parametrize(("ms", "runs"), [(0.001, 200), (10.0, 12), (1000.0, 10)])
def test_short_calls_are_repeated_more_often_than_long_ones(ms, runs):
    device = Queue()
    assert timing.measure(lambda i: device.work(ms), device).runs == runs


def test_a_warm_cache_is_not_flushed():
    device = Queue()
    timing.measure(lambda i: device.work(1.0), device, cold=False)
    assert device.flushes == 0


def test_input_sets_take_turns_and_each_is_prepared_with_its_own_last_result():
    device, order, seen = Queue(), [], []

    def call(i):
        device.work(30.0)
        order.append(i)
        return len(order), i

    timing.measure(call, device, sets=3, prepare=lambda i, last: seen.append((i, last)))
    assert order[:7] == [0, 1, 2, 0, 1, 2, 0]
    assert seen[:3] == [(0, None), (1, None), (2, None)]
    assert seen[3:6] == [(0, (1, 0)), (1, (2, 1)), (2, (3, 2))]


def test_the_results_that_are_checked_are_those_of_the_last_timed_run_of_every_set():
    device, made, checked = Queue(), [], {}

    def call(i):
        device.work(20.0)
        made.append((i, len(made)))
        return made[-1]

    timing.measure(call, device, sets=2, check=checked.__setitem__)
    assert checked == {0: made[-2], 1: made[-1]}


def test_a_wrong_result_gives_no_time():
    device = Queue()

    def check(i, result):
        if i == 1:
            raise AssertionError("wrong result")

    with pytest.raises(AssertionError, match="wrong result"):
        timing.measure(lambda i: device.work(1.0), device, sets=2, check=check)


def test_more_sets_than_runs_are_all_run_and_checked():
    device, checked = Queue(), []
    timing.measure(
        lambda i: device.work(500.0), device, sets=7, least=1, check=lambda i, r: checked.append(i)
    )
    assert checked == list(range(7))


def test_the_cpu_is_a_device_too_and_its_flush_writes_more_than_a_cache(monkeypatch):
    monkeypatch.setattr(timing, "FLUSH_BYTES", 1000)
    device, calls = timing.Host(), []
    found = timing.measure(lambda i: calls.append(sum(range(1000))), device, budget_ms=1, least=5)
    assert 0 < found.low <= found.median <= found.high and len(calls) == 6 + found.runs
    assert device.buffer == bytearray(1000)


def test_the_gpus_part_runs_line_by_line_where_the_cpu_plays_torch_cuda(monkeypatch):
    fake = pytest.importorskip("fake_cuda")
    import torch

    with fake.fake_cuda(monkeypatch):
        device = timing.Cuda(flush_bytes=100)
        found = timing.measure(lambda i: torch.zeros(10), device, budget_ms=1, least=5)
        assert 0 < found.median and found.runs >= 5 and device.buffer.numel() == 100
        calls = []
        found = timing.time_graph(lambda: calls.append(torch.zeros(10, device="cuda")), budget_ms=1)
        assert 0 < found.low <= found.high and found.runs >= 3 and len(calls) > 3


@pytest.mark.gpu
def test_a_gpus_events_time_the_call_and_not_the_flush():
    import torch

    x = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    long, short = (timing.time_cuda(lambda n=n: [x @ x for _ in range(n)]) for n in (4, 1))
    assert 3 < long.median / short.median < 5
    nothing = timing.time_cuda(lambda: None)
    assert nothing.median < 0.05
