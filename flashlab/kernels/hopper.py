"""FlashAttention-3 (arXiv 2407.08608) in Gluon: the forward pass of a Hopper GPU, as a ladder of five steps.

The algorithm is that of `fa2`. What FlashAttention-3 adds is who does what, and when: on Hopper, copies (TMA)
and products (wgmma) run by themselves once they are started. From step 2 on a program has a producer, a
warpgroup that only starts copies and needs few registers, and two consumers (in step 5 also three) with 64
query rows each, which get the registers that it gave back. They meet at barriers in shared memory.

    step  what it changes                                                        D 128       D 64
                                                                                 full mask   full mask
    1     TMA brings the tiles; one warpgroup waits for each copy and product    493  436    502  308
    2     a producer keeps rings of K and V tiles full; two consumers            576  512    411  361
    3     each consumer looks ahead: S(j+1) is made under softmax(j)             611  563    422  380
    4     ping-pong: the consumers take turns on the tensor cores; S(j+1) and    643  546    416  367
          P(j) V(j) start together, and softmax(j+1) runs under the second
    5     one program for each SM goes through many query blocks, by a plan:     675  608    492  459
          under a causal mask the longest first, within heads that fit in L2;
          the next Q comes while this block ends; of all orders the fastest,
          at D 64 with three consumers

The numbers are TFLOP/s on an H200, bf16, N 4096 (cuDNN: 659, 566, 475, 434; fa2: 538, 432, 462, 411), all of
one run, bench/recorded/h200_hopper.json. What lost: step 2 at D 64 without a mask, since step 1 has three
programs on an SM that fill each other's gaps; taking turns, except at D 128 without a mask. TUNING.md has
more.

Step 1 is in `hopper_first`, the orders of steps 2 to 4 in `hopper_orders`, what all share in `hopper_parts`;
`hopper_host` chooses configurations, says what is supported, and launches. The kernels run on sm_90, or on a
CPU in `flashlab.warpgroups.simulator`.

A barrier here is named for what has happened when its phase ends:

    k_filled, v_filled     the producer's copy into this stage has landed       each consumer waits for it
    k_emptied, v_emptied   all consumers have read this stage                   the producer waits for it
    q_filled               the producer's copy of one consumer's Q has landed   that consumer waits for it
    q_emptied              that consumer has made the last scores from its Q    (step 5) the producer waits
    turn                   the other consumer has started its products          (step 4) a consumer waits
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from flashlab.kernels.gluon_names import tma_load, tma_store
from flashlab.kernels.hopper_parts import (
    ROWS,
    fill,
    finish,
    key_tiles,
    make_ring,
    my_key_tiles,
    my_share,
    my_tile,
    my_work,
)


@gluon.jit
def produce(
    descs, q_place, k_ring, v_ring, sizes, group, plan_ptr, CAUSAL: gl.constexpr, PERSISTENT: gl.constexpr
):
    """The producer: starts the copies of Q, K and V, in the order in which the consumers ask for them."""
    q_desc, k_desc, v_desc = descs
    q_tiles, q_filled, q_emptied = q_place
    num_heads, num_queries, num_keys, shift, qk_scale = sizes
    CONSUMERS: gl.constexpr = q_tiles.shape[0]
    BLOCK_Q: gl.constexpr = CONSUMERS * ROWS
    BLOCK_K: gl.constexpr = k_desc.block_shape[2]
    n = 0  # key tiles brought so far
    round = 0  # query blocks brought so far
    first, last = my_share(plan_ptr, PERSISTENT)
    work = my_work(plan_ptr, first, PERSISTENT)
    for i in range(first, last):
        next_work = my_work(plan_ptr, i + 1, PERSISTENT)  # here, so that this block hides the load
        block, batch, head = my_tile(work, (num_queries + BLOCK_Q - 1) // BLOCK_Q, num_heads)
        full, end = key_tiles(block, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
        fill(k_ring, n, k_desc, batch, head // group, 0)
        for which in gl.static_range(CONSUMERS):
            # waits for: consumer `which`, that it has read the Q of its last block (at first: nobody)
            mbarrier.wait(q_emptied.index(which), (round & 1) ^ 1)
            mbarrier.expect(q_filled.index(which), q_desc.block_type.nbytes)
            first_row = block * BLOCK_Q + which * ROWS
            tma_load(q_desc, [batch, head, first_row, 0], q_filled.index(which), q_tiles.index(which))
        for j in range(1, end):  # K is one tile ahead of V, as the consumers of step 3 and 4 are
            fill(k_ring, n + j, k_desc, batch, head // group, j * BLOCK_K)
            fill(v_ring, n + j - 1, v_desc, batch, head // group, (j - 1) * BLOCK_K)
        fill(v_ring, n + end - 1, v_desc, batch, head // group, (end - 1) * BLOCK_K)
        n += end
        round += 1
        work = next_work


@gluon.jit
def consume(
    output, places, sizes, plan_ptr,
    CAUSAL: gl.constexpr, EDGE: gl.constexpr, NEGATE: gl.constexpr, PERSISTENT: gl.constexpr,
    ORDER: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """Consumer WHICH: o and lse of its 64 rows of each query block."""
    o_desc, lse_ptr, o_tiles = output
    q_place, k_ring, v_ring, turn = places
    q_tiles, q_filled, q_emptied = q_place
    num_heads, num_queries, num_keys, shift, qk_scale = sizes
    CONSUMERS: gl.constexpr = q_tiles.shape[0]
    BLOCK_Q: gl.constexpr = CONSUMERS * ROWS
    BLOCK_K: gl.constexpr = k_ring[0].shape[3]
    BLOCK_D: gl.constexpr = q_tiles.shape[4]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    n = 0  # key tiles met so far
    round = 0  # query blocks done so far
    first, last = my_share(plan_ptr, PERSISTENT)
    work = my_work(plan_ptr, first, PERSISTENT)
    for i in range(first, last):
        next_work = my_work(plan_ptr, i + 1, PERSISTENT)
        block, batch, head = my_tile(work, (num_queries + BLOCK_Q - 1) // BLOCK_Q, num_heads)
        first_row = block * BLOCK_Q + WHICH * ROWS
        tiles = my_key_tiles(block, num_queries, num_keys, shift, BLOCK_K, CAUSAL, NEGATE, CONSUMERS, WHICH)
        rows = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
        row_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, SCORES))
        row_sum = gl.full([ROWS], 0.0, gl.float32, gl.SliceLayout(1, SCORES))
        acc = gl.zeros([ROWS, BLOCK_D], gl.float32, OUTPUT)
        # waits for: the producer's copy of Q
        mbarrier.wait(q_filled.index(WHICH), round & 1)
        # [ROWS, BLOCK_D]
        q = q_tiles.index(WHICH).reshape([ROWS, BLOCK_D])
        row_max, row_sum, acc = ORDER(
            q, (k_ring, v_ring, turn, q_emptied.index(WHICH)), n, tiles, (rows, num_keys, shift, qk_scale),
            (row_max, row_sum, acc), BLOCK_K, CAUSAL, EDGE, CONSUMERS, PERSISTENT, WHICH,
        )  # fmt: skip
        o, lse = finish(row_max, row_sum, acc, CAUSAL)
        tma.store_wait(0)  # waits for: the copy of the last block's o, that it has left this place
        # o leaves by TMA: rows beyond the head are left out
        o_tiles.index(WHICH).reshape([ROWS, BLOCK_D]).store(o.to(o_desc.dtype))
        fence_async_shared()
        tma_store(o_desc, [batch, head, first_row, 0], o_tiles.index(WHICH))
        batch_head = (batch * num_heads + head).to(gl.int64)
        gl.store(lse_ptr + batch_head * num_queries + rows, lse, mask=rows < num_queries)
        n += tiles[2]
        round += 1
        work = next_work
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["num_heads", "group", "num_queries", "num_keys", "shift"])
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, plan_ptr,
    num_heads, group, num_queries, num_keys, shift, qk_scale,
    BLOCK_K: gl.constexpr, BLOCK_D: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, EDGE: gl.constexpr, NEGATE: gl.constexpr, ORDER: gl.constexpr,
    CONSUMERS: gl.constexpr, PERSISTENT: gl.constexpr,
):  # fmt: skip
    """o = softmax(scale Q K^T) V and lse: lays out shared memory, then the warpgroups go to work."""
    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [CONSUMERS, 1, 1, ROWS, BLOCK_D], q_desc.layout)
    o_tiles = q_tiles  # o may go where Q was, unless the next Q is to come there meanwhile
    if PERSISTENT:
        o_tiles = gl.allocate_shared_memory(o_desc.dtype, [CONSUMERS, 1, 1, ROWS, BLOCK_D], o_desc.layout)
    k_tiles, k_filled, k_emptied = make_ring(k_desc, BLOCK_K, BLOCK_D, K_STAGES, CONSUMERS)
    v_tiles, v_filled, v_emptied = make_ring(v_desc, BLOCK_K, BLOCK_D, V_STAGES, CONSUMERS)
    k_ring, v_ring = (k_tiles, k_filled, k_emptied), (v_tiles, v_filled, v_emptied)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    q_filled = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BARRIER)
    q_emptied = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BARRIER)
    turn = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BARRIER)
    for which in gl.static_range(CONSUMERS):
        mbarrier.init(q_filled.index(which), count=1)
        mbarrier.init(q_emptied.index(which), count=1)
        mbarrier.init(turn.index(which), count=1)
    fence_async_shared()
    mbarrier.arrive(turn.index(0), count=1)  # the first turn is consumer 0's
    descs, sizes = (q_desc, k_desc, v_desc), (num_heads, num_queries, num_keys, shift, qk_scale)
    q_place, output = (q_tiles, q_filled, q_emptied), (o_desc, lse_ptr, o_tiles)
    places = (q_place, k_ring, v_ring, turn)
    # after the functions and what they are given: the consumers' warps, and the registers of their threads
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (produce, (descs, q_place, k_ring, v_ring, sizes, group, plan_ptr, CAUSAL, PERSISTENT)),
                (consume, (output, places, sizes, plan_ptr, CAUSAL, EDGE, NEGATE, PERSISTENT, ORDER, 0)),
                (consume, (output, places, sizes, plan_ptr, CAUSAL, EDGE, NEGATE, PERSISTENT, ORDER, 1)),
            ],
            [4, 4],
            [240, 240],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (produce, (descs, q_place, k_ring, v_ring, sizes, group, plan_ptr, CAUSAL, PERSISTENT)),
                (consume, (output, places, sizes, plan_ptr, CAUSAL, EDGE, NEGATE, PERSISTENT, ORDER, 0)),
                (consume, (output, places, sizes, plan_ptr, CAUSAL, EDGE, NEGATE, PERSISTENT, ORDER, 1)),
                (consume, (output, places, sizes, plan_ptr, CAUSAL, EDGE, NEGATE, PERSISTENT, ORDER, 2)),
            ],
            [4, 4, 4],
            [160, 160, 160],
        )  # fmt: skip
