"""Decoding in Triton: a few new query rows against a long cache of keys and values, split among programs.

Flash-Decoding (Dao, Haziza, Massa, Sizov 2023, pytorch.org/blog/flash-decoding): one query block a head
would keep few SMs busy, so the keys are split, each part gives a partial o and lse, and a second kernel
merges them exactly: lse = log sum_s exp(lse_s), o = sum_s exp(lse_s - lse) o_s (as FlashAttention-2 merges
key blocks). The query heads that share a K/V head, and all new tokens, are the rows of one tile: the cache is
read once for all of them.

Cost in bytes, for S splits: the cache once, 2 * length * Hkv * D * itemsize for each sequence (once more for
each further block_q rows of the Hq / Hkv * Nq), q S times, o and lse once; if S > 1 also the partial results,
S * B * Hq * Nq * (D + 1) * 4, written and read.
"""

import functools

import torch
import triton
import triton.language as tl

from flashlab.kernels.launch import LOG2_E, TABLE, Config, config_for, constants, launch, must_upcast
from flashlab.kernels.primitives import weights
from flashlab.splits import choose_splits, rows_of_tile

LOG_2_E = tl.constexpr(LOG2_E)
LN_2 = tl.constexpr(1 / LOG2_E)
INTERPRETED_SMS = 8  # the interpreter has no SMs: split as if it had a few

# block_q: the most rows of a tile; a tile has the next power of two of its rows, at least 16. What counts is
# how many bytes are on their way: on Hopper, head dim 128, a K and a V tile are 64 KB together, and two such
# pairs are on their way while one is used.
TABLE.update(
    {
        (90, 2, "decode"): {64: Config(32, 128, 8, 3), 128: Config(32, 128, 8, 3), 256: Config(32, 32, 4, 4)},
        (90, 2, "decode paged"): {
            64: Config(32, 128, 4, 4),
            128: Config(32, 64, 4, 4),
            256: Config(32, 32, 4, 4),
        },
        (90, 4, "decode"): {64: Config(16, 64, 8, 3), 128: Config(16, 32, 8, 3), 256: Config(16, 16, 4, 3)},
        (80, 2, "decode"): {64: Config(32, 64, 4, 4), 128: Config(32, 64, 4, 3), 256: Config(16, 32, 4, 3)},
        (80, 4, "decode"): {64: Config(16, 64, 8, 2), 128: Config(16, 32, 8, 2), 256: Config(16, 16, 4, 2)},
        (89, 2, "decode"): {64: Config(32, 64, 4, 3), 128: Config(32, 32, 4, 3), 256: Config(16, 16, 4, 3)},
        (89, 4, "decode"): {64: Config(16, 32, 8, 2), 128: Config(16, 16, 4, 2), 256: Config(16, 16, 4, 2)},
    }
)


@triton.jit
def my_part(num_blocks, num_splits, num_kv_heads):
    """(row block, split, batch, K/V head) of this program: blocks that read the same keys are neighbours."""
    pid = tl.program_id(0)
    block = pid % num_blocks
    split = pid // num_blocks % num_splits
    head = pid // (num_blocks * num_splits)
    return block, split, (head // num_kv_heads).to(tl.int64), (head % num_kv_heads).to(tl.int64)


@triton.jit
def part_of(length, split, num_splits, BLOCK_K: tl.constexpr):
    """(start, end) of the keys of one split, whole key blocks as far as there are keys; maybe none."""
    keys = tl.cdiv(tl.cdiv(length, num_splits), BLOCK_K) * BLOCK_K
    start = tl.minimum(split * keys, length)
    return start, tl.minimum(start + keys, length)


@triton.jit
def find_rows(
    keys, end, batch, table_ptr, table_strides, num_pages, PAGE: tl.constexpr, MASKED: tl.constexpr
):
    """(entry, row) of each key in the cache: entry is the sequence, or the page named by the table."""
    if table_ptr is None:
        return batch, keys
    else:
        name_ptr = table_ptr + batch * table_strides[0] + keys // PAGE * table_strides[1]
        page = tl.load(name_ptr, mask=keys < end, other=0) if MASKED else tl.load(name_ptr)
        page = tl.minimum(tl.maximum(page, 0), num_pages - 1)  # a wrong entry must not lead out of the cache
        return page.to(tl.int64), keys % PAGE


@triton.jit
def load_cached(
    x_ptr, strides, entry, head, row, inside, DIM: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """x[entry, head, row, :] for a block of rows: [BLOCK_K, BLOCK_D], with 0 where not `inside` [BLOCK_K]."""
    dims = tl.arange(0, BLOCK_D)
    offset = entry * strides[0] + head * strides[1] + row.to(tl.int64) * strides[2]
    tile_ptr = x_ptr + offset[:, None] + dims[None, :] * strides[3]
    if MASKED and DIM == BLOCK_D:
        return tl.load(tile_ptr, mask=inside[:, None], other=0.0)
    elif MASKED:
        return tl.load(tile_ptr, mask=inside[:, None] & (dims < DIM)[None, :], other=0.0)
    elif DIM == BLOCK_D:
        return tl.load(tile_ptr)
    else:
        return tl.load(tile_ptr, mask=(dims < DIM)[None, :], other=0.0)


@triton.jit
def absorb(
    row_max, row_sum, acc, q, last_key, k_ptr, v_ptr, k_strides, v_strides,
    table_ptr, table_strides, num_pages, batch, head, first, end, qk_scale,
    PAGE: tl.constexpr, DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One more key block for the rows q: the new (row_max, row_sum, acc). MASKED: some key may be hidden."""
    keys = first + tl.arange(0, BLOCK_K)
    entry, row = find_rows(keys, end, batch, table_ptr, table_strides, num_pages, PAGE, MASKED)
    # [BLOCK_K, BLOCK_D]
    k = load_cached(k_ptr, k_strides, entry, head, row, keys < end, DIM, BLOCK_D, MASKED)
    # [BLOCK_Q, BLOCK_K]
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if MASKED:  # row i sees keys up to last_key[i]
        seen = (keys < end)[None, :] & (keys[None, :] <= last_key[:, None])
        scores = tl.where(seen, scores * qk_scale, float("-inf"))
    # [BLOCK_Q], [BLOCK_Q, BLOCK_K], [BLOCK_Q]
    new_max, p, alpha = weights(row_max, scores, qk_scale, MASKED)
    row_sum = row_sum * alpha + tl.sum(p, 1)
    # [BLOCK_K, BLOCK_D]
    v = load_cached(v_ptr, v_strides, entry, head, row, keys < end, DIM, BLOCK_D, MASKED)
    # [BLOCK_Q, BLOCK_D]
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
    return new_max, row_sum, acc


@triton.jit(do_not_specialize=["num_splits", "num_blocks", "max_length", "num_pages"])
def split_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, cache_lengths_ptr, table_ptr,
    q_strides, k_strides, v_strides, table_strides,  # of the cache: (sequence or page, head, row, dim)
    num_kv_heads, group, num_queries, num_splits, num_blocks, max_length, num_pages, qk_scale,
    PAGE: tl.constexpr, DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr, NEGATE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o and lse of all query rows that share one K/V head, over one split of its keys."""
    block, split, batch, kv_head = my_part(num_blocks, num_splits, num_kv_heads)
    length = tl.minimum(tl.maximum(tl.load(cache_lengths_ptr + batch), 0), max_length)
    # row r of the tile is token r // group of query head r % group of this K/V head
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    token, head = rows // group, kv_head * group + rows % group
    dims = tl.arange(0, BLOCK_D)
    inside = (token < num_queries)[:, None] & (dims < DIM)[None, :]
    # [BLOCK_Q, BLOCK_D]
    row_ptr = q_ptr + batch * q_strides[0] + head * q_strides[1] + token.to(tl.int64) * q_strides[2]
    q = tl.load(row_ptr[:, None] + dims[None, :] * q_strides[3], mask=inside, other=0.0)
    if NEGATE:  # a negative scale: its sign goes to q, so that a row's largest score stays its largest
        q = -q
    # the last token sees the whole cache: token i sees keys up to i + length - num_queries
    last_key = token + (length - num_queries)  # [BLOCK_Q]
    start, end = part_of(length, split, num_splits, BLOCK_K)
    sees_most = tl.minimum(((block + 1) * BLOCK_Q - 1) // group, num_queries - 1) + length - num_queries
    sees_least = block * BLOCK_Q // group + length - num_queries
    end = tl.maximum(tl.minimum(end, sees_most + 1), start)
    full = start + tl.maximum(tl.minimum(end, sees_least + 1) - start, 0) // BLOCK_K * BLOCK_K
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    # first the key blocks that every row sees whole, then those under a mask
    for first in tl.range(start, full, BLOCK_K):
        row_max, row_sum, acc = absorb(
            row_max, row_sum, acc, q, last_key, k_ptr, v_ptr, k_strides, v_strides,
            table_ptr, table_strides, num_pages, batch, kv_head, first, end, qk_scale,
            PAGE, DIM, BLOCK_K, BLOCK_D, False, PRECISION,
        )  # fmt: skip
    for first in tl.range(full, end, BLOCK_K):
        row_max, row_sum, acc = absorb(
            row_max, row_sum, acc, q, last_key, k_ptr, v_ptr, k_strides, v_strides,
            table_ptr, table_strides, num_pages, batch, kv_head, first, end, qk_scale,
            PAGE, DIM, BLOCK_K, BLOCK_D, True, PRECISION,
        )  # fmt: skip
    # a row that saw no key, or a split without keys: o = 0 and lse = -inf
    row_sum = tl.where(row_sum == 0, 1.0, row_sum)
    acc = acc * (1 / row_sum)[:, None]
    out = ((batch * num_kv_heads * group + head) * num_queries + token) * num_splits + split
    tl.store(o_ptr + out[:, None] * DIM + dims[None, :], acc.to(o_ptr.dtype.element_ty), mask=inside)
    tl.store(lse_ptr + out, (row_max + tl.log2(row_sum)) * LN_2, mask=token < num_queries)


@triton.jit(do_not_specialize=["num_splits"])
def merge_kernel(
    part_o_ptr, part_lse_ptr, o_ptr, lse_ptr, num_splits,
    DIM: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One row's o and lse from those of its splits: weights exp(lse_s), relative to the largest so far."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, BLOCK_D)
    row_max = float("-inf")
    row_sum = 0.0
    acc = tl.zeros([BLOCK_D], tl.float32)
    for first in tl.range(0, num_splits, BLOCK_S):
        splits = first + tl.arange(0, BLOCK_S)
        inside = splits < num_splits
        # [BLOCK_S] in units of log2, [BLOCK_S, BLOCK_D]
        lse = tl.load(part_lse_ptr + row * num_splits + splits, mask=inside, other=float("-inf")) * LOG_2_E
        part_ptr = part_o_ptr + (row * num_splits + splits)[:, None] * DIM + dims[None, :]
        part = tl.load(part_ptr, mask=inside[:, None] & (dims < DIM)[None, :], other=0.0)
        new_max = tl.maximum(row_max, tl.max(lse, 0))
        unit = tl.where(new_max == float("-inf"), 0.0, new_max)  # only empty splits so far
        weight = tl.exp2(lse - unit)  # 0 for an empty split
        alpha = tl.exp2(row_max - unit)
        row_sum = row_sum * alpha + tl.sum(weight, 0)
        acc = acc * alpha + tl.sum(weight[:, None] * part, 0)
        row_max = new_max
    row_sum = tl.where(row_sum == 0, 1.0, row_sum)
    o = acc * (1 / row_sum)
    tl.store(o_ptr + row * DIM + dims, o.to(o_ptr.dtype.element_ty), mask=dims < DIM)
    tl.store(lse_ptr + row, (row_max + tl.log2(row_sum)) * LN_2)


def fit(config, rows, paged):
    """The Config for tiles of so many rows: a power of two, at least 16 and at most config.block_q.

    More than 16 rows need the registers of 8 warps; on the way from a block table to the keys the compiler
    spends two stages.
    """
    block_q = rows_of_tile(rows, config.block_q)
    warps = config.num_warps if block_q == 16 else max(8, config.num_warps)
    stages = config.num_stages + 2 if paged else config.num_stages
    return config._replace(block_q=block_q, num_warps=warps, num_stages=stages)


@functools.cache
def count_sms(device):
    """Streaming multiprocessors of a CUDA device; a few for the CPU, where the kernels are interpreted."""
    if device.type != "cuda":
        return INTERPRETED_SMS
    return torch.cuda.get_device_properties(device).multi_processor_count


def decode(q, k_cache, v_cache, cache_lengths, *, block_table=None, num_splits=None, scale, config=None):
    """o [B, Hq, Nq, D] in q's dtype and lse [B, Hq, Nq] fp32 of the last Nq tokens of each cache, q like o.

    k_cache and v_cache [B, Hkv, Nmax, D], or with block_table [B, pages] int32 [n_pages, page, Hkv, D]; any
    strides; D from 1 to 256; fp16, bf16 or fp32. cache_lengths int32 [B] counts the new tokens too. Expects
    inputs that fit together (`flashlab.decode_attention` checks them). Never waits for the device.
    """
    if must_upcast(q):
        how = dict(block_table=block_table, num_splits=num_splits, scale=scale, config=config)
        o, lse = decode(q.float(), k_cache.float(), v_cache.float(), cache_lengths, **how)
        return o.to(q.dtype), lse
    batch, heads, num_queries, dim = q.shape
    o = q.new_empty(q.shape)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    if o.numel() == 0:
        return o, lse
    if block_table is None:
        kv_heads, max_length, page, table_strides = *k_cache.shape[1:3], 0, None
    else:  # [n_pages, page, Hkv, D] as (page, head, row, dim)
        page = k_cache.shape[1]
        max_length = block_table.shape[1] * page if k_cache.shape[0] else 0
        k_cache, v_cache = k_cache.transpose(1, 2), v_cache.transpose(1, 2)
        kv_heads, table_strides = k_cache.shape[1], block_table.stride()
    rows = heads // kv_heads * num_queries
    kind = "decode" if block_table is None else "decode paged"
    config = fit(config or config_for(q, kind), rows, block_table is not None)
    num_blocks = triton.cdiv(rows, config.block_q)
    if num_splits is None:
        num_splits = choose_splits(batch, kv_heads, num_blocks, max_length, count_sms(q.device))
    part_o, part_lse = o, lse
    if num_splits > 1:
        part_o = q.new_empty((*q.shape[:3], num_splits, dim), dtype=torch.float32)
        part_lse = q.new_empty((*q.shape[:3], num_splits), dtype=torch.float32)
    numbers = constants(q, config)
    launch(
        split_kernel, (num_blocks * num_splits * kv_heads * batch,),
        q, k_cache, v_cache, part_o, part_lse, cache_lengths.to(torch.int32).contiguous(), block_table,
        q.stride(), k_cache.stride(), v_cache.stride(), table_strides,
        kv_heads, heads // kv_heads, num_queries, num_splits, num_blocks, max_length, k_cache.shape[0],
        abs(scale) * LOG2_E, PAGE=page, NEGATE=scale < 0, config=config, **numbers,
    )  # fmt: skip
    if num_splits > 1:
        launch(
            merge_kernel, (batch * heads * num_queries,), part_o, part_lse, o, lse, num_splits,
            DIM=dim, BLOCK_S=16, BLOCK_D=numbers["BLOCK_D"], config=config._replace(num_warps=4),
        )  # fmt: skip
    return o, lse
