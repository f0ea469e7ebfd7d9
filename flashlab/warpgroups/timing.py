"""How long things take in the simulator, and the log of what ran when. Times are clocks of one SM: a model.

The model, unit by unit. A unit does one thing at a time, in the order in which it was asked, and both
warpgroups share it: exp, fp32 and shared in turns of about 128 clocks, copies and wgmma one after another.

- tensor: one wgmma [M, K] x [K, N] takes 2 M N K FLOPs at the SM's share of the GPU's 16-bit peak.
- exp: exponentials, logarithms and reciprocals, one a lane, at the SM's share of `GPU.exp_rate` (16 a clock).
- fp32: every other operation on a register tile, one a lane, 128 lanes a clock (Hopper and Blackwell). A
  product that is added to or subtracted from is one fused operation.
- copy: TMA, bytes at the SM's share of what L2 delivers; what was copied is there a latency later.
- shared: ordinary loads and stores of shared memory, 128 bytes a clock (32 banks of 4).

Left out: address and loop arithmetic, register shuffles, barriers and fences themselves, the issue of
instructions, bank conflicts, registers read by wgmma, power, and other programs: the SM has one at a time (of
step 1, which has one warpgroup and 80 KB at D 128, a GPU would run two). Inside a warpgroup exp and fp32
follow one another; a GPU overlaps some of that. So a simulated time is a picture of who waits for whom, and
what share of its time a unit works is what the order of the kernel allows; it is not a measurement, and no
TFLOP/s should be made of it.
"""

from dataclasses import dataclass
from typing import NamedTuple

from flashlab import gpus

UNITS = ("copy", "tensor", "exp", "fp32", "shared")
WAIT = "wait"


class Event(NamedTuple):
    """One stretch of work (or of waiting) of one partition. `start` and `end` in clocks.

    `unit` is one of UNITS, or "wait"; `op` says what ("load", "store", "wgmma", "exp2", "fp32", or what is
    waited for); `tile` is (tensor, tile number along its rows) or None.
    """

    partition: str
    unit: str
    op: str
    tile: tuple | None
    start: float
    end: float


@dataclass(frozen=True)
class Costs:
    """Rates of one SM, per clock (see the module's text). `latency`: clocks from a copy's end to its use."""

    flops: float
    exps: float
    copy_bytes: float
    fp32: float = 128.0
    shared_bytes: float = 128.0
    latency: float = 500.0
    clock_ghz: float = 1.0

    @classmethod
    def of(cls, gpu="H200", dtype="float16"):
        """The rates of a GPU of `flashlab.gpus`.

        Two of them are assumptions: L2 delivers 5120 bytes a clock to all SMs together, which NVIDIA gives
        for the A100 (Ampere whitepaper) and for nothing newer; and a copy's latency is 500 clocks, the order
        of magnitude of microbenchmarks (it moves the start of the picture only). Raises ValueError for an
        unknown GPU or dtype.
        """
        gpu = gpus.get(gpu)
        clocks = gpu.sms * gpu.clock_ghz * 1e9
        return cls(
            flops=gpu.peak_of(dtype) / clocks,
            exps=gpu.exp_rate / clocks,
            copy_bytes=5120 / gpu.sms,
            clock_ghz=gpu.clock_ghz,
        )

    def clocks(self, unit, amount):
        """How long `unit` works on `amount` FLOPs (tensor), lanes (exp, fp32) or bytes (copy, shared)."""
        rates = (self.copy_bytes, self.flops, self.exps, self.fp32, self.shared_bytes)
        return amount / dict(zip(UNITS, rates, strict=True))[unit]


class Log(list):
    """The events of one program, by start. `clock_ghz` turns clocks into seconds."""

    def __init__(self, events=(), clock_ghz=1.0):
        super().__init__(events)
        self.clock_ghz = clock_ghz

    @property
    def end(self):
        """Clocks until the last event has ended."""
        return max((e.end for e in self), default=0.0)

    @property
    def partitions(self):
        """The names of the partitions, in the order in which they first did something."""
        return list(dict.fromkeys(e.partition for e in self))

    def of(self, partition=None, unit=None):
        """The events of one partition, of one unit, or of both (None: all)."""
        return [e for e in self if partition in (None, e.partition) and unit in (None, e.unit)]

    def busy(self, unit, partition=None):
        """Share of the program's time in which `unit` works (for `partition`): 0 to 1.

        For "wait": the share in which that partition waits; a unit is never asked for two things at once.
        """
        return sum(e.end - e.start for e in self.of(partition, unit)) / self.end if self else 0.0

    def seconds(self):
        """The simulated time of the program in seconds."""
        return self.end / (self.clock_ghz * 1e9)

    def add(self, event):
        """Write an event down; one that continues the partition's last one on that unit makes it longer."""
        for i in range(len(self) - 1, max(-1, len(self) - 8), -1):
            last = self[i]
            if last[:4] == event[:4] and event.start - last.end < 1e-9:
                self[i] = last._replace(end=max(last.end, event.end))
                return
            if last.partition == event.partition:
                break
        if event.end > event.start:
            self.append(event)
