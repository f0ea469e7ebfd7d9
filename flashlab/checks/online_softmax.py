"""The seven stages of the exercise `online_softmax`: online_attention(scores, values, block) -> (out, lse).

A wrong result is looked up among the planted mistakes (mutants): which of them gives these numbers, and was
right on all inputs before? Then the answer is called on prefixes of the row: which block is the first that
goes wrong?
"""

import tracemalloc

import numpy as np

from flashlab import data
from flashlab.checks import watch
from flashlab.checks.diagnose import diagnose
from flashlab.checks.engine import Answer, Diagnosis, Found
from flashlab.checks.judge import Case, ask

HAND = 1e-3  # tolerance of the hand-sized stages
TAU = np.log(2)  # the scale of the running example: exp(TAU * x) = 2 ** x


def shape_and_kind(answer):
    """1: a pair of float arrays [rows, d] and [rows]."""
    for rows in (1, 3):
        ask(answer, Case(np.zeros((rows, 6)), np.ones((6, 2)), 2))


def by_hand(answer):
    """2: row 5 of the running example, blocks of 2: every classic mistake has a number of its own."""
    scores, values = _running_example()
    return _judge(answer, [Case(scores[5:], values, 2, "row_5", HAND)])


def all_rows(answer):
    """3: all six rows together, blocks of 1, 2, 4, 6 and 7."""
    scores, values = _running_example()
    return _judge(answer, [Case(scores, values, block, "six_rows", HAND) for block in (1, 2, 4, 6, 7)])


def sizes(answer):
    """4: random scores, ragged sizes, both float types and a mixture; as exact as plain NumPy."""
    rng = np.random.default_rng(5)
    cases = []
    for keys, block in sorted((keys, b) for b in (5, 16) for keys in (1, b - 1, b, b + 1, 2 * b + 3, 97)):
        scores, values = 3 * rng.normal(size=(3, keys)), rng.normal(size=(keys, 4))
        for kinds in ((np.float64, np.float64), (np.float32, np.float32), (np.float64, np.float32)):
            cases.append(Case(scores.astype(kinds[0]), values.astype(kinds[1]), block, "random"))
    return _judge(answer, cases)


def extremes(answer):
    """5: scores of ±1000 in every order, only very negative float32 scores, float16."""
    rng = np.random.default_rng(6)
    values = rng.normal(size=(8, 3))
    jump = np.array([0, 0, 1, 1, 0, 1, 0, 0]) * 2000.0 - 1000 + rng.normal(size=(2, 8))
    low = (rng.normal(size=(2, 8)) - 200).astype(np.float32)
    half = np.clip(rng.normal(size=(2, 8)) * 8 + 20, 0, 40).astype(np.float16)
    far = rng.normal(size=(2, 8)) + np.array([[1000.0], [-1000.0]])
    cases = [
        Case(
            np.full((1, 8), 1000.0) + rng.normal(size=(1, 8)), values, 2, "large", usual="no_max_subtraction"
        ),
        Case(low, values.astype(np.float32), 2, "low", usual="max_starts_at_0"),
        Case(far[1:], values, 2, "lowest", usual="max_starts_at_0"),
        Case(far, values, 2, "far", usual="one_max_for_all_rows"),
        Case(np.sort(jump, -1), values, 2, "rising", usual="max_of_the_first_block_kept"),
        Case(np.sort(jump, -1)[:, ::-1].copy(), values, 2, "falling", usual="max_is_not_running"),
        Case(jump, values, 2, "jumping"),
        Case(half, values.astype(np.float16), 2, "half", usual="no_max_subtraction"),
    ]
    return _judge(answer, cases)


def masked(answer):
    """6: blocks without a visible key in every place, and rows that may look at nothing."""
    rng = np.random.default_rng(7)
    scores, values = rng.normal(size=(4, 9)), rng.normal(size=(9, 3))
    first, late, empty = scores.copy(), scores.copy(), scores.copy()
    first[1, :4] = -np.inf
    late[0, 4:], late[1, 2:4], late[2, ::2] = -np.inf, -np.inf, -np.inf
    empty[[0, 2]] = -np.inf
    cases = [
        Case(first, values, 2, "first_masked", usual="first_masked_block_gives_nan"),
        Case(late, values, 2, "late_masked", usual="first_masked_block_gives_nan"),
        Case(empty[:1], values, 2, "empty_row", usual="empty_row_gives_nan"),
        Case(
            empty.astype(np.float32), values.astype(np.float32), 2, "empty_rows", usual="empty_row_gives_nan"
        ),
    ]
    return _judge(answer, cases)


def block_at_a_time(answer):
    """7: never more than `block` keys in one operation, and never a copy of the whole row to work on."""
    rng = np.random.default_rng(8)
    case = Case(rng.normal(size=(1, 97)), rng.normal(size=(97, 3)), 16)
    log = watch.Log()
    scores, values = (watch.watched(a, axis, name, log) for a, axis, name in _tensors(case))
    try:
        with watch.no_way_around():
            answer(scores, values, case.block)
    except Found:  # watched arrays are no plain arrays: not the answer's fault, the memory below still tells
        log = watch.Log()
    for name in ("scores", "values"):
        if log.most(name) > case.block:
            numbers = {"name": name, "read": log.most(name), "keys": 97, "block": case.block}
            return Diagnosis("whole_row_at_once", numbers)
    if log.visits("scores", 0) > 1:
        answer.notes.append(("reads_twice", {"times": log.visits("scores", 0)}))
    wide = Case(rng.normal(size=(8, 2048)), rng.normal(size=(2048, 1)), 32)
    peak = _peak_memory(answer, wide)
    if peak > 1.5 * wide.scores.nbytes:
        sizes = {
            "peak": f"{peak / 1024:.0f} kB",
            "row": f"{wide.scores.nbytes / 1024:.0f} kB",
            "block": wide.block,
        }
        return Diagnosis("holds_the_whole_row", sizes)
    return None


STAGES = (shape_and_kind, by_hand, all_rows, sizes, extremes, masked, block_at_a_time)


def _running_example():
    q, k, v = data.tiny()
    return TAU * (q @ k.T), v


def _tensors(case):
    return ((case.scores, 1, "scores"), (case.values, 0, "values"))


def _peak_memory(answer, case):
    """Bytes that the answer's function held at most, as tracemalloc sees them (NumPy reports to it)."""
    peaks = []

    def measured(*args):
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        result = answer.function(*args)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        return result

    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start(1)
    try:
        Answer(measured)(case.scores, case.values, case.block)
    finally:
        if not tracing:
            tracemalloc.stop()
    return peaks[0]


def _judge(answer, cases):
    """The diagnosis of the first case that goes wrong; None when all are right."""
    for case in cases:
        right = case.truth()
        got = ask(answer, case)
        if not right.accepts(*got):
            return diagnose(answer, case, right, got)
        answer.right_on.append(case)
    return None
