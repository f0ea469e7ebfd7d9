"""A time limit and a memory limit around a learner's function, undone afterwards whatever happens.

In the main thread of a POSIX system an alarm rings every millisecond once the time is up. A loop which
swallows that exception (`except: pass`) gets the next one a few lines later, inside its handler. Elsewhere
(Windows, widget callbacks) the function runs in a thread that gets an asynchronous exception as often. One
long call into C code can be stopped by neither: it is stopped when it returns.
"""

import contextlib
import contextvars
import ctypes
import signal
import sys
import threading
import time

EVERY = 0.001  # seconds between two attempts to stop
PATIENCE = 30.0  # seconds after which a thread that cannot be stopped is left behind


class TooSlow(Exception):
    """The function was still running after `seconds`."""

    def __init__(self, seconds):
        super().__init__(f"stopped after {seconds:g} s")
        self.seconds = seconds


class TooMuchMemory(Exception):
    """The function asked for more than `size` bytes on top of what was in use."""

    def __init__(self, size):
        super().__init__(f"stopped at {size / 2**20:.0f} MiB of additional memory")
        self.size = size


class _Stop(BaseException):
    """Raised inside the learner's function. Not an Exception, so that `except Exception` lets it through."""


class _StopThread(_Stop, SystemExit):
    """The same in a thread: a SystemExit that escapes from a thread prints nothing."""


def call(function, *args, seconds=3.0, memory=2**30):
    """Return `function(*args)`, stopped after `seconds` or `memory` additional bytes (where the system can
    limit them).

    Raises TooSlow or TooMuchMemory, and whatever the function raises itself. Signal handler, timer and
    memory limit are afterwards what they were before; a timer that came due meanwhile goes off at once.
    """
    in_main = threading.current_thread() is threading.main_thread()
    stopper = _with_alarm if in_main and hasattr(signal, "setitimer") else _in_thread
    try:
        with _memory_limit(memory), _lost_stops_unsaid():
            return stopper(function, args, seconds)
    except MemoryError:
        raise TooMuchMemory(memory) from None
    except RuntimeError as error:  # PyTorch: "DefaultCPUAllocator: can't allocate memory"
        if "allocate memory" in str(error):
            raise TooMuchMemory(memory) from None
        raise


def _learner(function, args):
    return function(*args)


def _run(function, args, box):
    """Put what the function returns or raises into the box: nothing, where it was stopped."""
    try:
        box["result"] = _learner(function, args)
    except _Stop:
        pass
    except BaseException as error:
        box["error"] = error


def _apart(function, args, box):
    """The same in a generator, which has a place of its own for the exception being handled. A stop that
    comes while Python leaves a handler stays there; elsewhere every later traceback would begin with it.
    """
    yield _run(function, args, box)


def _taken_from(box, seconds):
    """What `_run` has put into the box."""
    if "error" in box:
        raise box.pop("error")
    if "result" in box:
        return box["result"]
    raise TooSlow(seconds)


def _after(lines):
    """A tracer that stops the function again, `lines` lines after it has swallowed a stop: sooner or later
    that line stands in the handler that swallows, out of reach of its `try`."""

    def trace(_frame, event, _argument):
        nonlocal lines
        if event == "line":
            lines -= 1
            if lines < 0:
                raise _Stop
        return trace

    return trace


def _no_new_frame(*_):
    """Only the frames that were there when the alarm rang are traced."""


def _with_alarm(function, args, seconds):
    rings, box = 0, {}

    def ring(_signum, frame):
        # Stop only what runs inside _learner: an alarm that comes when it has just ended must not leak out.
        nonlocal rings
        inside = []
        while frame is not None and frame.f_code is not _learner.__code__:
            inside.append(frame)
            frame = frame.f_back
        if frame is None:
            return
        again = _after(rings % 8)
        for one in inside:
            one.f_trace = again
        sys.settrace(_no_new_frame)
        rings += 1
        raise _Stop

    tracer = sys.gettrace()
    handler = signal.signal(signal.SIGALRM, ring)
    began = time.monotonic()
    outer, repeat = signal.setitimer(signal.ITIMER_REAL, seconds, EVERY)
    try:
        next(_apart(function, args, box))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(tracer)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if outer:
            left = outer - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(left, EVERY), repeat)
    return _taken_from(box, seconds)


def _in_thread(function, args, seconds):
    box = {}
    context = contextvars.copy_context()  # np.errstate and the like
    thread = threading.Thread(target=context.run, args=(_run, function, args, box), daemon=True)
    thread.start()
    thread.join(seconds)
    give_up = time.monotonic() + PATIENCE
    while thread.is_alive() and time.monotonic() < give_up:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(_StopThread)
        )
        thread.join(EVERY)
    return _taken_from(box, seconds)


@contextlib.contextmanager
def _lost_stops_unsaid():
    """A stop that falls into a callback of the garbage collector is lost, and the next one follows: Python
    need not print it."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, _Stop) else hook(lost)
    try:
        yield
    finally:
        sys.unraisablehook = hook


@contextlib.contextmanager
def _memory_limit(size):
    """RLIMIT_AS = memory in use + `size`, where the system has this limit and says what is in use (Linux)."""
    try:
        import resource

        before = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        limits = [used + size] + [old for old in before if old != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), before[1]))
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
