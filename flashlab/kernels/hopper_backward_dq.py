"""The second pass of the Hopper backward: dQ, by the forward's loop over key tiles. See `hopper_backward`."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma, warpgroup_mma_wait

from flashlab.kernels.gluon_names import tma_store
from flashlab.kernels.hopper_backward_parts import (
    fill_own,
    in_log2,
    load_rows,
    make_own,
    minus,
    start_dp,
    take_own,
)
from flashlab.kernels.hopper_parts import (
    LN_2,
    ROWS,
    fill,
    key_tiles,
    make_ring,
    release,
    start_output,
    start_scores,
    take,
)


@gluon.jit
def produce_keys(
    descs, own, k_ring, v_ring, num_heads, group, num_queries, num_keys, shift,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """The producer of the second pass: Q and dO once, then K and V of every key tile."""
    q_desc, k_desc, v_desc, do_desc = descs
    block, batch, head = query_block(num_queries, num_heads)
    fill_own(own, (q_desc, do_desc), batch, head, block * 2 * ROWS)
    full, end = key_tiles(block, num_queries, num_keys, shift, 2 * ROWS, BLOCK_K, CAUSAL)
    for j in range(0, end):
        fill(k_ring, j, k_desc, batch, head // group, j * BLOCK_K)
        fill(v_ring, j, v_desc, batch, head // group, j * BLOCK_K)


@gluon.jit
def query_block(num_queries, num_heads):
    """(block, batch, head) of a program of the second pass: under a causal mask the last are the longest."""
    num_blocks = (num_queries + 2 * ROWS - 1) // (2 * ROWS)
    batch_head = gl.program_id(0) // num_blocks
    return num_blocks - 1 - gl.program_id(0) % num_blocks, batch_head // num_heads, batch_head % num_heads


@gluon.jit
def add_key_tile(
    dq, q, do, lse, delta, rows, k_ring, v_ring, j, num_keys, shift, qk_scale,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """What key tile j adds to dq of a consumer's rows."""
    # [BLOCK_K, BLOCK_D]
    k = take(k_ring, j)
    dp = minus(delta[:, None], BLOCK_K)
    # [ROWS, BLOCK_K]: S, P, dP and dS as in the first pass, and not transposed
    scores = start_scores(q, k, BLOCK_K)
    dp = start_dp(do, take(v_ring, j), dp)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    p = gl.exp2(scores * qk_scale - lse[:, None])
    dp = warpgroup_mma_wait(0, deps=(dp,))
    release(v_ring, j)
    ds = p * dp
    if MASKED:
        keys = (j * BLOCK_K + gl.arange(0, BLOCK_K, gl.SliceLayout(0, dp.type.layout)))[None, :]
        seen = keys < num_keys
        if CAUSAL:
            seen = seen & (keys <= rows[:, None] + shift)
        ds = gl.where(seen, ds, 0.0)
    # FA2 Alg. 2, line 15, in a second pass (deviation): dQ_i += dS K_j
    dq = warpgroup_mma_wait(0, deps=(start_output(ds, k, dq),))
    release(k_ring, j)
    return dq


@gluon.jit
def consume_keys(
    dq_desc, lse_ptr, delta_ptr, own, k_ring, v_ring,
    num_heads, num_queries, num_keys, shift, qk_scale,
    BLOCK_K: gl.constexpr, BLOCK_D: gl.constexpr, CAUSAL: gl.constexpr,
    EDGE: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """Consumer WHICH of the second pass: dq of its half of the query block."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    block, batch, head = query_block(num_queries, num_heads)
    full, end = key_tiles(block, num_queries, num_keys, shift, 2 * ROWS, BLOCK_K, CAUSAL)
    first_row = (2 * block + WHICH) * ROWS
    rows = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
    before = (batch * num_heads + head).to(gl.int64) * num_queries
    lse, delta = load_rows(lse_ptr + before, delta_ptr + before, rows, num_queries)
    lse = in_log2(lse)
    q, do = take_own(own, WHICH)
    dq = gl.zeros([ROWS, BLOCK_D], gl.float32, OUTPUT)
    for j in range(0, full):
        dq = add_key_tile(
            dq, q, do, lse, delta, rows, k_ring, v_ring, j, num_keys, shift, qk_scale,
            BLOCK_K, CAUSAL, False,
        )  # fmt: skip
    if EDGE:
        for j in range(full, end):
            dq = add_key_tile(
                dq, q, do, lse, delta, rows, k_ring, v_ring, j, num_keys, shift, qk_scale,
                BLOCK_K, CAUSAL, True,
            )  # fmt: skip
    # dq goes where Q was, and from there by TMA
    q.store((dq * (qk_scale * LN_2)).to(q.dtype))
    fence_async_shared()
    q_tiles, do_tiles, own_filled = own
    tma_store(dq_desc, [batch, head, first_row, 0], q_tiles.index(WHICH))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["num_queries", "num_keys", "shift"])
def dq_kernel(
    q_desc, k_desc, v_desc, do_desc, dq_desc, lse_ptr, delta_ptr,
    num_heads, group, num_queries, num_keys, shift, qk_scale,
    BLOCK_K: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    EDGE: gl.constexpr,
):  # fmt: skip
    """dq of one query block: the forward's loop over key tiles once more."""
    q_tiles, do_tiles, own_filled = make_own(q_desc, do_desc, BLOCK_D)
    own = (q_tiles, do_tiles, own_filled)
    k_tiles, k_filled, k_emptied = make_ring(k_desc, BLOCK_K, BLOCK_D, STAGES, 2)
    v_tiles, v_filled, v_emptied = make_ring(v_desc, BLOCK_K, BLOCK_D, STAGES, 2)
    k_ring, v_ring = (k_tiles, k_filled, k_emptied), (v_tiles, v_filled, v_emptied)
    fence_async_shared()
    gl.warp_specialize(
        [
            (produce_keys, (
                (q_desc, k_desc, v_desc, do_desc), own, k_ring, v_ring,
                num_heads, group, num_queries, num_keys, shift, BLOCK_K, CAUSAL,
            )),
            (consume_keys, (
                dq_desc, lse_ptr, delta_ptr, own, k_ring, v_ring,
                num_heads, num_queries, num_keys, shift, qk_scale,
                BLOCK_K, BLOCK_D, CAUSAL, EDGE, 0,
            )),
            (consume_keys, (
                dq_desc, lse_ptr, delta_ptr, own, k_ring, v_ring,
                num_heads, num_queries, num_keys, shift, qk_scale,
                BLOCK_K, BLOCK_D, CAUSAL, EDGE, 1,
            )),
        ],
        [4, 4],  # warps of the consumers
        [240, 240],  # registers of their threads; the producer keeps 24
    )  # fmt: skip
