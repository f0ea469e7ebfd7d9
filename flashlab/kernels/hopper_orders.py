"""In which order a warpgroup multiplies and exponentiates: three ways through the key tiles of its rows.

    step 2, one_by_one    S(j); softmax(j); O += P(j) V(j); next j
    step 3, look_ahead    S(j+1) starts; under it softmax(j); O += P(j) V(j); next j
    step 4, in_turns      S(j+1) and O += P(j) V(j) start together; under the second softmax(j+1); next j

Each takes q [ROWS, BLOCK_D] in shared memory, where the warpgroups meet (`meet`: k_ring, v_ring, turn, and
q_emptied, at which a persistent program's consumer arrives after its last scores), the number n of its first
key tile in the rings, (full, mine, end) from `my_key_tiles`, what `weigh` must know of the mask (`sees`), and
the empty state (row_max, row_sum, acc), which it returns filled. Products only start; warpgroup_mma_wait(m)
returns when all but the last m of them are done, in the order in which they started. Until then they read
their tiles.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma_wait

from flashlab.kernels.hopper_parts import release, rescale, start_output, start_scores, take, tile_of, weigh


@gluon.jit
def one_by_one(
    q, meet, n, tiles, sees, state,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, EDGE: gl.constexpr,
    CONSUMERS: gl.constexpr, PERSISTENT: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """Nothing overlaps inside the warpgroup. The other warpgroups may happen to fill its gaps."""
    k_ring, v_ring, turn, q_emptied = meet
    row_max, row_sum, acc = state
    full, mine, end = tiles
    full = gl.minimum(full, mine)
    for j in range(0, full):
        row_max, row_sum, acc = whole_tile(
            q, meet, n + j, j * BLOCK_K, j == mine - 1, sees, row_max, row_sum, acc,
            BLOCK_K, CAUSAL, False, PERSISTENT,
        )  # fmt: skip
    if EDGE:
        for j in range(full, mine):
            row_max, row_sum, acc = whole_tile(
                q, meet, n + j, j * BLOCK_K, j == mine - 1, sees, row_max, row_sum, acc,
                BLOCK_K, CAUSAL, True, PERSISTENT,
            )  # fmt: skip
    if PERSISTENT:
        mbarrier.arrive(q_emptied, count=1, pred=mine == 0)
    for j in range(mine, end):  # tiles that only the rows below see
        take(k_ring, n + j)
        release(k_ring, n + j)
        take(v_ring, n + j)
        release(v_ring, n + j)
    return row_max, row_sum, acc


@gluon.jit
def whole_tile(
    q, meet, n, first, is_last, sees, row_max, row_sum, acc,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, MASKED: gl.constexpr, PERSISTENT: gl.constexpr,
):  # fmt: skip
    """Key tile n from its scores to its share of the output, each product waited for at once."""
    k_ring, v_ring, turn, q_emptied = meet
    # [ROWS, BLOCK_K]
    scores = start_scores(q, take(k_ring, n), BLOCK_K)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    release(k_ring, n)
    if PERSISTENT:
        mbarrier.arrive(q_emptied, count=1, pred=is_last)
    p, alpha, row_max, row_sum = weigh(scores, row_max, row_sum, sees, first, CAUSAL, MASKED)
    # [ROWS, BLOCK_D]
    acc = start_output(p, take(v_ring, n), rescale(acc, alpha))
    acc = warpgroup_mma_wait(0, deps=(acc,))
    release(v_ring, n)
    return row_max, row_sum, acc


@gluon.jit
def look_ahead(
    q, meet, n, tiles, sees, state,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, EDGE: gl.constexpr,
    CONSUMERS: gl.constexpr, PERSISTENT: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """While a tile's softmax runs, the tensor cores make the scores of the next one."""
    k_ring, v_ring, turn, q_emptied = meet
    row_max, row_sum, acc = state
    full, mine, end = tiles
    scores = start_scores(q, take(k_ring, n), BLOCK_K)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    release(k_ring, n)
    last = end - 1  # has no next tile, so that it comes after the loops
    full = gl.minimum(full, last)
    for j in range(0, full):
        scores, row_max, row_sum, acc = tile_under_next(
            q, meet, n + j, j * BLOCK_K, sees, scores, row_max, row_sum, acc, BLOCK_K, CAUSAL, False
        )
    if EDGE:
        for j in range(full, last):
            scores, row_max, row_sum, acc = tile_under_next(
                q, meet, n + j, j * BLOCK_K, sees, scores, row_max, row_sum, acc,
                BLOCK_K, CAUSAL, True,
            )  # fmt: skip
    if PERSISTENT:
        mbarrier.arrive(q_emptied, count=1)
    p, alpha, row_max, row_sum = weigh(scores, row_max, row_sum, sees, last * BLOCK_K, CAUSAL, EDGE)
    acc = start_output(p, take(v_ring, n + last), rescale(acc, alpha))
    acc = warpgroup_mma_wait(0, deps=(acc,))
    release(v_ring, n + last)
    return row_max, row_sum, acc


@gluon.jit
def tile_under_next(
    q, meet, n, first, sees, scores, row_max, row_sum, acc,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """Softmax and output of key tile n, whose scores are there, and meanwhile the scores of tile n + 1."""
    k_ring, v_ring, turn, q_emptied = meet
    next_scores = start_scores(q, take(k_ring, n + 1), BLOCK_K)
    p, alpha, row_max, row_sum = weigh(scores, row_max, row_sum, sees, first, CAUSAL, MASKED)
    acc = start_output(p, take(v_ring, n), rescale(acc, alpha))
    scores = warpgroup_mma_wait(1, deps=(next_scores,))
    release(k_ring, n + 1)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    release(v_ring, n)
    return scores, row_max, row_sum, acc


@gluon.jit
def in_turns(
    q, meet, n, tiles, sees, state,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, EDGE: gl.constexpr,
    CONSUMERS: gl.constexpr, PERSISTENT: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """Ping-pong: one warpgroup has the tensor cores, the other one exponentiates (the paper's Alg. 2).

    The output is waited for after the wait for the next V, although that is needed later only: where the code
    has nothing to wait for in between, ptxas moves the softmax behind the wait for the output.
    """
    k_ring, v_ring, turn, q_emptied = meet
    row_max, row_sum, acc = state
    full, mine, end = tiles
    k = take(k_ring, n)
    take_turn(turn, n, WHICH)
    scores = start_scores(q, k, BLOCK_K)
    pass_turn(turn, CONSUMERS, WHICH)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    release(k_ring, n)
    p, alpha, row_max, row_sum = weigh(scores, row_max, row_sum, sees, 0, CAUSAL, EDGE)
    p = p.to(k.dtype)
    take(v_ring, n)
    full = gl.maximum(full, 1)
    for j in range(1, full):
        p, row_max, row_sum, acc = scores_and_last_output(
            q, meet, n + j, j * BLOCK_K, sees, p, row_max, row_sum, acc,
            BLOCK_K, CAUSAL, False, CONSUMERS, WHICH,
        )  # fmt: skip
    if EDGE:
        for j in range(full, end):
            p, row_max, row_sum, acc = scores_and_last_output(
                q, meet, n + j, j * BLOCK_K, sees, p, row_max, row_sum, acc,
                BLOCK_K, CAUSAL, True, CONSUMERS, WHICH,
            )  # fmt: skip
    if PERSISTENT:
        mbarrier.arrive(q_emptied, count=1)
    acc = start_output(p, tile_of(v_ring, n + end - 1), acc)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    release(v_ring, n + end - 1)
    return row_max, row_sum, acc


@gluon.jit
def scores_and_last_output(
    q, meet, n, first, sees, p, row_max, row_sum, acc,
    BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr, MASKED: gl.constexpr,
    CONSUMERS: gl.constexpr, WHICH: gl.constexpr,
):  # fmt: skip
    """The scores and the softmax of key tile n, and meanwhile the output of tile n - 1, whose P is there."""
    k_ring, v_ring, turn, q_emptied = meet
    k = take(k_ring, n)
    take_turn(turn, n, WHICH)
    scores = start_scores(q, k, BLOCK_K)
    acc = start_output(p, tile_of(v_ring, n - 1), acc)
    pass_turn(turn, CONSUMERS, WHICH)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    release(k_ring, n)
    p, alpha, row_max, row_sum = weigh(scores, row_max, row_sum, sees, first, CAUSAL, MASKED)
    take(v_ring, n)  # of the next product: see above
    acc = warpgroup_mma_wait(0, deps=(acc,))
    release(v_ring, n - 1)
    return p.to(k.dtype), row_max, row_sum, rescale(acc, alpha)


@gluon.jit
def take_turn(turn, n, WHICH: gl.constexpr):
    """Wait until the tensor cores are this warpgroup's, for its tile number n."""
    # waits for: the other warpgroup, that it has started its products (warpgroup 0, at first: nobody)
    mbarrier.wait(turn.index(WHICH), n & 1)


@gluon.jit
def pass_turn(turn, CONSUMERS: gl.constexpr, WHICH: gl.constexpr):
    """This warpgroup has started its products: the other one may start the next."""
    mbarrier.arrive(turn.index((WHICH + 1) % CONSUMERS), count=1)
