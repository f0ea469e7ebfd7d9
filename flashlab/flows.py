"""The loads and stores of each algorithm, counted without running it: one function for each pass.

Every function takes a `flashlab.Problem` and a `How`, and returns a `Pass`. They follow the loops of
`flashlab.tiled`, line by line; what is loaded in the inner loop is multiplied by how often the loop runs.
"""

import itertools
import math
from typing import NamedTuple

from flashlab.problem import causal_offset
from flashlab.splits import choose_splits, part_of, rows_of_tile

FP32 = 4  # bytes of lse, m, l, delta and of running sums


class How(NamedTuple):
    """How a pass runs: programs at once, SMs of the GPU, parts of the keys (decode; None: choose); `tma`: a
    program of a query block always loads whole key blocks, also those keys that none of its rows may see;
    the size of L2.
    """

    in_flight: int = 132
    sms: int = 132
    splits: int | None = None
    tma: bool = False
    l2_bytes: int = 0


class Flow(NamedTuple):
    """What a pass moves of one tensor: bytes asked for by the programs (level "sm"), bytes that must reach
    HBM whatever the cache (`once`), and bytes that do (`hbm`).

    `hbm` approximates an LRU cache. Programs start in the kernels' order, `in_flight` at once, and go at one
    pace, so that those of one head read a tile of K and V at the same time and share one trip to HBM
    (`trips`; a test compares it with a simulated cache). FlashAttention-1: see `Rounds`. Stores reach HBM
    at last (a counter stopped with the kernel misses what is still in L2).
    """

    op: str
    tensor: str
    bytes: int
    once: int
    hbm: int


class Pass(NamedTuple):
    """The flows of one kernel, its work, and the memory it needs beyond inputs and outputs."""

    flows: list
    flops: int = 0
    other_flops: int = 0
    exps: int = 0
    extra_bytes: int = 0


def stream(op, tensor, nbytes):
    """A tensor that is moved once."""
    return Flow(op, tensor, nbytes, nbytes, nbytes)


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
        if_fits(how, "load", "s", s), stream("store", "p", s),
        if_fits(how, "load", "p", s), stream("load", "v", keys * d), stream("store", "o", rows * d),
    ]  # fmt: skip
    # a score: scale, max, subtract, exp, sum, divide
    return Pass(found, 4 * square * p.D, 6 * square, square, 2 * s)


def fa1_forward(p, how):
    """Key blocks outside, query blocks inside: O, m and l travel to memory and back (Algorithm 1)."""
    t, (rows, keys, _), heads = Tiles(p), sizes(p), p.B * p.Hq
    met, d = heads * t.rows_met, p.D
    keys *= p.Hq // p.Hkv  # a program for each query head, each with its own walk over K and V
    in_flight = min(how.in_flight, heads)
    r = Rounds(t, how, in_flight, d * (p.itemsize + FP32) + 2 * FP32)
    found = [r.store("o_fp32", d * FP32, heads), r.store("l", FP32, heads), r.store("m", FP32, heads)]
    kv = p.B * p.Hkv * p.Nk * d * p.itemsize
    found += [Flow("load", x, keys * d * p.itemsize, kv, kv) for x in ("k", "v")]
    found += [
        r.load("q", d * p.itemsize, heads), r.load_again("o_fp32", d * FP32, heads),
        r.load_again("l", FP32, heads), r.load_again("m", FP32, heads),
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
    kv = shared_reads(p, how, keys, own=2)  # q and o
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
    found = [stream("load", "cache_lengths", heads * blocks * splits * 4)]
    q = rows * d * p.itemsize
    found += [Flow("load", "q", splits * q, q, q)]
    read *= heads * d * p.itemsize
    cache = min(heads * p.Nk * d * p.itemsize, read)
    found += [Flow("load", x, read, cache, cache) for x in ("k", "v")]
    extra = rows * FP32
    if splits > 1:
        parts = splits * rows * FP32
        found += [stream("store", "part_o", parts * d), stream("store", "part_lse", parts)]
        found += [if_fits(how, "load", "part_lse", parts), if_fits(how, "load", "part_o", parts * d)]
        extra += parts * (d + 1)
    found += [stream("store", "o", rows * d * p.itemsize), stream("store", "lse", rows * FP32)]
    scores *= heads
    other = 5 * scores + splits * rows * (d + 3) * (3 if splits > 1 else 1)
    return Pass(found, 4 * scores * d, other, scores + splits * rows, extra)


def sizes(p):
    """Rows of Q, rows of K, elements of S: of all heads together."""
    return p.B * p.Hq * p.Nq, p.B * p.Hkv * p.Nk, p.B * p.Hq * p.Nq * p.Nk


def if_fits(how, op, tensor, nbytes):
    """What another kernel has just written: read from L2 where both it and its successor fit."""
    return Flow(op, tensor, nbytes, 0, 0 if 2 * nbytes <= how.l2_bytes else nbytes)


class Rounds:
    """FlashAttention-1's rounds over a head's rows, one for each key block: which rows are still in L2?

    `in_flight` heads go round at the same time, with `row_bytes` for each row. They are loops, out of
    step with each other, to which an L2 does not answer like a strict LRU (where nothing is found as soon as
    the loop is a little too long): see `missing`.
    """

    def __init__(self, tiles, how, in_flight, row_bytes):
        steps = [0] * (tiles.key_blocks + 1)
        for rows, last in zip(tiles.rows, tiles.last, strict=True):
            steps[0] += rows
            steps[last] -= rows
        at = list(itertools.accumulate(steps))[: tiles.key_blocks]  # rows that each key block meets

        def lost_of(rows):
            return rows * missing(in_flight * rows * row_bytes, how.l2_bytes)

        lost = list(map(lost_of, at))
        self.rows, self.met, self.first = tiles.p.Nq, sum(at), sum(at[:1])
        self.again, self.all_rounds = sum(lost[1:]), sum(lost)
        self.after = lost_of(self.rows)

    def load(self, tensor, width, heads):
        """An input, `width` bytes a row: from HBM in the first round."""
        once = heads * self.first * width
        return Flow("load", tensor, heads * self.met * width, once, once + round(heads * self.again * width))

    def store(self, tensor, width, heads):
        """A running result: zeroed, then stored in every round."""
        once, asked = heads * self.rows * width, heads * (self.rows + self.met) * width
        return Flow("store", tensor, asked, once, once + round(heads * self.again * width))

    def load_again(self, tensor, width, heads):
        """A running result, loaded in every round and once more at the end."""
        asked = heads * (self.rows + self.met) * width
        return Flow("load", tensor, asked, 0, round(heads * (self.all_rounds + self.after) * width))


def missing(loop, room):
    """The share of a loop over `loop` bytes that is not found in a cache of `room` bytes.

    If the cache throws lines out at random, a line is still there one round later if none of the round's
    misses has hit it: 1 - m = exp(-m loop / room).
    """
    if loop <= room:
        return 0.0
    if room <= 0:
        return 1.0
    m = 1.0
    for _ in range(100):
        m = 1 - math.exp(-m * loop / room)
    return m


def trips(how, blocks, heads, head_bytes, own_bytes):
    """How often the `head_bytes` that all `blocks` programs of a head read come from HBM, for all heads.

    Programs are numbered head by head and run in waves. A wave reads what its heads need once. A head that
    the wave before has read, too, is found in L2 as far as not too much else was moved since: at share x of
    the way, what was left of the wave before, (1 - x) of it, x of this wave, and the `own_bytes` of each of
    the wave's programs, which nobody else needs.
    """
    programs, total, before = blocks * heads, 0.0, 0
    for first in range(0, programs, how.in_flight):
        last = min(first + how.in_flight, programs) - 1
        touched = last // blocks - first // blocks + 1
        carried_on = first % blocks > 0
        room = how.l2_bytes - (last - first + 1) * own_bytes
        total += touched - carried_on * _share_found(before * head_bytes, touched * head_bytes, room)
        before = touched
    return total


def _share_found(start, end, room):
    """For which share of x from 0 to 1 is start + x (end - start) <= room?"""
    if max(start, end) <= room:
        return 1.0
    if min(start, end) > room:
        return 0.0
    return (room - min(start, end)) / abs(end - start)


def shared_reads(p, how, keys, own):
    """K and V as read by programs of query blocks, which come head by head; keys[i] rows by block i.

    `own`: how many tensors like Q a program moves for itself.
    """
    seen = max(keys, default=0) * p.D * p.itemsize
    own_bytes = own * min(p.block_q, p.Nq) * p.D * p.itemsize
    times = trips(how, len(keys) * (p.Hq // p.Hkv), p.B * p.Hkv, 2 * seen, own_bytes)  # K and V

    def flow(name):
        asked, once = p.B * p.Hq * sum(keys) * p.D * p.itemsize, p.B * p.Hkv * seen
        return Flow("load", name, asked, once, min(max(round(times * seen), once), asked))

    return flow
