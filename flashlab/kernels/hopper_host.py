"""The host's side of the Hopper kernels: what they support, configurations, descriptors, launches."""

import functools
from typing import NamedTuple

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flashlab.kernels import hopper, hopper_first, launch
from flashlab.kernels.hopper_orders import in_turns, look_ahead, one_by_one

ROWS = 64  # query rows of a warpgroup
H200_SMS = 132  # taken where there is no GPU: in the simulator, and to compile without one
SECTION_BYTES = 16 * 2**20  # of K and V that shall stay in L2 while a section of heads is worked on

ORDERS = {"one_by_one": one_by_one, "look_ahead": look_ahead, "in_turns": in_turns}


class Config(NamedTuple):
    """Rows of a key tile, a name of ORDERS (None: the one warpgroup of step 1), whether a program stays on
    its SM and goes through many query blocks, stages of the K and of the V ring, warps of the producer.
    """

    block_k: int
    order: str | None
    persistent: bool = False
    num_stages: int = 2
    num_warps: int = 4


# The order of step 5, by tile width: a guess from another kernel, which on an H200 ran D 128 faster without
# turns and D 64 faster with them. To be chosen anew when steps 3 and 4 have been measured.
BEST_ORDER = {64: "in_turns", 128: "look_ahead", 256: "look_ahead"}
STEPS = (1, 2, 3, 4, 5)


def config_for(head_dim, step=5):
    """The Config of a step for a head dim. Raises ValueError for a step that there is not."""
    if step not in STEPS:
        raise ValueError(f"the steps are 1 to 5, got step={step!r}")
    width = tile_width(head_dim)
    order = {1: None, 2: "one_by_one", 3: "look_ahead", 4: "in_turns", 5: BEST_ORDER[width]}[step]
    return Config(64 if width == 256 else 128, order, persistent=step == 5, num_stages=1 if step == 1 else 2)


def tile_width(head_dim):
    """Columns of a tile: 64, 128 or 256. What is beyond the head dim is read as 0 and never written."""
    return max(64, launch.tile_width(head_dim))


def lacks(q, k, v):
    """What of these tensors the kernels do not support, in words; None if they support them."""
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"dtype {q.dtype}: it has fp16 and bf16"
    dim = q.shape[-1]
    if dim > 256 or dim % 8:
        return f"head dim {dim}: it has multiples of 8 up to 256 (TMA moves 16 bytes at least)"
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.numel() and launch.describe(x, ROWS) is None:
            how = f"strides {tuple(x.stride())}"
            if x.data_ptr() % 16:
                how = f"an address of {x.data_ptr() % 16} modulo 16 bytes"
            return (
                f"{name} with {how}: TMA wants columns side by side, nothing expanded, and an address and "
                f"steps that are multiples of 16 bytes (a contiguous copy of {name} has that)"
            )
    return None


def forward(q, k, v, *, causal=None, scale, step=5, config=None):
    """o [B, Hq, Nq, D] in q's dtype and lse [B, Hq, Nq] fp32 of q [B, Hq, Nq, D], k and v [B, Hkv, Nk, D].

    fp16 or bf16, D a multiple of 8 up to 256, tensors that TMA can describe. `causal` is None, "top-left" or
    "bottom-right"; `step` 1 to 5 is the rung of the ladder, `config` a Config in its place. Expects inputs
    that fit together (`flashlab.attention` checks them). A nan in V reaches rows whose query block shares a
    key tile with it. Raises NotImplementedError for what `lacks` names.
    """
    missing = lacks(q, k, v)
    if missing:
        raise NotImplementedError(f"backend 'fa3' has no {missing}")
    (batch, heads, num_queries, dim), kv_heads = q.shape, k.shape[1]
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads, num_queries), dtype=torch.float32, device=q.device)
    if causal == "top-left":  # keys that no row may see are not there
        k, v = k[:, :, :num_queries], v[:, :, :num_queries]
    num_keys = k.shape[2]
    if o.numel() == 0 or num_keys == 0:
        return o.zero_(), lse.fill_(-torch.inf)
    config = config or config_for(dim, step)
    group, first_step = heads // kv_heads, config.order is None
    work_tiles = -(-num_queries // (ROWS if first_step else 2 * ROWS)) * batch * heads
    launch.launch(
        hopper_first.forward_kernel if first_step else hopper.forward_kernel,
        (min(work_tiles, programs(q.device)) if config.persistent else work_tiles,),
        describe(q, ROWS), describe(k, config.block_k), describe(v, config.block_k), describe(o, ROWS), lse,
        heads, group, num_queries, num_keys, num_keys - num_queries if causal == "bottom-right" else 0,
        work_tiles, section(config, k, group, causal), float(scale) * launch.LOG2_E,
        BLOCK_K=config.block_k, BLOCK_D=tile_width(dim), CAUSAL=causal is not None,
        EDGE=causal is not None or num_keys % config.block_k != 0 or scale < 0, NEGATE=scale < 0,
        **({} if first_step else dict(STAGES=config.num_stages, ORDER=ORDERS[config.order])),
        config=config,
    )  # fmt: skip
    return o, lse


def section(config, k, group, causal):
    """How many query heads are worked on at a time: 1; in step 5 under a mask, those whose K, V fit in L2."""
    if not config.persistent or causal is None:
        return 1
    of_one = 2 * k.shape[2] * k.shape[3] * k.element_size()
    return max(1, SECTION_BYTES // of_one) * group


def programs(device):
    """How many programs stay on the device at a time: one for each SM."""
    if device.type != "cuda":
        return H200_SMS
    return torch.cuda.get_device_properties(device).multi_processor_count


def describe(x, rows):
    """The TMA descriptor of x [B, H, N, D] for tiles of `rows` rows; None if there can be none.

    It has four axes, so that a tile at the end of a head neither reads nor overwrites the next head.
    """
    plain = launch.describe(x, rows)
    if plain is None:
        return None
    known = _description(tuple(plain.shape), tuple(plain.strides), x.dtype, rows)
    descriptor = object.__new__(TensorDescriptor)  # the same with another base, without checking once more
    descriptor.__dict__.update(known.__dict__, base=x)
    return descriptor


@functools.lru_cache(1024)
def _description(shape, strides, dtype, rows):
    block = [1, 1, rows, tile_width(shape[-1])]
    layout = gl.NVMMASharedLayout.get_default_for(block, {torch.float16: gl.float16}.get(dtype, gl.bfloat16))
    nothing = torch.empty(0, dtype=dtype)
    return TensorDescriptor(nothing, list(shape), list(strides), block, layout)
