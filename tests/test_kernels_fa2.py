"""FlashAttention-2 in Triton, interpreted: o and lse against the float64 reference."""

import numpy as np
import pytest

pytest.importorskip("triton")
import torch
from kernel_cases import (
    CAUSAL,
    SIZES,
    STRIDES,
    assert_rows_without_keys,
    check_forward,
    draw,
    poison,
    strided,
)

from flashlab import interpreter, reference
from flashlab.accesses import OutOfBounds
from flashlab.kernels import fa2
from flashlab.kernels.launch import Config

SMALL = Config(16, 16)


def forward(q, k, v, causal=False, scale=None, config=SMALL, **how):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return fa2.forward(q, k, v, causal=causal or None, scale=scale, config=config, **how)


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_o_and_lse_are_right_for_every_size_and_mask(shape, causal):
    check_forward(forward, *draw(shape), causal=causal)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", CAUSAL)
def test_16_bit_inputs_are_right(dtype, causal):
    check_forward(forward, *draw((1, 2, 1, 19, 35, 24), dtype), causal=causal)


@pytest.mark.parametrize("config", [Config(16, 32), Config(64, 16), Config(32, 64)], ids=str)
def test_query_and_key_blocks_may_differ(config):
    check_forward(forward, *draw((1, 1, 1, 70, 70, 16)), causal="bottom-right", config=config)


@pytest.mark.parametrize("scale", [0.0, -0.7, 1, 3.5])
@pytest.mark.parametrize("causal", [False, "top-left"])
def test_the_scale_may_be_any_number(scale, causal):
    check_forward(forward, *draw((1, 1, 1, 17, 40, 16)), causal=causal, scale=scale)


@pytest.mark.parametrize("size", [30, 1000, 1e6])
def test_large_scores_are_right(size):
    check_forward(forward, *draw((1, 1, 1, 18, 35, 16), size=size), causal="top-left")


@pytest.mark.parametrize(("a", "b"), [(576, 382), (-900, -900), (-900, 900), (30, -30)])
def test_scores_that_overflow_fp16_or_are_all_very_negative_give_the_mean_of_v(a, b):
    v = draw((1, 1, 1, 8, 8, 64), torch.float16)[2]
    q, k = torch.full_like(v, a), torch.full_like(v, b)
    o, lse = forward(q, k, v)
    assert (o - v.float().mean(2, keepdim=True)).abs().max() < 2e-3
    want = a * b * 64 / 8 + np.log(8)
    assert (lse - want).abs().max() <= 1e-5 * abs(want)


def test_lse_is_the_natural_log():
    q, k, v = draw((1, 1, 1, 3, 48, 16))
    _, lse = forward(q * 0, k, v)
    assert torch.allclose(lse, torch.tensor(np.log(48.0), dtype=torch.float32), atol=1e-6)


@pytest.mark.parametrize("kind", STRIDES)
def test_any_memory_order_is_right(kind):
    q, k, v = (strided(x, kind) for x in draw((2, 3, 3, 20, 20, 16)))
    check_forward(forward, q, k, v, causal="top-left")


def test_only_v_may_be_in_another_memory_order():
    q, k, v = draw((2, 2, 2, 20, 20, 16))
    check_forward(forward, q, k, strided(v, "columns first"))


@pytest.mark.parametrize("num_keys", [1, 33])
def test_keys_expanded_over_heads_and_batch_are_right(num_keys):
    q = draw((2, 4, 4, 3, 3, 16))[0]
    k, v = (x.expand(2, 4, num_keys, 16) for x in draw((1, 1, 1, 1, num_keys, 16))[1:])
    assert k.stride()[:2] == (0, 0)
    check_forward(forward, q, k, v)


def test_rows_without_keys_give_zero_and_minus_infinity():
    q, k, v = draw((1, 2, 2, 70, 3, 32))
    with poison():
        o, lse = forward(q, k, v, causal="bottom-right")
    assert_rows_without_keys(o, lse, torch.arange(70) < 67)


@pytest.mark.parametrize("shape", [(0, 2, 2, 5, 5, 16), (2, 2, 2, 0, 5, 16), (2, 2, 2, 5, 0, 16)], ids=str)
def test_empty_inputs_give_empty_or_zero_outputs(shape):
    q, k, v = draw(shape)
    with poison():
        o, lse = forward(q, k, v)
    assert o.shape == q.shape and lse.shape == q.shape[:3]
    assert (o == 0).all() and (lse == -np.inf).all()


def test_the_first_keys_may_all_be_hidden_by_the_scores():
    q, k, v = draw((1, 1, 1, 4, 60, 16))
    q[:] = 1
    k[:, :, :40] = -1e30
    check_forward(forward, q, k, v)


@pytest.mark.parametrize("lengths", [[5, 33], [0, 17], [16, 1]])
@pytest.mark.parametrize("causal", CAUSAL)
def test_keys_behind_the_key_length_do_not_matter_even_if_they_are_nan(lengths, causal):
    q, k, v = draw((2, 2, 1, 20, 33, 16))
    for b, n in enumerate(lengths):
        k[b, :, n:] = v[b, :, n:] = float("nan")
    with poison():
        o, lse = forward(q, k, v, causal=causal, key_lengths=torch.tensor(lengths, dtype=torch.int32))
    for b, n in enumerate(lengths):
        want_o, want_lse = reference.attention(
            q[b].double().numpy(), k[b, :, :n].double().numpy(), v[b, :, :n].double().numpy(), causal=causal
        )
        assert np.allclose(o[b].numpy(), want_o, atol=2e-6)
        assert np.allclose(lse[b].numpy(), want_lse, atol=2e-6)


def test_a_nan_key_that_a_row_does_not_see_does_not_matter_to_it():
    q, k, v = draw((1, 1, 1, 40, 40, 16))
    want = forward(q, k, v, causal="top-left")[0]
    k[0, 0, 39] = float("nan")
    got = forward(q, k, v, causal="top-left")[0]
    assert torch.equal(got[:, :, :39], want[:, :, :39])
    assert got[0, 0, 39].isnan().all()


def test_a_nan_in_q_or_v_is_not_hidden():
    q, k, v = draw((1, 1, 1, 40, 40, 16))
    bad = q.clone()
    bad[0, 0, 7] = float("nan")
    o, lse = forward(bad, k, v)
    assert o.isnan().all(-1)[0, 0].nonzero().flatten().tolist() == [7]
    assert lse.isnan()[0, 0].nonzero().flatten().tolist() == [7]
    v[0, 0, 0, 3] = float("nan")
    o = forward(q, k, v, causal="top-left")[0]
    assert o[..., 3].isnan().all() and o.isnan().sum() == 40


def test_two_runs_are_equal_bit_for_bit():
    q, k, v = draw((1, 2, 1, 35, 35, 16))
    first, second = forward(q, k, v, causal="top-left"), forward(q, k, v, causal="top-left")
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_programs_do_not_race_and_stay_inside_their_tensors():
    q, k, v = (strided(x, "slice of qkv") for x in draw((1, 2, 1, 33, 20, 24)))
    assert interpreter.find_races(lambda: forward(q, k, v, causal="bottom-right")) == []


def test_the_bytes_that_move_are_those_of_the_algorithm():
    q, k, v = draw((1, 2, 1, 40, 40, 16), torch.float16)
    trace = interpreter.record(lambda: forward(q, k, v))
    assert trace.bytes("load", "q") == q.numel() * 2
    blocks = 3  # each of a head's 3 query blocks reads all keys of its K/V head
    assert trace.bytes("load", "k") == trace.bytes("load", "v") == 2 * blocks * k.numel() * 2
    assert trace.bytes("store", "o") == q.numel() * 2
    assert trace.bytes("store", "lse") == 2 * 40 * 4
    assert {e.tensor for e in trace} == {"q", "k", "v", "o", "lse"}
    causal = interpreter.record(lambda: forward(q, k, v, causal="top-left"))
    assert causal.bytes("load", "k") == 2 * (16 + 32 + 40) * 16 * 2


@pytest.mark.parametrize("planted", ["num_queries", "num_keys", "DIM"])
def test_a_kernel_that_forgets_a_mask_is_caught(planted, monkeypatch):
    q, k, v = draw((1, 1, 1, 20, 20, 12))
    launch = fa2.launch

    def forget(kernel, grid, *args, **constants):
        args = list(args)
        if planted == "DIM":
            constants["DIM"] = 16
        else:
            args[kernel.arg_names.index(planted)] = 32
        launch(kernel, grid, *args, **constants)

    monkeypatch.setattr(fa2, "launch", forget)
    with pytest.raises(OutOfBounds, match="mask missing"):
        forward(q, k, v)


def test_a_row_offset_beyond_32_bits_is_computed_in_64_bits():
    """Only address arithmetic: rows 2^26 elements apart, of which only the touched pages exist."""
    buffer = torch.empty(2**26 * 33 + 16, dtype=torch.float16)  # 4.4 GB of addresses, reserved and not used
    k = buffer.as_strided((1, 1, 34, 16), (0, 0, 2**26, 1))
    q, fill, v = draw((1, 1, 1, 2, 34, 16), torch.float16)
    k.copy_(fill)
    check_forward(forward, q, k, v)
