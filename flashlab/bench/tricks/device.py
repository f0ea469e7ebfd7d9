"""A simulated asynchronous device: a host clock, a device clock, a queue between them, and no GPU.

A launch costs the host a little and returns; the kernel runs when the one before it has ended. L2 remembers
the tensors last used, the clock falls while the chip works and rises while it idles, first calls compile,
some runs are disturbed. All is deterministic for a seed, and nothing waits in real time: a benchmark that
"takes" a second takes milliseconds. What it believes stands in `flashlab.bench.tricks.model`.

Tensors have the shape that the problem says, but hold a miniature: a few values, on which attention is
computed in earnest when someone looks, so that a wrong or an old result can be found out.
"""

import functools
import math
import random
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from flashlab import reference
from flashlab.bench.tricks import model as models
from flashlab.errors import unknown_name
from flashlab.problem import ITEMSIZE, Problem

MINIATURE = (6, 4)  # rows and columns of the values that a simulated tensor really holds
FLUSH_BYTES = 256 * 2**20
KERNELS = ("fa2", "sdpa-flash", "sdpa-cudnn", "standard", "sdpa-math", "skips-half")


@dataclass(eq=False)
class Tensor:
    """`shape` and `dtype` as declared; `values()` gives the miniature [rows, columns] in float64.
    `power`: what it draws to multiply them, 0 for zeros, else 1.
    """

    shape: tuple
    dtype: str
    values: object = field(repr=False)
    power: float = 1.0

    @property
    def nbytes(self):
        """Bytes on the device."""
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


class Simulated:
    """The device. Clocks in seconds, `elapsed` in milliseconds; `log` lists (kernel, dtype) of each attention
    launched.

    `model` (default: the H200's) sets the parameters, `seed` the noise and the outliers.
    """

    tolerance = 1e-9  # largest error of a right result: the miniature is computed in float64

    def __init__(self, seed=0, model=None):
        self.model = model or models.h200()
        self.seed = seed
        self.log = []
        self._random = random.Random(seed)
        self._host = self._busy_until = 0.0
        self._heat = self._power = 0.0  # heat 0: the boost clock, 1: the steady clock
        self._cooled = 0.0
        self._loaded = set()  # kernels, and (kernel, shape), that have had their first call
        self._l2_used = 0
        self._l2 = OrderedDict()  # tensor id -> (tensor, bytes), least recently used first

    def fresh(self, again=0):
        """A device like this one that has done nothing yet; `again`: with other noise."""
        return Simulated(self.seed + 1009 * again, self.model)

    def gpu(self):
        """The GPU of `flashlab.gpus` that is simulated."""
        return self.model.gpu

    def __repr__(self):
        return f"Simulated({self.model.gpu.name}, seed={self.seed})"

    # Tensors

    def normal(self, shape, dtype="float16", seed=0):
        """Normal random values."""
        return self._written(Tensor(tuple(shape), dtype, _normal(seed)))

    def zeros(self, shape, dtype="float16"):
        """Zeros."""
        return self._written(Tensor(tuple(shape), dtype, lambda: np.zeros(MINIATURE), 0.0))

    def renew(self, x, seed):
        """Other normal random values in the same place."""
        x.values, x.power = _normal(seed), 1.0
        self._written(x)

    def poison(self, x):
        """NaN in every place."""
        x.values = lambda: np.full(MINIATURE, np.nan)
        self._written(x)

    def copy(self, x):
        """The same values at another place in memory."""
        made = Tensor(x.shape, x.dtype, x.values, x.power)
        self._run(0.0, [x, made])
        return made

    def spread(self, x):
        """The standard deviation of the values; waits for them."""
        self.synchronize()
        return float(np.std(x.values()))

    # Time

    def host(self):
        """Seconds on the host's clock, as time.perf_counter()."""
        return self._host

    def pause(self, seconds):
        """The host does something else."""
        self._host += seconds

    def synchronize(self):
        """The host waits until the device has done all that was launched."""
        self._host = max(self._host, self._busy_until)

    def record(self):
        """A mark in the queue: when the device gets there."""
        spent = self.model.event_us * 1e-6
        self._host += spent
        mark = max(self._host, self._busy_until)
        self._busy_until = mark + spent
        return mark

    def elapsed(self, start, end):
        """Milliseconds on the device from one mark to another."""
        return (end - start) * 1e3

    def flush(self):
        """Write more than L2 holds, so that the next kernel finds it cold."""
        self._l2.clear()
        self._l2_used = 0
        self._run(FLUSH_BYTES / self.model.bandwidth)

    def delay(self, ms):
        """Keep the device busy for so long, without memory or heat (as torch.cuda._sleep)."""
        self._run(ms * 1e-3)

    def heat(self, seconds):
        """Matrix products on random data for so long."""
        self._run(seconds, power=1.0)
        self.synchronize()

    def soak(self, call):
        """Repeat `call()` until the clock is as low as it gets: here once, then as much time at its power."""
        self._power = 0.0
        call()
        self._run(5e-3 * self.model.settle_ms, power=self._power)
        self.synchronize()

    def clock_mhz(self):
        """The SM clock now."""
        self._cool()
        boost, steady = self.model.boost_mhz, self.model.steady_mhz
        return boost - (boost - steady) * self._heat

    # Attention

    def attention(self, kernel="sdpa-flash"):
        """The call (q, k, v, causal) -> o that launches one of `KERNELS`; None: what PyTorch would choose
        here (on Hopper: cuDNN).
        """
        kernel = kernel or "sdpa-cudnn"
        if kernel not in KERNELS:
            raise unknown_name("kernel", kernel, KERNELS)

        def call(q, k, v, causal=False):
            return self._launch(kernel, q, k, v, causal)

        call.kernel = kernel
        return call

    def error(self, o, q, k, v, causal=False):
        """The largest difference between o and attention of q, k, v by the formula; waits for o."""
        self.synchronize()
        want = reference.attention(q.values(), k.values(), v.values(), causal=causal)[0]
        return float(np.abs(o.values() - want).max())

    def _launch(self, kernel, q, k, v, causal):
        m = self.model
        for what, ms in ((kernel, m.first_call_ms), ((kernel, q.shape, k.shape), m.plan_ms)):
            if what not in self._loaded:
                self._loaded.add(what)
                self._host += ms * 1e-3
        self.log.append((kernel, "float32" if kernel == "sdpa-math" else q.dtype))
        now = q.values, k.values, v.values  # what is there at the launch, whatever is written there later
        o = Tensor(q.shape, q.dtype, lambda: _attend(kernel, *(values() for values in now), causal))
        compute, memory = _cost(m, kernel, q.shape, k.shape, q.dtype, bool(causal))
        compute *= m.steady_mhz / self.clock_mhz()
        self._power = max(q.power, k.power)
        self._run(compute, [q, k, v, o], memory, self._power, noisy=True)
        return o

    def _run(self, compute, tensors=(), memory=0.0, power=0.0, noisy=False):
        """Put a kernel into the queue: it takes the longer of its arithmetic and its bytes."""
        m = self.model
        self._host += m.launch_us * 1e-6
        seconds = max(compute, memory + sum(self._fetch(x) for x in tensors)) + m.latency_us * 1e-6 * noisy
        if compute and memory:
            seconds = compute + memory  # three kernels in a row, each waits for the matrix of the one before
        if noisy:
            seconds *= 1 + m.noise * abs(self._random.gauss())
            if self._random.random() < m.outlier_share:
                seconds *= m.outlier_factor
        self._cool()
        start = max(self._host, self._busy_until)
        self._busy_until = start + seconds
        self._drift(power, seconds)

    def _fetch(self, x):
        """Seconds to move a tensor, from L2 if it is still there; it is there afterwards if it fits."""
        m, hit = self.model, self._l2.pop(id(x), None)
        self._l2[id(x)] = (x, x.nbytes)
        self._l2_used += x.nbytes * (not hit)
        while self._l2_used > m.gpu.l2_bytes:
            _, (_, size) = self._l2.popitem(last=False)
            self._l2_used -= size
        return x.nbytes / m.bandwidth / (m.l2_speed if hit else 1)

    def _cool(self):
        """Idle time between the last kernel and now."""
        idle = self._host - max(self._busy_until, self._cooled)
        if idle > 0:
            self._drift(0.0, idle)
            self._cooled = self._host

    def _drift(self, target, seconds):
        self._heat = target + (self._heat - target) * math.exp(-seconds * 1e3 / self.model.settle_ms)

    def _written(self, x):
        self._run(0.0, [x])
        return x


def _normal(seed):
    return functools.cache(lambda: np.random.default_rng(seed).standard_normal(MINIATURE))


@functools.cache
def _cost(model, kernel, q, k, dtype, causal):
    """Seconds of arithmetic at the steady clock, and of score matrices on their way to memory and back."""
    B, Hq, Nq, D = q
    problem = Problem(B=B, Hq=Hq, Hkv=k[1], Nq=Nq, Nk=k[2], D=D, causal=causal, dtype=dtype)
    matrices = models.matrix_bytes(kernel, problem) / model.bandwidth
    return models.compute_ms(model, kernel, problem) * 1e-3, matrices


def _attend(kernel, q, k, v, causal):
    if kernel == "skips-half":
        k, v = k[: len(k) // 2], v[: len(v) // 2]
    return reference.attention(q, k, v, causal=causal)[0]
