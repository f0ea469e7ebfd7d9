"""What the Hopper kernels are made of: where to work, tiles in shared memory, products, one softmax step.

A ring is (tiles [STAGES, 1, 1, rows, BLOCK_D] in shared memory, a barrier `filled` and a barrier `emptied`
for each stage). Tile number n, counted from the start of the program, lies in stage n % STAGES. A barrier has
phases: who waits names the parity of the phase that must have ended, so that it flips at every lap.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma

from flashlab.kernels.gluon_names import tma_load
from flashlab.kernels.launch import LOG2_E

LN_2 = gl.constexpr(1 / LOG2_E)
ROWS = gl.constexpr(64)  # query rows of one warpgroup: what one wgmma instruction multiplies


@gluon.jit
def my_share(plan_ptr, PERSISTENT: gl.constexpr):
    """(first, last): the program does numbers first to last - 1 of the plan; without a plan, its own."""
    first = gl.program_id(0)
    last = first + 1
    if PERSISTENT:
        first = gl.load(plan_ptr + gl.program_id(0))
        last = gl.load(plan_ptr + gl.program_id(0) + 1)
    return first, last


@gluon.jit
def my_work(plan_ptr, i, PERSISTENT: gl.constexpr):
    """The work tile of number i of the plan."""
    if PERSISTENT:
        i = gl.load(plan_ptr + i)
    return i


@gluon.jit
def my_tile(work, num_blocks, num_heads):
    """(block, batch, head) of a work tile: head by head, in each the last blocks first."""
    head = work // num_blocks
    return num_blocks - 1 - work % num_blocks, head // num_heads, head % num_heads


@gluon.jit
def key_tiles(
    block, num_queries, num_keys, shift, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr
):
    """(full, end): each row of the query block sees all of its first `full` key tiles, none from `end` on."""
    full = num_keys
    end = num_keys
    if CAUSAL:
        full = gl.minimum(gl.maximum(block * BLOCK_Q + shift + 1, 0), num_keys)
        end = gl.minimum(gl.maximum(gl.minimum((block + 1) * BLOCK_Q, num_queries) + shift, 0), num_keys)
    # one tile at least: rows that see no key meet it under their mask, and no warp waits for nothing
    return full // BLOCK_K, gl.maximum((end + BLOCK_K - 1) // BLOCK_K, 1)


@gluon.jit
def my_key_tiles(
    block, num_queries, num_keys, shift, BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, NEGATE: gl.constexpr,
    CONSUMERS: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """(full, mine, end): `key_tiles` of the consumer's own rows, and the end of the whole block's.

    Orders in which the consumers wait for each other go to `end`, others may leave out what is behind `mine`.
    """
    unused, end = key_tiles(block, num_queries, num_keys, shift, CONSUMERS * ROWS, BLOCK_K, CAUSAL)
    own = CONSUMERS * block + WHICH
    full, mine = key_tiles(own, num_queries, num_keys, shift, ROWS, BLOCK_K, CAUSAL)
    if NEGATE:  # only under a mask are scores scaled before their maximum is taken
        full = 0
    if own * ROWS >= num_queries:  # no rows here: the head ends before
        mine = 0
    return full, mine, end


@gluon.jit
def make_ring(desc, BLOCK: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, READERS: gl.constexpr):
    """A ring of tiles [BLOCK, BLOCK_D] in shared memory that READERS consumers read."""
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    tiles = gl.allocate_shared_memory(desc.dtype, [STAGES, 1, 1, BLOCK, BLOCK_D], desc.layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=READERS)
    return tiles, filled, emptied


@gluon.jit
def fill(ring, n, desc, batch, head, first):
    """Producer: start the copy of tile number n into its stage of the ring."""
    tiles, filled, emptied = ring
    STAGES: gl.constexpr = tiles.shape[0]
    stage = n % STAGES
    # waits for: all consumers, that they have read tile n - STAGES, which lay here (at first: nobody)
    mbarrier.wait(emptied.index(stage), (n // STAGES & 1) ^ 1)
    mbarrier.expect(filled.index(stage), desc.block_type.nbytes)
    tma_load(desc, [batch, head, first, 0], filled.index(stage), tiles.index(stage))


@gluon.jit
def take(ring, n):
    """Consumer: tile number n of the ring [rows, BLOCK_D], as soon as it is there."""
    tiles, filled, emptied = ring
    STAGES: gl.constexpr = tiles.shape[0]
    # waits for: the producer's copy
    mbarrier.wait(filled.index(n % STAGES), n // STAGES & 1)
    return tile_of(ring, n)


@gluon.jit
def tile_of(ring, n):
    """Tile number n of the ring [rows, BLOCK_D], which is there."""
    tiles, filled, emptied = ring
    return tiles.index(n % tiles.shape[0]).reshape([tiles.shape[3], tiles.shape[4]])


@gluon.jit
def release(ring, n):
    """Consumer: tile number n is read (no wgmma on it is in flight), its stage may be overwritten."""
    tiles, filled, emptied = ring
    mbarrier.arrive(emptied.index(n % tiles.shape[0]), count=1)


@gluon.jit
def start_scores(q, k, BLOCK_K: gl.constexpr):
    """S = Q K^T, started: [ROWS, BLOCK_K] fp32, to be read after its warpgroup_mma_wait only."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    zero = gl.zeros([ROWS, BLOCK_K], gl.float32, LAYOUT)
    return warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def start_output(p, v, acc):
    """O + P V, started: acc [ROWS, BLOCK_D] fp32, to be read after its warpgroup_mma_wait only."""
    LAYOUT: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, 2)  # P stays in registers
    return warpgroup_mma(gl.convert_layout(p.to(v.dtype), LAYOUT), v, acc, is_async=True)


@gluon.jit
def rescale(acc, factor):
    """Each row of acc [ROWS, BLOCK_D] times its factor [ROWS]."""
    return acc * gl.convert_layout(factor, gl.SliceLayout(1, acc.type.layout))[:, None]


@gluon.jit
def weigh(scores, row_max, row_sum, sees, first, CAUSAL: gl.constexpr, MASKED: gl.constexpr):
    """(P = exp(S - new row_max), factor for what was summed so far, new row_max, new row_sum), base 2.

    scores [ROWS, BLOCK_K] are those of the keys from `first` on. MASKED: some of them may be hidden.
    """
    rows, num_keys, shift, qk_scale = sees
    if MASKED:  # scale first, mask second: -inf * scale would be +inf or nan for scale <= 0
        keys = (first + gl.arange(0, scores.shape[1], gl.SliceLayout(0, scores.type.layout)))[None, :]
        seen = keys < num_keys
        if CAUSAL:
            seen = seen & (keys <= rows[:, None] + shift)
        scores = gl.where(seen, scores * qk_scale, float("-inf"))
        new_max = gl.maximum(row_max, gl.max(scores, 1))
        unit = gl.where(new_max == float("-inf"), 0.0, new_max)  # no key seen yet: -inf - -inf would be nan
        p = gl.exp2(scores - unit[:, None])
    else:
        new_max = gl.maximum(row_max, gl.max(scores, 1) * qk_scale)
        unit = new_max
        p = gl.exp2(scores * qk_scale - unit[:, None])  # one fused multiply-add, one exp2
    alpha = gl.exp2(row_max - unit)
    return p, alpha, new_max, row_sum * alpha + gl.sum(p, 1)


@gluon.jit
def finish(row_max, row_sum, acc, CAUSAL: gl.constexpr):
    """(o, lse) of rows that have met all their keys; 0 and -inf for rows that saw none, whatever V holds."""
    if CAUSAL:  # only a mask hides all keys of a row
        saw = row_sum > 0
        row_sum = gl.where(saw, row_sum, 1.0)
        acc = gl.where(gl.convert_layout(saw, gl.SliceLayout(1, acc.type.layout))[:, None], acc, 0.0)
    return rescale(acc, 1 / row_sum), (row_max + gl.log2(row_sum)) * LN_2
