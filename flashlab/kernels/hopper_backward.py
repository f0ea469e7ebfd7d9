"""FlashAttention-3's division of labour for the backward pass of `fa2_backward`, in Gluon: dK and dV.

As there, dK and dV are made by one program for each key block, dQ in a second pass by one program for each
query block (`hopper_backward_dq`), and nothing is added up atomically. As in `hopper`, a producer starts
copies and two consumers multiply, each with 64 rows of the block (keys for dK and dV, queries for dQ).
Whatever a product makes stays in registers: in the first pass scores stand transposed, [keys, queries], so
that P^T and dS^T are already where the left factors of dV += P^T dO and dK += dS^T Q must be.

    dK, dV    S^T = K Q^T, dP^T = V dO^T start; P^T under dP^T; dV += P^T dO; dS^T under dV; dK += dS^T Q
    dQ        S = Q K^T, dP = dO V^T start; P under dP; dS; dQ += dS K

A thread of a consumer holds dK and dV of 64 keys in D fp32 registers: at D 256 there are none left.

A barrier here is named for what has happened when its phase ends:

    own_filled             the producer's copies of one consumer's own two tiles (K and V, or Q and dO) have
                           landed: that consumer waits for it
    q_filled, do_filled    (first pass) the producer's copy into this stage has landed   each consumer waits
    k_filled, v_filled     (second pass) the same
    ..._emptied            both consumers have read this stage                          the producer waits
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma_wait,
)

from flashlab.kernels.gluon_names import tma_store
from flashlab.kernels.hopper_backward_parts import (
    fill_own,
    in_log2,
    load_rows,
    make_own,
    minus,
    own_tiles,
    rows_from,
    start_dp,
    take_own,
)
from flashlab.kernels.hopper_parts import (
    LN_2,
    ROWS,
    fill,
    make_ring,
    release,
    start_output,
    start_scores,
    take,
)


@gluon.jit
def query_tiles(first_key, num_queries, num_keys, shift, BLOCK_Q: gl.constexpr, CAUSAL: gl.constexpr):
    """(start, full, end): rows of query tiles before `start` see no key of the block, from `full` on all."""
    end = (num_queries + BLOCK_Q - 1) // BLOCK_Q
    start = 0
    full = 0
    if CAUSAL:
        last_key = gl.minimum(first_key + 2 * ROWS, num_keys) - 1
        start = gl.minimum(gl.maximum(first_key - shift, 0) // BLOCK_Q, end)
        full = gl.minimum((gl.maximum(last_key - shift, 0) + BLOCK_Q - 1) // BLOCK_Q, end)
    return start, full, end


@gluon.jit
def produce_queries(
    descs, own, q_ring, do_ring, num_kv_heads, group, num_queries, num_keys, shift,
    BLOCK_Q: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """The producer of the first pass: K and V once, Q and dO of every query tile of the group's heads."""
    q_desc, k_desc, v_desc, do_desc = descs
    num_blocks = (num_keys + 2 * ROWS - 1) // (2 * ROWS)
    first_key = gl.program_id(0) % num_blocks * 2 * ROWS
    batch_head = gl.program_id(0) // num_blocks
    batch, kv_head = batch_head // num_kv_heads, batch_head % num_kv_heads
    fill_own(own, (k_desc, v_desc), batch, kv_head, first_key)
    start, full, end = query_tiles(first_key, num_queries, num_keys, shift, BLOCK_Q, CAUSAL)
    n = 0  # query tiles brought so far
    for member in range(0, group):
        for i in range(start, end):
            fill(q_ring, n, q_desc, batch, kv_head * group + member, i * BLOCK_Q)
            fill(do_ring, n, do_desc, batch, kv_head * group + member, i * BLOCK_Q)
            n += 1


@gluon.jit
def add_query_tile(
    dk, dv, lse, delta, own, which, keys, q_ring, do_ring, n, lse_ptr, delta_ptr, first, num_queries,
    qk_scale, BLOCK_Q: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """What query tile n adds to dk and dv of a consumer's keys. CAUSAL: some rows do not see some keys.

    lse and delta [BLOCK_Q] are the tile's; those of the next tile are loaded meanwhile and returned.
    """
    COLUMNS: gl.constexpr = gl.SliceLayout(0, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_Q, 16]))
    next_lse, next_delta = load_rows(lse_ptr, delta_ptr, rows_from(first + BLOCK_Q, BLOCK_Q), num_queries)
    # n >= 0, so that n >> 31 is 0. The compiler does not know: it makes the 16 descriptors of K and V that
    # wgmma wants anew for each tile, instead of keeping them in registers that dK and dV need.
    k, v = own_tiles(own, which + (n >> 31))
    # [BLOCK_Q, BLOCK_D]
    q = take(q_ring, n)
    # FA2 Alg. 2, line 10: S = Q_i K_j^T, here and below transposed: [ROWS, BLOCK_Q]
    scores = start_scores(k, q, BLOCK_Q)
    do = take(do_ring, n)
    # FA2 Alg. 2, line 13: dP = dO_i V_j^T, less D_i
    dp = start_dp(v, do, minus(gl.convert_layout(delta, COLUMNS)[None, :], BLOCK_Q))
    # FA2 Alg. 2, line 11: P = exp(S - L_i)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    p = gl.exp2(scores * qk_scale - in_log2(gl.convert_layout(lse, COLUMNS))[None, :])
    if CAUSAL:
        seen = keys[:, None] <= gl.convert_layout(rows_from(first, BLOCK_Q), COLUMNS)[None, :]
        p = gl.where(seen, p, 0.0)
    # FA2 Alg. 2, line 12: dV_j += P^T dO_i
    dv = start_output(p, do, dv)
    # FA2 Alg. 2, line 14: dS = P * (dP - D_i)
    dp = warpgroup_mma_wait(1, deps=(dp,))
    ds = p * dp
    # FA2 Alg. 2, line 16: dK_j += dS^T Q_i
    dk = start_output(ds, q, dk)
    dv = warpgroup_mma_wait(1, deps=(dv,))
    release(do_ring, n)
    dk = warpgroup_mma_wait(0, deps=(dk,))
    release(q_ring, n)
    return dk, dv, next_lse, next_delta


@gluon.jit
def consume_queries(
    dk_desc, dv_desc, lse_ptr, delta_ptr, own, q_ring, do_ring,
    num_kv_heads, group, num_queries, num_keys, shift, qk_scale,
    BLOCK_Q: gl.constexpr, BLOCK_D: gl.constexpr, CAUSAL: gl.constexpr,
    WHICH: gl.constexpr,
):  # fmt: skip
    """Consumer WHICH of the first pass: dk and dv of its half of the key block, summed over the group."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_Q, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    num_blocks = (num_keys + 2 * ROWS - 1) // (2 * ROWS)
    first_key = gl.program_id(0) % num_blocks * 2 * ROWS
    batch_head = gl.program_id(0) // num_blocks
    start, full, end = query_tiles(first_key, num_queries, num_keys, shift, BLOCK_Q, CAUSAL)
    keys = first_key - shift + WHICH * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
    k, v = take_own(own, WHICH)
    dk = gl.zeros([ROWS, BLOCK_D], gl.float32, OUTPUT)
    dv = gl.zeros([ROWS, BLOCK_D], gl.float32, OUTPUT)
    before = batch_head.to(gl.int64) * group * num_queries
    lse_ptr += before
    delta_ptr += before
    n = 0  # query tiles met so far
    for _ in range(0, group):
        lse, delta = load_rows(lse_ptr, delta_ptr, rows_from(start * BLOCK_Q, BLOCK_Q), num_queries)
        if CAUSAL:
            for i in range(start, full):
                dk, dv, lse, delta = add_query_tile(
                    dk, dv, lse, delta, own, WHICH, keys, q_ring, do_ring, n, lse_ptr, delta_ptr, i * BLOCK_Q,
                    num_queries, qk_scale, BLOCK_Q, True,
                )  # fmt: skip
                n += 1
        for i in range(full, end):
            dk, dv, lse, delta = add_query_tile(
                dk, dv, lse, delta, own, WHICH, keys, q_ring, do_ring, n, lse_ptr, delta_ptr, i * BLOCK_Q,
                num_queries, qk_scale, BLOCK_Q, False,
            )  # fmt: skip
            n += 1
        lse_ptr += num_queries  # the next head's
        delta_ptr += num_queries
    # dk goes where K was, dv where V was (no product reads them any more), and from there by TMA
    k.store((dk * (qk_scale * LN_2)).to(k.dtype))
    v.store(dv.to(v.dtype))
    fence_async_shared()
    k_tiles, v_tiles, own_filled = own
    at = [batch_head // num_kv_heads, batch_head % num_kv_heads, first_key + WHICH * ROWS, 0]
    tma_store(dk_desc, at, k_tiles.index(WHICH))
    tma_store(dv_desc, at, v_tiles.index(WHICH))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["num_queries", "num_keys", "shift"])
def dkdv_kernel(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, lse_ptr, delta_ptr,
    num_kv_heads, group, num_queries, num_keys, shift, qk_scale,
    BLOCK_Q: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """dk and dv of one key block, summed over the query heads that share it."""
    k_tiles, v_tiles, own_filled = make_own(k_desc, v_desc, BLOCK_D)
    own = (k_tiles, v_tiles, own_filled)
    q_tiles, q_filled, q_emptied = make_ring(q_desc, BLOCK_Q, BLOCK_D, STAGES, 2)
    do_tiles, do_filled, do_emptied = make_ring(do_desc, BLOCK_Q, BLOCK_D, STAGES, 2)
    q_ring, do_ring = (q_tiles, q_filled, q_emptied), (do_tiles, do_filled, do_emptied)
    fence_async_shared()
    gl.warp_specialize(
        [
            (produce_queries, (
                (q_desc, k_desc, v_desc, do_desc), own, q_ring, do_ring,
                num_kv_heads, group, num_queries, num_keys, shift, BLOCK_Q, CAUSAL,
            )),
            (consume_queries, (
                dk_desc, dv_desc, lse_ptr, delta_ptr, own, q_ring, do_ring,
                num_kv_heads, group, num_queries, num_keys, shift, qk_scale,
                BLOCK_Q, BLOCK_D, CAUSAL, 0,
            )),
            (consume_queries, (
                dk_desc, dv_desc, lse_ptr, delta_ptr, own, q_ring, do_ring,
                num_kv_heads, group, num_queries, num_keys, shift, qk_scale,
                BLOCK_Q, BLOCK_D, CAUSAL, 1,
            )),
        ],
        [4, 4],  # warps of the consumers
        [240, 240],  # registers of their threads; the producer keeps 24
    )  # fmt: skip
