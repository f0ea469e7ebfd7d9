"""Ways in which attention kernels have failed in public, each as a small case.

`CASES` says for each one where it was reported, what went wrong, and which tests here or elsewhere hold the
kernels to it. Cases that need an arbitrary mask or bias are asked for by key_lengths, causal masks or packed
sequences, or must raise. "Causal" in the reports is "bottom-right". The numbers have gaps: not every report
concerns these kernels.
"""

import functools
import re
from pathlib import Path

import pytest
import torch
from kernel_cases import draw, gradients
from torch.autograd import forward_ad

import flashlab
from flashlab.testing import assert_close_to_reference

HERE = Path(__file__).parent

# number: (reports, what went wrong, "file: tests" in which it is a case)
CASES = {
    1: (
        "pytorch#103749 #103963 #109517, transformers#38690",
        "a row that sees nothing is nan",
        "kernels_fa2: test_rows_without_keys_give_zero_and_minus_infinity; kernels_backward: "
        "test_rows_that_see_nothing_have_no_gradient_and_add_none",
    ),
    2: (
        "pytorch#110213 #109517",
        "a row of finfo.min instead of -inf is nan or 0",
        "bugs: test_masks_and_biases_of_any_shape_raise test_scores_near_the_lowest_number_are_finite",
    ),
    3: (
        "flash-attention#442 #541",
        "first tiles hidden, later ones not: nan for good",
        "kernels_fa2: test_the_first_keys_may_all_be_hidden_by_the_scores",
    ),
    4: (
        "pytorch#101967, flash-attention#1745, vllm#936 #47305, aiter#5401",
        "nan behind the mask leaks",
        "kernels_fa2: test_keys_behind_the_key_length_do_not_matter_even_if_they_are_nan "
        "test_a_nan_key_that_a_row_does_not_see_does_not_matter_to_it; kernels_backward: "
        "test_padding_gets_no_gradient_even_if_it_is_nan; varlen: test_a_nan_never_reaches_another_sequence; "
        "decode: test_every_length_and_group_of_heads_is_right_and_pages_give_the_same",
    ),
    5: (
        "pytorch#141128",
        "a nan in the inputs is hidden",
        "kernels_fa2: test_a_nan_in_q_or_v_is_not_hidden; decode: test_a_nan_that_a_row_sees_is_not_hidden",
    ),
    7: (
        "flash-attention#282 #402 #436 #517 #1778, pytorch#110144, transformers#30437 #30414, cutlass#2336, "
        "gpt-neox#1178",
        "a causal mask with Nq != Nk is top-left here and bottom-right there",
        "bugs: test_a_causal_mask_of_an_oblong_matrix_is_the_one_that_is_named; kernels_backward: "
        "test_gradients_are_right_for_every_size_and_mask",
    ),
    9: (
        "pytorch#163588 #136232",
        "masks that are broadcast or too large",
        "bugs: test_masks_and_biases_of_any_shape_raise",
    ),
    10: (
        "cudnn-frontend#804",
        "the mask is applied before the scale",
        "kernels_fa2: test_the_scale_may_be_any_number; kernels_backward: test_the_scale_may_be_any_number",
    ),
    11: (
        "flash-attention#334 #443",
        "nan gradients of tiny inputs",
        "kernels_backward: test_tiny_sizes_give_finite_and_right_gradients; varlen: "
        "test_few_keys_under_a_causal_mask_give_finite_gradients",
    ),
    12: (
        "pytorch#153799 #133717, triton#2059, FlagGems#898, tiny-flash-attention#12",
        "a length that is no multiple of the block",
        "kernels_backward: test_lengths_around_a_block_are_right; kernels_gpu: "
        "test_gradients_are_right_for_every_size_mask_and_format",
    ),
    13: (
        "triton#621, flash-attention#2896 #2698 #1347, sglang#1281, pytorch#133495, aotriton#183, "
        "MagiAttention#137",
        "a head dim that is no power of two",
        "kernels_backward: test_head_dims_that_are_no_power_of_two_are_right; bugs: "
        "test_columns_after_the_head_dim_stay_as_they_were",
    ),
    14: (
        "the family of 13",
        "V with another head dim",
        "ops: test_bad_input_says_what_was_expected_and_what_came",
    ),
    16: (
        "pytorch#133780 #141218, xformers#852, cudnn-frontend#101",
        "empty inputs crash",
        "kernels_fa2: test_empty_inputs_give_empty_or_zero_outputs; kernels_backward: "
        "test_empty_inputs_have_zero_gradients; bugs: test_no_heads_at_all_are_fine_in_every_backend",
    ),
    18: (
        "fla#1080 #1082, pytorch#190857 #162588 #150054, flash-attention#1500, sglang#20389, ffpa-attn#299",
        "offsets beyond 32 bits",
        "kernels_fa2: test_a_row_offset_beyond_32_bits_is_computed_in_64_bits; kernels_gpu: "
        "test_row_offsets_beyond_32_bits_are_right; shipped_gpu: "
        "test_more_than_2_to_the_31_elements_are_right",
    ),
    20: (
        "flash-attention#1537 #1155 #2470 #2562 #2568 #1713",
        "sequences of length 0 in a packed batch",
        "varlen: test_every_sequence_is_right test_one_query_a_sequence_with_empty_entries_between_is_right "
        "test_outputs_stay_between_their_guards",
    ),
    23: (
        "transformers#40352",
        "padding, packing and a loop disagree",
        "varlen: test_padding_mask_packed_sequences_and_a_loop_agree",
    ),
    24: (
        "tilelang#328, aiter#4420, pegainfer#21, flashinfer#3943, sglang#2465",
        "a split without keys is nan",
        "decode: test_every_number_of_splits_gives_the_same "
        "test_splits_share_the_keys_that_there_are_and_not_the_room",
    ),
    25: (
        "vllm#48076 #54191, aiter#5673, vllm-flash-attn#176",
        "too few or too many splits",
        "decode: test_few_heads_and_many_keys_fill_the_gpu test_as_many_heads_as_sms_are_not_split",
    ),
    26: (
        "aiter#3498, vllm-flash-attn#148, flash-attention#1745",
        "the strides of pages, and stale pages",
        "decode: test_every_length_and_group_of_heads_is_right_and_pages_give_the_same "
        "test_lengths_and_table_entries_that_are_wrong_are_clamped_inside_the_kernel",
    ),
    27: (
        "flash-attention#1461, pytorch#105202, SKaiNET#860, cudnn-frontend#804",
        "a scale that is 0 or negative",
        "kernels_fa2: test_the_scale_may_be_any_number; bugs: "
        "test_a_scale_of_0_gives_the_mean_of_what_is_seen; varlen: test_the_scale_may_be_any_number; "
        "decode: test_the_scale_may_be_any_number",
    ),
    28: (
        "pytorch#119131 #116176, TransformerEngine#716",
        "huge scores overflow",
        "kernels_fa2: test_scores_that_overflow_fp16_or_are_all_very_negative_give_the_mean_of_v; "
        "bugs: test_keys_of_both_signs_that_overflow_fp16_are_right",
    ),
    30: (
        "pytorch#181645 #133159, flash-attention#141 #889 #1137 #648 #2067, ring-flash-attention#22, "
        "attention-gym#37",
        "lse in another base, or without a gradient",
        "kernels_fa2: test_lse_is_the_natural_log; kernels_backward: "
        "test_the_gradient_of_lse_reaches_q_and_k",
    ),
    32: (
        "triton_docs_tutorials#6, xformers#677",
        "TF32 in an fp32 kernel",
        "kernels_gpu: test_fp32_is_not_tf32",
    ),
    33: (
        "triton#11584 #11585 #4972 #10945 #11604",
        "bf16 in the interpreter",
        "kernels_fa2: test_16_bit_inputs_are_right; interpreter: "
        "test_bf16_tensors_are_refused_instead_of_computed_wrong",
    ),
    35: (
        "pytorch#191937 #116333",
        "expanded K and V",
        "kernels_fa2: test_keys_expanded_over_heads_and_batch_are_right; kernels_backward: "
        "test_keys_expanded_over_heads_and_batch_are_right",
    ),
    36: (
        "pytorch#112577 #187506 #108503, ROCm/pytorch#3230",
        "inputs that are not contiguous",
        "kernels_fa2: test_any_memory_order_is_right test_only_v_may_be_in_another_memory_order; "
        "kernels_backward: test_any_memory_order_of_the_inputs_is_right",
    ),
    37: (
        "flash-attention#355, pytorch#133671",
        "a dO that is not contiguous",
        "kernels_backward: test_any_memory_order_of_do_is_right "
        "test_sum_backward_whose_gradient_is_an_expanded_one_is_right",
    ),
    38: (
        "triton#2441 #5205, mamba#854, diffusers#14104",
        "q, k and v of different formats",
        "ops: test_bad_input_says_what_was_expected_and_what_came",
    ),
    39: (
        "pytorch#141010 #187729, unsloth#6912",
        "a kernel launched on the wrong GPU",
        "ops: test_bad_input_says_what_was_expected_and_what_came; shipped_gpu: "
        "test_tensors_on_another_gpu_than_the_current_one_are_right",
    ),
    41: (
        "fla#1029 #1032, hipDNN#5888, jax-js#180",
        "query heads that do not divide, or the wrong map of heads",
        "ops: test_bad_input_says_what_was_expected_and_what_came; kernels_backward: "
        "test_shared_heads_sum_their_gradients_in_the_right_groups",
    ),
    42: (
        "pytorch#87979, fla#1264, mamba#854",
        "autocast only in the forward",
        "kernels_backward: test_autocast_gives_16_bit_outputs_and_32_bit_gradients; varlen: "
        "test_autocast_gives_16_bit_outputs_and_32_bit_gradients",
    ),
    44: (
        "pytorch#116350 #181177 #128971, diffusers#5678",
        "gradients of gradients, and forward mode, silently wrong",
        "kernels_backward: test_the_gradient_of_a_gradient_raises; kernels_fa1: "
        "test_the_operators_pass_opcheck_and_the_gradient_of_a_gradient_raises; bugs: "
        "test_forward_mode_raises_instead_of_losing_the_tangent",
    ),
    47: (
        "flash-attention#414 #429 #988 #1245 #2244",
        "two backward runs differ",
        "kernels_backward: test_two_runs_are_equal_bit_for_bit; shipped_gpu: "
        "test_every_shipped_kernel_is_right_and_twenty_runs_are_equal_bit_for_bit",
    ),
    48: (
        "triton#7666 #11568",
        "backward gives too few or too many gradients",
        "bugs: test_a_call_with_every_argument_has_gradients",
    ),
    49: (
        "flash-attention#612 #2088 #165 #166, pytorch#100196",
        "dropout: constant seeds, masks that differ in the backward",
        "kernels_backward: test_p_0_is_no_dropout_bit_for_bit "
        "test_p_1_drops_everything_and_has_zero_gradients "
        "test_the_mask_is_that_of_the_contract_whatever_the_blocks "
        "test_dropout_gives_the_gradients_of_the_naive_backend "
        "test_seeds_repeat_and_differ_and_no_seed_follows_torchs_generator "
        "test_the_kept_share_is_one_minus_p_and_heads_have_different_masks; "
        "bugs: test_lse_knows_nothing_of_dropout",
    ),
    50: (
        "flash-attention#2013 #1139, ComfyUI#15044, vllm#29014, vllm-flash-attn#148",
        "torch.compile breaks the graph or gets wrong strides",
        "kernels_backward: test_torch_compile_takes_it_as_one_graph_for_several_lengths "
        "test_the_fake_outputs_have_the_strides_of_the_real_ones test_the_operators_pass_opcheck",
    ),
    51: (
        "flash-attention#165 #166",
        "a CUDA graph replays the same dropout, or cannot be captured",
        "kernels_gpu: test_a_captured_training_step_replays; shipped_gpu: "
        "test_a_captured_graph_reads_its_dropout_seed_at_each_replay",
    ),
    52: (
        "triton#1975 #1273 #4310 #6691 #7216 #9728, fla#988, openxla#19780",
        "wrong for some warps, stages or blocks only",
        "shipped_gpu: test_every_shipped_kernel_is_right_and_twenty_runs_are_equal_bit_for_bit; "
        "kernels_fa2: test_query_and_key_blocks_may_differ",
    ),
    53: (
        "a consequence of 47 and 52",
        "autotuning runs a kernel that adds to its output",
        "bugs: test_no_kernel_is_autotuned_or_adds_to_memory",
    ),
    54: (
        "seen here",
        "what the interpreter does not show",
        "kernels_text: test_a_masked_load_always_says_what_stands_for_the_hidden; kernels_gate: "
        "test_a_shipped_kernel_fits_loads_ahead_and_has_the_instructions_on_record "
        "test_a_padded_head_dim_and_dropout_compile; interpreter: test_a_missing_barrier_is_found",
    ),
}


@pytest.mark.parametrize("number", CASES)
def test_every_case_names_tests_that_exist(number):
    _, _, tests = CASES[number]
    for group in tests.split(";"):
        file, names = group.split(":")
        source = (HERE / f"test_{file.strip()}.py").read_text()
        assert names.split()
        for name in names.split():
            assert re.search(rf"^def {name}\(", source, re.M), f"{name} in test_{file.strip()}.py"


def test_no_case_is_forgotten():
    left_out = {6, 8, 15, 17, 19, 21, 22, 29, 31, 34, 40, 43, 45, 46}
    assert list(CASES) == [n for n in range(1, 55) if n not in left_out] and len(CASES) == 40


@pytest.mark.parametrize("name", ["attn_mask", "mask", "bias", "attn_bias"])
@pytest.mark.parametrize("shape", [(4, 6), (1, 1, 4, 6), (2, 1, 1, 6), (2, 3, 4, 6), (1, 3, 1, 6), (9, 9)])
def test_masks_and_biases_of_any_shape_raise(name, shape):
    q, k, v = draw((2, 3, 3, 4, 6, 16))
    for mask in (torch.ones(shape, dtype=torch.bool), torch.full(shape, torch.finfo(q.dtype).min)):
        with pytest.raises(TypeError, match=f"takes no {name}.*key_lengths.*attention_varlen"):
            flashlab.attention(q, k, v, **{name: mask})


@pytest.mark.parametrize("backend", ["fa1", "fa2", "naive", "auto"])
def test_scores_near_the_lowest_number_are_finite(backend):
    kernels(backend)
    q, k, v = draw((1, 1, 1, 4, 6, 16))
    low = torch.finfo(torch.float32).min / 32
    q[:], k[:] = 1.0, low / 16  # every score is low: the mean of V
    o, lse = flashlab.attention(q, k, v, scale=1.0, backend=backend, return_lse=True)
    assert torch.allclose(o, v.mean(2, keepdim=True).expand_as(o), atol=1e-6) and lse.isfinite().all()
    k[:, :, :4] = 0.0  # only the last two: they count for nothing
    o = flashlab.attention(q, k, v, scale=1.0, backend=backend)
    assert torch.allclose(o, v[:, :, :4].mean(2, keepdim=True).expand_as(o), atol=1e-6)


def kernels(backend):
    if backend in ("fa1", "fa2"):
        pytest.importorskip("triton")


@pytest.mark.parametrize("backend", ["fa1", "fa2", "naive"])
@pytest.mark.parametrize("shape", [(1, 2, 2, 3, 40, 16), (1, 2, 2, 40, 3, 16)], ids=str)
def test_a_causal_mask_of_an_oblong_matrix_is_the_one_that_is_named(shape, backend):
    kernels(backend)
    q, k, v = draw(shape)
    q[:], v[:] = 0, torch.eye(shape[4], 16)  # o[i, j] says whether row i sees key j
    for causal, shift in ((True, 0), ("top-left", 0), ("bottom-right", shape[4] - shape[3])):
        o, lse = flashlab.attention(q, k, v, causal=causal, backend=backend, return_lse=True)
        seen = torch.ones(shape[3], shape[4]).tril(shift)
        assert torch.equal(o[0, 0, :, : min(16, shape[4])] > 0, seen[:, :16].bool())
        assert torch.allclose(lse[0, 1].exp(), seen.sum(1))


def test_columns_after_the_head_dim_stay_as_they_were(monkeypatch):
    pytest.importorskip("triton")
    outputs = []

    def wider(x):
        outputs.append(torch.full((*x.shape[:-1], x.shape[-1] + 8), 777.0, dtype=x.dtype))
        return outputs[-1][..., : x.shape[-1]]

    q, k, v = draw((1, 2, 1, 20, 20, 24))
    monkeypatch.setattr(torch, "empty_like", wider)
    got = gradients(q, k, v, q, causal="top-left")
    monkeypatch.undo()
    assert len(outputs) == 4 and all((x[..., 24:] == 777).all() for x in outputs)
    assert_close_to_reference(got, q, k, v, q, causal="top-left")


@pytest.mark.parametrize("backend", ["fa1", "fa2", "naive", "auto"])
def test_no_heads_at_all_are_fine_in_every_backend(backend):
    kernels(backend)
    q, k, v = (x.requires_grad_() for x in draw((2, 0, 0, 5, 5, 16)))
    o, lse = flashlab.attention(q, k, v, backend=backend, return_lse=True)
    o.sum().backward()
    assert o.shape == (2, 0, 5, 16) and lse.shape == (2, 0, 5) and k.grad.shape == k.shape


@pytest.mark.parametrize("backend", ["fa1", "fa2", "naive", "auto"])
def test_a_scale_of_0_gives_the_mean_of_what_is_seen(backend):
    kernels(backend)
    q, k, v = draw((1, 1, 1, 17, 17, 16))
    o = flashlab.attention(q, k, v, causal=True, scale=0.0, backend=backend)
    want = v.cumsum(2) / torch.arange(1, 18)[:, None]
    assert torch.allclose(o, want, atol=1e-6)


@pytest.mark.parametrize("backend", ["fa1", "fa2", "naive"])
def test_keys_of_both_signs_that_overflow_fp16_are_right(backend):
    kernels(backend)
    v = draw((1, 1, 1, 8, 8, 64), torch.float16)[2]
    q, k = torch.full_like(v, 576), torch.full_like(v, 382)
    k[..., 1::2] *= -1  # the products cancel, but their partial sums are beyond 65504
    o, lse = flashlab.attention(q, k, v, backend=backend, return_lse=True)
    assert (o - v.float().mean(2, keepdim=True)).abs().max() < 2e-3
    assert torch.allclose(lse, torch.tensor(8.0).log(), atol=1e-5)
    k[:, :, ::2] *= -1
    assert flashlab.attention(q, k, v, backend=backend).isfinite().all()


@pytest.mark.parametrize("backend", ["fa1", "fa2"])
def test_forward_mode_raises_instead_of_losing_the_tangent(backend):
    pytest.importorskip("triton")
    q, k, v = draw((1, 1, 1, 3, 3, 8))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="no forward-mode"):
        flashlab.attention(q, forward_ad.make_dual(k, v), v, backend=backend)
    with pytest.raises(RuntimeError, match="no forward-mode"):
        torch.func.jvp(lambda x: flashlab.attention(x, k, v, backend=backend), (q,), (v,))
    with pytest.raises(RuntimeError, match="no gradients by torch.func"):
        torch.func.grad(lambda x: flashlab.attention(x, k, v, backend=backend).sum())(q)
    with forward_ad.dual_level():  # a dual level without tangents changes nothing
        assert flashlab.attention(q, k, v, backend=backend).isfinite().all()


@pytest.mark.parametrize("backend", ["fa1", "fa2", "naive"])
def test_vmap_gives_what_a_loop_gives_and_its_gradients(backend):
    pytest.importorskip("triton")
    x = torch.stack([draw((1, 2, 2, 5, 5, 16), seed=seed)[0] for seed in range(3)])

    def both(run):
        leaf = x.clone().requires_grad_()
        o = run(leaf)
        return o.detach(), torch.autograd.grad(o.square().sum(), leaf)[0]

    call = functools.partial(flashlab.attention, causal=True, backend=backend)
    got = both(lambda leaf: torch.func.vmap(lambda y: call(y, y, y))(leaf))
    want = both(lambda leaf: torch.stack([call(y, y, y) for y in leaf]))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_a_call_with_every_argument_has_gradients():
    pytest.importorskip("triton")
    q, k, v = (x.requires_grad_() for x in draw((2, 2, 1, 5, 9, 8)))
    o, lse = flashlab.attention(
        q, k, v, causal="bottom-right", scale=0.3, dropout_p=0.2, seed=torch.tensor([7]),
        key_lengths=torch.tensor([9, 6]), backend="fa2", return_lse=True,
    )  # fmt: skip
    (o.sum() + lse.sum()).backward()
    assert all(x.grad.isfinite().all() and x.grad.abs().sum() > 0 for x in (q, k, v))


@pytest.mark.parametrize("backend", ["fa2", "naive"])
def test_lse_knows_nothing_of_dropout(backend):
    kernels(backend)
    q, k, v = draw((1, 2, 2, 20, 20, 8))
    how = dict(causal=True, backend=backend, return_lse=True)
    _, want = flashlab.attention(q, k, v, **how)
    assert torch.equal(flashlab.attention(q, k, v, dropout_p=0.5, seed=1, **how)[1], want)


@pytest.mark.parametrize(
    "path", sorted((HERE.parent / "flashlab" / "kernels").glob("*.py")), ids=lambda p: p.stem
)
def test_no_kernel_is_autotuned_or_adds_to_memory(path):
    assert not re.search(r"autotune\(|tl\.atomic", path.read_text())
