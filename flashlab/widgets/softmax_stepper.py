"""`SoftmaxStepper`: one query row (or two) meets one K/V block after another, with the real numbers.

Two steps a block: first what is already in the book is converted (the old part of both bars shrinks by
exp(m_old - m_new)), then the new block lands on top. The numbers come from `flashlab.online_softmax`; the
JavaScript repeats the arithmetic only for the knocked-out variants, and a test holds the two together.
"""

import math

import numpy as np
import traitlets

from flashlab import online_softmax, reference
from flashlab.errors import unknown_name
from flashlab.text import t
from flashlab.widgets._base import Widget

UNITS = {"log2": math.log(2), "e": 1.0}
KNOCK_OUTS = ("sum", "acc", "upside_down", "max_at_0")
MAX_KEYS = 256


class SoftmaxStepper(Widget):
    """The online softmax of one or two query rows, block by block.

    scores: [keys] or [2, keys], real numbers or -inf (masked): exponents of 2 with unit="log2", of e with
    unit="e". values: [keys, d]. block: keys in a block, from 1. labels: a name for each key (default: its
    number). row_names: a name for each row. component: which output number the accumulator bar shows.
    knock_out: switches that are on at the start, any of "sum" (do not convert the sum), "acc" (do not convert
    the accumulator), "upside_down" (1/alpha for alpha), "max_at_0" (start the max at 0).

    `step` counts two a block, from 0 (nothing seen) to 2 * ceil(keys / block); it follows the learner's
    committed steps and can be set. Raises ValueError or TypeError for anything that does not fit.
    """

    text_area = "stepper"
    esm_first = ("softmax_numbers.js",)
    twin_height = 560

    scores = traitlets.List().tag(sync=True)  # [rows][keys], None where masked
    values = traitlets.List().tag(sync=True)  # [keys][d]
    block = traitlets.Int(2).tag(sync=True)
    unit = traitlets.Unicode("log2").tag(sync=True)
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    row_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    frames = traitlets.List().tag(sync=True)  # [rows][blocks] of what `block_frames` returns
    component = traitlets.Int(0).tag(sync=True)
    knock_out = traitlets.List(traitlets.Unicode()).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        scores,
        values,
        block=2,
        unit="log2",
        labels=None,
        row_names=None,
        component=0,
        knock_out=(),
        step=0,
        **traits,
    ):
        scores, values = _numbers("scores", scores), _numbers("values", values)
        rows = scores[None] if scores.ndim == 1 else scores
        if rows.ndim != 2 or rows.shape[0] not in (1, 2) or not 1 <= rows.shape[1] <= MAX_KEYS:
            raise ValueError(
                f"expected scores [keys] or [2, keys] with 1 to {MAX_KEYS} keys, got {list(scores.shape)}"
            )
        keys = rows.shape[1]
        if values.ndim != 2 or values.shape[0] != keys or values.shape[1] < 1:
            raise ValueError(
                f"expected values [keys, d] with {keys} keys, as in scores, got {list(values.shape)}"
            )
        if np.isnan(rows).any() or (rows == np.inf).any():
            raise ValueError("expected scores that are numbers or -inf (masked), got nan or +inf")
        if not np.isfinite(values).all():
            raise ValueError("expected finite values, got nan or inf")
        if unit not in UNITS:
            raise unknown_name("unit", unit, UNITS)
        block = _whole("block", block, 1, None)
        labels = _names("labels", labels, keys)
        row_names = [] if row_names is None else _names("row_names", row_names, len(rows))
        knock_out = [knock_out] if isinstance(knock_out, str) else list(knock_out)
        for name in knock_out:
            if name not in KNOCK_OUTS:
                raise unknown_name("knock-out", name, KNOCK_OUTS)
        super().__init__(
            scores=[[None if x == -np.inf else x for x in row] for row in rows.tolist()],
            values=values.tolist(),
            block=block,
            unit=unit,
            labels=labels,
            row_names=row_names,
            frames=[block_frames(row, values, block, unit) for row in rows],
            component=_whole("component", component, 0, values.shape[1] - 1),
            knock_out=knock_out,
            step=_whole("step", step, 0, 2 * math.ceil(keys / block)),
            **traits,
        )

    @traitlets.validate("step")
    def _step_in_range(self, proposal):
        return _whole("step", proposal.value, 0, 2 * math.ceil(len(self.values) / self.block))

    def summary(self):
        return t(
            "stepper.summary", language=self.strings.get("lang"), keys=len(self.values), block=self.block
        )


def block_frames(scores, values, block, unit="log2"):
    """What the widget shows after each block of one row: a list of dicts of plain numbers.

    scores [keys] float64 in `unit`, values [keys, d] float64. Each dict: m (in `unit`; None while -inf),
    alpha, l, acc [d], out [d] = acc / l, and ref [d], plain attention over the keys seen so far.
    """
    natural, frames = scores * UNITS[unit], []
    state = online_softmax.start(1, values.shape[1])
    for a in range(0, len(scores), block):
        b = min(a + block, len(scores))
        old, state = state, online_softmax.absorb(state, natural[None, a:b], values[a:b])
        out, _ = online_softmax.finish(state)
        m = float(state.row_max[0])
        alpha = np.exp(old.row_max - online_softmax.finite(state.row_max))
        frames.append(
            {
                "m": None if m == -np.inf else m / UNITS[unit],
                "alpha": float(alpha[0]),
                "l": float(state.row_sum[0]),
                "acc": state.acc[0].tolist(),
                "out": out[0].tolist(),
                "ref": _plain(natural[:b], values[:b]).tolist(),
            }
        )
    return frames


def _plain(natural, values):
    """Reference attention of one row: scores [keys] (-inf where masked), values [keys, d] -> [d]."""
    d, may_see = values.shape[1], natural != -np.inf
    k = np.zeros((may_see.sum(), d))
    k[:, 0] = natural[may_see]  # with q = (1, 0, ...), q @ k.T is the row of scores
    return reference.attention(np.eye(1, d), k, values[may_see], scale=1.0)[0][0]


def _numbers(name, given):
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "fiu":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        kind = getattr(given, "dtype", type(given).__name__)
        raise TypeError(f"expected {name} to be an array of real numbers, got {kind}") from None


def _whole(name, given, low, high):
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)):
        raise TypeError(f"expected {name} to be a whole number, got {type(given).__name__}")
    if given < low or (high is not None and given > high):
        most = "" if high is None else f" to {high}"
        raise ValueError(f"expected {name} from {low}{most}, got {given}")
    return int(given)


def _names(name, given, count):
    if given is None:
        return [str(i) for i in range(count)]
    if isinstance(given, str) or not all(isinstance(x, str) for x in given):
        raise TypeError(f"expected {name} to be a list of strings, got {given!r:.60}")
    if len(given) != count:
        raise ValueError(f"expected {count} {name}, got {len(given)}")
    return list(given)
