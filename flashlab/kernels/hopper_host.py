"""The host's side of the Hopper kernels: what they support, configurations, descriptors, launches."""

import functools
import heapq
import itertools
from typing import NamedTuple

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flashlab.kernels import hopper, hopper_first, launch
from flashlab.kernels.hopper_orders import in_turns, look_ahead, one_by_one

ROWS = 64  # query rows of a warpgroup
H200_SMS = 132  # taken where there is no GPU: in the simulator, and to compile without one
SECTION_BYTES = 16 * 2**20  # of K and V that shall stay in L2 while a section of heads is worked on
BLOCK_COST = 1  # of beginning and ending a query block, in key tiles

ORDERS = {"one_by_one": one_by_one, "look_ahead": look_ahead, "in_turns": in_turns}


class Config(NamedTuple):
    """Rows of a key tile, a name of ORDERS (None: the one warpgroup of step 1), whether a program stays on
    its SM and goes through many query blocks, stages of the K and of the V ring, warps of the producer,
    consumers.
    """

    block_k: int
    order: str | None
    persistent: bool = False
    num_stages: int = 2
    v_stages: int = 2
    num_warps: int = 4
    consumers: int = 2


STEPS = (1, 2, 3, 4, 5)
SHORT = 2048  # keys; up to here looking ahead is faster than turns under a causal mask (H200, D 128)


def config_for(head_dim, step=5, causal=None, num_keys=0):
    """The Config of a step for a head dim. Raises ValueError for a step that there is not.

    Step 5 takes what was fastest on the H200: D 64 has room for three consumers, which fill each other's gaps
    so well that looking ahead only costs registers; D 256 has no room for o beside Q, and stays as step 3.
    """
    if step not in STEPS:
        raise ValueError(f"the steps are 1 to 5, got step={step!r}")
    width = tile_width(head_dim)
    block_k = 64 if width == 256 else 128
    if step == 1:
        return Config(block_k, None, num_stages=1, v_stages=1)
    if step < 5 or width == 256:
        return Config(block_k, {2: "one_by_one", 4: "in_turns"}.get(step, "look_ahead"))
    if width == 64:
        return Config(block_k, "one_by_one", True, 3, 3, consumers=3)
    return Config(block_k, "look_ahead" if causal and num_keys <= SHORT else "in_turns", True, 2, 3)


def tile_width(head_dim):
    """Columns of a tile: 64, 128 or 256. What is beyond the head dim is read as 0 and never written."""
    return max(64, launch.tile_width(head_dim))


def lacks_kind(q):
    """What of q's dtype and head dim the kernels do not support, in words; None if they support both."""
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"dtype {q.dtype}: it has fp16 and bf16"
    dim = q.shape[-1]
    if dim > 256 or dim % 8:
        return f"head dim {dim}: it has multiples of 8 up to 256 (TMA moves 16 bytes at least)"
    return None


def lacks(q, k, v):
    """What of these tensors the kernels do not support, in words; None if they support them."""
    if kind := lacks_kind(q):
        return kind
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


def movable(x):
    """x, or if TMA cannot describe it a contiguous copy, which it can."""
    plain = not x.numel() or launch.describe(x, ROWS) is not None
    return x if plain else x.clone(memory_format=torch.contiguous_format)


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
    config = config or config_for(dim, step, causal, num_keys)
    group, first_step = heads // kv_heads, config.order is None
    rows = ROWS * (1 if first_step else config.consumers)
    grid = -(-num_queries // rows) * batch * heads
    shift = num_keys - num_queries if causal == "bottom-right" else 0
    schedule, only_here = (), {}
    if not first_step:
        schedule = (lse,)  # nothing is read from it
        if config.persistent:
            grid = min(grid, programs(q.device))
            longest_first = shift if causal else None
            work = plan(grid, rows, config.block_k, longest_first, q.shape, k.shape, q.device)
            schedule = (kept_for_graphs(work),)
        only_here = dict(
            K_STAGES=config.num_stages, V_STAGES=config.v_stages, ORDER=ORDERS[config.order],
            CONSUMERS=config.consumers, PERSISTENT=config.persistent,
        )  # fmt: skip
    launch.launch(
        hopper_first.forward_kernel if first_step else hopper.forward_kernel,
        (grid,),
        describe(q, ROWS), describe(k, config.block_k), describe(v, config.block_k), describe(o, ROWS), lse,
        *schedule, heads, group, num_queries, num_keys, shift, float(scale) * launch.LOG2_E,
        BLOCK_K=config.block_k, BLOCK_D=tile_width(dim), CAUSAL=causal is not None,
        EDGE=causal is not None or num_keys % config.block_k != 0 or scale < 0, NEGATE=scale < 0,
        **only_here, config=config,
    )  # fmt: skip
    return o, lse


@functools.lru_cache(256)
def plan(programs, rows, block_k, shift, q_shape, k_shape, device):
    """Which program of a persistent grid does which work tile, int32: `programs` + 1 numbers of first entries
    in this tensor, then the work tiles (see `hopper_parts.my_tile`) program by program.

    Under a causal mask (`shift` is not None) the longest come first, each for the program that is done first:
    a program that took every 132nd tile would meet the long ones again and again. They are dealt out by
    sections of heads whose K and V fit in L2. Raises RuntimeError for a new shape while a CUDA graph is being
    captured.
    """
    if capturing(device):
        raise RuntimeError(
            "fa3 plans its work on the host when it first meets a shape, which a CUDA graph cannot capture: "
            "call it once with this shape before the capture"
        )
    (batch, heads, num_queries, dim), (_, kv_heads, num_keys, _) = q_shape, k_shape
    blocks, total, section = -(-num_queries // rows), batch * heads, 1
    if shift is not None:
        fit, groups = max(1, SECTION_BYTES // (4 * num_keys * dim)), batch * kv_heads
        sections = -(-groups // fit)
        section = -(-groups // sections) * (heads // kv_heads)  # even ones: a short last one would be uneven
    shares, free = [[] for _ in range(programs)], [(0, p) for p in range(programs)]
    for first, late in itertools.product(range(0, total, section), range(blocks)):
        end = num_keys
        if shift is not None:  # my_tile counts the blocks from the last one on
            end = min(max(min((blocks - late) * rows, num_queries) + shift, 0), num_keys)
        cost = max(-(-end // block_k), 1) + BLOCK_COST
        for head in range(first, min(first + section, total)):
            done, p = free[0]
            heapq.heapreplace(free, (done + cost, p))
            shares[p].append(head * blocks + late)
    firsts = itertools.accumulate(map(len, shares), initial=programs + 1)
    numbers = [*firsts, *itertools.chain(*shares), 0]  # a program reads one entry ahead
    return torch.tensor(numbers, dtype=torch.int32, device=device)


IN_GRAPHS = {}  # plans by address: a captured graph knows only that, and the cache may forget them


def kept_for_graphs(work):
    """The plan, which from now on stays in memory if a CUDA graph is being captured."""
    if capturing(work.device):
        IN_GRAPHS[work.data_ptr()] = work
    return work


def capturing(device):
    """Whether a CUDA graph is being captured there."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


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
