import signal
import sys
import threading
import time

import numpy as np
import pytest

from flashlab.checks import guard

resource = pytest.importorskip("resource")


def endless():
    while True:
        pass


def swallowing():
    while True:
        try:
            time.sleep(0.0001)
        except:  # noqa: E722
            pass


def swallowing_twice():
    while True:
        try:
            try:
                time.sleep(0.0001)
            except:  # noqa: E722
                pass
        except:  # noqa: E722
            pass


def catching_exceptions():
    while True:
        try:
            np.ones(10).sum()
        except Exception:
            pass


def raising(error):
    raise error


def busy_for(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def elsewhere(work):
    """Run `work` in a thread, as a widget callback may be, and return what it returned or raised."""
    box = []

    def run():
        try:
            box.append(work())
        except Exception as error:
            box.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    return box[0]


def test_the_result_and_the_exception_of_the_function_come_through():
    assert guard.call(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        guard.call(lambda: 1 / 0)
    assert elsewhere(lambda: guard.call(lambda a: a + 1, 1)) == 2
    assert isinstance(elsewhere(lambda: guard.call(lambda: 1 / 0)), ZeroDivisionError)
    for error in (StopIteration, KeyboardInterrupt):
        with pytest.raises(error):
            guard.call(raising, error)


@pytest.mark.parametrize("function", [endless, swallowing, swallowing_twice, catching_exceptions])
def test_an_endless_loop_is_stopped_in_the_main_thread(function):
    began, tracer = time.monotonic(), sys.gettrace()
    with pytest.raises(guard.TooSlow, match="0.2 s"):
        guard.call(function, seconds=0.2)
    assert time.monotonic() - began < 10
    assert sys.gettrace() is tracer


@pytest.mark.parametrize("function", [endless, catching_exceptions])
def test_an_endless_loop_is_stopped_in_another_thread_which_then_is_gone(function):
    threads = threading.active_count()
    error = elsewhere(lambda: guard.call(function, seconds=0.2))
    assert isinstance(error, guard.TooSlow)
    assert threading.active_count() == threads


def test_handler_and_timer_are_what_they_were_and_a_timer_that_came_due_goes_off_afterwards():
    rings = []
    before = signal.signal(signal.SIGALRM, lambda *_: rings.append(time.monotonic()))
    outer = signal.setitimer(signal.ITIMER_REAL, 5.0)
    try:
        with pytest.raises(guard.TooSlow):
            guard.call(endless, seconds=0.1)
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 4.0 < left < 4.95
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        guard.call(time.sleep, 0.2)
        time.sleep(0.05)
        assert len(rings) == 1
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)


def test_a_function_that_ends_at_the_limit_leaks_no_exception():
    ended = stopped = 0
    for _ in range(150):
        try:
            guard.call(busy_for, 0.003, seconds=0.003)
            ended += 1
        except guard.TooSlow:
            stopped += 1
    time.sleep(0.02)
    assert ended + stopped == 150


def test_no_stop_stays_behind_as_the_exception_being_handled():
    """It would stand above every later traceback; one in a few of these stops comes as a handler is left."""
    for _ in range(60):
        with pytest.raises(guard.TooSlow):
            guard.call(swallowing_twice, seconds=0.005)
        assert sys.exc_info()[1] is None


class Slow:
    """What the garbage collector calls back: a stop that falls into it is lost."""

    def __del__(self):
        busy_for(0.01)


def test_a_stop_that_is_lost_in_a_finaliser_is_followed_by_another_and_prints_nothing(monkeypatch):
    def make_slow():
        while True:
            Slow()

    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    for _ in range(10):
        with pytest.raises(guard.TooSlow):
            guard.call(make_slow, seconds=0.02)
    assert not said and sys.unraisablehook == said.append


def test_too_much_memory_is_refused_and_the_limit_is_what_it_was():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(guard.TooMuchMemory, match="1024 MiB"):
        guard.call(lambda: np.ones(4 * 2**30 // 8))
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert np.ones(2**20).sum() == 2**20


def test_a_system_without_the_memory_limit_still_runs_the_function(monkeypatch):
    def refuse(*_):
        raise ValueError("not here")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert guard.call(lambda: 7) == 7


def test_pytorchs_word_for_too_little_memory_counts_as_such():
    def as_torch_does():
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    def as_anyone_does():
        raise RuntimeError("something else")

    with pytest.raises(guard.TooMuchMemory):
        guard.call(as_torch_does)
    with pytest.raises(RuntimeError, match="else"):
        guard.call(as_anyone_does)
