"""The one idea of FlashAttention: a softmax that is exact although it never sees the whole row.

A query row carries three things from key block to key block: the largest score so far (row_max), the sum of
exp(score - row_max) over the keys so far (row_sum), and the sum of exp(score - row_max) * value (acc). Both
sums are amounts in units of exp(row_max): when row_max moves, everything already in the book is converted,
once, by exp(old row_max - new row_max).

Milakov & Gimelshein 2018 (arXiv 1805.02867), section 3; FlashAttention-2 (arXiv 2307.08691), section 3.1.
"""

from typing import NamedTuple

import numpy as np


class State(NamedTuple):
    """What the rows of a query block know after some keys: row_max [..., rows], row_sum [..., rows], acc
    [..., rows, d].
    """

    row_max: np.ndarray
    row_sum: np.ndarray
    acc: np.ndarray


def start(rows, d, dtype=np.float64):
    """The state of `rows` query rows before any key: maximum -inf, sum 0, accumulator 0."""
    return State(np.full(rows, -np.inf, dtype), np.zeros(rows, dtype), np.zeros((rows, d), dtype))


def absorb(state, scores, values):
    """Meet one more key block: scores [..., rows, keys] (scaled, -inf where masked), values [..., keys, d]
    -> the new State.
    """
    row_max = np.maximum(state.row_max, scores.max(-1, initial=-np.inf))
    unit = finite(row_max)
    alpha = np.exp(
        state.row_max - unit
    )  # the rate from the old unit to the new one: at most 1, and 0 for the first block
    p = np.exp(scores - unit[..., None])  # the new block, in the new unit: at most 1
    row_sum = alpha * state.row_sum + p.sum(-1)
    acc = alpha[..., None] * state.acc + p @ seen(scores, values)
    return State(row_max, row_sum, acc)


def merge(a, b):
    """The state of the keys of both: exact, in any order, so that key blocks may be met by different
    processors.
    """
    row_max = np.maximum(a.row_max, b.row_max)
    rate_a, rate_b = (np.exp(s.row_max - finite(row_max)) for s in (a, b))
    row_sum = rate_a * a.row_sum + rate_b * b.row_sum
    return State(row_max, row_sum, rate_a[..., None] * a.acc + rate_b[..., None] * b.acc)


def finish(state):
    """o = acc / row_sum [..., rows, d] and lse = row_max + ln row_sum [..., rows]. No key seen: o = 0, lse
    = -inf.
    """
    empty = state.row_sum == 0
    o = state.acc / np.where(empty, 1, state.row_sum)[..., None]
    lse = np.where(empty, -np.inf, finite(state.row_max) + np.log(np.where(empty, 1, state.row_sum)))
    return o, lse


def finite(row_max):
    """row_max, or 0 where it is still -inf: -inf minus -inf is nan, -inf minus 0 is a weight of 0."""
    return np.where(row_max == -np.inf, 0, row_max)


def seen(scores, values):
    """`values` with 0 for the keys that no row of this tile may look at: a weight of 0 times nan would be
    nan.
    """
    return np.where((scores != -np.inf).any(-2)[..., None], values, 0)
