"""FlashAttention-3 (arXiv 2407.08608) in Gluon: the forward pass of a Hopper GPU, as a ladder of five steps.

The algorithm is that of `fa2`. What FlashAttention-3 adds is who does what, and when: on Hopper, copies (TMA)
and products (wgmma) run by themselves once they are started. From step 2 on a program has three warpgroups: a
producer, which only starts copies and needs few registers, and two consumers with 64 query rows each, which
get the registers that it gave back. They meet at barriers in shared memory.

    step  what it changes                                                        gain
    1     TMA brings the tiles; one warpgroup waits for each copy and product    not yet measured on the H200
    2     a producer keeps rings of K and V tiles full; two consumers            not yet measured on the H200
    3     each consumer looks ahead: S(j+1) is made under softmax(j)             not yet measured on the H200
    4     ping-pong: the consumers take turns on the tensor cores; S(j+1) and    not yet measured on the H200
          P(j) V(j) start together, and softmax(j+1) runs under the second
    5     one program for each SM, which goes through many query blocks;         not yet measured on the H200
          under a causal mask the longest first, within heads that fit in L2

Step 1 is in `hopper_first`, the orders of steps 2 to 4 in `hopper_orders`, what all share in `hopper_parts`;
`hopper_host` chooses configurations, says what is supported, and launches. The kernels run on sm_90, or on a
CPU in `flashlab.warpgroups.simulator`.

A barrier here is named for what has happened when its phase ends:

    k_filled, v_filled     the producer's copy into this stage has landed       each consumer waits for it
    k_emptied, v_emptied   both consumers have read this stage                  the producer waits for it
    q_filled               the producer's copy of one consumer's Q has landed   that consumer waits for it
    q_emptied              o, put where Q was, has left shared memory           the producer waits for it
    turn                   the other consumer has started its products          (step 4) a consumer waits
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from flashlab.kernels.gluon_names import tma_load, tma_store
from flashlab.kernels.hopper_parts import ROWS, fill, finish, key_tiles, my_tile


@gluon.jit
def produce(
    descs, q_place, k_ring, v_ring, num_heads, group, num_queries, num_keys, shift, work_tiles, section,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """The producer: starts the copies of Q, K and V, in the order in which the consumers ask for them."""
    q_desc, k_desc, v_desc = descs
    q_tiles, q_filled, q_emptied = q_place
    num_blocks = (num_queries + 2 * ROWS - 1) // (2 * ROWS)
    n = 0  # key tiles brought so far
    round = 0  # query blocks brought so far
    for work in range(gl.program_id(0), work_tiles, gl.num_programs(0)):
        block, batch, head = my_tile(work, num_blocks, num_heads, work_tiles // num_blocks, section)
        full, end = key_tiles(block, num_queries, num_keys, shift, 2 * ROWS, BLOCK_K, CAUSAL)
        fill(k_ring, n, k_desc, batch, head // group, 0, STAGES)
        for which in gl.static_range(2):
            # waits for: consumer `which`, that o of its last block has left the place of Q (at first: nobody)
            mbarrier.wait(q_emptied.index(which), (round & 1) ^ 1)
            mbarrier.expect(q_filled.index(which), q_desc.block_type.nbytes)
            first_row = (2 * block + which) * ROWS
            tma_load(q_desc, [batch, head, first_row, 0], q_filled.index(which), q_tiles.index(which))
        for j in range(1, end):  # K is one tile ahead of V, as the consumers of step 3 and 4 are
            fill(k_ring, n + j, k_desc, batch, head // group, j * BLOCK_K, STAGES)
            fill(v_ring, n + j - 1, v_desc, batch, head // group, (j - 1) * BLOCK_K, STAGES)
        fill(v_ring, n + end - 1, v_desc, batch, head // group, (end - 1) * BLOCK_K, STAGES)
        n += end
        round += 1


@gluon.jit
def consume(
    o_desc, lse_ptr, q_place, k_ring, v_ring, turn,
    num_heads, num_queries, num_keys, shift, work_tiles, section, qk_scale,
    BLOCK_K: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    EDGE: gl.constexpr, NEGATE: gl.constexpr, ORDER: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """Consumer WHICH: o and lse of its half of each query block."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    q_tiles, q_filled, q_emptied = q_place
    num_blocks = (num_queries + 2 * ROWS - 1) // (2 * ROWS)
    n = 0  # key tiles met so far
    round = 0  # query blocks done so far
    for work in range(gl.program_id(0), work_tiles, gl.num_programs(0)):
        block, batch, head = my_tile(work, num_blocks, num_heads, work_tiles // num_blocks, section)
        full, end = key_tiles(block, num_queries, num_keys, shift, 2 * ROWS, BLOCK_K, CAUSAL)
        if NEGATE:  # only under a mask are scores scaled before their maximum is taken
            full = 0
        first_row = (2 * block + WHICH) * ROWS
        rows = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
        row_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, SCORES))
        row_sum = gl.full([ROWS], 0.0, gl.float32, gl.SliceLayout(1, SCORES))
        acc = gl.zeros([ROWS, BLOCK_D], gl.float32, OUTPUT)
        # waits for: the producer's copy of Q
        mbarrier.wait(q_filled.index(WHICH), round & 1)
        # [ROWS, BLOCK_D]
        q = q_tiles.index(WHICH).reshape([ROWS, BLOCK_D])
        row_max, row_sum, acc = ORDER(
            q, (k_ring, v_ring), turn, n, full, end, (rows, num_keys, shift, qk_scale),
            (row_max, row_sum, acc), BLOCK_K, STAGES, CAUSAL, EDGE, WHICH,
        )  # fmt: skip
        o, lse = finish(row_max, row_sum, acc)
        # o goes where Q was, and from there by TMA: rows beyond the head are left out
        q.store(o.to(q.dtype))
        fence_async_shared()
        tma_store(o_desc, [batch, head, first_row, 0], q_tiles.index(WHICH))
        batch_head = (batch * num_heads + head).to(gl.int64)
        gl.store(lse_ptr + batch_head * num_queries + rows, lse, mask=rows < num_queries)
        tma.store_wait(0)
        mbarrier.arrive(q_emptied.index(WHICH), count=1)
        n += end
        round += 1


@gluon.jit(
    do_not_specialize=["num_heads", "group", "num_queries", "num_keys", "shift", "work_tiles", "section"]
)
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr,
    num_heads, group, num_queries, num_keys, shift, work_tiles, section, qk_scale,
    BLOCK_K: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    EDGE: gl.constexpr, NEGATE: gl.constexpr, ORDER: gl.constexpr,
):  # fmt: skip
    """o = softmax(scale Q K^T) V and lse: lays out shared memory, then three warpgroups go to work."""
    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [2, 1, 1, ROWS, BLOCK_D], q_desc.layout)
    k_tiles = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK_K, BLOCK_D], k_desc.layout)
    v_tiles = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BLOCK_K, BLOCK_D], v_desc.layout)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    q_filled = gl.allocate_shared_memory(gl.int64, [2, 1], BARRIER)
    q_emptied = gl.allocate_shared_memory(gl.int64, [2, 1], BARRIER)
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], BARRIER)
    k_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    k_emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for which in gl.static_range(2):
        mbarrier.init(q_filled.index(which), count=1)
        mbarrier.init(q_emptied.index(which), count=1)
        mbarrier.init(turn.index(which), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_filled.index(stage), count=1)
        mbarrier.init(v_filled.index(stage), count=1)
        mbarrier.init(k_emptied.index(stage), count=2)  # both consumers
        mbarrier.init(v_emptied.index(stage), count=2)
    fence_async_shared()
    # the first turn is consumer 0's
    mbarrier.arrive(turn.index(0), count=1)
    q_place, k_ring, v_ring = (
        (q_tiles, q_filled, q_emptied),
        (k_tiles, k_filled, k_emptied),
        (v_tiles, v_filled, v_emptied),
    )
    gl.warp_specialize(
        [
            (produce, (
                (q_desc, k_desc, v_desc), q_place, k_ring, v_ring,
                num_heads, group, num_queries, num_keys, shift, work_tiles, section, BLOCK_K, STAGES, CAUSAL,
            )),
            (consume, (
                o_desc, lse_ptr, q_place, k_ring, v_ring, turn,
                num_heads, num_queries, num_keys, shift, work_tiles, section, qk_scale,
                BLOCK_K, BLOCK_D, STAGES, CAUSAL, EDGE, NEGATE, ORDER, 0,
            )),
            (consume, (
                o_desc, lse_ptr, q_place, k_ring, v_ring, turn,
                num_heads, num_queries, num_keys, shift, work_tiles, section, qk_scale,
                BLOCK_K, BLOCK_D, STAGES, CAUSAL, EDGE, NEGATE, ORDER, 1,
            )),
        ],
        [4, 4],  # warps of the consumers
        [240, 240],  # registers of their threads; the producer keeps 24
    )  # fmt: skip
