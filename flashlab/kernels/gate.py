"""Compile kernels for a GPU on a machine without one, and read from the machine code how fast they can be.

Triton's compiler and NVIDIA's ptxas, cuobjdump and nvdisasm come with the Triton wheel, so that a kernel that
spills registers or lost its load pipeline is found before anyone runs it. What the interpreter hides
(types that
change in a loop, tiles that are too small, too much shared memory) fails here too.
"""

import os
import re
import subprocess
import tempfile
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from flashlab.kernels import fa2, fa2_backward, launch

# Shared memory that one program may use, by generation: CUDA programming guide, compute capabilities table.
SHARED_MEMORY = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
DIRECTIONS = ("forward", "forward short", "forward simple", "dkdv", "dq")


class Report(NamedTuple):
    """What the machine code of one kernel says. `spills`: instructions that store registers to memory."""

    kernel: str
    arch: int
    registers: int
    spills: int
    shared: int
    sass: str

    def count(self, instruction):
        """How often an instruction (HGMMA, MUFU, FFMA, WARPGROUP, UTMALDG ...) occurs."""
        return len(re.findall(rf"\b{instruction}[. ]", self.sass))


def compile_calls(call, arch):
    """Reports for every kernel that `call` (a function of no arguments) would launch, compiled for
    sm_`arch`.
    """
    with launch.capture() as calls:
        call()
    return [compile_kernel(kernel, args, options, arch) for kernel, args, options in calls]


def compile_kernel(kernel, args, options, arch):
    """The Report of `kernel` for these launch arguments on sm_`arch`, with Triton's own argument
    specialisation.
    """
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, rest = bind(*args, **options)[:3]
    rest, signature, constants, attributes = kernel._pack_args(backend, options, bound, specialization, rest)
    source = ASTSource(kernel, signature, constants, attributes)
    binary = triton.compile(source, target=target, options=rest.__dict__)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage, sass = tool("cuobjdump", "-res-usage", file.name), tool("nvdisasm", "-c", file.name)
    return Report(
        kernel.fn.__name__,
        arch,
        int(re.search(r"REG:(\d+)", usage).group(1)),
        len(re.findall(r"\bSTL[. ]", sass)),
        binary.metadata.shared,
        sass,
    )


def directions(dtype, dim, arch, causal="top-left"):
    """What the shipped configuration launches for a head dim: a call for each direction, for
    `compile_calls`.
    """
    q = torch.empty(1, 4, 512, dim, dtype=dtype)
    row = torch.empty(1, 4, 512)
    how = dict(causal=causal, scale=0.1)
    config = {d: launch.table_config(arch, q.element_size(), dim, d) for d in DIRECTIONS}
    simple = how | dict(causal=None)
    calls = {
        "forward": lambda: fa2.forward(q, q, q, config=config["forward"], **how),
        "forward short": lambda: fa2.forward(q, q, q, config=config["forward short"], **how),
        "forward simple": lambda: fa2.forward(q, q, q, config=config["forward simple"], **simple),
        "dkdv": lambda: fa2_backward.backward_kv(q, q, q, q, row, row, config=config["dkdv"], **how),
        "dq": lambda: fa2_backward.backward_q(q, q, q, q, row, row, config=config["dq"], **how),
    }
    return config, calls


def main():
    """Compile every shipped configuration and print what became of it. Exit status 1 if one does not
    fit its GPU.
    """
    print(f"triton {triton.__version__}")
    failed = 0
    for arch in SHARED_MEMORY:
        for dtype in (torch.float16, torch.float32):
            for dim in (64, 128, 256):
                config, calls = directions(dtype, dim, arch)
                for direction, call in calls.items():
                    (report,) = compile_calls(call, arch)
                    fits = report.shared <= SHARED_MEMORY[arch]
                    failed += not fits
                    name = (
                        f"sm_{arch} {str(dtype)[6:]} D {dim:3} {direction:14} {tuple(config[direction])!s:26}"
                    )
                    use = f"registers {report.registers:3} spills {report.spills:4}"
                    shared = f"shared {report.shared // 1024:3} KB{'' if fits else '  DOES NOT FIT'}"
                    print(name, use, shared, flush=True)
    return 1 if failed else 0


def tool(name, *args):
    """The output of one of the NVIDIA tools in the Triton wheel."""
    folder = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
    return subprocess.run(
        [os.path.join(folder, name), *args], capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    raise SystemExit(main())
