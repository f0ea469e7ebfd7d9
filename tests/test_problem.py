import numpy as np
import pytest

from flashlab.problem import Problem, causal_offset, check_qkv, make_inputs, round_to, visible


def test_sizes_that_are_left_out_follow_from_the_others():
    p = Problem(Hq=8, Nq=37, D=16)
    assert (p.Hkv, p.Nk, p.scale, p.itemsize) == (8, 37, 0.25, 2)


def test_top_left_and_bottom_right_differ_only_when_there_are_more_keys_than_queries():
    assert causal_offset(False, 3, 5) is None
    assert causal_offset(True, 3, 5) == causal_offset("top-left", 3, 5) == 0
    assert causal_offset("bottom-right", 3, 5) == 2
    assert visible(range(2), range(3), 1).tolist() == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize(
    "bad, message",
    [
        (dict(Hq=3, Hkv=2), "multiple of Hkv, got Hq = 3 and Hkv = 2"),
        (dict(Nq=-1), "Nq to be a whole number >= 0, got -1"),
        (dict(D=0), "D to be a whole number >= 1, got 0"),
        (dict(dtype="fp16"), "unknown dtype 'fp16'"),
        (dict(causal="bottomright"), "Did you mean 'bottom-right'"),
    ],
)
def test_a_problem_that_cannot_be_says_what_was_expected_and_what_came(bad, message):
    with pytest.raises(ValueError, match=message):
        Problem(**bad)


def test_inputs_are_the_same_for_the_same_seed_and_hold_values_of_the_format():
    p = Problem(B=2, Hq=4, Hkv=2, Nq=5, Nk=7, D=3, dtype="bfloat16")
    q, k, v = make_inputs(p, seed=1)
    assert (q.shape, k.shape, v.shape) == ((2, 4, 5, 3), (2, 2, 7, 3), (2, 2, 7, 3))
    assert (make_inputs(p, seed=1)[0] == q).all() and (make_inputs(p, seed=2)[0] != q).any()
    assert (q.view(np.uint32) & 0xFFFF == 0).all()
    assert make_inputs(Problem(dtype="float16"))[0].dtype == np.float16


def test_bfloat16_is_rounded_to_nearest_even_as_torch_does():
    import torch

    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert (round_to(x, "bfloat16") == torch.from_numpy(x).bfloat16().float().numpy()).all()


@pytest.mark.parametrize(
    "shapes, message",
    [
        (((4,), (4,), (4,)), r"q to be \[..., N, D\], got shape \[4\]"),
        (((4, 2), (5, 2), (6, 2)), r"k and v of one shape, got \[5, 2\] and \[6, 2\]"),
        (((4, 2), (5, 3), (5, 3)), "same D, got D = 2 and D = 3"),
        (((3, 4, 2), (2, 5, 2), (2, 5, 2)), "multiple of the K/V heads, got 3 and 2"),
        (((1, 3, 4, 2), (2, 3, 5, 2), (2, 3, 5, 2)), "same batch axes"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        check_qkv(*(np.zeros(s) for s in shapes))


def test_mixed_and_complex_dtypes_are_refused():
    x = np.zeros((2, 2))
    with pytest.raises(TypeError, match="one dtype, got float64, float32 and float64"):
        check_qkv(x, x.astype(np.float32), x)
    with pytest.raises(TypeError, match="real numbers, got complex128"):
        check_qkv(x.astype(complex), x, x)
