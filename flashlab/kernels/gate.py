"""Compile kernels for a GPU on a machine without one, and read from the machine code how fast they can be.

    python -m flashlab.kernels.gate            # every shipped configuration against the recorded numbers
    python -m flashlab.kernels.gate --record   # write them anew, for this version of Triton

Triton's compiler and NVIDIA's ptxas, cuobjdump and nvdisasm come with the Triton wheel, so that a kernel that
spills registers or lost its load pipeline is found before anyone runs it. What the interpreter hides (types
that change in a loop, tiles that are too small, too much shared memory) fails here too. A number that cannot
be read is a failure, never a zero.
"""

import argparse
import os
import re
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import create_function_from_signature

from flashlab.kernels import golden, launch, shipped

# Shared memory that one program may use, by generation: CUDA programming guide, compute capabilities table.
SHARED_MEMORY = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}


class Report(NamedTuple):
    """What the machine code of one kernel says. `spills`: instructions that store registers to memory;
    `counts`: how often each instruction occurs, by the first part of its name (HGMMA, MUFU, FFMA ...), and
    "overlapped" (see there).
    """

    kernel: str
    arch: int
    registers: int
    spills: int
    shared: int
    stages: int
    counts: dict

    def count(self, instruction):
        return self.counts.get(instruction, 0)


def compile_calls(call, arch):
    """Reports for every kernel that `call`, a function without arguments, would launch on sm_`arch`."""
    with launch.capture() as calls:
        call()
    return [compile_kernel(kernel, args, options, arch) for kernel, args, options in calls]


def compile_kernel(kernel, args, options, arch):
    """The Report of `kernel` for these launch arguments on sm_`arch`, with Triton's own argument
    specialisation. Raises RuntimeError if something cannot be read.
    """
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, rest = bind(*args, **options)[:3]
    rest, signature, constants, attributes = kernel._pack_args(backend, options, bound, specialization, rest)
    source_type = GluonASTSource if launch.is_gluon(kernel) else ASTSource
    source = source_type(kernel, signature, constants, attributes)
    binary = triton.compile(source, target=target, options=rest.__dict__)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage, sass = tool("cuobjdump", "-res-usage", file.name), tool("nvdisasm", "-c", file.name)
    counts = instructions(sass)
    counts["overlapped"] = overlapped(sass)
    registers = read_number(r"REG:(\d+)", usage, "registers")
    shared = binary.metadata.shared
    stages = options["num_stages"]
    return Report(kernel.fn.__name__, arch, registers, counts["STL"], shared, stages, dict(counts))


def instructions(sass):
    """How often each instruction occurs in nvdisasm's listing. Raises RuntimeError if it is no listing."""
    counts = Counter(re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][A-Z0-9]*)", sass, re.M))
    if not counts["EXIT"]:
        raise RuntimeError("the gate cannot read the machine code: no EXIT in what nvdisasm wrote")
    return counts


def overlapped(sass):
    """How many exp2 of a listing stand between the start of a wgmma and the wait for it (Hopper)."""
    found, in_flight = 0, 0
    for word, left in re.findall(
        r"(WARPGROUP\.ARRIVE|WARPGROUP\.DEPBAR\.LE|MUFU\.EX2)(?: gsb0, (\w+))?", sass
    ):
        if word == "WARPGROUP.ARRIVE":
            in_flight += 1
        elif word == "MUFU.EX2":
            found += in_flight > 0
        else:
            in_flight = min(in_flight, int(left or "0", 16))
    return found


def read_number(pattern, text, what):
    """The number that `pattern` finds. Raises RuntimeError if there is none."""
    found = re.search(pattern, text)
    if not found:
        raise RuntimeError(f"the gate cannot read the {what} from: {text.strip()[:200]!r}")
    return int(found[1])


def tool(name, *args):
    """The output of one of the NVIDIA tools in the Triton wheel."""
    folder = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
    return subprocess.run(
        [os.path.join(folder, name), *args], capture_output=True, text=True, check=True
    ).stdout


def compile_case(case):
    """The Report of a `shipped.Case`."""
    (report,) = compile_calls(lambda: shipped.run(case), case.arch)
    return report


def compile_cases(cases, processes=2):
    """The Reports of many cases, in their order, compiled by `processes` processes."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(compile_case, cases)


def problems(case, report, recorded):
    """What is wrong with a case, as sentences. `recorded`: its numbers from `golden.load`, or None."""
    found, itemsize = [], shipped.DTYPES[case.dtype].itemsize
    if report.shared > SHARED_MEMORY[case.arch]:
        found.append(f"{report.shared} bytes of shared memory, there are {SHARED_MEMORY[case.arch]}")
    tile = case.inner_rows * case.dim * itemsize
    loads = report.count("LDGSTS") + report.count("UTMALDG")
    # On the way from a block table to the keys the compiler spends two stages.
    stages = report.stages - 2 if case.direction == "decode paged" else report.stages
    if report.stages > 1 and (report.shared < stages * tile or loads == 0):
        found.append(f"no load pipeline: {report.shared} bytes of shared memory, {loads} asynchronous loads")
    if case.arch == 90 and itemsize == 2 and report.count("WARPGROUP") > max(16, report.count("HGMMA")):
        found.append("the tensor core instructions wait for each other")
    return found + golden.differences(report, recorded)


def main(argv=None):
    """Compile every shipped configuration and print what became of it. Exit status 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m flashlab.kernels.gate", description=main.__doc__)
    parser.add_argument("--record", action="store_true", help="write the numbers to flashlab/kernels/golden")
    parser.add_argument("--arch", type=int, choices=shipped.GENERATIONS, help="one GPU generation only")
    args = parser.parse_args(argv)
    cases = shipped.cases(args.arch)
    known, failed, rows = golden.load(triton.__version__), 0, {}
    print(f"triton {triton.__version__}")
    for case, report in zip(cases, compile_cases(cases), strict=True):
        rows[str(case)] = golden.row(report)
        wrong = problems(case, report, rows[str(case)] if args.record else known.get(str(case)))
        failed += bool(wrong)
        numbers = " ".join(f"{name} {n}" for name, n in rows[str(case)].items())
        print(f"{case!s:34} {tuple(case.config)!s:26} {numbers} {'; '.join(wrong)}", flush=True)
    if args.record:
        rows = known | rows
        golden.save(
            triton.__version__, {str(case): rows[str(case)] for case in shipped.cases() if str(case) in rows}
        )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
