"""The error rule must let right results pass in every format and must still bite on wrong ones."""

import numpy as np
import pytest
import torch

from flashlab import reference
from flashlab.problem import Problem, make_inputs
from flashlab.testing import assert_close_to_reference, expected


def problem(dtype, size=1, **sizes):
    q, k, v = (
        torch.from_numpy(x.astype(np.float32)).to(dtype)
        for x in make_inputs(Problem(dtype="float32", **sizes))
    )
    return q * size, k, v, torch.randn(q.shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 30])
def test_the_exact_result_rounded_to_the_format_is_right(dtype, size):
    q, k, v, do = problem(dtype, size, Hq=2, Nq=9, Nk=14, D=8)
    want, allowed = expected(q, k, v, do, causal=True)
    got = {
        name: torch.from_numpy(x).to(torch.float32 if name == "lse" else dtype) for name, x in want.items()
    }
    assert_close_to_reference(got, q, k, v, do, causal=True)
    assert all(a > 0 for a in allowed.values())


@pytest.mark.parametrize("name", ["o", "lse", "dq", "dk", "dv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_result_without_the_last_key_or_with_another_scale_is_wrong(name, dtype):
    q, k, v, do = problem(dtype, Nq=9, Nk=14, D=8)
    for wrong in (dict(keys=13), dict(scale=0.5)):
        n, scale = wrong.get("keys", 14), wrong.get("scale")
        bad, _ = expected(q, k[..., :n, :], v[..., :n, :], do, scale=scale)
        if name in ("dk", "dv") and n == 13:
            bad[name] = np.concatenate([bad[name], np.zeros_like(bad[name][..., :1, :])], -2)
        with pytest.raises(AssertionError, match=f"{name}: largest error"):
            assert_close_to_reference({name: bad[name]}, q, k, v, do)


def test_nan_and_a_wrong_shape_are_named():
    q, k, v, _ = problem(torch.float32, Nq=3, Nk=4, D=2)
    o, _ = reference.attention(*(x.numpy() for x in (q, k, v)))
    with pytest.raises(AssertionError, match="o: expected"):
        assert_close_to_reference(dict(o=o[..., :2, :]), q, k, v)
    o[..., 0, 0] = np.nan
    with pytest.raises(AssertionError, match="o: 1 of 6 values are nan"):
        assert_close_to_reference(dict(o=o), q, k, v)
