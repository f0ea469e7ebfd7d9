"""Step 1 of the Hopper ladder: TMA and wgmma, and one warpgroup that waits for each of them.

A program is 4 warps with 64 query rows and one place for each tile. It starts the copies of K_j and V_j,
waits, multiplies, waits, exponentiates, multiplies, waits: at any time either the copies, the tensor cores or
the exponential units work, never two of them. The later steps change only that.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_wait,
)

from flashlab.kernels.gluon_names import tma_load, tma_store
from flashlab.kernels.hopper_parts import (
    ROWS,
    finish,
    key_tiles,
    my_tile,
    rescale,
    start_output,
    start_scores,
    weigh,
)


@gluon.jit
def copy_and_absorb(
    q, descs, places, loaded, j, batch, kv_head, sees, row_max, row_sum, acc,
    BLOCK_K: gl.constexpr, BLOCK_D: gl.constexpr, CAUSAL: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """One more key tile for the query block: copies, scores, softmax and output, one after the other."""
    k_desc, v_desc = descs
    k_tile, v_tile = places
    mbarrier.expect(loaded, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
    tma_load(k_desc, [batch, kv_head, j * BLOCK_K, 0], loaded, k_tile)
    tma_load(v_desc, [batch, kv_head, j * BLOCK_K, 0], loaded, v_tile)
    # waits for: both copies
    mbarrier.wait(loaded, j & 1)
    # [ROWS, BLOCK_K]
    scores = start_scores(q, k_tile.reshape([BLOCK_K, BLOCK_D]), BLOCK_K)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    p, alpha, row_max, row_sum = weigh(scores, row_max, row_sum, sees, j * BLOCK_K, CAUSAL, MASKED)
    # [ROWS, BLOCK_D]
    acc = start_output(p, v_tile.reshape([BLOCK_K, BLOCK_D]), rescale(acc, alpha))
    return row_max, row_sum, warpgroup_mma_wait(0, deps=(acc,))


@gluon.jit(do_not_specialize=["num_heads", "group", "num_queries", "num_keys", "shift"])
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr,
    num_heads, group, num_queries, num_keys, shift, qk_scale,
    BLOCK_K: gl.constexpr, BLOCK_D: gl.constexpr, CAUSAL: gl.constexpr, EDGE: gl.constexpr,
    NEGATE: gl.constexpr,
):  # fmt: skip
    """o = softmax(scale Q K^T) V and lse for one query block of 64 rows of one head."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    num_blocks = (num_queries + ROWS - 1) // ROWS
    block, batch, head = my_tile(gl.program_id(0), num_blocks, num_heads)
    full, end = key_tiles(block, num_queries, num_keys, shift, ROWS, BLOCK_K, CAUSAL)
    if NEGATE:
        full = 0
    q_tile = gl.allocate_shared_memory(q_desc.dtype, [1, 1, ROWS, BLOCK_D], q_desc.layout)
    k_tile = gl.allocate_shared_memory(k_desc.dtype, [1, 1, BLOCK_K, BLOCK_D], k_desc.layout)
    v_tile = gl.allocate_shared_memory(v_desc.dtype, [1, 1, BLOCK_K, BLOCK_D], v_desc.layout)
    q_loaded = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    loaded = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(q_loaded, count=1)
    mbarrier.init(loaded, count=1)
    fence_async_shared()
    mbarrier.expect(q_loaded, q_desc.block_type.nbytes)
    tma_load(q_desc, [batch, head, block * ROWS, 0], q_loaded, q_tile)
    rows = block * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
    row_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, SCORES))
    row_sum = gl.full([ROWS], 0.0, gl.float32, gl.SliceLayout(1, SCORES))
    acc = gl.zeros([ROWS, BLOCK_D], gl.float32, OUTPUT)
    # waits for: the copy of Q
    mbarrier.wait(q_loaded, 0)
    q = q_tile.reshape([ROWS, BLOCK_D])
    for j in range(0, full):
        row_max, row_sum, acc = copy_and_absorb(
            q, (k_desc, v_desc), (k_tile, v_tile), loaded, j, batch, head // group,
            (rows, num_keys, shift, qk_scale), row_max, row_sum, acc, BLOCK_K, BLOCK_D, CAUSAL, False,
        )  # fmt: skip
    if EDGE:
        for j in range(full, end):
            row_max, row_sum, acc = copy_and_absorb(
                q, (k_desc, v_desc), (k_tile, v_tile), loaded, j, batch, head // group,
                (rows, num_keys, shift, qk_scale), row_max, row_sum, acc, BLOCK_K, BLOCK_D, CAUSAL, True,
            )  # fmt: skip
    o, lse = finish(row_max, row_sum, acc, CAUSAL)
    q.store(o.to(q.dtype))
    fence_async_shared()
    tma_store(o_desc, [batch, head, block * ROWS, 0], q_tile)
    batch_head = (batch * num_heads + head).to(gl.int64)
    gl.store(lse_ptr + batch_head * num_queries + rows, lse, mask=rows < num_queries)
    tma.store_wait(0)
