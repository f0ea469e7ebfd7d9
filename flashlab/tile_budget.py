"""What a pair of block sizes costs on the chip: shared memory, registers, programs on an SM, bytes moved.

A model of what Triton's compiler makes of the FA2 forward kernel, checked against that compiler:

- shared memory, exact to 64 bytes on Hopper: the Q tile once, a K and a V tile for each stage of the load
  pipeline. With one stage, K and V take turns in one buffer. Before Hopper the last stage's tiles wait in
  registers (stages - 1 buffers), and copying P between layouts takes up to 8 KB more, which is not counted.
- registers of a thread, an estimate (within 8 on Hopper with two or more stages, within 40 on Ampere): the
  fp32 accumulator and scores, P in the input's format, before Hopper the Q tile too, and `REST`.

`flashlab/widgets/budget_numbers.js` computes the same in the browser.
"""

from dataclasses import dataclass

from flashlab import gpus

MAX_REGISTERS = 255  # of a thread: the instruction set has no name for more
REST = {"hopper": 28, "before": 56}  # row max, row sum, indices, addresses: compiled and counted
# KB of L1 cache and shared memory of an SM together: CUDA C++ Programming Guide, compute capabilities
L1_AND_SHARED = {
    (7, 0): 128,
    (7, 5): 96,
    (8, 0): 192,
    (8, 6): 128,
    (8, 9): 128,
    (9, 0): 256,
    (10, 0): 256,
    (12, 0): 128,
}
BLOCKS = (16, 32, 64, 128, 256)
WARPS = (4, 8)
STAGES = (1, 2, 3, 4)


@dataclass(frozen=True)
class Budget:
    """One configuration's needs. Bytes for one program, registers for one thread (32 bits each).

    shared: {"q", "k", "v": bytes}. registers: {"acc", "scores", "p", "q", "rest": count}. limits: programs of
    an SM that {"shared", "registers", "threads"} allow. status: "fits", "spills" (more than 255 registers: it
    runs, with registers kept in slow memory) or "too big" (shared memory: it cannot be launched). binds: the
    key of `limits` that allows the fewest programs. moved: bytes between L2 and SM for one head, forward.
    """

    shared: dict
    registers: dict
    limits: dict
    programs: int
    status: str
    binds: str
    moved: int

    @property
    def shared_bytes(self):
        """Shared memory of one program in bytes."""
        return sum(self.shared.values())

    @property
    def registers_per_thread(self):
        """Registers that one thread asks for; more than 255 spill."""
        return sum(self.registers.values())


def tile_budget(gpu, block_q, block_k, head_dim, *, itemsize=2, warps=4, stages=2, n=4096):
    """The Budget of an FA2 forward program with a Q tile of block_q rows and K and V tiles of block_k rows.

    gpu: a name or a `flashlab.gpus.GPU`; head_dim: 1 to 256; itemsize: 2 or 4 bytes; n: queries and keys of a
    head. Raises ValueError for a number that cannot be.
    """
    gpu = gpus.get(gpu)
    for name, given, least in (
        ("block_q", block_q, 16),
        ("block_k", block_k, 16),
        ("head_dim", head_dim, 1),
        ("warps", warps, 1),
        ("stages", stages, 1),
        ("n", n, 1),
    ):
        if isinstance(given, bool) or not isinstance(given, int) or given < least:
            raise ValueError(f"expected {name} to be a whole number >= {least}, got {given!r}")
    if head_dim > 256:
        raise ValueError(f"expected head_dim of at most 256, which the kernels take, got {head_dim}")
    if itemsize not in (2, 4):
        raise ValueError(f"expected an itemsize of 2 (fp16, bf16) or 4 (fp32) bytes, got {itemsize!r}")
    if block_q & (block_q - 1) or block_k & (block_k - 1) or warps & (warps - 1):
        raise ValueError(f"expected powers of two, got blocks {block_q} x {block_k} and {warps} warps")
    width = max(16, 1 << (head_dim - 1).bit_length())  # a tile's columns: the next power of two
    hopper, threads = gpu.compute_capability >= (9, 0), 32 * warps
    buffers = stages if hopper else max(1, stages - 1)
    tile = block_k * width * itemsize
    shared = {"q": block_q * width * itemsize, "k": tile * buffers, "v": tile * buffers if stages > 1 else 0}
    registers = {
        "acc": -(-block_q * width // threads),
        "scores": -(-block_q * block_k // threads),
        "p": -(-block_q * block_k // (2 * threads)) if itemsize == 2 else 0,
        "q": 0 if hopper else -(-block_q * width * itemsize // (4 * threads)),
        "rest": REST["hopper" if hopper else "before"],
    }
    most = min(MAX_REGISTERS, gpu.registers_per_sm // (4 * threads))
    needed, each = sum(shared.values()), min(sum(registers.values()), most)
    limits = {
        "shared": gpu.shared_per_sm // (needed + reserved(gpu)),
        "registers": gpu.registers_per_sm // (-(-each // 8) * 8 * 4 * threads),  # given out in eights
        "threads": gpu.max_threads_per_sm // threads,
    }
    status = "fits"
    if sum(registers.values()) > most:
        status = "spills"
    if needed > gpu.shared_per_program:
        status, limits["shared"] = "too big", 0
    binds = min(limits, key=limits.get)
    moved = itemsize * 2 * n * head_dim * (1 + -(-n // block_q)) + 4 * n
    return Budget(shared, registers, limits, limits[binds], status, binds, moved)


def reserved(gpu):
    """Bytes of shared memory that CUDA keeps for itself with each program (from compute capability 8.0)."""
    return gpus.RESERVED_SHARED if gpu.compute_capability >= (8, 0) else 0


def shipped(gpu, head_dim, itemsize=2):
    """[(name, Config)] of what flashlab launches for an FA2 forward pass on this GPU, without doubles.

    Empty before compute capability 8, for which Triton has no compiler, and where torch is not installed.
    """
    try:
        from flashlab.kernels import launch
    except ImportError:
        return []
    if gpu.compute_capability < (8, 0):
        return []
    arch, found = launch.generation(*gpu.compute_capability), {}
    for direction in ("forward", "forward simple", "forward short"):
        config = launch.table_config(arch, itemsize, head_dim, direction)
        found.setdefault(config, direction.replace(" ", "_"))
    return [(name, config) for config, name in found.items()]
