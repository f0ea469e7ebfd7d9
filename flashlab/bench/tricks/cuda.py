"""The current CUDA device, with what the benchmarks of `flashlab.bench.tricks` ask of one."""

import time

from flashlab.bench import clocks, peers, timing
from flashlab.bench.floors import known
from flashlab.bench.tricks.device import KERNELS
from flashlab.errors import unknown_name


class Cuda(timing.Cuda):
    """As `flashlab.bench.tricks.device.Simulated`, in real time. `log` names what was asked for; where
    PyTorch chooses, what it says it chose. First calls of a kernel are only the process's first.
    """

    tolerance = 2e-2

    def __init__(self):
        super().__init__()
        self.log = []
        self._cycles_per_ms = 1e6
        self.heat(0.2)  # out of the idle clock
        self.delay(1)  # loads it
        start = self.record()
        self.delay(20)  # the counter behind _sleep need not run at the SM's clock
        end = self.record()
        self.synchronize()
        self._cycles_per_ms *= 20 / self.elapsed(start, end)

    def fresh(self, again=0):
        """This device, with nothing queued, a second to cool and an empty log."""
        self.synchronize()
        time.sleep(1.0)
        self.log = []
        return self

    def gpu(self):
        """What `flashlab.gpus` knows of this GPU, or None."""
        return known(self.cuda.get_device_name())

    def normal(self, shape, dtype="float16", seed=0):
        import torch

        made = torch.Generator("cuda").manual_seed(seed)
        return torch.randn(*shape, generator=made, device="cuda", dtype=getattr(torch, dtype))

    def zeros(self, shape, dtype="float16"):
        import torch

        return torch.zeros(*shape, device="cuda", dtype=getattr(torch, dtype))

    def renew(self, x, seed):
        x.normal_()

    def poison(self, x):
        x.fill_(float("nan"))

    def copy(self, x):
        return x.clone()

    def spread(self, x):
        return x.float().std().item()

    def host(self):
        return time.perf_counter()

    def pause(self, seconds):
        until = time.perf_counter() + seconds  # sleep() is too coarse
        while time.perf_counter() < until:
            pass

    def delay(self, ms):
        self.cuda._sleep(int(ms * self._cycles_per_ms))

    def heat(self, seconds):
        a = self.normal((8192, 8192), "bfloat16")
        self.soak(lambda: a @ a, seconds)

    def soak(self, call, seconds=2.5):
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            call()
            self.synchronize()

    def clock_mhz(self):
        return clocks.sm_mhz() or float("nan")

    def attention(self, kernel="sdpa-flash"):
        if kernel not in (None, *KERNELS):
            raise unknown_name("kernel", kernel, KERNELS)
        attend = _skips_half(peers.make("sdpa-flash")) if kernel == "skips-half" else _attend(kernel)

        def call(q, k, v, causal=False):
            shape = q.shape
            if k.shape[1] != q.shape[1] and q.shape[2] == 1 and not causal:
                q = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])  # heads that share keys, as rows
            elif k.shape[1] != q.shape[1]:
                k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            name = kernel or _choice(q, k, v, causal)
            self.log.append((name, "float32" if name == "sdpa-math" else str(q.dtype).removeprefix("torch.")))
            return attend(q, k, v, causal).reshape(shape)

        call.kernel = kernel or "as chosen"
        return call

    def error(self, o, q, k, v, causal=False):
        q, k, v, o = (x[:1, :1].float() for x in (q, k, v, o))  # the first head, whose keys are the first
        return (o - peers.standard(q, k, v, causal)).abs().max().item()


def _attend(kernel):
    if kernel is not None:
        return peers.make(kernel)
    from torch.nn.functional import scaled_dot_product_attention

    return lambda q, k, v, causal: scaled_dot_product_attention(q, k, v, is_causal=causal)


def _choice(q, k, v, causal):
    import torch
    from torch.nn.attention import SDPBackend

    chosen = SDPBackend(torch._fused_sdp_choice(q, k, v, is_causal=causal))
    return next((name for name, backend in peers.SDPA.items() if backend == chosen.name), chosen.name.lower())


def _skips_half(attend):
    """Attention to the first half of the keys. Flash wants a square mask: rows below it see all of them."""

    def call(q, k, v, causal):
        import torch

        n = k.shape[2] // 2
        k, v = k[:, :, :n], v[:, :, :n]
        if not causal:
            return attend(q, k, v, False)
        return torch.cat([attend(q[:, :, :n], k, v, True), attend(q[:, :, n:], k, v, False)], 2)

    return call
