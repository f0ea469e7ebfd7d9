"""What every attention kernel is made of: where a program works, loading and storing tiles, masks.

Tensors are [batch, head, row, dim] with any strides. Offsets of batch, head and row are 64 bits wide: 2^31
elements are only 4 GB. A tile is [BLOCK rows, BLOCK_D columns]; what lies outside the tensor is 0.
"""

import triton
import triton.language as tl


@triton.jit
def my_block(num_rows, num_heads, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr):
    """(block, batch, head) of this program: blocks of one head are neighbours, so K and V stay in L2."""
    num_blocks = (num_rows + BLOCK - 1) // BLOCK
    pid = tl.program_id(0)
    block = pid % num_blocks
    if LAST_FIRST:  # under a causal mask the last blocks have the most work: start them first
        block = num_blocks - 1 - block
    head = pid // num_blocks
    return block, (head // num_heads).to(tl.int64), (head % num_heads).to(tl.int64)


@triton.jit
def keys_of(batch, key_lengths_ptr, num_keys):
    """How many keys this batch entry has: num_keys, or its key length."""
    if key_lengths_ptr is not None:
        num_keys = tl.minimum(tl.maximum(tl.load(key_lengths_ptr + batch).to(tl.int32), 0), num_keys)
    return num_keys


@triton.jit
def diagonal(num_queries, num_keys, CAUSAL: tl.constexpr):
    """Row i sees keys j <= i + diagonal: 0 for "top-left"; for "bottom-right" the last row sees all."""
    if CAUSAL == "bottom-right":
        return num_keys - num_queries
    else:
        return num_keys * 0


@triton.jit
def key_range(
    block, num_queries, num_keys, shift, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, CAUSAL: tl.constexpr
):
    """(full, end): each row of the query block sees all keys before `full` (whole blocks); none `end`."""
    full = num_keys
    end = num_keys
    if CAUSAL is not None:
        full = tl.minimum(tl.maximum(block * BLOCK_Q + shift + 1, 0), num_keys)
        end = tl.minimum(tl.maximum(tl.minimum((block + 1) * BLOCK_Q, num_queries) + shift, 0), num_keys)
    return full // BLOCK_K * BLOCK_K, end


@triton.jit
def row_range(
    first_key, num_queries, num_keys, shift, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, CAUSAL:
    tl.constexpr
):  # fmt: skip
    """(start, full), multiples of BLOCK_Q: rows before `start` see no key of the block, from `full` all."""
    start = 0
    full = 0
    if CAUSAL is not None:
        start = tl.maximum(first_key - shift, 0) // BLOCK_Q * BLOCK_Q
        full = (tl.maximum(first_key + BLOCK_K - 1 - shift, 0) + BLOCK_Q - 1) // BLOCK_Q * BLOCK_Q
        start = tl.where(first_key - shift < num_queries, start, num_queries)  # no row sees the block
    start = tl.where(first_key < num_keys, start, num_queries)  # a block of padding has nothing to do
    full = tl.where(first_key < num_keys, full, num_queries)
    return start, tl.maximum(tl.minimum(full, num_queries), start)


@triton.jit
def visible(rows, keys, end, shift, CAUSAL: tl.constexpr):
    """The mask of a tile [rows, keys]: key j < end, and under a causal mask j <= i + shift."""
    seen = keys < end
    if CAUSAL is not None:
        seen = seen & (keys <= rows + shift)
    return seen


@triton.jit
def weights(row_max, scores, qk_scale, MASKED: tl.constexpr):
    """(new row_max, P = exp(S - row_max), factor for what was summed so far), all in units of log2.

    MASKED: `scores` [rows, keys] are scaled already, and -inf where hidden. A row that saw no key has P = 0.
    """
    if MASKED:
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        unit = tl.where(new_max == float("-inf"), 0.0, new_max)  # no key seen yet: -inf - -inf would be nan
        p = tl.exp2(scores - unit[:, None])
    else:
        new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
        unit = new_max
        p = tl.exp2(scores * qk_scale - unit[:, None])  # one fused multiply-add, one exp2
    return new_max, p, tl.exp2(row_max - unit)


@triton.jit
def tile_pointers(x_ptr, strides, batch, head, first, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """The addresses of rows first to first + BLOCK of x[batch, head]: [BLOCK, BLOCK_D]."""
    rows = (first + tl.arange(0, BLOCK)).to(tl.int64)
    x_ptr += batch * strides[0] + head * strides[1]
    return x_ptr + rows[:, None] * strides[2] + tl.arange(0, BLOCK_D)[None, :] * strides[3]


@triton.jit
def load_tile(
    x_ptr, strides, batch, head, first, end,
    DIM: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Rows first to first + BLOCK of x[batch, head]: [BLOCK, BLOCK_D], with 0 for rows from `end` on.

    EDGE says where that may happen: None (all rows are before `end`), "tensor" (`end` is the tensor's last
    row) or "inside" (the tensor goes on after `end`). Without strides, x is a TMA descriptor, which gives 0
    outside the tensor by itself.
    """
    in_rows = (first + tl.arange(0, BLOCK) < end)[:, None]
    in_dims = (tl.arange(0, BLOCK_D) < DIM)[None, :]
    if strides is None:
        tile = x_ptr.load([batch.to(tl.int32), head.to(tl.int32), first, 0]).reshape(BLOCK, BLOCK_D)
        if EDGE == "inside":
            tile = tl.where(in_rows, tile, 0.0)
        return tile
    else:
        tile_ptr = tile_pointers(x_ptr, strides, batch, head, first, BLOCK, BLOCK_D)
        if EDGE is None and DIM == BLOCK_D:
            return tl.load(tile_ptr)
        elif EDGE is None:
            return tl.load(tile_ptr, mask=in_dims, other=0.0)
        elif DIM == BLOCK_D:
            return tl.load(tile_ptr, mask=in_rows, other=0.0)
        else:
            return tl.load(tile_ptr, mask=in_rows & in_dims, other=0.0)


@triton.jit
def store_tile(
    x_ptr, strides, batch, head, first, end, tile, DIM: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D:
    tl.constexpr
):  # fmt: skip
    """Write tile [BLOCK, BLOCK_D] to rows first to first + BLOCK of x[batch, head]; x ends at row `end`."""
    if strides is None:
        tile = tile.to(x_ptr.dtype).reshape(1, 1, BLOCK, BLOCK_D)
        x_ptr.store([batch.to(tl.int32), head.to(tl.int32), first, 0], tile)
    else:
        tile_ptr = tile_pointers(x_ptr, strides, batch, head, first, BLOCK, BLOCK_D)
        inside = (first + tl.arange(0, BLOCK) < end)[:, None] & (tl.arange(0, BLOCK_D) < DIM)[None, :]
        tl.store(tile_ptr, tile.to(x_ptr.dtype.element_ty), mask=inside)


@triton.jit
def load_row_numbers(x_ptr, batch_head, first, num_rows, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    """Rows first to first + BLOCK of one number a row, x [batch * heads, num_rows] fp32; beyond: OTHER."""
    rows = first + tl.arange(0, BLOCK)
    return tl.load(x_ptr + batch_head * num_rows + rows, mask=rows < num_rows, other=OTHER)


@triton.jit
def drop(p, dropout, batch_head, rows, keys):
    """The tile p with dropout: an element is kept, scaled up, or 0, by seed and position only."""
    seed_ptr, threshold, keep_scale = dropout
    keys = tl.broadcast_to(keys, p.shape).to(tl.uint32)
    rows = tl.broadcast_to(rows, p.shape).to(tl.uint32)
    zero = keys * 0
    random, _, _, _ = tl.philox(tl.load(seed_ptr), keys, rows, zero + batch_head.to(tl.uint32), zero)
    return tl.where((random >> 8).to(tl.int32) >= threshold, p * keep_scale, 0.0)
