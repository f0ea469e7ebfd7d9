"""Names what went wrong: which planted mistake gives these numbers, and which block is the first that goes
wrong."""

from dataclasses import replace

import numpy as np

from flashlab.checks import mutants
from flashlab.checks.engine import Diagnosis, Found
from flashlab.checks.judge import ask, same
from flashlab.text import t

SMALL = 5e-3  # an error below this part of the result is one of precision, not of the idea


def diagnose(answer, case, right, got):
    """The Diagnosis of a wrong result `got` = (out, lse) for `case`, where `right` (a Truth) was wanted."""
    bad_out, bad_lse = right.wrong_rows(*got)
    part = 0 if bad_out.any() else 1
    row = int(np.flatnonzero((bad_out, bad_lse)[part])[-1])
    wanted = (right.out, right.lse)[part]
    key, values = _name(answer, case, right, got, part, row)
    place = _first_wrong_block(answer, case, row)
    return Diagnosis(
        key,
        values,
        tried=_tried(case, row),
        expected=f"{('out', 'lse')[part]} {_show(wanted[row])}",
        got=f"{('out', 'lse')[part]} {_show(got[part][row])}",
        more=[place] if place else [],
    )


def _tried(case, row):
    rows, keys = case.scores.shape
    label = t(f"checks.online_softmax.tried.{case.label}")
    key = "one_row" if rows == 1 else "case"
    line = t(f"checks.online_softmax.tried.{key}", label=label, row=row, keys=keys, block=case.block)
    kinds = [str(case.scores.dtype), str(case.values.dtype)]
    return line if kinds == ["float64"] * 2 else f"{line} ({kinds[0]}, {kinds[1]})"


def _name(answer, case, right, got, part, row):
    """The key and values of the diagnosis. A planted mistake must be right wherever the answer was."""
    error = np.abs(got[part] - (right.out, right.lse)[part]).max()
    size = np.abs((right.out, right.lse)[part]).max()
    if np.isfinite(size) and error < SMALL * size and not case.least:
        plain = (right.plain_error, right.plain_lse_error)[part]
        return "float16_accumulator", {"error": f"{error:.1e}", "plain": f"{plain:.1e}"}
    planted = _planted(answer, case, right, got, part)
    if planted:
        return mutants.key(planted), {}
    numbers = [*got[0][row], got[1][row]]
    if np.isneginf(right.lse[row]):
        return ("empty_row_gives_nan" if np.isnan(numbers).any() else "empty_row"), {}
    if not np.isfinite(numbers).all():
        return case.usual, {}
    if case.scores.shape[0] > 1 and _alone_is_right(answer, case, row):
        return "rows_mix", {"row": row}
    return ("other", "other_lse")[part], {}


def _planted(answer, case, right, got, part):
    """The name of the planted mistake that gives these numbers (out and lse, else the wrong one)."""
    inputs = [case, _from_the_end(case)] if case.scores.shape[1] % case.block == 0 else [case]
    for parts in (slice(0, 2), slice(part, part + 1)):
        for name, mutant in list(mutants.load("online_softmax").items())[1:]:
            for given in inputs:
                wrong = _run(mutant, given)
                if right.accepts(*wrong) or not same(got[parts], wrong[parts], right.out_tolerance):
                    continue
                if all(c.truth().accepts(*_run(mutant, c)) for c in answer.right_on):
                    return name
    return None


def _from_the_end(case):
    """The same keys with the blocks in reverse order, for an answer that starts at the last block."""
    keys = np.arange(case.scores.shape[1]).reshape(-1, case.block)[::-1].ravel()
    return replace(case, scores=case.scores[:, keys], values=case.values[keys])


def _run(mutant, case):
    with np.errstate(all="ignore"):
        result = mutant(case.scores.copy(), case.values.copy(), case.block)
    return tuple(np.asarray(a, np.float64) for a in result)


def _alone_is_right(answer, case, row):
    alone = replace(case, scores=case.scores[row : row + 1].copy())
    return alone.truth().accepts(*ask(answer, alone))


def _first_wrong_block(answer, case, row):
    """(key, values) of a line that says at which block this row goes wrong first: tried on prefixes of it."""
    keys, block = case.scores.shape[1], case.block
    ends = [*range(block, keys, block), keys]
    if len(ends) == 1 or len(ends) > 64:
        return None
    so_far = None
    for n, end in enumerate(ends, 1):
        part = replace(case, scores=case.scores[row : row + 1, :end].copy(), values=case.values[:end].copy())
        try:
            right, got = part.truth(), ask(answer, part)
        except Found:
            return None
        if right.accepts(*got):
            so_far = got[0][0]
            continue
        if n == 1:
            return "wrong_from_the_start", {}
        old, new = part.scores[0, : ends[n - 2]].max(), part.scores[0].max()
        tail = end - ends[n - 2]
        values = {"n": n, "before": n - 1, "so_far": _show(so_far), "old": _show(old), "new": _show(new)}
        values |= {"keys": tail, "block": block}
        if new > old:
            return "wrong_where_max_moves", values
        return ("wrong_at_the_tail" if tail < block else "wrong_at_block"), values
    return None


def _show(x):
    if np.ndim(x):
        return "[" + ", ".join(_show(number) for number in x) + "]"
    return f"{float(x):.5g}"
