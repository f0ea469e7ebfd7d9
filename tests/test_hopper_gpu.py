"""The Hopper kernels on a Hopper GPU: every step right, for any size, mask and memory order, and repeatable.

A wrong barrier hangs the card: run `python -m flashlab.bench hopper` first, which stops what hangs.
"""

import pytest

pytest.importorskip("triton")
import torch
from kernel_cases import CAUSAL, STRIDES, assert_rows_without_keys, check_forward, draw, strided

import flashlab
from flashlab.kernels import fa2_backward, hopper_backward_host, hopper_host
from flashlab.testing import assert_close_to_reference

pytestmark = pytest.mark.gpu
DTYPES = (torch.float16, torch.bfloat16)
# (B, Hq, Hkv, Nq, Nk, D)
SHAPES = [
    (1, 1, 1, 1, 1, 64), (2, 6, 2, 129, 300, 64), (1, 2, 1, 300, 129, 128), (1, 4, 4, 511, 513, 128),
    (2, 2, 1, 200, 333, 256), (1, 2, 2, 128, 128, 256), (1, 2, 1, 257, 257, 40), (3, 8, 8, 640, 640, 64),
]  # fmt: skip


# What step 5 can choose: (head dim, masks under which it does, its Config)
CHOSEN = {
    "D 64": (64, CAUSAL, hopper_host.config_for(64)),
    "D 128, short under a mask": (128, CAUSAL[1:], hopper_host.config_for(128, 5, "top-left", 1)),
    "D 128": (128, CAUSAL, hopper_host.config_for(128, 5, "top-left", 10**6)),
    "D 256": (256, CAUSAL, hopper_host.config_for(256)),
}
CHOICES = [(name, causal) for name, (_, masks, _) in CHOSEN.items() for causal in masks]
ENDS = (1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 387)  # of consumers, their blocks, tiles of keys


@pytest.fixture(autouse=True)
def hopper_only():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("for Hopper GPUs (sm_90)")


def forward(q, k, v, *, causal=False, scale=None, step=5, config=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return hopper_host.forward(q, k, v, causal=causal or None, scale=scale, step=step, config=config)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("step", hopper_host.STEPS)
def test_every_step_is_right_for_every_size_mask_and_format(step, shape, causal, dtype):
    check_forward(lambda *x, **how: forward(*x, step=step, **how), *draw(shape, dtype, "cuda"), causal=causal)


@pytest.mark.parametrize(("name", "causal"), CHOICES)
def test_what_step_5_chooses_is_right_at_every_ragged_end_with_fewer_blocks_than_sms(name, causal):
    dim, _, config = CHOSEN[name]
    for shift in (0, 1, 5):  # as many keys as queries, and all kinds of more and fewer
        for queries, keys in zip(ENDS, ENDS[shift:] + ENDS[:shift], strict=True):
            q, k, v = draw((1, 6, 2, queries, keys, dim), torch.bfloat16, "cuda", seed=shift)
            check_forward(forward, q, k, v, causal=causal, config=config)


@pytest.mark.parametrize(("name", "causal"), CHOICES)
def test_what_step_5_chooses_is_right_when_each_program_does_many_blocks(name, causal):
    dim, _, config = CHOSEN[name]
    for queries, keys in ((193, 129), (129, 321), (65, 65), (1, 200)):
        q, k, v = draw((4, 96, 24, queries, keys, dim), torch.bfloat16, "cuda")
        check_forward(forward, q, k, v, causal=causal, config=config)


@pytest.mark.parametrize(
    ("dim", "consumers", "stages", "v_stages"),
    [(64, 2, 2, 3), (64, 3, 2, 2), (64, 3, 3, 3), (128, 2, 2, 2), (128, 2, 2, 3)],
)
@pytest.mark.parametrize("order", hopper_host.ORDERS)
def test_every_order_and_ring_is_right_when_a_program_does_many_blocks(
    order, dim, consumers, stages, v_stages
):
    config = hopper_host.Config(128, order, True, stages, v_stages, consumers=consumers)
    q, k, v = draw((2, 32, 8, 411, 533, dim), torch.bfloat16, "cuda")
    check_forward(forward, q, k, v, causal="bottom-right", config=config)


@pytest.mark.parametrize("causal", CAUSAL)
def test_long_sequences_with_the_configuration_of_their_length_are_right(causal):
    q, k, v = draw((1, 2, 1, 2100, 2113, 128), torch.float16, "cuda")
    check_forward(forward, q, k, v, causal=causal)


@pytest.mark.parametrize("scale", [0.0, -0.3, 3.0])
@pytest.mark.parametrize("causal", CAUSAL)
def test_any_scale_is_right(scale, causal):
    check_forward(forward, *draw((1, 2, 2, 200, 300, 64), torch.float16, "cuda"), causal=causal, scale=scale)


def test_rows_without_keys_give_zero_and_minus_infinity_even_if_v_is_nan():
    q, k, v = draw((1, 2, 2, 500, 100, 128), torch.float16, "cuda")
    v[:, :, :50] = float("nan")
    o, lse = forward(q, k, v, causal="bottom-right")
    assert (o[:, :, :400] == 0).all() and (lse[:, :, :400] == -torch.inf).all()
    q, k, v = draw((1, 2, 2, 500, 100, 128), torch.float16, "cuda")
    o, lse = (x.cpu() for x in forward(q, k, v, causal="bottom-right"))
    assert_rows_without_keys(o, lse, torch.arange(500) < 400)


@pytest.mark.parametrize("kind", STRIDES)
def test_any_memory_order_is_right_or_refused(kind):
    q, k, v = (strided(x, kind) for x in draw((2, 4, 2, 150, 170, 64), torch.float16, "cuda"))
    if kind in ("columns first", "off by one element"):
        with pytest.raises(NotImplementedError, match="TMA"):
            flashlab.attention(q, k, v, backend="fa3")
    else:
        check_forward(forward, q, k, v, causal=True)


def test_a_head_neither_reads_nor_overwrites_the_next_one():
    q, k, v = draw((2, 3, 3, 100, 100, 64), torch.float16, "cuda")
    alone = [forward(q[b : b + 1, h : h + 1], k[b : b + 1, h : h + 1], v[b : b + 1, h : h + 1])
             for b in range(2) for h in range(3)]  # fmt: skip
    o, lse = forward(q, k, v)
    assert torch.equal(o.flatten(0, 1), torch.cat([x[0, 0][None] for x, _ in alone]))
    assert torch.equal(lse.flatten(0, 1), torch.cat([x[0, 0][None] for _, x in alone]))


def assert_fifty_runs_are_equal(dim, causal, **how):
    q, k, v = draw((2, 8, 2, 1000, 1200, dim), torch.bfloat16, "cuda")
    first = forward(q, k, v, causal=causal, **how)
    for _ in range(50):
        again = forward(q, k, v, causal=causal, **how)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@pytest.mark.parametrize("step", (1, 2, 3, 4))
def test_fifty_runs_are_equal_bit_for_bit(step):
    assert_fifty_runs_are_equal(128, "bottom-right", step=step)


@pytest.mark.parametrize(("name", "causal"), CHOICES)
def test_fifty_runs_of_what_step_5_chooses_are_equal_bit_for_bit(name, causal):
    dim, _, config = CHOSEN[name]
    assert_fifty_runs_are_equal(dim, causal, config=config)


@pytest.mark.parametrize(("name", "causal"), CHOICES)
def test_a_captured_graph_of_what_step_5_chooses_sees_new_inputs(name, causal):
    dim, _, config = CHOSEN[name]
    shape = (2, 48, 12, 300, 333, dim)  # more blocks than SMs
    q, k, v = draw(shape, torch.bfloat16, "cuda")
    forward(q, k, v, causal=causal, config=config)  # compiles, and brings the plan
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = forward(q, k, v, causal=causal, config=config)
    for seed in (1, 2):
        for x, new in zip((q, k, v), draw(shape, torch.bfloat16, "cuda", seed=seed), strict=True):
            x.copy_(new)
        graph.replay()
        want = forward(q, k, v, causal=causal, config=config)
        assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_gradients_and_a_captured_graph_work_through_the_public_call():
    q, k, v = (x.requires_grad_() for x in draw((1, 4, 2, 300, 300, 64), torch.float16, "cuda"))

    def gradients(backend):
        o, lse = flashlab.attention(q, k, v, causal=True, backend=backend, return_lse=True)
        return torch.autograd.grad(o.float().square().sum() + lse.sum(), (q, k, v))

    for x, y in zip(gradients("fa3"), gradients("fa2"), strict=True):
        assert torch.allclose(x, y, atol=5e-3, rtol=5e-3)
    with torch.no_grad():
        want = flashlab.attention(q, k, v, backend="fa3")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = flashlab.attention(q, k, v, backend="fa3")
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got, want)


def backward(q, k, v, do, causal):
    """(dq, dk, dv) by fa3's own backward, and o and lse of its forward."""
    how = dict(causal=causal or None, scale=q.shape[-1] ** -0.5)
    o, lse = hopper_host.forward(q, k, v, **how)
    inputs = (q, k, v, do, lse, fa2_backward.delta(o, do))
    dk, dv = hopper_backward_host.backward_kv(*inputs, **how)
    return dict(o=o, lse=lse, dq=hopper_backward_host.backward_q(*inputs, **how), dk=dk, dv=dv)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[-1] <= 128], ids=str)
def test_the_own_backward_is_right_for_every_size_mask_and_format(shape, causal, dtype):
    q, k, v = draw(shape, dtype, "cuda")
    do = draw(shape, dtype, "cuda", seed=1)[0]
    assert_close_to_reference(backward(q, k, v, do, causal), q, k, v, do, causal=causal)


def test_fifty_runs_of_the_own_backward_are_equal_bit_for_bit():
    q, k, v = draw((2, 8, 2, 1000, 1200, 128), torch.bfloat16, "cuda")
    do = torch.randn_like(q)
    first = backward(q, k, v, do, "bottom-right")
    for _ in range(50):
        again = backward(q, k, v, do, "bottom-right")
        assert all(torch.equal(again[name], x) for name, x in first.items())
