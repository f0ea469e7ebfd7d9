import numpy as np
import pytest

from flashlab.online_softmax import absorb, finish, merge, start


def direct(scores, values):
    w = np.exp(scores - scores.max(-1, keepdims=True))
    return w @ values / w.sum(-1, keepdims=True), scores.max(-1) + np.log(w.sum(-1))


def blocks(n, size):
    return [slice(j, j + size) for j in range(0, n, size)]


def test_the_state_of_row_five_is_the_one_done_by_hand():
    x, v = np.log(2) * np.array([[1, 0, 3, 2, 2, 0.0]]), np.array([[9, 6, 1, 4, 5, 12.0], [1] * 6]).T
    seen, state = [], start(1, 2)
    for b in blocks(6, 2):
        state = absorb(state, x[:, b], v[b])
        seen.append((state.row_max[0] / np.log(2), state.row_sum[0], *state.acc[0]))
    np.testing.assert_allclose(seen, [(1, 1.5, 12, 1.5), (3, 1.875, 6, 1.875), (3, 2.5, 10, 2.5)])


@pytest.mark.parametrize("keys", [1, 3, 4, 5, 11])
@pytest.mark.parametrize("size", [1e-3, 1, 30, 1000])
def test_any_cut_into_blocks_gives_the_softmax_of_the_whole_row(keys, size):
    rng = np.random.default_rng(keys)
    scores, values = size * rng.standard_normal((3, keys)), rng.standard_normal((keys, 2))
    state = start(3, 2)
    for b in blocks(keys, 4):
        state = absorb(state, scores[:, b], values[b])
    for got, want in zip(finish(state), direct(scores, values), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_the_order_of_blocks_and_the_tree_of_merges_do_not_matter():
    rng = np.random.default_rng(0)
    scores, values = 5 * rng.standard_normal((4, 12)), rng.standard_normal((12, 3))
    parts = [absorb(start(4, 3), scores[:, b], values[b]) for b in blocks(12, 5)]
    for tree in (lambda a, b, c: merge(merge(a, b), c), lambda a, b, c: merge(c, merge(b, a))):
        for got, want in zip(finish(tree(*parts)), direct(scores, values), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-12)


def test_merging_with_a_state_that_saw_nothing_changes_nothing():
    state = absorb(start(2, 1), np.array([[1.0, 2], [3, -np.inf]]), np.ones((2, 1)))
    for both in (merge(state, start(2, 1)), merge(start(2, 1), state)):
        assert all((a == b).all() for a, b in zip(both, state, strict=True))


def test_blocks_that_are_masked_as_a_whole_leave_no_trace_even_when_they_come_first():
    values = np.array([[np.nan], [np.nan], [3.0]])
    state = absorb(start(1, 1), np.full((1, 2), -np.inf), values[:2])
    assert state.row_sum[0] == 0 and finish(state)[0] == 0 and finish(state)[1] == -np.inf
    o, lse = finish(absorb(state, np.array([[7.0]]), values[2:]))
    assert o == 3 and lse == 7


def test_no_weight_is_ever_above_one_and_the_sum_never_below():
    rng = np.random.default_rng(1)
    state = start(5, 2, np.float32)
    for _ in range(20):
        scores = (200 * rng.standard_normal((5, 3))).astype(np.float32)
        state = absorb(state, scores, np.ones((3, 2), np.float32))
        assert (state.row_sum >= 1).all() and (state.acc[:, 0] == state.row_sum).all()


def test_float32_rows_of_very_negative_scores_survive():
    o, lse = finish(
        absorb(start(1, 1, np.float32), np.full((1, 4), -200, np.float32), np.ones((4, 1), np.float32))
    )
    assert o == 1 and abs(lse + 200 - np.log(4)) < 1e-4
