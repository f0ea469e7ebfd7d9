"""Standard attention in passes over whole matrices: results, and the bytes of the papers' formulas."""

import numpy as np
import pytest

from flashlab.problem import Problem, make_inputs
from flashlab.reference import attention
from flashlab.testing import assert_close_to_reference
from flashlab.tiled import standard_backward, standard_forward
from flashlab.trace import Trace

CAUSAL = [False, "top-left", "bottom-right"]


def inputs(seed=0, **sizes):
    q, k, v = make_inputs(Problem(**{"B": 2, "Hq": 4, "Hkv": 2, "D": 3, "dtype": "float32"} | sizes), seed)
    return q, k, v, np.random.default_rng(seed + 1).standard_normal(q.shape).astype(q.dtype)


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize(("nq", "nk"), [(1, 1), (7, 11), (11, 7), (8, 8)])
def test_results_and_gradients_are_right(nq, nk, causal):
    q, k, v, do = inputs(Nq=nq, Nk=nk)
    o, lse = standard_forward(q, k, v, block_q=4, block_k=3, causal=causal, scale=-0.7)
    assert_close_to_reference(dict(o=o, lse=lse), q, k, v, causal=causal, scale=-0.7)
    dq, dk, dv = standard_backward(q, k, v, o, lse, do, block_q=4, block_k=3, causal=causal, scale=-0.7)
    assert_close_to_reference(dict(dq=dq, dk=dk, dv=dv), q, k, v, do=do, causal=causal, scale=-0.7)


def test_one_head_without_axes_is_right():
    q, k, v, do = (x[0, 0] for x in inputs(Nq=5, Nk=6, Hkv=4))
    o, lse = standard_forward(q, k, v)
    assert_close_to_reference(dict(o=o, lse=lse), q, k, v)
    grads = standard_backward(q, k, v, o, lse, do)
    assert_close_to_reference(dict(zip(("dq", "dk", "dv"), grads, strict=True)), q, k, v, do=do)


def test_nan_behind_the_mask_changes_nothing():
    q, k, v, do = inputs(Nq=5, Nk=9)
    clean = standard_forward(q, k, v, causal=True)
    clean += standard_backward(q, k, v, *clean, do, causal=True)
    k[..., 5:, :] = v[..., 5:, :] = np.nan
    got = standard_forward(q, k, v, causal=True)
    got += standard_backward(q, k, v, *got, do, causal=True)
    assert all((a == b).all() for a, b in zip(got, clean, strict=True))


@pytest.mark.parametrize("blocks", [(4, 4), (5, 3), (64, 64)])
@pytest.mark.parametrize("causal", CAUSAL)
def test_forward_moves_4_n_squared_and_4_nd_backward_7_and_8_whatever_the_tiles_and_the_mask(blocks, causal):
    n, d = 12, 3
    q, k, v, do = inputs(B=1, Hq=1, Hkv=1, Nq=n)
    how = dict(block_q=blocks[0], block_k=blocks[1], causal=causal)
    forward, backward = Trace(), Trace()
    o, lse = standard_forward(q, k, v, trace=forward, **how)
    standard_backward(q, k, v, o, lse, do, trace=backward, **how)
    assert forward.bytes() == 2 * (4 * n * n + 4 * n * d) and forward.flops() == 4 * n * n * d
    assert backward.bytes() == 2 * (7 * n * n + 8 * n * d) and backward.flops() == 8 * n * n * d
    assert (
        forward.bytes("store", "s") == forward.bytes("load", "s") == forward.bytes("load", "p") == 2 * n * n
    )
    assert backward.bytes("load", "ds") == 2 * backward.bytes("store", "ds") == 4 * n * n


def test_heads_that_share_k_and_v_load_them_once():
    q, k, v, _ = inputs(Nq=6, Nk=8)
    trace = Trace(dtype="float32")
    standard_forward(q, k, v, block_q=4, block_k=4, trace=trace)
    assert trace.bytes("load", "k") == k.nbytes and trace.bytes("load", "q") == q.nbytes
    assert trace.bytes("store", "s") == 2 * 4 * 6 * 8 * 4


def test_events_name_the_pass_and_the_tile():
    q, k, v, _ = inputs(B=1, Hq=1, Hkv=1, Nq=8)
    trace = Trace()
    standard_forward(q, k, v, block_q=4, block_k=4, trace=trace)
    assert [e.step for e in trace] == list(range(len(trace)))
    assert list(dict.fromkeys(e.program for e in trace)) == [(0, 0, "s"), (0, 0, "p"), (0, 0, "o")]
    assert [e.tile for e in trace if (e.op, e.tensor) == ("store", "s")] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [e.tile for e in trace if e.tensor == "v"] == [(0,), (1,)]


def test_tracing_changes_no_result_and_bad_input_is_refused():
    q, k, v, do = inputs(Nq=6)
    with_trace = standard_forward(q, k, v, causal=True, trace=[])
    for a, b in zip(with_trace, standard_forward(q, k, v, causal=True), strict=True):
        assert (a == b).all()
    with pytest.raises(ValueError, match="expected block_q to be a whole number >= 1, got 0"):
        standard_forward(q, k, v, block_q=0)
    with pytest.raises(ValueError, match="expected o and do"):
        standard_backward(q, k, v, *attention(q, k, v), do[..., :2])
