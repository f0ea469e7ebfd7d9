"""The loads and stores of each algorithm, counted without running it: one function for each pass.

Every function takes a `flashlab.Problem` and a `How`, and returns a `Pass`. They follow the loops of
`flashlab.tiled`, line by line; what is loaded in the inner loop is multiplied by how often the loop runs.
"""

import math
from typing import NamedTuple

from flashlab.problem import causal_offset
from flashlab.splits import choose_splits, part_of, rows_of_tile

FP32 = 4  # bytes of lse, m, l, delta and of running sums


class How(NamedTuple):
    """How a pass runs: programs at once, SMs of the GPU, parts of the keys (decode; None: choose); `tma`: a
    program of a query block always loads whole key blocks, also those keys that none of its rows may see.
    """

    in_flight: int = 132
    sms: int = 132
    splits: int | None = None
    tma: bool = False


class Flow(NamedTuple):
    """What a pass moves of one tensor.

    `bytes`: asked for by the programs (level "sm"). For level "hbm", an approximation of an LRU cache: if
    `resident` bytes, which the programs in flight come back to, stay in L2, then only `once` bytes go through
    to HBM, else `missed`. Programs start in the kernels' order and go at one pace, so that those of one head
    read a tile of K and V at the same time and share one trip to HBM. Stores reach HBM at last (a counter
    stopped with the kernel misses what is still in L2).
    """

    op: str
    tensor: str
    bytes: int
    once: int
    resident: int = 0
    missed: int = 0

    def through(self, l2_bytes):
        """Bytes that pass between L2 and HBM: never less than `once`, never more than asked for."""
        return self.once if self.resident <= l2_bytes else min(max(self.missed, self.once), self.bytes)


class Pass(NamedTuple):
    """The flows of one kernel, its work, and the memory it needs beyond inputs and outputs."""

    flows: list
    flops: int = 0
    other_flops: int = 0
    exps: int = 0
    extra_bytes: int = 0


def stream(op, tensor, nbytes):
    """A tensor that is moved once."""
    return Flow(op, tensor, nbytes, nbytes)


class Tiles:
    """Which query block meets which key block in one head, and how large the tiles are."""

    def __init__(self, p):
        self.p = p
        self.offset = causal_offset(p.causal, p.Nq, p.Nk)
        self.rows = [min(p.block_q, p.Nq - i) for i in range(0, p.Nq, p.block_q)]
        self.key_blocks = math.ceil(p.Nk / p.block_k)
        self.in_sight = [self.keys_in_sight(i) for i in range(len(self.rows))]
        self.last = [math.ceil(keys / p.block_k) for keys in self.in_sight]  # key blocks that each one meets

    def keys_in_sight(self, i):
        """How many keys the last row of query block i may see."""
        if self.offset is None:
            return self.p.Nk
        last_row = min((i + 1) * self.p.block_q, self.p.Nq) - 1
        return min(max(last_row + self.offset + 1, 0), self.p.Nk)

    def keys(self, blocks):
        """Rows of the first `blocks` key blocks."""
        return min(blocks * self.p.block_k, self.p.Nk)

    def loaded(self, tma):
        """Rows of K that each query block loads: up to the last one in sight; by TMA whole key blocks."""
        return list(map(self.keys, self.last)) if tma else self.in_sight

    @property
    def rows_met(self):
        """Rows of Q loaded by all key blocks of one head together."""
        return sum(r * n for r, n in zip(self.rows, self.last, strict=True))

    @property
    def elements(self):
        """Score elements computed in one head, where key blocks are loaded whole."""
        return self.elements_of(self.loaded(tma=True))

    def elements_of(self, keys):
        """Score elements computed in one head, where query block i has loaded keys[i] rows of K."""
        return sum(r * n for r, n in zip(self.rows, keys, strict=True))


def standard_forward(p, how):
    """S = Q K^T, P = softmax(S), O = P V: three passes over whole matrices (FlashAttention, Algorithm 0)."""
    rows, keys, square = sizes(p)
    s, d = square * p.itemsize, p.D * p.itemsize
    found = [
        stream("load", "q", rows * d), stream("load", "k", keys * d), stream("store", "s", s),
        if_fits("load", "s", s), stream("store", "p", s),
        if_fits("load", "p", s), stream("load", "v", keys * d), stream("store", "o", rows * d),
    ]  # fmt: skip
    # a score: scale, max, subtract, exp, sum, divide
    return Pass(found, 4 * square * p.D, 6 * square, square, 2 * s)


def fa1_forward(p, how):
    """Key blocks outside, query blocks inside: O, m and l travel to memory and back (Algorithm 1)."""
    t, (rows, keys, _), heads = Tiles(p), sizes(p), p.B * p.Hq
    met, d = heads * t.rows_met, p.D
    keys *= p.Hq // p.Hkv  # a program for each query head, each with its own walk over K and V
    resident = min(how.in_flight, heads) * p.Nq * (d * (p.itemsize + FP32) + 2 * FP32)
    found = [stays("store", "o_fp32", (rows + met) * d * FP32, rows * d * FP32, resident)]
    found += [stays("store", x, (rows + met) * FP32, rows * FP32, resident) for x in ("l", "m")]
    kv = p.B * p.Hkv * p.Nk * d * p.itemsize
    found += [stays("load", x, keys * d * p.itemsize, kv, resident) for x in ("k", "v")]
    q_rows = heads * sum(r for r, n in zip(t.rows, t.last, strict=True) if n)
    found += [
        stays("load", "q", met * d * p.itemsize, q_rows * d * p.itemsize, resident),
        stays("load", "o_fp32", (rows + met) * d * FP32, 0, resident),
        *(stays("load", x, (rows + met) * FP32, 0, resident) for x in ("l", "m")),
        stream("store", "o", rows * d * p.itemsize), stream("store", "lse", rows * FP32),
    ]  # fmt: skip
    # a score: scale, max, subtract, exp, sum; a row at each visit: 2 exps, 8 more; an element of O: 4
    scores = heads * t.elements
    return Pass(
        found, 4 * scores * d, 5 * scores + met * (10 + 4 * d), scores + 2 * met, rows * (d + 3) * FP32
    )


def fa2_forward(p, how):
    """Query blocks outside: each stays on chip until it has met its keys (FlashAttention-2, Algorithm 1)."""
    t, (rows, _, _), heads, d = Tiles(p), sizes(p), p.B * p.Hq, p.D
    keys = t.loaded(how.tma)
    kv = shared_reads(p, how, keys)
    found = [stream("load", "q", rows * d * p.itemsize), kv("k"), kv("v")]
    found += [stream("store", "o", rows * d * p.itemsize), stream("store", "lse", rows * FP32)]
    # a score: scale, max, subtract, exp, sum; a row at each visit: 1 exp, 4 more, d products; d divisions
    scores, met = heads * t.elements_of(keys), heads * t.rows_met
    other = 5 * scores + met * (5 + d) + rows * (d + 3)
    return Pass(found, 4 * scores * d, other, scores + met, rows * FP32)


def decode(p, how):
    """Split-KV decoding: parts of the keys side by side, then a merge (see `flashlab.kernels.decode`)."""
    rows, d, group = p.B * p.Hq * p.Nq, p.D, p.Hq // p.Hkv
    tile = rows_of_tile(group * p.Nq, p.block_q)
    blocks = math.ceil(group * p.Nq / tile)
    splits = how.splits or choose_splits(p.B, p.Hkv, blocks, p.Nk, how.sms)
    read = scores = 0
    for block in range(blocks):
        size = min(tile, group * p.Nq - block * tile)
        seen = min(((block + 1) * tile - 1) // group, p.Nq - 1) + p.Nk - p.Nq + 1
        for split in range(splits):
            start, end = part_of(p.Nk, split, splits, p.block_k)
            read += max(min(end, seen) - start, 0)
            scores += size * max(min(end, seen) - start, 0)
    heads = p.B * p.Hkv
    cache = heads * p.Nk * d * p.itemsize
    found = [stream("load", "cache_lengths", heads * blocks * splits * 4)]
    found += [Flow("load", "q", splits * rows * d * p.itemsize, rows * d * p.itemsize)]
    found += [
        Flow("load", x, heads * read * d * p.itemsize, min(cache, heads * read * d * p.itemsize))
        for x in ("k", "v")
    ]
    extra = rows * FP32
    if splits > 1:
        parts = splits * rows * FP32
        found += [stream("store", "part_o", parts * d), stream("store", "part_lse", parts)]
        found += [if_fits("load", "part_lse", parts), if_fits("load", "part_o", parts * d)]
        extra += parts * (d + 1)
    found += [stream("store", "o", rows * d * p.itemsize), stream("store", "lse", rows * FP32)]
    scores *= heads
    other = 5 * scores + splits * rows * (d + 3) * (3 if splits > 1 else 1)
    return Pass(found, 4 * scores * d, other, scores + splits * rows, extra)


def sizes(p):
    """Rows of Q, rows of K, elements of S: of all heads together."""
    return p.B * p.Hq * p.Nq, p.B * p.Hkv * p.Nk, p.B * p.Hq * p.Nq * p.Nk


def if_fits(op, tensor, nbytes):
    """What another kernel has just written: read from L2 where both it and its successor fit."""
    return Flow(op, tensor, nbytes, 0, 2 * nbytes, nbytes)


def stays(op, tensor, nbytes, once, resident):
    """What a program comes back to at every round."""
    return Flow(op, tensor, nbytes, min(once, nbytes), resident, nbytes)


def heads_in_flight(in_flight, blocks, heads):
    """Of how many heads programs run at the same time, at most: consecutive programs, blocks fastest."""
    whole, part = divmod(in_flight, max(blocks, 1))
    return min(whole + (part > 0), heads)


def heads_of_all_waves(in_flight, blocks, heads):
    """Summed over waves of `in_flight` programs: the heads that each wave touches."""
    programs = blocks * heads
    return sum(
        (min(first + in_flight, programs) - 1) // blocks - first // blocks + 1
        for first in range(0, programs, in_flight)
    )


def shared_reads(p, how, keys):
    """K and V as read by programs of query blocks, which come head by head; keys[i] rows by block i."""
    group, width = p.Hq // p.Hkv, p.D * p.itemsize
    at_once = heads_in_flight(how.in_flight, len(keys) * group, p.B * p.Hkv)
    waves = heads_of_all_waves(how.in_flight, len(keys) * group, p.B * p.Hkv)
    seen = max(keys, default=0) * width

    def flow(name):
        asked = p.B * p.Hq * sum(keys) * width
        return Flow("load", name, asked, p.B * p.Hkv * seen, 2 * at_once * seen, waves * seen)  # 2: K and V

    return flow
