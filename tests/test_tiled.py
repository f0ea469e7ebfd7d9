import functools
import inspect
import re

import numpy as np
import pytest

from flashlab import data, tiled
from flashlab.problem import Problem, make_inputs
from flashlab.testing import assert_close_to_reference
from flashlab.trace import Trace

BLOCK = 4
RAGGED = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3]
PASSES = [tiled.fa1_forward, tiled.fa2_forward]
BACKWARD = {
    "fa1": tiled.fa1_backward,
    "fa2": tiled.fa2_backward,
    "fa2 as in the paper": functools.partial(tiled.fa2_backward, accumulate_dq=True),
}


@pytest.mark.parametrize("forward", PASSES)
@pytest.mark.parametrize("causal", [False, "top-left", "bottom-right"])
@pytest.mark.parametrize("nq", RAGGED)
@pytest.mark.parametrize("nk", RAGGED)
def test_o_and_lse_are_right_at_ragged_sizes(forward, causal, nq, nk):
    q, k, v = make_inputs(Problem(B=2, Hq=4, Hkv=2, Nq=nq, Nk=nk, D=3, dtype="float32"), seed=nq + nk)
    o, lse = forward(q, k, v, block_q=BLOCK, block_k=BLOCK - 1, causal=causal, scale=0.7)
    assert_close_to_reference(dict(o=o, lse=lse), q, k, v, causal=causal, scale=0.7)


@pytest.mark.parametrize("forward", PASSES)
@pytest.mark.parametrize("scale", [0.0, -0.7, 30.0, 1000.0])
def test_any_scale_is_a_number_also_zero_negative_and_huge(forward, scale):
    q, k, v = make_inputs(Problem(Nq=9, Nk=11, D=4, dtype="float32"))
    o, lse = forward(q, k, v, block_q=4, block_k=4, causal=True, scale=scale)
    assert_close_to_reference(dict(o=o, lse=lse), q, k, v, causal=True, scale=scale)


@pytest.mark.parametrize("forward", PASSES)
def test_rows_of_very_negative_scores_and_half_precision_inputs(forward):
    q = np.full((3, 4), 10, np.float32)
    k, v = np.full((6, 4), -10, np.float32), np.arange(24, dtype=np.float32).reshape(6, 4)
    o, lse = forward(q, k, v, block_q=2, block_k=4, scale=1.0)
    np.testing.assert_allclose(o, np.broadcast_to(v.mean(0), (3, 4)), rtol=1e-6)
    np.testing.assert_allclose(lse, -400 + np.log(6), rtol=1e-6)
    half = [x.astype(np.float16) for x in (q, k / 100, v)]
    assert_close_to_reference(
        dict(zip(("o", "lse"), forward(*half, block_q=2, block_k=4), strict=True)), *half
    )


@pytest.mark.parametrize("forward", PASSES)
def test_nan_behind_the_mask_changes_nothing(forward):
    q, k, v = make_inputs(Problem(Nq=5, Nk=9, D=4, dtype="float64"))
    clean = forward(q, k, v, block_q=2, block_k=4, causal=True)
    k[..., 5:, :] = v[..., 5:, :] = np.nan
    for a, b in zip(forward(q, k, v, block_q=2, block_k=4, causal=True), clean, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize("forward", PASSES)
def test_no_queries_no_keys_and_rows_that_see_nothing(forward):
    q, k, v = make_inputs(Problem(Nq=6, Nk=4, D=2, dtype="float64"))
    assert forward(q[..., :0, :], k, v)[0].shape == (1, 1, 0, 2)
    o, lse = forward(q, k[..., :0, :], v[..., :0, :])
    assert (o == 0).all() and (lse == -np.inf).all()
    o, lse = forward(q, k, v, block_q=4, block_k=2, causal="bottom-right")
    assert (o[..., :2, :] == 0).all() and (lse[..., :2] == -np.inf).all() and np.isfinite(lse[..., 2:]).all()


def numbers(forward, **how):
    """Numbers moved on the running example when every number counts the same."""
    trace = Trace(dtype="float32")
    forward(*data.tiny(), block_q=2, block_k=2, trace=trace, **how)
    return trace, trace.bytes() // 4


def test_fa2_moves_102_numbers_on_the_running_example_and_writes_each_output_once():
    trace, moved = numbers(tiled.fa2_forward)
    assert moved == 102  # 2 N d + 2 N d Tr + N with N = 6, d = 2, Tr = 3
    assert trace.bytes("store", "o") == 4 * 12 and trace.bytes("load", "q") == 4 * 12
    assert trace.bytes("load", "k") == trace.bytes("load", "v") == 3 * 4 * 12


def test_fa1_moves_228_numbers_as_published_and_42_more_to_round_the_output():
    trace, moved = numbers(tiled.fa1_forward)
    assert moved == 228 + 42  # 3 N d (1 + Tc) + N (2 + 4 Tc) with Tc = 3, then o_fp32, l, m -> o, lse
    assert (
        sum(e.op == "store" and e.tensor == "o_fp32" and e.tile == (2,) for e in trace) == 4
    )  # the zeros, then three visits


def test_bytes_are_those_of_the_format_and_statistics_are_fp32():
    half = Trace(dtype="float16")
    tiled.fa1_forward(*data.tiny(), block_q=2, block_k=2, trace=half)
    assert (
        half.bytes("load", "k") == 2 * 12
        and half.bytes("store", "lse") == 4 * 6
        and half.bytes("load", "o_fp32") == 4 * 4 * 12
    )
    assert half.bytes() == half.bytes("load") + half.bytes("store")


def test_causal_tiles_above_the_diagonal_are_neither_loaded_nor_computed():
    for forward in PASSES:
        trace, _ = numbers(forward, causal=True)
        assert sum(e.op == "scores" for e in trace) == 6
        assert {e.tile for e in trace if e.op == "scores"} == {(i, j) for i in range(3) for j in range(i + 1)}
        assert trace.flops() == 6 * 2 * (2 * 2 * 2 * 2)


def test_programs_are_one_a_query_block_for_fa2_and_one_a_head_for_fa1():
    q, k, v = make_inputs(Problem(B=2, Hq=3, Nq=5, D=2, dtype="float64"))
    for forward, programs in ((tiled.fa1_forward, 6), (tiled.fa2_forward, 6 * 3)):
        trace = []
        forward(q, k, v, block_q=2, block_k=2, trace=trace)
        assert len({e.program for e in trace}) == programs and [e.step for e in trace] == list(
            range(len(trace))
        )


@pytest.mark.parametrize(
    "forward, paper, lines",
    [
        (tiled.fa1_forward, "FA1", [2, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
        (tiled.fa2_forward, "FA2", [3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15]),
        (tiled.fa1_backward, "FA1", [5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 19, 20, 21, 22, 24]),
        (tiled.fa2_backward, "FA2", [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18]),
    ],
)
def test_each_line_of_the_papers_algorithm_stands_once_and_in_order(forward, paper, lines):
    found = []
    for first, last in re.findall(
        rf"# {paper} Alg\. \d, lines? (\d+)(?:-(\d+))?", inspect.getsource(forward.__wrapped__)
    ):
        found += range(int(first), int(last or first) + 1)
    assert found == lines


def test_bad_block_sizes_and_shapes_are_refused():
    q, k, v = data.tiny()
    with pytest.raises(ValueError, match="block_q to be a whole number >= 1, got 0"):
        tiled.fa2_forward(q, k, v, block_q=0)
    with pytest.raises(ValueError, match="same D"):
        tiled.fa1_forward(q, k[:, :1], v[:, :1])
    with pytest.raises(ValueError, match="unknown causal 'left'"):
        tiled.fa1_forward(q, k, v, causal="left")


@pytest.mark.parametrize("name", BACKWARD)
@pytest.mark.parametrize("causal", [False, "top-left", "bottom-right"])
@pytest.mark.parametrize("nq, nk", [(1, 1), (3, 9), (9, 3), (11, 11), (4, 5)])
def test_dq_dk_and_dv_are_right_at_ragged_sizes_and_for_shared_heads(name, causal, nq, nk):
    q, k, v = make_inputs(Problem(B=2, Hq=4, Hkv=2, Nq=nq, Nk=nk, D=3, dtype="float32"), seed=nq + nk)
    do = make_inputs(Problem(B=2, Hq=4, Nq=nq, D=3, dtype="float32"), seed=77)[0]
    how = dict(block_q=4, block_k=3, causal=causal, scale=-0.7)
    o, lse = tiled.fa2_forward(q, k, v, **how)
    grads = BACKWARD[name](q, k, v, o, lse, do, **how)
    assert_close_to_reference(
        dict(zip(("dq", "dk", "dv"), grads, strict=True)), q, k, v, do, causal=causal, scale=-0.7
    )


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_ignore_nan_behind_the_mask_and_are_zero_for_rows_that_see_nothing(name):
    q, k, v = make_inputs(Problem(Nq=5, Nk=9, D=4, dtype="float64"))
    o, lse = tiled.fa2_forward(q, k, v, causal=True)
    clean = BACKWARD[name](q, k, v, o, lse, q, block_q=2, block_k=4, causal=True)
    k[..., 5:, :] = v[..., 5:, :] = np.nan
    dirty = BACKWARD[name](q, k, v, o, lse, q, block_q=2, block_k=4, causal=True)
    assert all((a == b).all() for a, b in zip(clean, dirty, strict=True))
    q, k, v = make_inputs(Problem(Nq=6, Nk=2, D=4, dtype="float64"))
    o, lse = tiled.fa2_forward(q, k, v, causal="bottom-right")
    grads = BACKWARD[name](q, k, v, o, lse, q, block_q=4, block_k=2, causal="bottom-right")
    assert (grads[0][..., :4, :] == 0).all() and all(np.isfinite(g).all() for g in grads)


def backward_trace(name, **sizes):
    trace = Trace(dtype="float32")
    q, k, v = make_inputs(Problem(dtype="float32", **sizes))
    o, lse = tiled.fa2_forward(q, k, v)
    BACKWARD[name](q, k, v, o, lse, q, block_q=2, block_k=2, trace=trace)
    return trace


def test_backward_bytes_follow_the_loop_orders():
    n, d, t = 6, 2, 3  # N, D, blocks of either kind
    fa1 = backward_trace("fa1", Nq=n, D=d)
    assert (
        fa1.bytes() // 4 == 4 * n * d + t * (5 * n * d + n) + n * d + 2 * n * d
    )  # Alg. 4; zeros of dQ; rounding
    paper = backward_trace("fa2 as in the paper", Nq=n, D=d)
    assert paper.bytes() // 4 == (2 * n * d + n) + 4 * n * d + t * (4 * n * d + 2 * n) + n * d + 2 * n * d
    two_passes = backward_trace("fa2", Nq=n, D=d)
    assert (
        two_passes.bytes() // 4
        == (2 * n * d + n) + 4 * n * d + t * (2 * n * d + 2 * n) + (3 * n * d + 2 * n) + t * 2 * n * d
    )
    assert two_passes.flops() * 5 == paper.flops() * 7 and fa1.flops() == paper.flops()


def test_key_blocks_are_loaded_once_for_all_query_heads_that_share_them():
    trace = backward_trace("fa1", Hq=4, Hkv=2, Nq=6, D=2)
    assert trace.bytes("load", "k") == trace.bytes("store", "dk") == 2 * 6 * 2 * 4
    assert len({e.program for e in trace}) == 2
