"""Compile every step of the Hopper ladder for sm_90, on a machine without a GPU, and read the machine code.

    python -m flashlab.kernels.hopper_gate        # the usual cases; --all: every step, head dim, format, mask

What only ptxas decides is found here: registers that are spilled, products that are serialised (it then waits
for each wgmma by itself: two WARPGROUP instructions for each HGMMA instead of two for a product of several),
a softmax that it moved out from under the product that should hide it, and operands that are loaded into
registers (LDSM) before a loop: a wrong answer, where the loop writes to them.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import torch
import triton

from flashlab.kernels import gate, hopper_backward_host, hopper_host


class Case(NamedTuple):
    """One binary: a step, a head dim, a format, whether tiles are masked, and the keys, on which the order of
    step 5 depends.
    """

    step: int
    dim: int
    dtype: str = "bfloat16"
    masked: bool = True
    keys: int = 1024

    def __str__(self):
        where = f"step {self.step} D {self.dim} {self.dtype} {'masked' if self.masked else 'full'}"
        return where + (f" N {self.keys}" if self.keys != 1024 else "")

    @property
    def config(self):
        """Its `hopper_host.Config`."""
        return hopper_host.config_for(self.dim, self.step, "bottom-right" if self.masked else None, self.keys)


class Backward(NamedTuple):
    """One binary of the backward: its pass ("dkdv" or "dq"), and the rest as in `Case`."""

    step: str
    dim: int
    dtype: str = "bfloat16"
    masked: bool = True

    def __str__(self):
        return f"{self.step} D {self.dim} {self.dtype} {'masked' if self.masked else 'full'}"


USUAL = [
    Case(1, 128), Case(2, 128, "float16"), Case(3, 128), Case(4, 128, "float16", False), Case(4, 64),
    Case(3, 256, "float16", False), Case(5, 64), Case(5, 64, "float16", False), Case(5, 128),
    Case(5, 128, keys=4096), Case(5, 128, "float16", False),
    Backward("dkdv", 128), Backward("dkdv", 128, "float16", False), Backward("dkdv", 64),
    Backward("dq", 128), Backward("dq", 64, "float16", False),
]  # fmt: skip
ALL = [
    Case(step, dim, dtype, masked)
    for step in (1, 2, 3, 4, 5)
    for dim in (64, 128, 256)
    for dtype in ("float16", "bfloat16")
    for masked in (False, True)
]
ALL += [Case(5, 128, dtype, keys=4096) for dtype in ("float16", "bfloat16")]
ALL += [
    Backward(name, dim, dtype, masked)
    for name in ("dkdv", "dq")
    for dim in (64, 128)
    for dtype in ("float16", "bfloat16")
    for masked in (False, True)
]


def compile_case(case):
    """The `gate.Report` of a case."""
    q = torch.empty(2, 4, getattr(case, "keys", 1024), case.dim, dtype=getattr(torch, case.dtype))
    k, how = q[:, :2], dict(causal="bottom-right" if case.masked else None, scale=0.1)
    if isinstance(case, Backward):
        run = dict(dkdv=hopper_backward_host.backward_kv, dq=hopper_backward_host.backward_q)[case.step]
        lse = torch.empty(q.shape[:3])
        (report,) = gate.compile_calls(lambda: run(q, k, k, q, lse, lse, **how), 90)
    else:
        (report,) = gate.compile_calls(lambda: hopper_host.forward(q, k, k, step=case.step, **how), 90)
    return report


def compile_cases(cases, processes=2):
    """The reports of many cases, in their order."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(compile_case, cases)


def problems(case, report):
    """What is wrong with a case, as sentences."""
    found = []
    if report.spills:
        found.append(f"{report.spills} spills")
    if report.shared > gate.SHARED_MEMORY[90]:
        found.append(f"{report.shared} bytes of shared memory, there are {gate.SHARED_MEMORY[90]}")
    hgmma, waits = report.count("HGMMA"), report.count("WARPGROUP")
    if not hgmma or not report.count("UTMALDG") or not report.count("UTMASTG"):
        found.append("no wgmma, or no TMA")
    if report.count("LDSM"):  # ptxas 12.8 gives such registers to the softmax, and the next tile reads them
        found.append("an operand of a product stays in registers while the loop goes on")
    if waits >= hgmma:
        found.append(f"serialised: {waits} WARPGROUP instructions for {hgmma} HGMMA")
    backward = isinstance(case, Backward)
    threads = 128 * (1 + (2 if backward else case.config.consumers))
    most = 65536 // threads // 8 * 8
    if (backward or case.step > 1) and (report.registers > most or not report.count("USETMAXREG")):
        found.append(f"no reallocation: {report.registers} registers for each of {threads} threads")
    tile = 32 if case.dim == 256 else 64  # exp2 of a thread for one tile of scores
    if case.step == "dkdv":  # 64 keys by 64 queries; in the second pass ptxas keeps few exp2 under dP
        tile = 32
    hidden = case.step == "dkdv" if backward else case.config.order in ("look_ahead", "in_turns")
    if hidden and report.count("overlapped") < 2 * tile:  # in the loop of each consumer
        found.append(f"only {report.count('overlapped')} exp2 stand under a product")
    return found


def main(argv=None):
    """Compile and print; exit status 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m flashlab.kernels.hopper_gate", description=main.__doc__)
    parser.add_argument("--all", action="store_true", help="every step, head dim, format and mask")
    cases, failed = ALL if parser.parse_args(argv).all else USUAL, 0
    print(f"triton {triton.__version__}")
    for case, report in zip(cases, compile_cases(cases), strict=True):
        wrong = problems(case, report)
        failed += bool(wrong)
        counts = " ".join(f"{n} {report.count(n)}" for n in ("HGMMA", "WARPGROUP", "MUFU", "overlapped"))
        print(
            f"{case!s:32} registers {report.registers} spills {report.spills} shared {report.shared} "
            f"{counts} {'; '.join(wrong)}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
