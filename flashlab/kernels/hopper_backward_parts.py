"""What both passes of the Hopper backward are made of: a consumer's own tiles, rings, row numbers, dP."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma

from flashlab.kernels.gluon_names import tma_load
from flashlab.kernels.hopper_parts import ROWS
from flashlab.kernels.launch import LOG2_E

LOG2_E_ = gl.constexpr(LOG2_E)


@gluon.jit
def rows_from(first, BLOCK_Q: gl.constexpr):
    """The BLOCK_Q rows from `first` on, one number a thread: convert_layout spreads them."""
    return first + gl.arange(0, BLOCK_Q, gl.BlockedLayout([1], [32], [4], [0]))


@gluon.jit
def load_rows(lse_ptr, delta_ptr, rows, num_queries):
    """lse and delta of rows, in their layout; beyond the end +inf and 0."""
    lse = gl.load(lse_ptr + rows, mask=rows < num_queries, other=float("inf"))
    return lse, gl.load(delta_ptr + rows, mask=rows < num_queries, other=0.0)


@gluon.jit
def in_log2(lse):
    """lse in units of log2; for rows without a key +inf, as beyond the end: that makes P = 0."""
    return gl.where(lse == float("-inf"), float("inf"), lse * LOG2_E_)


@gluon.jit
def minus(delta, BLOCK: gl.constexpr):
    """-delta as [ROWS, BLOCK] fp32: the sum for dP begins with it, and dP - delta takes no more registers."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    return gl.zeros([ROWS, BLOCK], gl.float32, LAYOUT) - delta


@gluon.jit
def start_dp(a, b, acc):
    """dP - delta = acc + a b^T, started: [ROWS, BLOCK] fp32."""
    return warpgroup_mma(a, b.permute((1, 0)), acc, is_async=True)


@gluon.jit
def fill_own(own, descs, batch, head, first):
    """Producer: start the copies of the two tiles of each consumer, which it keeps."""
    left, right, own_filled = own
    left_desc, right_desc = descs
    for which in gl.static_range(2):
        mbarrier.expect(own_filled.index(which), left_desc.block_type.nbytes + right_desc.block_type.nbytes)
        at = [batch, head, first + which * ROWS, 0]
        tma_load(left_desc, at, own_filled.index(which), left.index(which))
        tma_load(right_desc, at, own_filled.index(which), right.index(which))


@gluon.jit
def take_own(own, WHICH: gl.constexpr):
    """Consumer: its two tiles [ROWS, BLOCK_D], as soon as they are there."""
    left, right, own_filled = own
    # waits for: the producer's copies
    mbarrier.wait(own_filled.index(WHICH), 0)
    return own_tiles(own, WHICH)


@gluon.jit
def own_tiles(own, which):
    """The two tiles [ROWS, BLOCK_D] of consumer `which`, which are there."""
    left, right, own_filled = own
    size: gl.constexpr = [left.shape[3], left.shape[4]]
    return left.index(which).reshape(size), right.index(which).reshape(size)


@gluon.jit
def make_own(left_desc, right_desc, BLOCK_D: gl.constexpr):
    """Places for the two tiles that each consumer keeps, and the barriers that say they are there."""
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    left = gl.allocate_shared_memory(left_desc.dtype, [2, 1, 1, ROWS, BLOCK_D], left_desc.layout)
    right = gl.allocate_shared_memory(right_desc.dtype, [2, 1, 1, ROWS, BLOCK_D], right_desc.layout)
    own_filled = gl.allocate_shared_memory(gl.int64, [2, 1], BARRIER)
    for which in gl.static_range(2):
        mbarrier.init(own_filled.index(which), count=1)
    return left, right, own_filled
