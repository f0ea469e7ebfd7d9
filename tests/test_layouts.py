"""Layouts: views that turn back, swaps refused where they can be seen, and silence where they cannot."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from flashlab import layouts
from flashlab.layouts import LayoutError, check_layout, to_bhnd, to_bnhd


def bnhd(n=1024, heads=16, dim=8):
    return torch.zeros(2, n, heads, dim)


def test_both_ways_are_views_of_the_same_memory_and_turn_back():
    x = torch.randn(2, 6, 3, 8)
    turned = to_bhnd(x)
    assert turned.shape == (2, 3, 6, 8) and turned.data_ptr() == x.data_ptr()
    assert to_bnhd(turned).is_contiguous() and torch.equal(to_bnhd(turned), x)


def test_a_copy_is_made_only_when_asked_for():
    x = torch.randn(2, 6, 3, 8)
    copy = to_bhnd(x, contiguous=True)
    assert copy.is_contiguous() and copy.data_ptr() != x.data_ptr() and torch.equal(copy, to_bhnd(x))


def test_the_view_is_fit_for_the_fused_kernels_and_gives_each_token_its_attention():
    q, k, v = torch.randn(3, 2, 6, 3, 8).unbind()
    o = to_bnhd(sdpa(to_bhnd(q), to_bhnd(k), to_bhnd(v)))
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k) / 8**0.5
    assert torch.allclose(o, torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), v), atol=1e-6)


def test_converting_twice_is_refused_where_no_model_has_so_many_heads():
    with pytest.raises(
        LayoutError, match="1024 heads and 16 tokens, more heads than any model has.*looks like bhnd"
    ):
        to_bhnd(to_bhnd(bnhd()))


def test_stated_sizes_find_the_swap_and_name_the_axes():
    with pytest.raises(LayoutError, match=r"expected 12 heads and 16 tokens: axes 1 and 2 look swapped"):
        to_bhnd(torch.zeros(2, 12, 16, 64), heads=12, tokens=16)
    with pytest.raises(LayoutError, match="it looks like bnhd"):
        to_bnhd(torch.zeros(2, 16, 12, 64), heads=12)


def test_sizes_that_fit_neither_layout_are_a_value_error_that_says_both():
    with pytest.raises(ValueError, match="has 12 heads and 16 tokens; expected 8 heads") as caught:
        to_bhnd(torch.zeros(2, 16, 12, 64), heads=8)
    assert not isinstance(caught.value, LayoutError)
    with pytest.raises(ValueError, match="D = 128 as last axis"):
        to_bhnd(torch.zeros(2, 16, 12, 64), dim=128)


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match="expected the tensor as a PyTorch tensor, got list"):
        to_bhnd([[1]])
    with pytest.raises(TypeError, match="expected k as a PyTorch tensor, got NoneType"):
        check_layout(bnhd(), None, bnhd(), "bnhd")


def test_three_axes_and_unknown_layouts_are_refused():
    with pytest.raises(ValueError, match="4 axes"):
        to_bhnd(torch.zeros(16, 12, 64))
    with pytest.raises(ValueError, match="unknown layout 'bhdn'.*bhnd"):
        layouts.check_tensor(bnhd(), "bhdn")


def test_it_says_nothing_where_nothing_can_be_known():
    ambiguous = torch.zeros(2, 16, 12, 64)
    assert layouts.check_tensor(ambiguous, "bhnd") is None and layouts.check_tensor(ambiguous, "bnhd") is None
    assert layouts.check_tensor(torch.zeros(2, 16, 16, 64), "bnhd", heads=16, tokens=16) is None
    assert layouts.check_tensor(ambiguous, "bnhd", heads=12) is True


def test_strict_refuses_what_only_looks_odd():
    decode = torch.zeros(2, 32, 1, 64)  # bhnd, one token: right, and more heads than tokens
    assert layouts.check_tensor(decode, "bhnd") is None
    with pytest.raises(LayoutError, match="more heads than tokens"):
        layouts.check_tensor(decode, "bhnd", strict=True)
    turned = torch.zeros(2, 16, 12, 64).transpose(1, 2)
    assert to_bnhd(turned).is_contiguous()
    with pytest.raises(LayoutError, match="memory lies in the other order"):
        to_bnhd(turned, strict=True)


def test_grouped_heads_in_the_wrong_layout_are_found_by_the_numbers_of_k():
    q, k = bnhd(128, 32), bnhd(128, 8)
    assert check_layout(q, k, k, "bnhd") is None
    with pytest.raises(
        LayoutError, match="128 tokens with 32 query and 8 K/V heads. Axes 1 and 2 look swapped"
    ):
        check_layout(q, k, k, "bhnd")


def test_heads_that_do_not_divide_are_a_swap_only_if_the_other_axis_fits():
    q, k = bnhd(1, 32), bnhd(100, 8)  # a decode step
    with pytest.raises(LayoutError, match="100 K/V heads do not divide 1 query heads, but 8 divides 32"):
        check_layout(q, k, k, "bhnd")
    with pytest.raises(ValueError, match="3 K/V heads do not divide 8") as caught:
        check_layout(torch.zeros(1, 8, 7, 4), torch.zeros(1, 3, 5, 4), torch.zeros(1, 3, 5, 4))
    assert not isinstance(caught.value, LayoutError)


def test_k_and_v_in_different_layouts_are_found():
    k = torch.zeros(2, 8, 100, 4)
    with pytest.raises(LayoutError, match="axes 1 and 2 of one of them look swapped"):
        check_layout(k, k, torch.zeros(2, 100, 8, 4))
    with pytest.raises(ValueError, match="one B and one D"):
        check_layout(torch.zeros(2, 8, 100, 8), k, k)


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize(
    "nq, nk, hq, hkv",
    [(1, 2048, 32, 8), (1024, 1024, 16, 16), (77, 4096, 8, 8), (4, 512, 128, 1), (333, 333, 12, 4)],
)
def test_right_calls_of_many_kinds_pass_and_stated_sizes_settle_them(layout, nq, nk, hq, hkv):
    q, k = torch.zeros(2, nq, hq, 64), torch.zeros(2, nk, hkv, 64)
    if layout == "bhnd":
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    assert check_layout(q, k, k, layout) is None
    assert check_layout(q, k, k, layout, Hq=hq, Hkv=hkv, Nq=nq, Nk=nk, D=64) is True


def test_the_silent_swap_runs_without_an_error_looks_right_and_is_wrong():
    found = layouts.silent_swap()
    assert found["shape_wrong"] == found["shape_right"] == (2, 16, 12, 64)
    assert 0.8 < found["spread_wrong"] / found["spread_right"] < 1.25
    assert found["difference"] > 2
    assert (found["attended_right"], found["attended_wrong"]) == (16, 12)
