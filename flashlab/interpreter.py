"""Run a Triton kernel on the CPU, one program after another, with every address checked before it is touched.

    with flashlab.interpreter.interpreted():
        kernel[grid](x, y, ...)

works for any @triton.jit kernel, in a process where TRITON_INTERPRET is not set (and in one where it is), and
leaves Triton as it was. This is the only module that uses Triton's private API: triton 3.7 to 3.9.

How the addresses are checked: `flashlab.accesses.AddressSpace`.
"""

import functools
import threading
import traceback
import warnings
from types import SimpleNamespace

import numpy as np

from flashlab.accesses import AddressSpace, OutOfBounds, RaceError, RaceFinder, Recorder
from flashlab.kernels import check_versions, triton_version


class KernelError(Exception):
    """A kernel failed in the interpreter. The message says in which program and on which line."""


class interpreted:
    """Context manager: inside it, launching a Triton kernel interprets it. One thread at a time.

    May be nested. `observers` are told about each `launch()`, `access(program, op, argument, addresses,
    itemsize)` with op "load", "store" or "atomic", and `barrier(program)`. Raises RuntimeError for a Triton
    that is not supported, OutOfBounds or KernelError from a launch.
    """

    def __init__(self, *observers):
        self.observers = observers

    def __enter__(self):
        triton_modules()
        _session.enter(self)
        return self

    def __exit__(self, *exc):
        # A stop from outside (a time limit, Ctrl-C) may arrive in here too: finish first, then pass it on.
        stopped = None
        while True:
            try:
                _session.leave(self)
                break
            except BaseException as error:
                stopped = error
        if stopped is not None:
            raise stopped


def record(launch, tensors=None):
    """Run `launch` (a function of no arguments that launches kernels) and return a `flashlab.trace.Trace` of
    its loads and stores.

    Each event's bytes are the distinct bytes of its unmasked lanes; its tensor is the kernel's argument name
    less `_ptr`, or the name given in `tensors`, e.g. {"q": q}. Atomic operations count as stores.
    """
    from flashlab.trace import Event, Trace

    recorder = Recorder({tensor.data_ptr(): name for name, tensor in (tensors or {}).items()})
    with interpreted(recorder):
        launch()
    rows = (row for row in recorder.rows if row[3])
    return Trace(
        Event(step, program, "load" if op == "load" else "store", name, tile, nbytes)
        for step, (program, op, name, nbytes, tile) in enumerate(rows)
    )


def find_races(launch):
    """Run `launch` and list, as sentences, its races on a GPU (see `flashlab.accesses.RaceFinder`)."""
    finder = RaceFinder()
    with interpreted(finder):
        launch()
    return finder.found


def check_races(launch):
    """Run `launch`; raise RaceError if `find_races` has something to say."""
    found = find_races(launch)
    if found:
        raise RaceError("; ".join(found))


@functools.cache
def triton_modules():
    """Import Triton and what we change in it. Raises RuntimeError if it is missing or not supported."""
    check_versions(triton_version(), np.__version__)
    warnings.filterwarnings(
        "ignore", "All-NaN slice", RuntimeWarning, "triton.runtime.interpreter"
    )  # as a GPU
    import triton.language as tl
    from triton.runtime import autotuner, interpreter, jit

    return SimpleNamespace(tl=tl, interpreter=interpreter, jit=jit, autotuner=autotuner)


class _Session:
    """The state of interpretation in this process: who holds it, what Triton looked like before."""

    def __init__(self):
        self.lock, self.owner = threading.RLock(), None
        self.stack, self.saved = [], []
        self.space, self.rank = AddressSpace(), 1

    def acquire(self):
        """Take the lock. If its thread was stopped on its way out and died, clean up after it."""
        while not self.lock.acquire(timeout=0.2):
            if self.owner is not None and not self.owner.is_alive():
                self.lock, self.owner = threading.RLock(), None
        if self.owner is not threading.current_thread():
            self.stack.clear()
            self.restore()

    def enter(self, context):
        self.acquire()
        self.owner = threading.current_thread()
        self.stack.append((context, self.lock))
        if len(self.stack) == 1:
            self.patch()

    def leave(self, context):
        """Leave `context` and what was entered after it and never left. May be called again after a stop."""
        while any(c is context for c, _ in self.stack):
            if len(self.stack) == 1:
                self.restore()
                self.owner = None
            _, lock = self.stack.pop()
            lock.release()

    def observers(self):
        return [o for context, _ in self.stack for o in context.observers]

    def patch(self):
        """Change Triton so that launches and calls of its functions are interpreted; `restore` undoes it."""
        t = triton_modules()
        module, jit = t.interpreter, t.jit.JITFunction
        changed = (t.tl, t.tl.core, t.tl.math, t.tl.tensor, t.tl.dtype, t.tl.core.tensor_descriptor_base)
        changed += (module, jit, module.InterpretedFunction, module.GridExecutor, module.interpreter_builder)
        changed += (t.autotuner.Autotuner,)
        self.saved = [(place, dict(vars(place))) for place in changed]

        jit_run, native_run = jit.run, module.InterpretedFunction.run
        convert, copy_in = module._implicit_cvt, module.GridExecutor._init_args_hst

        def run(kernel, *args, grid, warmup=False, **kwargs):
            if self.owner is threading.current_thread():
                return module.InterpretedFunction.run(
                    _twin(kernel), *args, grid=grid, warmup=warmup, **kwargs
                )
            self.acquire()  # this thread compiles, which it cannot while another one holds Triton
            self.lock.release()
            return jit_run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

        def run_interpreted(kernel, *args, grid, warmup=False, **kwargs):
            self.rank = 3 if callable(grid) else len(grid)
            try:
                with np.errstate(all="ignore"):
                    return native_run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            except module.InterpreterError as error:
                failure = self.explain(kernel, error)
            raise failure

        def convert_argument(arg):
            out = convert(arg)
            if hasattr(arg, "data_ptr"):
                out.handle.data = self.space.tag(arg, out.handle.data)
            return out

        def init_args(executor, args, kwargs):
            args, kwargs = copy_in(executor, args, kwargs)
            self.note_arguments(dict(zip(executor.arg_names, args, strict=False)) | kwargs)
            return args, kwargs

        # One patch of the language for all kernels and device functions, instead of one for each call.
        everything = SimpleNamespace(__globals__={"tl": t.tl, "core": t.tl.core})
        module._patch_lang(everything)
        module._patch_lang = lambda fn: SimpleNamespace(restore=lambda: None)
        module._implicit_cvt = convert_argument
        module._interpreter = _CheckedMemory(module._interpreter, self)
        module.GridExecutor._init_args_hst = init_args
        module.InterpretedFunction.run = run_interpreted
        module.interpreter_builder.create_barrier = self.barrier
        jit.run = run
        jit.__call__ = lambda fn, *args, **kwargs: _twin(fn)(*args, **kwargs)
        jit.__get__ = lambda fn, x, cls=None: fn if x is None else functools.partial(fn, x)  # x.max(0)
        t.autotuner.Autotuner.run = _run_first_config

    def restore(self):
        """Put Triton back. Every step may be repeated, so that a stop in the middle does no harm."""
        while self.saved:
            place, before = self.saved[-1]
            now = dict(vars(place))
            for name in now.keys() - before.keys():
                delattr(place, name)
            for name, value in before.items():
                if now.get(name, self) is not value:
                    setattr(place, name, value)
            self.saved.pop()
        self.space = AddressSpace()

    def note_arguments(self, named):
        self.space = AddressSpace()
        for name, value in named.items():
            for part in value if isinstance(value, tuple) else (value,):
                tensor = getattr(part, "base", part)  # the tensor of a TMA descriptor
                if hasattr(tensor, "data_ptr"):
                    self.space.add(name, tensor)
        for observer in self.observers():
            observer.launch()

    def program(self):
        index = triton_modules().interpreter.interpreter_builder.grid_idx
        return tuple(int(i) for i in index[: self.rank])

    def barrier(self):
        for observer in self.observers():
            observer.barrier(self.program())

    def touch(self, op, pointers, mask, itemsize):
        return self.space.touch(op, pointers, mask, itemsize, self.program(), self.observers())

    def explain(self, kernel, error):
        """The exception to show for `error`: the cause, with the program and the line of the kernel."""
        while isinstance(error.__cause__, Exception):
            error = error.__cause__
        here = kernel.fn.__code__.co_filename
        lines = [f"line {f.lineno}" for f in traceback.extract_tb(error.__traceback__) if f.filename == here]
        place = f" ({lines[-1]} of {kernel.fn.__name__})" if lines else ""
        index = self.program()
        if isinstance(error, OutOfBounds):
            return OutOfBounds(f"program {index}: {error}{place}")
        failure = KernelError(f"program {index}: {type(error).__name__}: {error}{place}")
        failure.__cause__ = error
        return failure


class _CheckedMemory:
    """Stands in for the C++ module through which Triton's interpreter touches memory."""

    def __init__(self, memory, session):
        self.memory, self.session = memory, session

    def load(self, pointers, mask, other, dtype):
        real = self.session.touch("load", pointers, mask, np.dtype(dtype).itemsize)
        return self.memory.load(real, np.asarray(mask), other, dtype)

    def store(self, pointers, value, mask):
        real = self.session.touch("store", pointers, mask, value.dtype.itemsize)
        return self.memory.store(real, value, np.asarray(mask))

    def atomic_rmw(self, op, pointers, value, mask, *rest):
        real = self.session.touch("atomic", pointers, mask, value.dtype.itemsize)
        return self.memory.atomic_rmw(op, real, value, np.asarray(mask), *rest)

    def atomic_cas(self, pointers, compare, value, *rest):
        real = self.session.touch("atomic", pointers, np.True_, value.dtype.itemsize)
        return self.memory.atomic_cas(real, compare, value, *rest)

    def __getattr__(self, name):
        return getattr(self.memory, name)


def _twin(kernel):
    """The interpreted form of a @triton.jit function, made once."""
    t = triton_modules()
    if not isinstance(kernel, t.jit.JITFunction):
        return kernel
    twin = vars(kernel).get("_flashlab_twin")
    if twin is None or twin.fn is not kernel.fn:
        names = kernel.fn.__globals__
        names.setdefault("_flashlab_tl", t.tl)
        before = set(names)
        twin = t.interpreter.InterpretedFunction(kernel.fn)
        twin.rewrite()
        for name in (
            set(names) - before - {"interpreter_semantic"}
        ):  # the rewriter leaves its whole namespace behind
            del names[name]
        kernel._flashlab_twin = twin
    return twin


def _run_first_config(tuner, *args, **kwargs):
    """An autotuned kernel runs with its first configuration: there is nothing to time on a CPU."""
    config = tuner.configs[0]
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(tuner.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()})
    return tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})


_session = _Session()
