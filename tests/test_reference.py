import numpy as np
import pytest

from flashlab import data, reference
from flashlab.problem import Problem, make_inputs


def inputs(seed=0, **sizes):
    q, k, v = make_inputs(Problem(dtype="float64", **sizes), seed)
    return q, k, v, np.random.default_rng(seed + 99).standard_normal(q.shape)


def test_the_running_example_gives_the_numbers_that_can_be_done_in_the_head():
    o, lse = reference.attention(*data.tiny(), scale=np.log(2))
    np.testing.assert_allclose(o[:, 0], [37 / 6, 167 / 21, 5.75, 6.6, 8 / 3, 4], rtol=1e-14)
    np.testing.assert_allclose(o[:, 1], 1, rtol=1e-14)
    np.testing.assert_allclose(np.exp(lse), [6, 10.5, 24, 1.875, 24.75, 20], rtol=1e-14)


@pytest.mark.parametrize("causal", [False, "top-left", "bottom-right"])
@pytest.mark.parametrize("nq, nk", [(5, 5), (3, 7), (7, 3), (1, 4)])
def test_forward_and_backward_agree_with_torch_autograd_in_float64(causal, nq, nk):
    import torch

    q, k, v, do = inputs(B=2, Hq=4, Hkv=2, Nq=nq, Nk=nk, D=8)
    tq, tk, tv = (torch.from_numpy(x).requires_grad_() for x in (q, k, v))
    s = tq @ tk.repeat_interleave(2, 1).mT * 0.3
    if causal:
        shift = nk - nq if causal == "bottom-right" else 0
        s = s.masked_fill(~torch.ones(nq, nk, dtype=bool).tril(shift), float("-inf"))
    dead = torch.isneginf(s).all(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(dead, 0), -1).masked_fill(dead, 0)
    want = p @ tv.repeat_interleave(2, 1)
    want.backward(torch.from_numpy(do))

    o, lse = reference.attention(q, k, v, causal=causal, scale=0.3)
    grads = reference.attention_backward(q, k, v, o, lse, do, causal=causal, scale=0.3)
    np.testing.assert_allclose(o, want.detach(), atol=1e-13)
    np.testing.assert_allclose(lse, torch.logsumexp(s, -1).detach(), atol=1e-13)
    for got, leaf in zip(grads, (tq, tk, tv), strict=True):
        np.testing.assert_allclose(got, leaf.grad, atol=1e-13)


def test_the_gradients_are_slopes_of_the_loss():
    q, k, v, do = inputs(Nq=3, Nk=4, D=2)
    o, lse = reference.attention(q, k, v)
    for x, grad in zip((q, k, v), reference.attention_backward(q, k, v, o, lse, do), strict=True):
        slope = np.empty_like(x)
        for at in np.ndindex(x.shape):
            sides = []
            for step in (1e-6, -1e-6):
                keep, x[at] = x[at], x[at] + step
                sides.append((reference.attention(q, k, v)[0] * do).sum())
                x[at] = keep
            slope[at] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(grad, slope, atol=1e-8)


def test_rows_that_may_look_at_nothing_give_zero_and_minus_infinity_and_no_gradient():
    q, k, v, do = inputs(Nq=5, Nk=2, D=4)
    o, lse = reference.attention(q, k, v, causal="bottom-right")
    assert (o[..., :3, :] == 0).all() and (lse[..., :3] == -np.inf).all() and np.isfinite(lse[..., 3:]).all()
    grads = reference.attention_backward(q, k, v, o, lse, do, causal="bottom-right")
    assert all(np.isfinite(g).all() for g in grads) and (grads[0][..., :3, :] == 0).all()
    o, lse = reference.attention(q, k[..., :0, :], v[..., :0, :])
    assert (o == 0).all() and (lse == -np.inf).all()


def test_nan_where_nobody_may_look_changes_nothing_and_nan_where_someone_looks_shows():
    q, k, v, do = inputs(Nq=3, Nk=6, D=4)
    clean = reference.attention(q, k, v, causal=True)
    k[..., 3:, :] = v[..., 3:, :] = np.nan
    o, lse = reference.attention(q, k, v, causal=True)
    assert (o == clean[0]).all() and (lse == clean[1]).all()
    dq, dk, dv = reference.attention_backward(q, k, v, o, lse, do, causal=True)
    assert np.isfinite(dq).all() and (dk[..., 3:, :] == 0).all() and (dv[..., 3:, :] == 0).all()
    k[..., 0, :] = np.nan
    assert np.isnan(reference.attention(q, k, v, causal=True)[0]).all()


def test_scores_of_a_thousand_do_not_overflow_and_half_precision_is_computed_in_float32():
    q, k, v, _ = inputs(Nq=4, Nk=9, D=4)
    o, lse = reference.attention(1000 * q, k, v)
    assert np.isfinite(o).all() and np.isfinite(lse).all()
    half = [x.astype(np.float16) for x in (q, k, v)]
    o, lse = reference.attention(*half)
    assert o.dtype == np.float16 and lse.dtype == np.float32
    assert abs(o - reference.attention(*(x.astype(float) for x in half))[0]).max() < 1e-3


def test_wrong_shapes_of_o_do_and_lse_are_named():
    q, k, v, do = inputs(Nq=3, Nk=4, D=2)
    o, lse = reference.attention(q, k, v)
    with pytest.raises(ValueError, match="expected o and do"):
        reference.attention_backward(q, k, v, o, lse[..., :2], do)


@pytest.mark.parametrize("seed", [0, 1, 12345678901, 2**63 - 1, -7, 2**64 - 1])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_the_dropout_mask_is_that_of_the_torch_twin(seed, p):
    torch = pytest.importorskip("torch")
    from flashlab.philox import dropout_mask

    signed = torch.tensor([seed if seed < 2**63 else seed - 2**64])
    mask = reference.dropout_mask(seed, 2, 3, 17, 33, p)
    assert mask.dtype == bool and mask.shape == (2, 3, 17, 33)
    assert (mask == dropout_mask(signed, 2, 3, 17, 33, p).numpy()).all()


def test_philox_gives_the_published_numbers():
    ones, zero = np.uint64(2**32 - 1), np.uint64(0)  # known answers of Random123, philox4x32 10
    assert reference.philox(0, zero, zero, zero, zero) == 0x6627E8D5
    assert reference.philox(2**64 - 1, ones, ones, ones, ones) == 0x408F276D
    pi = (np.uint64(n) for n in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344))
    assert reference.philox(0x299F31D0A4093822, *pi) == 0xD16CFE09


def test_the_dropout_mask_keeps_all_none_or_a_share():
    assert (
        reference.dropout_mask(3, 1, 2, 5, 7, 0).all() and not reference.dropout_mask(3, 1, 2, 5, 7, 1).any()
    )
    mask = reference.dropout_mask(5, 4, 8, 64, 64, 0.3)
    assert abs(mask.mean() - 0.7) < 4 * np.sqrt(0.3 * 0.7 / mask.size)
    assert (mask[0, 0] != mask[0, 1]).any() and (mask[0, 0] != mask[1, 0]).any()
    assert reference.dropout_mask(5, 0, 2, 3, 0, 0.3).shape == (0, 2, 3, 0)


@pytest.mark.parametrize(
    ("error", "says", "seed", "p"),
    [(TypeError, "seed to be an int, got float", 1.5, 0.1), (ValueError, "64 bits", 2**64, 0.1),
     (ValueError, "p from 0 to 1, got 1.5", 1, 1.5)],
)  # fmt: skip
def test_a_seed_or_share_that_does_not_fit_is_refused(error, says, seed, p):
    with pytest.raises(error, match=says):
        reference.dropout_mask(seed, 1, 1, 2, 2, p)
