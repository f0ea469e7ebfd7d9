"""attention_varlen, interpreted: every sequence as if it were alone, and what is refused."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CAUSAL
from varlen_cases import all_results, assert_right, bounds, by_sequence, check_packed, draw_packed

import flashlab
from flashlab.varlen import pad, unpad

pytest.importorskip("triton")

import triton
import triton.language as tl

from flashlab import interpreter
from flashlab import varlen as public
from flashlab.kernels import varlen, varlen_backward
from flashlab.kernels.launch import Config

SMALL = Config(16, 16)


def leaves(*args, **how):
    """q, k, v that want gradients, and both cu_seqlens."""
    q, k, v, _, *bounds_of_both = draw_packed(*args, **how)
    return *(x.requires_grad_() for x in (q, k, v)), *bounds_of_both


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize(
    ("lens_q", "lens_k", "heads", "kv_heads", "dim"),
    [
        ([0, 3, 0, 5], [4, 0, 0, 5], 9, 3, 64),  # sequences without queries, without keys, without both
        ([17, 1, 16, 15], [17, 1, 16, 15], 2, 1, 24),
        ([5, 33], [38, 3], 1, 1, 8),
        ([19], [40], 2, 2, 1),
        ([2, 20], [20, 2], 1, 1, 256),
        ([0, 0], [3, 0], 1, 1, 16),
        ([3, 1], [0, 0], 1, 1, 16),
    ],
)
def test_every_sequence_is_right(lens_q, lens_k, heads, kv_heads, dim, causal):
    check_packed(draw_packed(lens_q, lens_k, heads, kv_heads, dim), causal=causal, config=SMALL)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
def test_16_bit_inputs_are_right(dtype, causal):
    check_packed(draw_packed([9, 0, 18], [20, 4, 7], 2, 1, 24, dtype), causal=causal, config=SMALL)


@pytest.mark.parametrize("config", [Config(16, 32), Config(32, 16), Config(64, 64)], ids=str)
@pytest.mark.parametrize("causal", ["top-left", "bottom-right"])
def test_query_and_key_blocks_may_differ(config, causal):
    check_packed(draw_packed([35, 3, 20], [20, 37, 20], 1, 1, 16), causal=causal, config=config)


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.5])
def test_the_scale_may_be_any_number(scale):
    check_packed(draw_packed([17, 5], [20, 9], 1, 1, 16), causal="top-left", scale=scale, config=SMALL)


@pytest.mark.parametrize("causal", CAUSAL)
def test_rows_after_the_last_sequence_get_zero_and_minus_infinity_and_change_nothing(causal):
    q, k, v, do, cu_q, cu_k = draw_packed([5, 20], [18, 7], 2, 1, 16, tail=(19, 35))
    for x, cu in ((q, cu_q), (do, cu_q), (k, cu_k), (v, cu_k)):
        x[int(cu[-1]) :] = float("nan")
    got = all_results(q, k, v, do, cu_q, cu_k, causal=causal, config=SMALL)
    assert_right(got, q, k, v, do, cu_q, cu_k, causal=causal)


@pytest.mark.parametrize("lens", [[0, 1, 0, 1], [1, 1], [0, 0, 0, 1]])
def test_one_query_a_sequence_with_empty_entries_between_is_right(lens):
    tensors = draw_packed(lens, [4, 18, 0, 7][: len(lens)], 9, 3, 16)
    check_packed(tensors, causal="bottom-right", config=SMALL)
    q, k, v, _, cu_q, cu_k = tensors
    o = flashlab.attention_varlen(q, k, v, cu_q, cu_k, max_seqlen_q=1, max_seqlen_k=18, causal="bottom-right")
    assert_right(dict(o=o, lse=flashlab.attention_varlen(
        q, k, v, cu_q, cu_k, causal="bottom-right", return_lse=True
    )[1]), *tensors, causal="bottom-right")  # fmt: skip


@pytest.mark.parametrize("lens_q", [[76], [110]])
def test_few_keys_under_a_causal_mask_give_finite_gradients(lens_q):
    check_packed(draw_packed([*lens_q, 3], [2, 1], 1, 1, 32), causal="bottom-right", config=Config(32, 16))


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=4),
    st.sampled_from([(1, 1), (2, 1)]),
    st.sampled_from([1, 8, 17]),
    st.sampled_from(CAUSAL),
    st.tuples(st.integers(0, 17), st.integers(0, 17)),
)
def test_any_lengths_are_right(lens, heads, dim, causal, tail):
    lens_q, lens_k = zip(*lens, strict=True)
    check_packed(draw_packed(list(lens_q), list(lens_k), *heads, dim, tail=tail), causal=causal, config=SMALL)


def test_no_sequence_at_all_gives_zeros():
    q, k, v, do, cu_q, cu_k = draw_packed([], [], 2, 1, 8, tail=(3, 4))
    got = all_results(q, k, v, do, cu_q, cu_k)
    assert_right(got, q, k, v, do, cu_q, cu_k)


@pytest.mark.parametrize("totals", [(0, 5), (5, 0), (0, 0)])
def test_packed_tensors_without_rows_are_fine(totals):
    q, k, v, do, cu_q, cu_k = draw_packed([0, totals[0]], [totals[1], 0], 2, 1, 8)
    assert_right(all_results(q, k, v, do, cu_q, cu_k), q, k, v, do, cu_q, cu_k)


def test_a_nan_never_reaches_another_sequence():
    for bad in range(3):
        q, k, v, do, cu_q, cu_k = draw_packed([5, 20, 9], [18, 7, 17], 2, 1, 16)
        want = all_results(q, k, v, do, cu_q, cu_k, causal="bottom-right", config=SMALL)
        for x, cu in ((q, cu_q), (k, cu_k), (v, cu_k), (do, cu_q)):
            x[cu[bad] : cu[bad + 1]] = float("nan")
        got = all_results(q, k, v, do, cu_q, cu_k, causal="bottom-right", config=SMALL)
        for name in got:
            cu = cu_k if name in ("dk", "dv") else cu_q
            for n, (x, y) in enumerate(
                zip(by_sequence(got[name], cu), by_sequence(want[name], cu), strict=True)
            ):
                assert x.isnan().any() if n == bad else torch.equal(x, y), (name, n)


def test_slices_of_a_packed_qkv_tensor_are_right():
    *_, cu, _ = draw_packed([5, 20], [5, 20], 2, 2, 16)
    qkv = torch.randn(25, 3, 2, 16, generator=torch.Generator().manual_seed(3))
    do = torch.ones(1, 1, 1).expand(25, 2, 16)  # what o.sum().backward() hands over
    check_packed((*qkv.unbind(1), do, cu, cu), causal="top-left", config=SMALL)
    heads_first = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in qkv.unbind(1))
    check_packed((*heads_first, do, cu, cu), causal="top-left", config=SMALL)
    columns_first = (x.mT.contiguous().mT for x in qkv.unbind(1))
    check_packed((*columns_first, do.contiguous().mT.contiguous().mT, cu, cu), config=SMALL)


def test_outputs_stay_between_their_guards(monkeypatch):
    tensors = draw_packed([5, 20], [18, 7], 2, 1, 12, tail=(2, 3))
    guarded = []

    def between_guards(shape, dtype=torch.float32, **_):
        size = torch.Size(shape).numel()
        buffer = torch.full((size + 512,), 777.0, dtype=dtype)
        inside = buffer[256 : 256 + size].view(shape).fill_(float("nan"))
        guarded.append((buffer, inside))
        return inside

    monkeypatch.setattr(torch, "empty", between_guards)
    monkeypatch.setattr(torch, "empty_like", lambda x: between_guards(x.shape, x.dtype))
    got = all_results(*tensors, causal="top-left", config=SMALL)
    monkeypatch.undo()
    assert_right(got, *tensors, causal="top-left")
    assert len(guarded) == 6
    for buffer, inside in guarded:
        assert (buffer[:256] == 777).all() and (buffer[-256:] == 777).all() and not inside.isnan().any()


def test_programs_do_not_race_and_stay_inside_their_tensors():
    q, k, v, do, cu_q, cu_k = draw_packed([5, 20, 0], [18, 7, 3], 2, 1, 12, tail=(19, 20))
    run = lambda: all_results(q, k, v, do, cu_q, cu_k, causal="bottom-right", config=SMALL)  # noqa: E731
    assert interpreter.find_races(run) == []


@pytest.mark.parametrize(
    "wrong", [[0, 99, 99], [-5, 3, 8], [0, 8, 3], [7, 2, 8], [6, 7, 8], [2**31 - 1, 0, -(2**31)]]
)
def test_wrong_bounds_are_clamped_and_never_leave_the_tensors(wrong):
    q, k, v, do, cu, _ = draw_packed([3, 5], [3, 5], 1, 1, 8)
    wrong = torch.tensor(wrong, dtype=torch.int32)
    for cu_q, cu_k in ((wrong, cu), (cu, wrong), (wrong, wrong)):
        all_results(q, k, v, do, cu_q, cu_k, causal="bottom-right", config=SMALL)  # OutOfBounds if they do


def test_every_block_of_every_sequence_has_one_slot_and_there_are_enough_slots():
    """The rule by which programs find their work, in Python, for all lengths of three sequences and blocks of
    4.
    """
    block = 4
    for lens in itertools.product(range(10), repeat=3):
        cu = bounds(list(lens)).tolist()
        slots = {
            (s, n): cu[s] // block + s + n
            for s, length in enumerate(lens)
            for n in range(-(-length // block))
        }
        assert len(set(slots.values())) == len(slots)
        assert all(slot < cu[s + 1] // block + s + 1 for (s, _), slot in slots.items())


@triton.jit(do_not_specialize=["num_sequences", "total"])
def count_kernel(count_ptr, sequence_ptr, cu_ptr, num_sequences, total, BLOCK: tl.constexpr):
    """Counts by how many programs a row is found, and writes down its sequence: the search of the kernels."""
    slot, _ = varlen.my_slot(total, num_sequences, BLOCK, True)
    some, rows, mask = varlen.outside(cu_ptr, slot, num_sequences, total, BLOCK)
    if some:
        tl.store(count_ptr + rows, tl.load(count_ptr + rows, mask=mask, other=0) + 1, mask=mask)
    sequence, start, end, block = varlen.my_rows(cu_ptr, slot, num_sequences, total, BLOCK)
    rows = start + block * BLOCK + tl.arange(0, BLOCK)
    inside = rows < end
    tl.store(count_ptr + rows, tl.load(count_ptr + rows, mask=inside, other=0) + 1, mask=inside)
    tl.store(sequence_ptr + rows, sequence + rows * 0, mask=inside)


@pytest.mark.parametrize("num_sequences", [1, 2, 3, 4])
def test_every_row_is_found_by_one_program(num_sequences):
    """The kernels' search itself, for all sequences of some lengths around a block, and rows left over."""
    choices = {1: (0, 1, 15, 16, 17, 33), 2: (0, 1, 15, 16, 17), 3: (0, 1, 17), 4: (0, 17)}[num_sequences]
    for lens in itertools.product(choices, repeat=num_sequences):
        for left_over in (0, 1, 20):
            cu, total = bounds(list(lens)), sum(lens) + left_over
            (programs,) = varlen.grid(total, 16, cu, 1)
            count, sequence = (
                torch.zeros(total, dtype=torch.int32),
                torch.full((total,), -1, dtype=torch.int32),
            )
            if total == 0:
                continue
            with interpreter.interpreted():
                count_kernel[(programs,)](count, sequence, cu, num_sequences, total, BLOCK=16)
            assert (count == 1).all(), (lens, left_over)
            want = torch.repeat_interleave(torch.arange(num_sequences), torch.tensor(lens))
            assert torch.equal(sequence[: len(want)].long(), want) and (sequence[len(want) :] == -1).all()


def test_padding_mask_packed_sequences_and_a_loop_agree():
    lens, n = torch.tensor([1, 17, 64, 65]), 65
    g = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(4, n, 2, 16, generator=g) for _ in range(3))
    with_mask = flashlab.attention(
        *(x.transpose(1, 2) for x in (q, k, v)), key_lengths=lens, causal=True, backend="naive"
    ).transpose(1, 2)
    (packed_q, cu), (packed_k, _), (packed_v, _) = (unpad(x, lens) for x in (q, k, v))
    o = flashlab.attention_varlen(packed_q, packed_k, packed_v, cu, cu, causal=True)
    loop = [
        flashlab.attention(*(x[b : b + 1, :length].transpose(1, 2) for x in (q, k, v)), causal=True)[0]
        for b, length in enumerate(lens.tolist())
    ]
    assert torch.allclose(o, unpad(with_mask, lens)[0], atol=2e-6)
    assert torch.allclose(o, torch.cat(loop, 1).transpose(0, 1), atol=2e-6)
    # padded on the left: the same rows, packed, and back
    left = [torch.stack([x[b].roll(n - int(m), 0) for b, m in enumerate(lens)]) for x in (q, k, v)]
    left_o = flashlab.attention_varlen(*(unpad(x, lens, "left")[0] for x in left), cu, cu, causal=True)
    assert torch.equal(left_o, o)
    padded = pad(left_o, cu, n, "left")
    assert torch.equal(unpad(padded, lens, "left")[0], o) and (padded[0, :-1] == 0).all()


# unpad and pad


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("lens", [[3, 0, 5], [0, 0, 0], [5, 5, 5]])
def test_pad_undoes_unpad_and_rows_left_over_are_zero(lens, side):
    x = torch.arange(1.0, 31).view(3, 5, 2)
    lens = torch.tensor(lens)
    packed, cu = unpad(x, lens, side)
    want = [x[b, :m] if side == "right" else x[b, 5 - m :] for b, m in enumerate(lens.tolist())]
    assert torch.equal(packed, torch.cat(want)) and cu.dtype == torch.int32
    more, _ = unpad(x, lens, side, total=15)
    assert torch.equal(more[: len(packed)], packed) and (more[len(packed) :] == 0).all()
    back = pad(more, cu, 5, side)
    rows = torch.arange(5)
    real = rows < lens[:, None] if side == "right" else rows >= 5 - lens[:, None]
    assert torch.equal(back, torch.where(real[..., None], x, 0.0))


def test_unpad_and_pad_pass_gradients_to_real_rows_only():
    x = torch.randn(2, 3, 4, requires_grad=True)
    packed, cu = unpad(x, torch.tensor([2, 0]))
    pad(packed * 2, cu, 3).sum().backward()
    want = torch.zeros(2, 3, 4)
    want[0, :2] = 2
    assert torch.equal(x.grad, want)


def test_unpad_and_pad_say_what_is_wrong():
    x, lens = torch.zeros(2, 3, 4), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="side to be 'right' or 'left', got 'top'"):
        unpad(x, lens, "top")
    with pytest.raises(TypeError, match="tensor of integers with one axis"):
        unpad(x, [1, 2])
    with pytest.raises(ValueError, match=r"lengths to be \[2\]"):
        unpad(x, lens[:1])
    with pytest.raises(TypeError, match="tensor of integers with one axis"):
        pad(x[0], lens.float(), 3)


# Gradients, operators, compilation


def test_gradients_of_o_and_lse_are_those_of_the_naive_backend():
    q, k, v, cu_q, cu_k = leaves([5, 9], [7, 9], 2, 1, 8)
    o, lse = flashlab.attention_varlen(q, k, v, cu_q, cu_k, causal="bottom-right", return_lse=True)
    weights = torch.rand(14, 2, generator=torch.Generator().manual_seed(1))
    got = torch.autograd.grad(o.cos().sum() + (lse[2:] * weights[2:]).sum(), (q, k, v))
    loss = 0
    for n, (start, end) in enumerate(((0, 5), (5, 14))):
        keys = slice(int(cu_k[n]), int(cu_k[n + 1]))
        alone = (x.transpose(0, 1)[None] for x in (q[start:end], k[keys], v[keys]))
        o, lse = flashlab.attention(*alone, causal="bottom-right", backend="naive", return_lse=True)
        skip = 2 if n == 0 else 0
        loss = loss + o.cos().sum() + (lse[0].T * weights[start:end])[skip:].sum()
    want = torch.autograd.grad(loss, (q, k, v))
    assert all(torch.allclose(x, y, atol=2e-6) for x, y in zip(got, want, strict=True))


def test_the_gradient_of_lse_alone_is_right():
    q, k, v, cu_q, cu_k = leaves([5], [7], 1, 1, 8)
    lse = flashlab.attention_varlen(q, k, v, cu_q, cu_k, return_lse=True)[1]
    lse.sum().backward()
    q64, k64 = (x.detach().double()[:, 0].requires_grad_() for x in (q, k))
    torch.logsumexp(q64 @ k64.T / 8**0.5, -1).sum().backward()
    assert torch.allclose(q.grad[:, 0].double(), q64.grad, atol=1e-6)
    assert torch.allclose(k.grad[:, 0].double(), k64.grad, atol=1e-6) and (v.grad == 0).all()


@pytest.mark.parametrize("wanted", ["q", "k", "v", "qk", "qv", "kv", "qkv", ""])
def test_only_the_wanted_gradients_are_computed(wanted, monkeypatch):
    ran = []
    for name in ("backward_q", "backward_kv"):
        run = getattr(varlen_backward, name)
        monkeypatch.setattr(
            varlen_backward, name, lambda *a, run=run, name=name, **how: ran.append(name) or run(*a, **how)
        )
    q, k, v, _, cu_q, cu_k = draw_packed([3], [4], 1, 1, 8)
    tensors = dict(q=q, k=k, v=v)
    for name in wanted:
        tensors[name].requires_grad_()
    o = flashlab.attention_varlen(q, k, v, cu_q, cu_k)
    assert o.requires_grad == bool(wanted)
    if wanted:
        o.sum().backward()
    want = ["backward_q"] * ("q" in wanted) + ["backward_kv"] * ("k" in wanted or "v" in wanted)
    assert ran == want
    assert {name for name, x in tensors.items() if x.grad is not None} == set(wanted)


def test_the_gradient_of_a_gradient_raises():
    q, k, v, cu_q, cu_k = leaves([3], [4], 1, 1, 8)
    o = flashlab.attention_varlen(q, k, v, cu_q, cu_k)
    (grad,) = torch.autograd.grad(o.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no double backward"):
        grad.sum().backward()


def test_autocast_gives_16_bit_outputs_and_32_bit_gradients():
    q, k, v, cu_q, cu_k = leaves([3, 5], [4, 5], 2, 1, 8)
    with torch.autocast("cpu", torch.bfloat16):
        o = flashlab.attention_varlen(q, k, v, cu_q, cu_k)
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert all(x.grad.dtype == torch.float32 and x.grad.isfinite().all() for x in (q, k, v))


def test_the_operators_pass_opcheck():
    q, k, v, cu_q, cu_k = leaves([3, 0, 2], [4, 1, 2], 2, 1, 8)
    torch.library.opcheck(public.varlen, (q, k, v, cu_q, cu_k, "bottom-right", 0.3))
    q, k, v = (x.detach() for x in (q, k, v))
    o, lse = public.varlen(q, k, v, cu_q, cu_k, "", 0.3)
    for op in (public.varlen_dq, public.varlen_dkdv):
        torch.library.opcheck(op, (q, k, v, o, lse, lse, cu_q, cu_k, "", 0.3))


def test_the_fake_outputs_have_the_strides_of_the_real_ones():
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v, _, cu_q, cu_k = draw_packed([3, 2], [4, 3], 2, 2, 8)
    inputs = (q.transpose(0, 1).contiguous().transpose(0, 1), k, v, cu_q, cu_k)
    real = public.varlen(*inputs, "", 0.3)
    mode = FakeTensorMode()
    fake = public.varlen(*(mode.from_tensor(x) for x in inputs), "", 0.3)
    assert [x.stride() for x in real] == [x.stride() for x in fake]
    assert [(x.shape, x.dtype) for x in real] == [(x.shape, x.dtype) for x in fake]


def test_torch_compile_takes_it_as_one_graph_for_several_lengths():
    def loss(q, k, v, cu_q, cu_k):
        o, lse = flashlab.attention_varlen(q, k, v, cu_q, cu_k, causal=True, return_lse=True)
        return (o * o).sum() + lse.sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for lens in ([5, 4], [9, 0, 8]):
        q, k, v, cu_q, cu_k = leaves(lens, lens, 2, 1, 8)
        want = torch.autograd.grad(loss(q, k, v, cu_q, cu_k), (q, k, v))
        got = torch.autograd.grad(compiled(q, k, v, cu_q, cu_k), (q, k, v))
        assert all(torch.allclose(x, y, atol=1e-6) for x, y in zip(got, want, strict=True))


def test_two_runs_are_equal_bit_for_bit():
    tensors = draw_packed([5, 20], [18, 7], 2, 1, 16)
    first, second = (all_results(*tensors, causal="top-left", config=SMALL) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_grid_is_known_without_looking_at_the_lengths():
    assert varlen.grid(100, 16, bounds([40, 60]), 3) == ((100 // 16 + 2) * 3,)


# What is refused

Q, K, V, _, CU_Q, CU_K = draw_packed([3, 5], [4, 5], 4, 2, 8)


@pytest.mark.parametrize(
    ("error", "says", "change"),
    [
        (TypeError, "expected q to be a torch tensor, got ndarray", dict(q=Q.numpy())),
        (ValueError, r"q to be packed, \[total, heads, D\], got shape \[1, 8, 4, 8\]", dict(q=Q[None])),
        (ValueError, "multiple of Hkv, got Hq = 3 and Hkv = 2", dict(q=Q[:, :3])),
        (ValueError, "the same D, got 6, 8 and 8", dict(q=Q[..., :6])),
        (ValueError, r"k and v of one shape, got \[9, 2, 8\] and \[8, 2, 8\]", dict(v=V[:8])),
        (TypeError, "one dtype", dict(k=K.half())),
        (TypeError, "expected float16, bfloat16 or float32, got float64", dict(q=Q.double(), k=K.double())),
        (ValueError, "head dims 1 to 256, got 300", {n: torch.zeros(9, 1, 300) for n in "qkv"}),
        (TypeError, "cu_seqlens_q to be an int32 tensor, got list", dict(cu_seqlens_q=[0, 3, 8])),
        (TypeError, "cu_seqlens_q to be int32, got int64", dict(cu_seqlens_q=CU_Q.long())),
        (ValueError, r"cu_seqlens_k to be \[B \+ 1\].*got shape \[3, 1\]", dict(cu_seqlens_k=CU_K[:, None])),
        (ValueError, r"got shape \[0\]", dict(cu_seqlens_k=CU_K[:0])),
        (ValueError, "the same number of sequences, got 2 and 1", dict(cu_seqlens_k=CU_K[:2])),
        (ValueError, "cu_seqlens_q on cpu, got meta", dict(cu_seqlens_q=CU_Q.to("meta"))),
        (
            ValueError,
            "cu_seqlens_q to go from 0 to at most 8, the rows of q, got 0 to 9",
            dict(cu_seqlens_q=CU_K),
        ),
        (ValueError, "got 1 to 8", dict(cu_seqlens_q=torch.tensor([1, 3, 8], dtype=torch.int32))),
        (ValueError, "not to go down, got a sequence of -2", dict(cu_seqlens_k=bounds([4, -2]))),
        (ValueError, "at most max_seqlen_q = 4, got 5", dict(max_seqlen_q=4)),
        (TypeError, "max_seqlen_k to be an int or None, got float", dict(max_seqlen_k=5.0)),
        (ValueError, "unknown causal 'bottom'. Did you mean 'bottom-right'", dict(causal="bottom")),
        (TypeError, "expected scale to be a number or None, got str", dict(scale="1")),
        (TypeError, "unexpected keyword argument 'attn_mask'", dict(attn_mask=None)),
    ],
)
def test_bad_input_says_what_was_expected_and_what_came(error, says, change):
    with pytest.raises(error, match=says):
        flashlab.attention_varlen(**(dict(q=Q, k=K, v=V, cu_seqlens_q=CU_Q, cu_seqlens_k=CU_K) | change))


def test_without_triton_it_says_so_in_one_sentence(monkeypatch):
    monkeypatch.setattr(public, "triton_version", lambda: None)
    with pytest.raises(RuntimeError, match="Linux only: call flashlab.attention"):
        flashlab.attention_varlen(Q, K, V, CU_Q, CU_K)
