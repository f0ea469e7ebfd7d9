"""How fast a machine copies and multiplies: from its GPU's data sheet, or measured here; and the two floors
that follow for a measurement.
"""

import time
from dataclasses import dataclass

from flashlab.bench.floors import floor_bytes, flops, known
from flashlab.text import t

COPY_BYTES, MATMUL = 256 * 2**20, 1536


@dataclass(frozen=True)
class Roofs:
    """Bytes/s and FLOP/s of a machine; `source` "sheet" | "measured"."""

    bandwidth: float
    peak: float
    source: str


def roofs(origin, dtype, records):
    """The Roofs of the machine in a provenance block, or None where nothing says them.

    `records`: those of the suite "roofs" count if they are of the same machine.
    """
    gpu = known(str(origin["gpu"])) if origin.get("gpu") else None
    if gpu and dtype in gpu.peak:
        return Roofs(gpu.hbm_bandwidth, gpu.peak_of(dtype), "sheet")
    copies, products = [], []
    for record in records:
        there = record.get("provenance") or {}
        if record["suite"] != "roofs" or any(
            there.get(x) != origin.get(x) for x in ("gpu", "cpu", "threads")
        ):
            continue
        copies += [r["bytes_per_s"] for r in record["rows"] if r.get("what") == "copy"]
        same = [r for r in record["rows"] if r.get("what") == "matmul" and r.get("dtype") == dtype]
        products += [r["flop_per_s"] for r in same]
    return Roofs(max(copies), max(products), "measured") if copies and products else None


def floors(row, found):
    """(milliseconds for the bytes, milliseconds for the FLOPs) of a row of `cpu` or `kernels` under `found`
    Roofs: `flashlab.bench.floors` says which bytes and FLOPs count.
    """
    moved, work = floor_bytes(row, row["direction"]), flops(row, row["direction"])
    return moved / found.bandwidth * 1e3, work / found.peak * 1e3


def measure(say=print):
    """Time this machine's roofs: rows {"what": "copy", "bytes_per_s"} (bytes read and bytes written both
    count) and {"what": "matmul", "dtype", "flop_per_s"}, the best of several runs.
    """
    import torch

    gpu = torch.cuda.is_available()
    device, dtype, n = ("cuda", "float16", 8192) if gpu else ("cpu", "float32", MATMUL)
    done = torch.cuda.synchronize if gpu else lambda: None
    a = torch.ones(COPY_BYTES // 4, device=device)
    b = torch.empty_like(a)
    copied = 2 * COPY_BYTES / best(lambda: b.copy_(a), done)
    say(t("report.measure.copy", rate=f"{copied / 1e9:.1f}"))
    yield {"what": "copy", "bytes_per_s": copied}
    x, y = (torch.randn(n, n, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    rate = 2 * n**3 / best(lambda: x @ y, done)
    say(t("report.measure.matmul", dtype=dtype, rate=f"{rate / 1e9:,.0f}"))
    yield {"what": "matmul", "dtype": dtype, "flop_per_s": rate}


def best(call, done, runs=7):
    """The quickest of several runs in seconds, after two that do not count: a roof is what can be reached."""
    times = []
    for _ in range(runs + 2):
        done()
        start = time.perf_counter()
        call()
        done()
        times.append(time.perf_counter() - start)
    return min(times[2:])
