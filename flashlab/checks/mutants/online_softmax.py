"""Planted answers to `online_softmax`: f(scores [..., rows, keys], values [..., keys, d], block) -> (out,
lse).

All share one loop. A mutant replaces one of its three lines: what the state starts from, how a block is
absorbed, what is made of the state at the end. Everything is computed in the dtype of the inputs.
"""

import functools

import numpy as np


def row_total(p):
    """Sum over the keys of a block: [..., rows, keys] -> [..., rows, 1]."""
    return p.sum(-1, keepdims=True)


def running_max(row_max, block_scores):
    return np.maximum(row_max, block_scores.max(-1, keepdims=True))


def rates(row_max, new_max, block_scores):
    """alpha converts what is in the book already, p are the weights of the new block. Avoids -inf - -inf."""
    unit = np.where(np.isneginf(new_max), 0, new_max).astype(new_max.dtype)
    return np.exp(row_max - unit), np.exp(block_scores - unit)


def absorb(row_sum, acc, alpha, p, v):
    return alpha * row_sum + row_total(p), alpha * acc + p @ v


def finish(row_max, row_sum, acc):
    """The answer from the state; a row whose max is still -inf has seen nothing and gives 0 and -inf."""
    empty = np.isneginf(row_max)
    out = np.where(empty, 0, acc / np.where(empty, 1, row_sum))
    lse = np.where(empty, -np.inf, row_max + np.log(np.where(empty, 1, row_sum)))
    return out, lse[..., 0]


def sweep(
    scores, values, block, *, start=-np.inf, peak=running_max, rates=rates, absorb=absorb, finish=finish
):
    """The loop over key blocks; the keyword arguments are the lines that a mutant replaces."""
    rows, keys = scores.shape[:-1], scores.shape[-1]
    row_max = np.full((*rows, 1), start, scores.dtype)
    row_sum = np.zeros((*rows, 1), scores.dtype)
    acc = np.zeros((*rows, values.shape[-1]), np.result_type(scores, values))
    for j in range(0, keys, block):
        x, v = scores[..., j : j + block], values[..., j : j + block, :]
        new_max = peak(row_max, x)
        alpha, p = rates(row_max, new_max, x)
        row_sum, acc = absorb(row_sum, acc, alpha, p, v)
        row_max = new_max
    return finish(row_max, row_sum, acc)


def first(alpha):
    """alpha, but 1 where the book is still empty (alpha = 0): for mutants that would otherwise divide by
    0."""
    return np.where(alpha == 0, 1, alpha).astype(alpha.dtype)


# The wrong line of `absorb`: (row sum s, accumulator a, alpha, weights p, values v) -> the new (s, a).
WRONG_UPDATES = {
    "acc is not converted": lambda s, a, alpha, p, v: (alpha * s + row_total(p), a + p @ v),
    "row_sum is not converted": lambda s, a, alpha, p, v: (s + row_total(p), alpha * a + p @ v),
    "neither is converted": lambda s, a, alpha, p, v: (s + row_total(p), a + p @ v),
    "both divided by alpha": lambda s, a, alpha, p, v: (
        s / first(alpha) + row_total(p),
        a / first(alpha) + p @ v,
    ),
    "only acc divided by alpha": lambda s, a, alpha, p, v: (
        alpha * s + row_total(p),
        a / first(alpha) + p @ v,
    ),
    "alpha on the new block": lambda s, a, alpha, p, v: (
        s + first(alpha) * row_total(p),
        a + first(alpha) * (p @ v),
    ),
}


def divide_inside(scores, values, block):
    """The interview card's loop: o += p @ v / l, with l right and o never converted."""

    def absorb_and_divide(row_sum, acc, alpha, p, v):
        row_sum = alpha * row_sum + row_total(p)
        return row_sum, acc + p @ v / row_sum

    def already_divided(row_max, row_sum, acc):
        return acc, finish(row_max, row_sum, acc)[1]

    return sweep(scores, values, block, absorb=absorb_and_divide, finish=already_divided)


def softmax_per_block(scores, values, block):
    starts = range(0, scores.shape[-1], block)
    parts = [sweep(scores[..., j : j + block], values[..., j : j + block, :], block)[0] for j in starts]
    return sum(parts) / len(parts), sweep(scores, values, block)[1]


def no_max(scores, values, block):
    def plain_rates(row_max, new_max, x):
        return np.ones_like(row_max), np.exp(x)

    def plain_finish(row_max, row_sum, acc):
        return acc / row_sum, np.log(row_sum)[..., 0]

    return sweep(scores, values, block, rates=plain_rates, finish=plain_finish)


def last_dropped(scores, values, block):
    whole = scores.shape[-1] // block * block
    return sweep(scores[..., :whole], values[..., :whole, :], block)


def not_divided(row_max, row_sum, acc):
    return acc, finish(row_max, row_sum, acc)[1]


def one_max_and_sum(scores, values, block):
    """The scalar version of the interview card: one m and one l for the whole tile of rows."""

    def tile_finish(row_max, row_sum, acc):
        total = np.broadcast_to(row_sum.sum(-2, keepdims=True), row_sum.shape)
        return finish(row_max, total, acc)

    return sweep(scores, values, block, peak=tile_max, finish=tile_finish)


def tile_max(row_max, x):
    return np.maximum(row_max, x.max((-2, -1), keepdims=True))


def with_lse(formula):
    def wrong_finish(row_max, row_sum, acc):
        out, lse = finish(row_max, row_sum, acc)
        return out, np.where(np.isneginf(lse), lse, formula(row_max, row_sum)[..., 0])

    return functools.partial(sweep, finish=wrong_finish)


def whole_row(scores, values, block):
    return sweep(scores, values, scores.shape[-1])


def unguarded_rates(row_max, new_max, x):
    return np.exp(row_max - new_max), np.exp(x - new_max)


def unguarded_finish(row_max, row_sum, acc):
    return acc / row_sum, (row_max + np.log(row_sum))[..., 0]


def changes_input(scores, values, block):
    def in_place(row_max, new_max, x):
        alpha, p = rates(row_max, new_max, x)
        x[...] = p
        return alpha, p

    return sweep(scores, values, block, rates=in_place)


def half_precision(row_sum, acc, alpha, p, v):
    row_sum, acc = absorb(row_sum, acc, alpha, p, v)
    return row_sum, acc.astype(np.float16).astype(acc.dtype)


def ghost_keys(scores, values, block):
    """The last block is filled up with zeros, and the empty slots are not masked."""
    missing = -scores.shape[-1] % block
    scores = np.concatenate([scores, np.zeros((*scores.shape[:-1], missing), scores.dtype)], -1)
    values = np.concatenate(
        [values, np.zeros((*values.shape[:-2], missing, values.shape[-1]), values.dtype)], -2
    )
    return sweep(scores, values, block)


def first_block_max(row_max, x):
    return np.where(np.isneginf(row_max), x.max(-1, keepdims=True), row_max)


def block_max(row_max, x):
    """The max of this block alone; where the block is wholly masked, the old one."""
    top = x.max(-1, keepdims=True)
    return np.where(np.isneginf(top), row_max, top)


def scaled_again(scores, values, block):
    return sweep((scores / np.sqrt(values.shape[-1])).astype(scores.dtype), values, block)


def base_two(scores, values, block):
    return sweep((scores * np.log(2)).astype(scores.dtype), values, block)


def finite_mask(scores, values, block):
    lowest = -1e9 if scores.dtype != np.float16 else -6e4
    return sweep(np.where(np.isneginf(scores), lowest, scores).astype(scores.dtype), values, block)


MUTANTS = {
    "nothing wrong": sweep,
    **{name: functools.partial(sweep, absorb=update) for name, update in WRONG_UPDATES.items()},
    "divide inside the loop": divide_inside,
    "softmax per block, averaged": softmax_per_block,
    "no max subtraction": no_max,
    "max starts at 0": functools.partial(sweep, start=0),
    "last partial block dropped": last_dropped,
    "no division at the end": functools.partial(sweep, finish=not_divided),
}
CLASSIC = tuple(MUTANTS)[1:]  # the twelve of lesson C
MUTANTS |= {
    "scaled again": scaled_again,
    "base 2 instead of e": base_two,
    "empty slots not masked": ghost_keys,
    "one max and sum for all rows": one_max_and_sum,
    "one max for all rows": functools.partial(sweep, peak=tile_max),
    "max of the first block kept": functools.partial(sweep, peak=first_block_max),
    "max is not running": functools.partial(sweep, peak=block_max),
    "lse in base 2": with_lse(lambda top, total: top / np.log(2) + np.log2(total)),
    "lse without the max": with_lse(lambda top, total: np.log(total)),
    "lse is only the max": with_lse(lambda top, total: top),
    "lse adds the sum, not its log": with_lse(lambda top, total: top + total),
    "float16 accumulator": functools.partial(sweep, absorb=half_precision),
    "first masked block gives nan": functools.partial(sweep, rates=unguarded_rates),
    "empty row gives nan": functools.partial(sweep, finish=unguarded_finish),
    "masked with a finite number": finite_mask,
    "changes its input": changes_input,
    "whole row at once": whole_row,
}
