"""FlashAttention-2 for sequences of different lengths, packed one after another: [total, heads, D].

The loops, tiles and updates are those of `fa2` and `fa2_backward`; new is only how a program finds its work.
The lengths stay on the GPU: sequence s is given the slots from cu_seqlens[s] // BLOCK + s on. These are at
least as many as it has blocks, and total // BLOCK + (number of sequences) in all, so that the host knows the
grid without the lengths. Rows are counted from the start of the packed tensor, which is a batch of one, [1,
heads, total, D].
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.fa2 import LN_2, absorb
from flashlab.kernels.launch import LOG2_E, config_for, constants, launch, must_upcast, tiles
from flashlab.kernels.primitives import (
    diagonal,
    key_range,
    load_tile,
    store_tile,
    tile_pointers,
)


@triton.jit
def my_slot(total, num_sequences, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr):
    """(slot, head) of this program: slots of one head are neighbours, so that its K and V stay in L2."""
    num_slots = total // BLOCK + num_sequences
    pid = tl.program_id(0)
    slot = pid % num_slots
    if LAST_FIRST:  # under a causal mask the last blocks of a sequence have the most work
        slot = num_slots - 1 - slot
    return slot, (pid // num_slots).to(tl.int64)


@triton.jit
def bound(cu_seqlens_ptr, index, total):
    """cu_seqlens[index], clamped to the rows that exist."""
    return tl.minimum(tl.maximum(tl.load(cu_seqlens_ptr + index), 0), total)


@triton.jit
def span(cu_seqlens_ptr, sequence, total):
    """(first row, end) of a sequence."""
    start = bound(cu_seqlens_ptr, sequence, total)
    return start, tl.maximum(bound(cu_seqlens_ptr, sequence + 1, total), start)


@triton.jit
def find_sequence(cu_seqlens_ptr, slot, num_sequences, total, BLOCK: tl.constexpr):
    """The last sequence whose slots begin at or before `slot`, by bisection."""
    low = slot * 0
    high = low + num_sequences
    while high - low > 1:
        middle = (low + high) // 2
        before = bound(cu_seqlens_ptr, middle, total) // BLOCK + middle <= slot
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
    return low


@triton.jit
def my_rows(cu_seqlens_ptr, slot, num_sequences, total, BLOCK: tl.constexpr):
    """(sequence, its first row, its end, block): the work of a slot; the block may lie beyond the end."""
    sequence = find_sequence(cu_seqlens_ptr, slot, num_sequences, total, BLOCK)
    start, end = span(cu_seqlens_ptr, sequence, total)
    block = slot - (start // BLOCK + sequence)
    end = tl.where(block < 0, start, end)  # cu_seqlens that begin above 0 or go down
    return sequence, start, end, tl.maximum(block, 0)


@triton.jit
def outside(cu_seqlens_ptr, slot, num_sequences, total, BLOCK: tl.constexpr):
    """(some, rows, mask): which of rows slot * BLOCK to (slot + 1) * BLOCK belong to no sequence."""
    first = bound(cu_seqlens_ptr, 0, total)
    end = bound(cu_seqlens_ptr, num_sequences, total)
    row = slot * BLOCK
    rows = row + tl.arange(0, BLOCK)
    mask = ((rows < first) | (rows >= end)) & (rows < total)
    some = (row < first) | ((row + BLOCK > end) & (end < total))
    return some & (row < total), rows, mask


@triton.jit
def store_zeros(
    x_ptr, strides, batch, head, first, mask, DIM: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Write 0 to those of rows first to first + BLOCK of x[batch, head] that are in `mask`."""
    tile_ptr = tile_pointers(x_ptr, strides, batch, head, first, BLOCK, BLOCK_D)
    zeros = tl.zeros([BLOCK, BLOCK_D], x_ptr.dtype.element_ty)
    tl.store(tile_ptr, zeros, mask=mask[:, None] & (tl.arange(0, BLOCK_D) < DIM)[None, :])


@triton.jit(do_not_specialize=["num_sequences", "total_queries", "total_keys"])
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, cu_seqlens_q_ptr, cu_seqlens_k_ptr,
    q_strides, k_strides, v_strides, o_strides,  # each (batch, head, row, dim), in elements
    group, num_sequences, total_queries, total_keys, qk_scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, NEGATE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o = softmax(scale Q K^T) V and lse for one query block of one sequence and head, as in `fa2`."""
    slot, head = my_slot(total_queries, num_sequences, BLOCK_Q, CAUSAL is not None)
    batch = head * 0
    lse_ptr += head * total_queries  # lse is [heads, total]
    some, rows, mask = outside(cu_seqlens_q_ptr, slot, num_sequences, total_queries, BLOCK_Q)
    if some:  # rows of no sequence: o = 0, lse = -inf
        store_zeros(o_ptr, o_strides, batch, head, slot * BLOCK_Q, mask, DIM, BLOCK_Q, BLOCK_D)
        tl.store(lse_ptr + rows, tl.full([BLOCK_Q], float("-inf"), tl.float32), mask=mask)
    sequence, row_start, row_end, block = my_rows(
        cu_seqlens_q_ptr, slot, num_sequences, total_queries, BLOCK_Q
    )
    row = row_start + block * BLOCK_Q
    if row >= row_end:
        return
    key_start, key_end = span(cu_seqlens_k_ptr, sequence, total_keys)
    num_queries, num_keys = row_end - row_start, key_end - key_start
    shift = diagonal(num_queries, num_keys, CAUSAL)
    full, end = key_range(block, num_queries, num_keys, shift, BLOCK_Q, BLOCK_K, CAUSAL)
    full, end = key_start + full, key_start + end
    shift += key_start - row_start  # from here on rows and keys are those of the packed tensors
    rows = row + tl.arange(0, BLOCK_Q)
    # [BLOCK_Q, BLOCK_D]
    q = load_tile(q_ptr, q_strides, batch, head, row, row_end, DIM, BLOCK_Q, BLOCK_D, "inside")
    if NEGATE:
        q = -q
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for first in tl.range(key_start, full, BLOCK_K):
        row_max, row_sum, acc = absorb(
            row_max, row_sum, acc, q, rows, None, 0,
            k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
            DIM, BLOCK_K, BLOCK_D, CAUSAL, False, PRECISION,
        )  # fmt: skip
    for first in tl.range(full, end, BLOCK_K):
        row_max, row_sum, acc = absorb(
            row_max, row_sum, acc, q, rows, None, 0,
            k_ptr, v_ptr, k_strides, v_strides, batch, head // group, first, end, shift, qk_scale,
            DIM, BLOCK_K, BLOCK_D, CAUSAL, True, PRECISION,
        )  # fmt: skip
    row_sum = tl.where(row_sum == 0, 1.0, row_sum)
    acc = acc * (1 / row_sum)[:, None]
    lse = (row_max + tl.log2(row_sum)) * LN_2
    store_tile(o_ptr, o_strides, batch, head, row, row_end, acc, DIM, BLOCK_Q, BLOCK_D)
    tl.store(lse_ptr + rows, lse, mask=rows < row_end)


def as_batch(x):
    """A packed tensor [total, heads, D] as a batch of one, [1, heads, total, D]; [total, heads] likewise."""
    return x.transpose(0, 1)[None]


def grid(total, block, cu_seqlens, heads):
    """How many programs: for each head a slot for each block that the sequences may have."""
    return ((total // block + cu_seqlens.shape[0] - 1) * heads,)


def forward(q, k, v, cu_seqlens_q, cu_seqlens_k, *, causal=None, scale, config=None):
    """o [total_q, Hq, D] in q's dtype and lse [total_q, Hq] fp32 of q [total_q, Hq, D], k and v [total_k,
    Hkv, D].

    cu_seqlens are int32 [B + 1]. Rows that see no key, or belong to no sequence, get o = 0 and lse = -inf.
    Expects inputs that fit together (`flashlab.attention_varlen` checks them). On the CPU, bf16 is computed
    in fp32.
    """
    if must_upcast(q):
        how = dict(causal=causal, scale=scale, config=config)
        o, lse = forward(q.float(), k.float(), v.float(), cu_seqlens_q, cu_seqlens_k, **how)
        return o.to(q.dtype), lse
    (total_q, heads, _), (total_k, kv_heads) = q.shape, k.shape[:2]
    o = torch.empty_like(q)
    lse = torch.empty((heads, total_q), dtype=torch.float32, device=q.device)
    if cu_seqlens_q.shape[0] == 1:  # no sequence, so no program
        o.zero_(), lse.fill_(float("-inf"))
    elif o.numel():
        config = config or config_for(q, "forward packed")
        if q.shape[2] > 128:  # TMA and the search together take too many registers there
            config = config._replace(tma=False)
        of_rows, of_keys = config.block_q, config.block_k
        args, strides = zip(
            *tiles(config, q=(as_batch(q), of_rows), k=(as_batch(k), of_keys), v=(as_batch(v), of_keys)),
            strict=True,
        )
        launch(
            forward_kernel, grid(total_q, config.block_q, cu_seqlens_q, heads),
            *args, o, lse, cu_seqlens_q, cu_seqlens_k, *strides, as_batch(o).stride(),
            heads // kv_heads, cu_seqlens_q.shape[0] - 1, total_q, total_k, abs(scale) * LOG2_E,
            CAUSAL=causal, NEGATE=scale < 0, config=config, **constants(q, config),
        )  # fmt: skip
    return o, lse.transpose(0, 1)
