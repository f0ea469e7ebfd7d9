"""Flash against standard attention: pairs of one run, their ratio, and what may be said of it."""

from dataclasses import dataclass
from itertools import product

from flashlab.bench.peers import FLASH_ATTN
from flashlab.bench.report.records import Measurement, machine

# In order of preference. `standard` is matmul, softmax, matmul in the inputs' own format.
FLASH = ("fa2", "sdpa-flash", "fa3", "sdpa-cudnn", "sdpa-efficient", "flex", *FLASH_ATTN)
STANDARD = ("standard", "sdpa-math")
DTYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Comparison:
    """`flash` and `standard`: as many measurements each (forward; or forward and backward), added up."""

    metric: str
    flash: tuple[Measurement, ...]
    standard: tuple[Measurement, ...]

    @property
    def ratio(self):
        """Standard divided by flash: above 1 flash needs less."""
        return self.total(self.standard) / self.total(self.flash)

    @property
    def verdict(self):
        """ "less" | "same" | "more": what flash needs. Times within each other's spread are the same."""
        apart = self.metric != "ms" or (
            self.total(self.flash, "high") < self.total(self.standard, "low")
            or self.total(self.standard, "high") < self.total(self.flash, "low")
        )
        if not apart or self.printed == "1.0":
            return "same"
        return "less" if self.ratio > 1 else "more"

    @property
    def printed(self):
        """How many times as much, from 1 up: "3.4", "18"."""
        less, more = sorted((self.total(self.flash), self.total(self.standard)))
        return digits(more / less)  # the inverse of `ratio` would be rounded twice

    @property
    def ids(self):
        return tuple(m.id for m in (*self.flash, *self.standard))

    def total(self, side, what=None):
        return sum(m.row[what or self.metric] for m in side)


def digits(ratio):
    """A ratio from 1 up as it is printed: one decimal below 10, none from there on."""
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:,.0f}"


def fair(flash, standard):
    """Whether the two may be compared. SDPA's math path computes 16-bit inputs in fp32: no standard there."""
    return standard.row["peer"] != "sdpa-math" or standard.row.get("dtype") == "float32"


def compare(measurements, metric, directions=("forward",), **wanted):
    """The comparisons that the learner's own measurements allow, of one metric ("ms", "peak_bytes", ...).

    `wanted`: what the rows must say (N=512, causal=False), `gpu=True` for GPUs only. With several
    `directions` each comparison adds them up. Pairs are made within one run, the best-liked peers of FLASH
    and STANDARD first; recorded measurements are never used. Sorted by (dtype, N, D) with what
    a headline should take last: no choice by the size of the ratio.
    """
    gpu = wanted.pop("gpu", None)
    by = {}
    for m in measurements:
        if not m.own or metric not in m.row or (gpu is not None and bool(m.provenance.get("gpu")) != gpu):
            continue
        if any(m.row.get(name) != value for name, value in wanted.items()):
            continue
        *sizes, direction = m.case
        if direction in directions:
            by.setdefault((m.run, tuple(sizes)), {})[m.row["peer"], direction] = m
    found = [c for peers in by.values() if (c := _pair(peers, metric, directions))]
    return sorted(found, key=_order)


def _pair(peers, metric, directions):
    for f, s in product(FLASH, STANDARD):
        sides = [[peers.get((peer, d)) for d in directions] for peer in (f, s)]
        if all(map(all, sides)) and fair(sides[0][0], sides[1][0]):
            return Comparison(metric, *map(tuple, sides))
    return None


def _order(comparison):
    first = comparison.flash[0]
    row, origin = first.row, first.provenance
    dtype = row.get("dtype")
    place = DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES)
    return (
        bool(origin.get("gpu")),
        row["N"],
        -place,
        row["D"],
        not row.get("causal"),
        origin["date"],
        machine(origin),
    )
