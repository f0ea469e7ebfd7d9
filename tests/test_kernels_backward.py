"""FlashAttention-2 backward, interpreted: dq, dk, dv and the gradient of lse against float64."""

import numpy as np
import pytest

pytest.importorskip("triton")
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CAUSAL, SIZES, STRIDES, check_all, draw, gradients, strided

import flashlab
from flashlab import interpreter, library
from flashlab.kernels.launch import Config, dropout_arguments
from flashlab.philox import dropout_mask
from flashlab.testing import assert_close_to_reference

SMALL = Config(16, 16)


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_gradients_are_right_for_every_size_and_mask(shape, causal):
    check_all(*draw(shape), causal=causal, config=SMALL)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1, 1, 16), (1, 1, 1, 1, 2, 8), (1, 1, 1, 76, 1, 32), (1, 1, 1, 110, 2, 32)]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_tiny_sizes_give_finite_and_right_gradients(shape, dtype):
    got = check_all(*draw(shape, dtype), causal="top-left", config=SMALL)
    if shape[4] == 1:  # one key: its weight is 1 whatever q and k are
        assert got["dq"].abs().max() < 1e-2 and got["dk"].abs().max() < 1e-2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
def test_16_bit_gradients_are_right(dtype, causal):
    check_all(*draw((1, 2, 1, 19, 35, 24), dtype), causal=causal, config=SMALL)


@pytest.mark.parametrize("config", [Config(16, 32), Config(32, 16), Config(64, 64)], ids=str)
@pytest.mark.parametrize("causal", ["top-left", "bottom-right"])
def test_query_and_key_blocks_may_differ(config, causal):
    check_all(*draw((1, 1, 1, 70, 50, 16)), causal=causal, config=config)


@pytest.mark.parametrize("scale", [0.0, -0.7, 2.5])
def test_the_scale_may_be_any_number(scale):
    check_all(*draw((1, 1, 1, 17, 40, 16)), causal="top-left", scale=scale, config=SMALL)


@pytest.mark.parametrize("size", [30, 1000])
def test_large_scores_give_right_gradients(size):
    check_all(*draw((1, 1, 1, 18, 35, 16), size=size), causal="top-left", config=SMALL)


@pytest.mark.parametrize("n", [31, 32, 33, 63, 65])
def test_lengths_around_a_block_are_right(n):
    check_all(*draw((1, 1, 1, n, n, 8)), causal="top-left", config=Config(32, 32))


@pytest.mark.parametrize("dim", [8, 40, 96, 104, 112, 120])
def test_head_dims_that_are_no_power_of_two_are_right(dim):
    check_all(*draw((1, 2, 1, 17, 17, dim)), causal="top-left", config=Config(32, 32))


@pytest.mark.parametrize("kind", STRIDES)
def test_any_memory_order_of_the_inputs_is_right(kind):
    q, k, v = (strided(x, kind) for x in draw((2, 2, 2, 20, 20, 16)))
    check_all(q, k, v, causal="top-left", config=SMALL)


@pytest.mark.parametrize("kind", ["expanded", *STRIDES])
def test_any_memory_order_of_do_is_right(kind):
    q, k, v = draw((2, 2, 1, 20, 20, 16))
    do = (
        torch.ones(1).expand(q.shape)
        if kind == "expanded"
        else strided(draw((2, 2, 2, 20, 20, 16), seed=9)[0], kind)
    )
    check_all(q, k, v, do=do, causal="top-left", config=SMALL)


@pytest.mark.parametrize("num_keys", [1, 33])
def test_keys_expanded_over_heads_and_batch_are_right(num_keys):
    q = draw((2, 2, 2, 3, 3, 16))[0]
    k, v = (x.expand(2, 2, num_keys, 16) for x in draw((1, 1, 1, 1, num_keys, 16))[1:])
    check_all(q, k, v, config=SMALL)


def test_rows_that_see_nothing_have_no_gradient_and_add_none():
    q, k, v = draw((1, 2, 2, 70, 3, 32))
    got = check_all(q, k, v, causal="bottom-right", config=SMALL)
    assert (got["dq"][:, :, :67] == 0).all()
    assert all(x.isfinite().all() for name, x in got.items() if name != "lse")


@pytest.mark.parametrize("lengths", [[5, 33], [0, 17]])
@pytest.mark.parametrize("causal", CAUSAL)
def test_padding_gets_no_gradient_even_if_it_is_nan(lengths, causal):
    q, k, v = draw((2, 2, 1, 20, 33, 16))
    do = draw((2, 2, 2, 20, 33, 16), seed=5)[0]
    for b, n in enumerate(lengths):
        k[b, :, n:] = v[b, :, n:] = float("nan")
    lengths_ = torch.tensor(lengths, dtype=torch.int32)
    got = gradients(q, k, v, do, causal=causal, key_lengths=lengths_, config=SMALL)
    for b, n in enumerate(lengths):
        one = {name: x[b] if name == "dq" else x[b, :, :n] for name, x in got.items() if name[0] == "d"}
        assert_close_to_reference(one, q[b], k[b, :, :n], v[b, :, :n], do[b], causal=causal)
        assert (got["dk"][b, :, n:] == 0).all() and (got["dv"][b, :, n:] == 0).all()


def test_nan_at_keys_that_no_row_sees_changes_no_gradient():
    q, k, v = draw((1, 2, 2, 20, 40, 16))
    want = gradients(q, k, v, q, causal="top-left", config=SMALL)
    k[:, :, 20:] = v[:, :, 20:] = float("nan")
    got = gradients(q, k, v, q, causal="top-left", config=SMALL)
    assert all(torch.equal(got[name], want[name]) for name in got)


def test_shared_heads_sum_their_gradients_in_the_right_groups():
    q, k, v = draw((1, 6, 2, 9, 9, 16))
    got = gradients(q, k, v, q, causal="top-left", config=SMALL)
    for kv_head in range(2):
        heads, one = slice(3 * kv_head, 3 * kv_head + 3), slice(kv_head, kv_head + 1)
        mine = q[:, heads]
        alone = gradients(mine, k[:, one], v[:, one], mine, causal="top-left", config=SMALL)
        assert torch.allclose(alone["dk"][:, 0], got["dk"][:, kv_head], atol=1e-6)
        assert torch.allclose(alone["dq"], got["dq"][:, heads], atol=1e-6)


def test_two_runs_are_equal_bit_for_bit():
    q, k, v = draw((1, 2, 1, 35, 35, 16))
    first, second = (gradients(q, k, v, q, causal="top-left", config=SMALL) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_programs_do_not_race_and_stay_inside_their_tensors():
    q, k, v = (strided(x, "slice of qkv") for x in draw((1, 2, 1, 33, 20, 24)))
    run = lambda: gradients(q, k, v, q, causal="bottom-right", config=SMALL)  # noqa: E731
    assert interpreter.find_races(run) == []


@given(st.data())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_any_problem_is_right(data):
    small = st.integers(1, 36)
    group = data.draw(st.sampled_from([1, 2]))
    shape = (
        data.draw(st.integers(1, 2)),
        group,
        1,
        data.draw(small),
        data.draw(small),
        data.draw(st.integers(1, 40)),
    )
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    inputs = draw(shape, dtype, seed=data.draw(st.integers(0, 99)), size=data.draw(st.sampled_from([1, 30])))
    inputs = [strided(x, data.draw(st.sampled_from(STRIDES))) for x in inputs]
    scale = data.draw(st.sampled_from([None, -0.5, 0.0]))
    config = Config(*(data.draw(st.sampled_from([16, 32])) for _ in range(2)))
    check_all(*inputs, causal=data.draw(st.sampled_from(CAUSAL)), scale=scale, config=config)


# Through autograd


def leaves(shape, **how):
    return tuple(x.requires_grad_() for x in draw(shape, **how))


def test_the_gradient_of_lse_reaches_q_and_k():
    q, k, v = leaves((1, 2, 1, 20, 36, 16))
    w, u = torch.randn(1, 2, 20, 16), torch.randn(1, 2, 20)
    got, want = [], []
    for backend, out in (("fa2", got), ("naive", want)):
        o, lse = flashlab.attention(q, k, v, backend=backend, return_lse=True, causal="bottom-right")
        out += torch.autograd.grad((w * o).sum() + (u * lse).sum(), (q, k, v), retain_graph=True)
        out += torch.autograd.grad((u * lse).sum(), (q, k))
    for x, y in zip(got, want, strict=True):
        assert torch.allclose(x, y, atol=5e-6)


@pytest.mark.parametrize("wanted", ["q", "k", "v", "qk", "kv", "qv"])
def test_gradients_are_computed_for_any_subset_of_the_inputs(wanted, monkeypatch):
    q, k, v = draw((1, 2, 1, 5, 6, 8))
    inputs = {"q": q, "k": k, "v": v}
    ran = []
    for name in ("_fa2_dq", "_fa2_dkdv"):
        run = getattr(library, name)
        monkeypatch.setattr(library, name, lambda *a, run=run, name=name: ran.append(name) or run(*a))
    for name in wanted:
        inputs[name].requires_grad_()
    flashlab.attention(**inputs, backend="fa2").sum().backward()
    assert {name for name, x in inputs.items() if x.grad is not None} == set(wanted)
    assert ("_fa2_dq" in ran) == ("q" in wanted)
    assert ("_fa2_dkdv" in ran) == (wanted != "q")


def test_sum_backward_whose_gradient_is_an_expanded_one_is_right():
    q, k, v = leaves((1, 2, 2, 9, 9, 8))
    flashlab.attention(q, k, v, backend="fa2").sum().backward()
    do = torch.ones(1, 2, 9, 8)
    assert_close_to_reference({"dq": q.grad, "dk": k.grad, "dv": v.grad}, q, k, v, do)


@pytest.mark.parametrize(
    "shape", [(0, 2, 2, 5, 5, 16), (2, 2, 2, 0, 5, 16), (2, 2, 2, 5, 0, 16), (2, 0, 0, 5, 5, 16)]
)
def test_empty_inputs_have_zero_gradients(shape):
    q, k, v = leaves(shape)
    o, lse = flashlab.attention(q, k, v, backend="fa2", return_lse=True)
    o.sum().backward()
    assert all(x.grad.shape == x.shape and (x.grad == 0).all() for x in (q, k, v))


def test_the_gradient_of_a_gradient_raises():
    q, k, v = leaves((1, 1, 1, 5, 5, 8))
    (grad,) = torch.autograd.grad(flashlab.attention(q, k, v, backend="fa2").sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no double backward: use backend='naive'"):
        grad.sum().backward()


def test_autocast_gives_16_bit_outputs_and_32_bit_gradients():
    q, k, v = leaves((1, 2, 1, 9, 9, 8))
    with torch.autocast("cpu", torch.bfloat16):
        o = flashlab.attention(q, k, v, backend="fa2")
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert all(x.grad.dtype == torch.float32 and x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("how", [("", 0.0), ("bottom-right", 0.3)])
def test_the_operators_pass_opcheck(how):
    q, k, v = leaves((1, 2, 1, 5, 6, 8))
    lengths, seed = torch.tensor([4], dtype=torch.int32), torch.tensor([7])
    torch.library.opcheck(library.fa2, (q, k, v, lengths, seed, how[0], 0.3, how[1]))
    plain = [x.detach() for x in (q, k, v)]
    o, lse = library.fa2(*plain, lengths, seed, how[0], 0.3, how[1])
    torch.library.opcheck(library.delta, (o, o, lse))
    for op in (library.fa2_dq, library.fa2_dkdv):
        torch.library.opcheck(op, (*plain, o, lse, lse, lengths, seed, how[0], 0.3, how[1]))


def test_the_fake_outputs_have_the_strides_of_the_real_ones():
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v = (strided(x, "rows before heads") for x in draw((2, 3, 3, 5, 5, 8)))
    real = library.fa2(q, k, v, None, None, "", 0.3, 0.0)
    mode = FakeTensorMode()
    fake = library.fa2(*(mode.from_tensor(x) for x in (q, k, v)), None, None, "", 0.3, 0.0)
    assert [x.stride() for x in real] == [x.stride() for x in fake]


def test_torch_compile_takes_it_as_one_graph_for_several_lengths():
    def loss(q, k, v):
        o, lse = flashlab.attention(q, k, v, causal=True, backend="fa2", return_lse=True)
        return (o * o).sum() + lse.sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (9, 17):
        q, k, v = leaves((1, 2, 1, n, n, 8))
        want = torch.autograd.grad(loss(q, k, v), (q, k, v))
        got = torch.autograd.grad(compiled(q, k, v), (q, k, v))
        assert all(torch.allclose(x, y, atol=1e-6) for x, y in zip(got, want, strict=True))


def test_nothing_of_size_n_squared_is_allocated():
    n, sizes = 256, []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in (out if isinstance(out, tuple) else (out,)) if torch.is_tensor(x))
            return out

    q, k, v = leaves((1, 1, 1, n, n, 8))
    with Watch():
        flashlab.attention(q, k, v, backend="fa2").sum().backward()
    assert sizes and max(sizes) < n * n


# Dropout


def test_p_0_is_no_dropout_bit_for_bit():
    q, k, v = draw((1, 2, 1, 20, 20, 16))
    assert torch.equal(
        flashlab.attention(q, k, v, dropout_p=0.0, seed=3, backend="fa2"),
        flashlab.attention(q, k, v, backend="fa2"),
    )


def test_p_1_drops_everything_and_has_zero_gradients():
    q, k, v = leaves((1, 2, 1, 20, 20, 16))
    o = flashlab.attention(q, k, v, dropout_p=1.0, seed=3, backend="fa2")
    o.sum().backward()
    assert (o == 0).all() and all((x.grad == 0).all() for x in (q, k, v))


@pytest.mark.parametrize("config", [Config(16, 16), Config(32, 16), Config(64, 64)], ids=str)
def test_the_mask_is_that_of_the_contract_whatever_the_blocks(config):
    from flashlab.kernels import fa2

    p, seed, n = 0.3, torch.tensor([12345678901]), 40
    q, k, _ = draw((2, 2, 2, n, n, 64))
    v = torch.eye(n, 64).expand(2, 2, n, 64)
    drop = dropout_arguments(p, seed)
    o, lse = fa2.forward(q, k, v, scale=0.125, dropout=drop, config=config)
    keep = dropout_mask(seed, 2, 2, n, n, p)
    assert torch.equal(o[..., :n] != 0, keep)
    weights = torch.softmax(q @ k.mT / 8, -1) * keep / (1 - p)
    assert torch.allclose(o[..., :n], weights, atol=1e-6)
    assert torch.equal(lse, fa2.forward(q, k, v, scale=0.125, config=config)[1]), (
        "lse must not depend on dropout"
    )
    do = draw((2, 2, 2, n, n, 64), seed=4)[0]
    got = gradients(q, k, v, do, scale=0.125, dropout=drop, config=config)
    assert torch.allclose(got["dv"], weights.mT @ do, atol=1e-5)


def test_dropout_gives_the_gradients_of_the_naive_backend():
    q, k, v = leaves((2, 4, 2, 9, 12, 8))
    got, want = (
        torch.autograd.grad(
            flashlab.attention(q, k, v, causal="bottom-right", dropout_p=0.4, seed=-5, backend=backend)
            .cos()
            .sum(),
            (q, k, v),
        )
        for backend in ("fa2", "naive")
    )
    assert all(torch.allclose(x, y, atol=2e-6) for x, y in zip(got, want, strict=True))


def test_seeds_repeat_and_differ_and_no_seed_follows_torchs_generator():
    q, k, v = draw((1, 2, 1, 20, 20, 16))
    run = lambda seed: flashlab.attention(q, k, v, dropout_p=0.5, seed=seed, backend="fa2")  # noqa: E731
    assert torch.equal(run(0), run(0)) and torch.equal(run(0), run(torch.tensor([0])))
    assert not torch.equal(run(0), run(1)) and not torch.equal(run(0), run(2**32))
    torch.manual_seed(1)
    first, second = run(None), run(None)
    torch.manual_seed(1)
    assert torch.equal(run(None), first) and not torch.equal(first, second)


def test_the_kept_share_is_one_minus_p_and_heads_have_different_masks():
    keep = dropout_mask(torch.tensor([3]), 4, 8, 128, 128, 0.2)
    assert abs(keep.double().mean() - 0.8) < 4 * np.sqrt(0.2 * 0.8 / keep.numel())
    masks = keep.flatten(0, 1).flatten(1)
    assert len({tuple(m[:64].tolist()) for m in masks}) == 32


def test_philox_gives_the_published_numbers():
    """Random123's known answers for philox4x32-10: counter and key all 0, and all ones."""
    from flashlab.philox import philox

    zero, ones = torch.tensor([0]), torch.tensor([0xFFFFFFFF])
    assert philox(zero, zero, zero, zero, zero).item() == 0x6627E8D5
    assert philox(torch.tensor([-1]), ones, ones, ones, ones).item() == 0x408F276D
