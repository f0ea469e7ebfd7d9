"""Judges an answer to an attention exercise by float64, with a tolerance that comes from plain NumPy's own
error.

Arrays: scores [rows, keys] (scaled, masked with -inf), values [keys, d], out [rows, d], lse [rows].
"""

from dataclasses import dataclass

import numpy as np

from flashlab.checks.engine import Diagnosis, Found
from flashlab.text import t


def softmax_attention(scores, values):
    """(out, lse) the plain way, whole rows at once, in the inputs' dtype. An empty row gives 0 and -inf."""
    top = scores.max(-1, keepdims=True)
    empty = np.isneginf(top)
    weights = np.exp(scores - np.where(empty, 0, top).astype(scores.dtype))
    total = np.where(empty, 1, weights.sum(-1, keepdims=True))
    lse = np.where(empty, -np.inf, top + np.log(total))[:, 0]
    return np.where(empty, 0, weights / total @ values), lse


@dataclass(frozen=True)
class Case:
    """One input. `usual` names the usual cause of a NaN or infinity here, `label` what the input is."""

    scores: np.ndarray
    values: np.ndarray
    block: int
    label: str = ""
    least: float = 0.0
    usual: str = "not_finite"

    def truth(self):
        return truth(self.scores, self.values, self.block, self.least)


@dataclass(frozen=True)
class Truth:
    """What is right for one input, how far from it an answer may be, and how far plain NumPy is."""

    out: np.ndarray
    lse: np.ndarray
    out_tolerance: float
    lse_tolerance: float
    plain_error: float
    plain_lse_error: float

    def wrong_rows(self, out, lse):
        """(rows whose out is wrong, rows whose lse is wrong) as bool [rows]; NaN is wrong."""
        with np.errstate(invalid="ignore"):
            out_right = np.abs(out - self.out) <= self.out_tolerance
            lse_right = (np.abs(lse - self.lse) <= self.lse_tolerance) | (lse == self.lse)
        return ~out_right.all(-1), ~lse_right

    def accepts(self, out, lse):
        return not any(rows.any() for rows in self.wrong_rows(out, lse))


def truth(scores, values, block, least=0.0):
    """The Truth for one input. `least`: a tolerance to allow in any case (hand-sized stages judge the idea,
    not the bits).

    |out - exact| <= 2 |plain - exact| + eps (max |exact| + (8 + blocks + 2 max |score|) max(P |V|)), the same
    for lse without P |V|. eps is that of the shorter dtype. Each block may add one rounding of the conversion
    factor; an answer that carries lse from block to block rounds it, hence the scores.
    """
    with np.errstate(all="ignore"):
        out, lse = softmax_attention(scores.astype(np.float64), values.astype(np.float64))
        carried, _ = softmax_attention(scores.astype(np.float64), np.abs(values.astype(np.float64)))
        plain_out, plain_lse = (a.astype(np.float64) for a in softmax_attention(scores, values))
    eps = max(np.finfo(scores.dtype).eps, np.finfo(values.dtype).eps)
    largest = np.abs(scores[np.isfinite(scores)]).max(initial=0)
    steps = 8 + -(-scores.shape[1] // block) + 2 * float(largest)
    seen = np.isfinite(lse)
    plain_error = float(np.abs(plain_out - out).max())
    lse_error = float(np.abs(plain_lse[seen] - lse[seen]).max(initial=0))
    out_tolerance = 2 * plain_error + eps * (np.abs(out).max() + steps * carried.max())
    lse_tolerance = 2 * lse_error + eps * (np.abs(lse[seen]).max(initial=0) + steps)
    return Truth(out, lse, max(out_tolerance, least), max(lse_tolerance, least), plain_error, lse_error)


def same(a, b, tolerance):
    """Equal up to `tolerance` + 0.1 %, NaN and infinities in the same places: the same mistake was made."""
    return all(
        np.allclose(x, y, rtol=1e-3, atol=tolerance, equal_nan=True) for x, y in zip(a, b, strict=True)
    )


def ask(answer, case):
    """(out, lse) in float64, or Found: not a pair, not float, not the right shape."""
    result = answer(case.scores, case.values, case.block)
    wanted = [(case.scores.shape[0], case.values.shape[1]), (case.scores.shape[0],)]
    tried = t(
        "checks.online_softmax.tried.sizes", rows=wanted[0][0], keys=case.scores.shape[1], block=case.block
    )
    expected = f"(out {list(wanted[0])}, lse {list(wanted[1])})"
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Found(Diagnosis("not_a_pair", {}, tried, expected, _kind(result)))
    try:
        parts = [np.asarray(part) for part in result]
    except ValueError:
        raise Found(Diagnosis("not_a_pair", {}, tried, expected, _kind(result))) from None
    got = f"(out {list(parts[0].shape)}, lse {list(parts[1].shape)})"
    if [part.shape for part in parts] != wanted:
        swapped = [part.shape for part in parts] == wanted[::-1]
        raise Found(Diagnosis("swapped" if swapped else "wrong_shape", {}, tried, expected, got))
    if any(not np.issubdtype(part.dtype, np.floating) for part in parts):
        raise Found(Diagnosis("not_float", {}, tried, "float", f"{parts[0].dtype}, {parts[1].dtype}"))
    return tuple(part.astype(np.float64) for part in parts)


def _kind(result):
    if isinstance(result, (tuple, list)):
        return f"{type(result).__name__} ({len(result)})"
    return f"{type(result).__name__} {list(getattr(result, 'shape', []))}"
