"""How a kernel is launched: interpreted or compiled, and with which block sizes, warps and pipeline stages.

The choice is made for each call: tensors on the CPU run in Triton's interpreter (`flashlab.interpreter`),
CUDA tensors run compiled. Nothing is tuned at run time: the table below holds one tested configuration for
each GPU generation, element size, head dim and direction, so that a first call costs one compilation.
"""

import contextlib
import functools
import math
from typing import NamedTuple

import torch

from flashlab import interpreter

LOG2_E = 1.4426950408889634  # exp(x) = exp2(x * LOG2_E): the GPU has an instruction for exp2 only


class Config(NamedTuple):
    """Rows of a query block, rows of a key block, warps of a program, stages of the load pipeline.

    `tma`: move tiles with the tensor memory accelerator (Hopper and later) where the tensors allow it.
    """

    block_q: int
    block_k: int
    num_warps: int = 4
    num_stages: int = 2
    tma: bool = False


INTERPRETED = Config(64, 64)  # the interpreter's time depends on the number of tiles, not on their size

# (generation, bytes of an element, direction) -> {largest head dim: Config}. Generations: 80 (A100), 89
# (consumer Ampere and Ada: less shared memory), 90 (Hopper), 100 (data-centre Blackwell), 120 (consumer
# Blackwell).
TABLE = {
    (90, 2, "forward"): {
        64: Config(64, 128, 4, 2, tma=True),
        128: Config(128, 128, 8, 3, tma=True),
        256: Config(128, 64, 8, 2, tma=True),
    },
    (90, 2, "forward short"): {  # up to SHORT keys: smaller tiles, two programs on an SM
        64: Config(64, 64, 4, 2, tma=True),
        128: Config(64, 64, 4, 3, tma=True),
        256: Config(128, 64, 8, 2, tma=True),
    },
    (90, 2, "forward simple"): {  # no mask and no ragged last block: more registers for the tile
        64: Config(64, 128, 4, 2, tma=True),
        128: Config(128, 64, 4, 2, tma=True),
        256: Config(128, 64, 8, 2, tma=True),
    },
    (90, 2, "dkdv"): {
        64: Config(32, 64, 4, 2, tma=True),
        128: Config(64, 64, 4, 2, tma=True),
        256: Config(32, 64, 8, 2, tma=True),
    },
    (90, 2, "dq"): {
        64: Config(64, 64, 4, 3, tma=True),
        128: Config(128, 64, 8, 3, tma=True),
        256: Config(64, 64, 8, 2),
    },
    (90, 2, "forward packed"): {  # of packed sequences: finding one's own takes registers
        64: Config(64, 128, 4, 2, tma=True),
        128: Config(64, 64, 4, 3, tma=True),
        256: Config(128, 64, 8, 2, tma=True),
    },
    (90, 2, "dkdv packed"): {
        64: Config(32, 64, 4, 2, tma=True),
        128: Config(32, 64, 4, 2, tma=True),
        256: Config(32, 64, 8, 2, tma=True),
    },
    (80, 2, "forward"): {64: Config(128, 64, 4, 3), 128: Config(128, 64, 8, 2), 256: Config(64, 32, 8, 2)},
    (80, 2, "dkdv"): {64: Config(32, 64, 4, 2), 128: Config(32, 64, 8, 2), 256: Config(16, 32, 8, 1)},
    (80, 2, "dq"): {64: Config(64, 64, 4, 2), 128: Config(64, 32, 8, 2), 256: Config(32, 32, 8, 1)},
    (89, 2, "forward"): {64: Config(64, 64, 4, 2), 128: Config(128, 32, 8, 2), 256: Config(64, 32, 8, 1)},
    (89, 2, "dkdv"): {64: Config(32, 64, 4, 2), 128: Config(32, 64, 8, 1), 256: Config(16, 32, 8, 1)},
    (89, 2, "dq"): {64: Config(64, 64, 4, 2), 128: Config(64, 32, 8, 1), 256: Config(32, 32, 8, 1)},
} | {
    # fp32 products are not tensor core work (IEEE, not TF32): small tiles, many warps, on every generation.
    (arch, 4, direction): {64: Config(32, 32, 8, 2), 128: Config(32, 16, 8, 1), 256: Config(16, 16, 8, 1)}
    for arch in (80, 89, 90)
    for direction in ("forward", "dkdv", "dq")
}
# FlashAttention-1 keeps its shape on every GPU: one program for a head, the tiles of its time.
TABLE |= {
    (arch, itemsize, direction): {
        64: Config(64, 64, 4, 2),
        128: Config(64, 64, 8, 1),
        256: Config(32, 32, 8, 1),
    }
    if itemsize == 2
    else {64: Config(32, 32, 8, 1), 128: Config(32, 16, 8, 1), 256: Config(16, 16, 8, 1)}
    for arch in (80, 89, 90)
    for itemsize in (2, 4)
    for direction in ("fa1", "fa1 backward")
}
SAME_AS = {100: 90, 120: 89}


def generation(major, minor):
    """The table's name for a GPU of compute capability major.minor."""
    if major == 8:
        return 80 if minor == 0 else 89
    return {9: 90, 10: 100}.get(major, 120 if major > 10 else 80)


def table_config(arch, itemsize, head_dim, direction="forward"):
    """The shipped Config for GPU generation `arch`, elements of `itemsize` bytes, head dim and direction."""
    row = SAME_AS.get(arch, arch), itemsize
    sizes = TABLE.get((*row, direction)) or TABLE[*row, direction.split()[0]]  # "forward short" -> "forward"
    return next(config for largest, config in sizes.items() if head_dim <= largest)


@functools.cache
def _config(device_type, index, itemsize, head_dim, direction):
    if device_type == "cpu":
        return INTERPRETED
    arch = generation(*torch.cuda.get_device_capability(index))
    return table_config(arch, itemsize, head_dim, direction)


def config_for(x, direction="forward"):
    """The Config for tensors like `x` [..., D]."""
    device = x.device
    return _config(device.type, device.index, x.element_size(), x.shape[-1], direction)


SHORT = 2048  # keys


def forward_config(q, num_keys, simple):
    """The Config of a forward pass over `num_keys` keys; `simple`: every row sees every key, no dropout."""
    config = config_for(q, "forward simple")
    if simple and num_keys % config.block_k == 0:
        return config
    return config_for(q, "forward short" if num_keys <= SHORT else "forward")


def must_upcast(x):
    """Whether `x` must be computed in fp32: bf16 on the CPU, where Triton's interpreter gives garbage."""
    return x.dtype == torch.bfloat16 and x.device.type == "cpu"


def constants(x, config):
    """The compile-time numbers of a kernel on tensors like `x` [..., D]. A tile's width is a power of two."""
    return _constants(x.shape[-1], x.dtype, config)


@functools.cache
def _constants(dim, dtype, config):
    return dict(
        DIM=dim,
        BLOCK_Q=config.block_q,
        BLOCK_K=config.block_k,
        BLOCK_D=tile_width(dim),
        PRECISION="ieee" if dtype == torch.float32 else "tf32",  # fp32 products stay fp32
    )


def tile_width(dim):
    """Columns of a tile for head dim `dim`: the next power of two, at least 16."""
    return max(16, 1 << (dim - 1).bit_length())


def tiles(config, **tensors):
    """Tensors as the kernels take them: [(x, strides) ...], or TMA descriptors with None for strides.

    `tensors` maps a name to (x [B, H, N, D], rows of its tiles). All of them are descriptors or none is.
    """
    if config.tma:
        described = [describe(x, rows) for x, rows in tensors.values()]
        if None not in described:
            return [(descriptor, None) for descriptor in described]
    return [(x, x.stride()) for x, _ in tensors.values()]


def describe(x, rows):
    """The TMA descriptor of x [B, H, N, D] for tiles of `rows` rows; None if there can be none.

    The hardware wants x aligned to 16 bytes, its columns side by side, and no axis expanded. The descriptor
    has four axes, so that a tile at the end of a head neither reads nor overwrites the next head.
    """
    if x.data_ptr() % 16:
        return None
    known = _description(x.shape, x.stride(), x.dtype, rows)
    if known is None:
        return None
    # The same fields with another base: the constructor would check them once more, for 10 microseconds.
    descriptor = object.__new__(type(known))
    descriptor.__dict__.update(known.__dict__, base=x)
    return descriptor


@functools.lru_cache(1024)
def _description(shape, strides, dtype, rows):
    from triton.tools.tensor_descriptor import TensorDescriptor

    unit = 16 // dtype.itemsize
    outer = [s for s, n in zip(strides[:-1], shape[:-1], strict=True) if n > 1]
    side_by_side = strides[-1] == 1 or shape[-1] == 1
    if 0 in shape or not side_by_side or any(s <= 0 or s % unit for s in outer):
        return None
    # The stride of an axis of length 1 is never used, but must be aligned.
    strides = [s if n > 1 else unit for s, n in zip(strides, shape, strict=True)]
    nothing = torch.empty(0, dtype=dtype)
    return TensorDescriptor(nothing, list(shape), [*strides[:-1], 1], [1, 1, rows, tile_width(shape[-1])])


def dropout_arguments(p, seed):
    """What kernels take for dropout: None, or (seed: int64 tensor [1], threshold, keep_scale).

    An element is kept if the 24-bit random number of its position is at least threshold = ceil(p * 2^24).
    """
    if p == 0:
        return None
    return seed, math.ceil(p * 2**24), 0.0 if p == 1 else 1 / (1 - p)


_captured = None


@contextlib.contextmanager
def capture():
    """Inside, launches are written down as (kernel, arguments, keyword arguments) instead of run."""
    global _captured
    _captured = []
    try:
        yield _captured
    finally:
        _captured = None


def launch(kernel, grid, *args, config, **constants):
    """Launch `kernel` over `grid` programs: interpreted if the first argument is on a CPU, else compiled."""
    options = dict(num_warps=config.num_warps, num_stages=config.num_stages)
    if _captured is not None:
        _captured.append((kernel, args, constants | options))
        return
    device = getattr(args[0], "base", args[0]).device
    if device.type == "cpu":
        # Gluon has no interpreter; flashlab.warpgroups simulates its kernels
        with contextlib.nullcontext() if is_gluon(kernel) else interpreter.interpreted():
            kernel[grid](*args, **constants, **options)
        return
    if device.type != "cuda":
        raise ValueError(
            f"kernels run on CPU tensors (interpreted) and CUDA tensors (compiled), got {device}"
        )
    elsewhere = device.index != torch.cuda.current_device()
    with torch.cuda.device(device) if elsewhere else contextlib.nullcontext():
        kernel[grid](*args, **constants, **options)


def is_gluon(kernel):
    """Whether a kernel is written in Gluon, Triton's lower-level dialect."""
    return getattr(kernel, "is_gluon", bool)()
