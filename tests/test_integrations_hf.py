"""Transformers' models with flashlab's attention give the logits, losses, gradients and tokens of "sdpa"."""

import copy
import inspect
import os
import sys

import pytest
import torch

if os.environ.get("CI") != "true":  # there a missing transformers is an error
    pytest.importorskip("transformers", reason="the extra hf is not installed: pip install 'flashlab[hf]'")
import transformers
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

from flashlab.integrations import hf, layout

hf.register()
hf.register("flashlab-fa2", backend="fa2")
hf.register("lab-naive", backend="naive")
FAST, KERNELS = ["flashlab", "lab-naive"], "flashlab-fa2"
LEFT = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]])
MASKS = dict(none=None, left=LEFT, right=LEFT.flip(1), both=LEFT * LEFT.flip(1), full=torch.ones_like(LEFT))
CACHE = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"
PACKED = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
ROUNDINGS = 64  # of float32, eps 1.2e-7 each: two layers of sums over 16 to 32 terms


def tokens(batch=3, length=7, seed=0):
    return torch.randint(1, 40, (batch, length), generator=torch.Generator().manual_seed(seed))


def llama(attention, layers=2, heads=4, kv_heads=2, **options):
    """A tiny model of this kind with weights that depend on nothing else; biased scores, so masks matter."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=40, hidden_size=8 * heads, intermediate_size=24, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=64, pad_token_id=0,
        initializer_range=0.3, **options,
    )  # fmt: skip
    config._attn_implementation = attention
    return LlamaForCausalLM(config)


def bert(attention, heads=2, **options):
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=40, hidden_size=8 * heads, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=heads, max_position_embeddings=64, initializer_range=0.3, **options,
    )  # fmt: skip
    config._attn_implementation = attention
    return BertForMaskedLM(config)


def assert_close(got, want):
    """Tensors, dicts or tuples of them, within a few roundings of each tensor's largest value, and one of the
    largest of all: gradients of a key's bias are 0 but for rounding.
    """
    assert len(got) == len(want)
    if isinstance(want, tuple):
        for pair in zip(got, want, strict=True):
            assert_close(*pair)
        return
    got, want = (x if isinstance(x, dict) else {"": x} for x in (got, want))
    assert got.keys() == want.keys()
    most = max(x.abs().max() for x in want.values())
    for name, x in want.items():
        assert got[name].shape == x.shape and x.isfinite().all()
        allowed = torch.finfo(torch.float32).eps * (ROUNDINGS * x.abs().max() + most)
        error = (got[name] - x).abs().max()
        assert error <= allowed, f"{name}: {error:.3g} where {allowed:.3g} is allowed"


def results(model, ids, mask=None, **inputs):
    """(loss over real tokens, logits of real tokens, gradients of the parameters)."""
    real = torch.ones_like(ids) if mask is None else mask
    seen = torch.nn.functional.pad(real[:, :-1], (1, 0), value=1)  # a prediction made at padding is nobody's
    labels = torch.where((real * seen).bool(), ids, -100)
    out = model(ids, attention_mask=mask, labels=labels, **inputs)
    out.loss.backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return out.loss.detach()[None], out.logits.detach()[real.bool()], grads


def assert_same(make, attention, ids, mask=None, **inputs):
    want, got = (results(make(name), ids, mask, **inputs) for name in ("sdpa", attention))
    assert want[2].keys() == got[2].keys() and len(want[2]) > 10
    assert_close(got, want)


def count(monkeypatch, name):
    """Let each call of hf's `name` through and keep its arguments."""
    calls, call = [], getattr(hf, name)

    def counted(*args, **kwargs):
        calls.append((args, kwargs))
        return call(*args, **kwargs)

    monkeypatch.setattr(hf, name, counted)
    return calls


@pytest.mark.parametrize("padding", MASKS)
@pytest.mark.parametrize("attention", FAST)
@pytest.mark.parametrize("make", [llama, bert])
def test_logits_loss_and_gradients_are_those_of_sdpa(make, attention, padding):
    model = (lambda a: make(a).eval()) if make is bert else make
    assert_same(model, attention, tokens(), MASKS[padding])


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_so_they_are_with_the_kernels_interpreted(padding, monkeypatch):
    packed, dense = count(monkeypatch, "attention_varlen"), count(monkeypatch, "attention")
    mask = MASKS[padding] if padding == "none" else MASKS[padding][:2]
    make = lambda a: llama(a, layers=1, heads=2, kv_heads=1)  # noqa: E731
    assert_same(make, KERNELS, tokens(2), mask)
    assert (len(packed), len(dense)) == ((1, 0) if padding == "left" else (0, 1))


def test_so_is_bert_with_the_kernels_interpreted(monkeypatch):
    packed = count(monkeypatch, "attention_varlen")
    with torch.no_grad():
        want, got = (bert(a).eval()(tokens(2), attention_mask=LEFT[:2]).logits for a in ("sdpa", KERNELS))
    assert_close(got[LEFT[:2].bool()], want[LEFT[:2].bool()])
    assert len(packed) == 2


@pytest.mark.parametrize("attention", FAST)
def test_a_model_in_bfloat16_is_as_close_as_its_format_allows(attention):
    exact = llama("sdpa")(tokens(), attention_mask=LEFT).logits
    want, got = (
        llama(a).bfloat16()(tokens(), attention_mask=LEFT).logits.float() for a in ("sdpa", attention)
    )
    real = LEFT.bool()
    allowed = 2 * (want - exact)[real].abs().max() + 2**-8 * exact[real].abs().max()
    assert (got - exact)[real].abs().max() <= allowed and got.isfinite().all()


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_heads_may_be_shared_by_all_or_by_none(kv_heads):
    assert_same(lambda a: llama(a, kv_heads=kv_heads), "flashlab", tokens(), LEFT)


def test_key_and_value_heads_are_not_repeated(monkeypatch):
    calls = count(monkeypatch, "attention")
    llama("flashlab", kv_heads=1)(tokens())
    assert [args[1].shape[1] for args, _ in calls] == [1, 1]


def test_padding_matters_in_these_tests():
    """The model would notice if padding were attended to, as it is where no mask function is registered."""
    model = llama("flashlab")
    a, b = (model(tokens(), attention_mask=mask).logits[0, -1] for mask in (LEFT, None))
    assert (a - b).abs().max() > 0.1


@pytest.mark.parametrize("attention", FAST)
def test_sequences_packed_into_a_row_do_not_see_each_other(attention):
    ids = tokens(1)
    assert_same(llama, attention, ids, position_ids=PACKED, use_cache=False)
    alone = llama("sdpa")
    together = llama(attention)(ids, position_ids=PACKED).logits[0]
    assert_close(together[:3], alone(ids[:, :3]).logits[0])
    assert_close(together[3:], alone(ids[:, 3:]).logits[0])


def test_not_even_with_a_cache_or_a_mask_of_ones_where_sdpa_lets_them():
    ids = tokens(1)
    want = llama("sdpa")(ids[:, 3:]).logits[0]
    for extra in (dict(use_cache=True), dict(attention_mask=torch.ones_like(ids))):
        leaky, got = (llama(a)(ids, position_ids=PACKED, **extra).logits[0, 3:] for a in ("sdpa", "flashlab"))
        assert (leaky - want).abs().max() > 0.1
        assert_close(got, want)


def test_packed_rows_may_be_several_and_padded():
    ids = tokens(2)
    positions = torch.tensor([[0, 1, 2, 0, 1, 0, 0], [0, 1, 0, 1, 2, 3, 4]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1] * 7])
    got = llama("flashlab")(ids, position_ids=positions, attention_mask=mask).logits
    alone = llama("sdpa")
    for row, start, end in ((0, 0, 3), (0, 3, 5), (1, 0, 2), (1, 2, 7)):
        want = alone(ids[row : row + 1, start:end]).logits[0]
        assert_close(got[row, start:end], want)


def test_packing_reaches_the_varlen_kernel(monkeypatch):
    calls = count(monkeypatch, "attention_varlen")
    ids, positions = tokens(1, 5), torch.tensor([[0, 1, 0, 1, 2]])
    make = lambda a: llama(a, layers=1, heads=2, kv_heads=1)  # noqa: E731
    want, got = (make(a)(ids, position_ids=positions, use_cache=False).logits for a in ("sdpa", KERNELS))
    assert_close(got, want)
    assert [args[3].tolist() for args, _ in calls] == [[0, 2, 5]]


def test_bounds_of_packed_sequences_are_taken_as_given():
    ids, bounds = tokens(1), torch.tensor([0, 3, 7], dtype=torch.int32)
    how = dict(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=4, max_length_k=4)
    got = llama("flashlab")(ids, position_ids=PACKED, **how).logits
    want = llama("sdpa")(ids, position_ids=PACKED, use_cache=False).logits
    assert_close(got, want)
    with pytest.raises(ValueError, match="one row of packed sequences"):
        llama("flashlab")(tokens(2), **how)


@pytest.mark.parametrize("cache", [None, "static"], ids=["growing cache", "static cache"])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_greedy_generation_gives_the_same_tokens_through_decode_attention(padding, cache, monkeypatch):
    calls = count(monkeypatch, "decode_attention")
    batch = slice(0, 2)
    mask = None if padding == "none" else MASKS[padding][batch]
    how = dict(attention_mask=mask, max_new_tokens=3, do_sample=False, cache_implementation=cache)
    tables = []
    for name in (*FAST, KERNELS):
        want, got = (llama(a, 1, 2, 1).eval().generate(tokens()[batch], **how) for a in ("sdpa", name))
        assert torch.equal(want, got) and got.shape == (2, 10)
        tables = [kwargs.get("block_table") for _, kwargs in calls]
    assert len(tables) == 2  # one layer, all tokens but the first; none where PyTorch computes
    assert all((table is None) == (padding == "none") for table in tables)


def test_the_empty_slots_of_a_static_cache_are_not_seen():
    ids = tokens(2, 8)

    def continued(name):
        model = llama(name, 1, 2, 1).eval()
        room = {CACHE: transformers.StaticCache(config=model.config, max_cache_len=20)}
        with torch.no_grad():
            first = model(ids[:, :6], **room).logits
            return first, model(ids[:, 6:], **room).logits  # slots 8 to 19 stay empty

    want = continued("sdpa")
    for name in (*FAST, KERNELS):
        assert_close(continued(name), want)


def test_a_cache_continued_by_several_tokens_is_read_from_its_end(monkeypatch):
    calls = count(monkeypatch, "decode_attention")
    ids, mask = tokens(2, 10), torch.nn.functional.pad(LEFT[:2], (0, 3), value=1)

    def continued(name):
        model = llama(name, 1, 2, 1).eval()
        with torch.no_grad():
            first = model(ids[:, :7], attention_mask=LEFT[:2], use_cache=True)
            return model(ids[:, 7:], attention_mask=mask, **{CACHE: first.past_key_values}).logits

    want = continued("sdpa")
    for name in (*FAST, KERNELS):
        assert_close(continued(name), want)
    assert len(calls) == 1


def test_a_cache_continued_with_gradients_does_without_the_decoding_kernel(monkeypatch):
    calls = count(monkeypatch, "decode_attention")
    ids = tokens(2, 10)

    def gradient(name):
        model = llama(name, 1, 2, 1)
        with torch.no_grad():
            first = model(ids[:, :7], use_cache=True)
        model(ids[:, 7:], **{CACHE: first.past_key_values}).logits.square().sum().backward()
        return model.model.layers[0].self_attn.q_proj.weight.grad

    assert_close(gradient(KERNELS), gradient("sdpa"))
    assert not calls


def test_a_module_says_whether_it_is_causal_where_the_model_makes_no_mask():
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    module = torch.nn.Module()
    from transformers.integrations.sdpa_attention import sdpa_attention_forward as sdpa

    for module.is_causal in (True, False):
        for said in (None, True, False):
            want, got = (f(module, q, k, v, None, is_causal=said)[0] for f in (sdpa, hf.attend))
            assert_close(got, want)
    with pytest.raises(ValueError, match="could be the first or the last"):
        hf.attend(module, q, torch.cat([k, k], 2), torch.cat([v, v], 2), None, is_causal=True)


def test_the_models_scale_is_used():
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    module = torch.nn.Module()
    outs = [hf.attend(module, q, k, v, None, scaling=s)[0] for s in (None, 8**-0.5, 0.1)]
    assert torch.equal(outs[0], outs[1]) and not torch.allclose(outs[0], outs[2])


@pytest.mark.parametrize("padding", ["none", "left"])
def test_dropout_is_applied_in_training_only_and_torchs_seed_repeats_it(padding):
    def logits(seed, training=True):
        model = llama("flashlab", attention_dropout=0.5).train(training)
        torch.manual_seed(seed)
        return model(tokens(), attention_mask=MASKS[padding]).logits.detach()

    assert torch.equal(logits(1), logits(1)) and not torch.equal(logits(1), logits(2))
    want = llama("sdpa")(tokens(), attention_mask=MASKS[padding]).logits
    assert_close(logits(1, training=False)[:, -1], want[:, -1])


def test_attention_weights_are_refused():
    with pytest.raises(ValueError, match='weights .*"eager"'):
        llama("flashlab")(tokens(), output_attentions=True)


@pytest.mark.parametrize("extra", hf.REFUSED)
def test_what_would_change_the_result_is_refused(extra):
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match=f"has no {extra}, which this model asks for"):
        hf.attend(torch.nn.Module(), q, q, q, None, **{extra: torch.ones(1)})


def test_masks_of_four_axes_are_refused():
    causal = torch.ones(3, 1, 7, 7, dtype=torch.bool).tril()
    with pytest.raises(TypeError, match=r"got torch\.bool \[3, 1, 7, 7\]: arbitrary masks"):
        llama("flashlab")(tokens(), attention_mask=causal)


def test_a_model_that_adds_a_bias_to_its_mask_gets_a_sentence():
    from transformers import BeitConfig, BeitModel

    config = BeitConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16,
        patch_size=8, use_relative_position_bias=True,
    )  # fmt: skip
    config._attn_implementation = "flashlab"
    with pytest.raises(TypeError, match='computes with its mask.*attn_implementation="sdpa"'):
        BeitModel(config)(torch.randn(1, 3, 16, 16))


USES = dict(
    bias=lambda m: torch.ones(1) + m,
    inverse=lambda m: 1.0 - 1.0 * m,
    slice=lambda m: m[:, None],
    complement=lambda m: ~m,
    dtype=lambda m: m.to(torch.float),
)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_mask_that_is_taken_for_a_tensor_says_what_it_is(use):
    with pytest.raises((TypeError, AttributeError), match="a description, not a tensor"):
        use(hf.Layout(3, 3, None))


def test_a_mask_can_be_copied():
    layout = hf.Layout(3, 4, "bottom-right", lengths=torch.tensor([2]))
    assert copy.copy(layout).causal == copy.deepcopy(layout).causal == "bottom-right"


def test_a_padding_mask_of_another_batch_is_refused():
    with pytest.raises(ValueError, match=r"a padding mask \[3, keys\], got \[2, 7\]"):
        llama("flashlab")(tokens(), attention_mask=LEFT[:2])


def mistral(attention, window):
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(1)
    config = MistralConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=window, initializer_range=0.3,
    )  # fmt: skip
    config._attn_implementation = attention
    return MistralForCausalLM(config).eval()


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_window_is_refused_unless_it_reaches_every_key(use_cache):
    want, got = (mistral(a, 7)(tokens(), use_cache=use_cache).logits for a in ("sdpa", "flashlab"))
    assert_close(got, want)
    with pytest.raises(NotImplementedError, match="Sliding windows shorter than the keys"):
        mistral("flashlab", 4)(tokens(), use_cache=use_cache)
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match=r"window, and this model's \(4\) is shorter than the 5 keys"):
        hf.attend(torch.nn.Module(), q, q, q, None, sliding_window=4)


def full(batch, head, q, k):
    return (q >= 0) & (k >= 0)


def causal(batch, head, q, k):
    return k <= q


def prefix(batch, head, q, k):
    return (k <= q) | (k < 3)


def chunks(batch, head, q, k):
    return (k <= q) & (k // 4 == q // 4)


def hole(batch, head, q, k):
    return (k <= q) & ~((q == 200) & (k == 5))


@pytest.mark.parametrize(
    "function, sizes, want",
    [
        (full, (9, 9, 0), (None, None)),
        (causal, (9, 9, 0), ("top-left", None)),
        (causal, (3, 9, 6), ("bottom-right", None)),
        (causal, (1, 9, 8), (None, None)),
        (chunks, (9, 9, 0), ("top-left", [0, 4, 8, 9])),
        (chunks, (4, 4, 0), ("top-left", None)),
    ],
)
def test_a_mask_function_is_recognised_by_what_it_lets_through(function, sizes, want):
    num_queries, num_keys, offset = sizes
    found = layout.read_mask(2, num_keys, num_queries, q_offset=offset, mask_function=function)
    bounds = None if want[1] is None else (torch.tensor([*want[1], *[9 + x for x in want[1][1:]]]).tolist())
    assert found.causal == want[0]
    assert (found.packed and found.packed.cu_seqlens_q.tolist()) == bounds


@pytest.mark.parametrize("function, length", [(prefix, 9), (hole, 300)])
def test_any_other_mask_function_is_refused(function, length):
    with pytest.raises(NotImplementedError, match="hides other keys"):
        layout.read_mask(2, length, length, mask_function=function)
    with pytest.raises(NotImplementedError, match="a mask function of its own"):
        layout.read_mask(2, length, length, mask_function=causal, use_vmap=True)


@pytest.mark.parametrize("name", ["sdpa", "eager", "flash_attention_2"])
def test_the_names_of_others_are_not_taken(name):
    with pytest.raises(ValueError, match="another attention of transformers"):
        hf.register(name)


@pytest.mark.parametrize("name", ["", "me/flash", "paged|flashlab", None])
def test_a_name_that_means_something_else_is_refused(name):
    with pytest.raises(ValueError, match="stand for the Hub"):
        hf.register(name)


def test_an_unknown_backend_is_refused_at_once():
    with pytest.raises(ValueError, match="unknown backend 'fa22'"):
        hf.register("lab-x", backend="fa22")


def test_registering_again_changes_the_backend(monkeypatch):
    assert hf.register("lab-again", backend="sdpa") == "lab-again"
    with pytest.raises(NotImplementedError, match="backend 'sdpa' has no key_lengths"):
        llama("lab-again")(tokens(), attention_mask=LEFT)
    hf.register("lab-again", backend="naive")
    llama("lab-again")(tokens(), attention_mask=LEFT)


def test_other_names_with_flash_are_still_imported_by_transformers():
    model = llama("sdpa")
    with pytest.raises((ImportError, ValueError)):
        model.set_attn_implementation("flashlab-not-registered")
    model.set_attn_implementation("flashlab")
    assert model.config._attn_implementation == "flashlab"


def test_without_transformers_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'flashlab\[hf\]'") as caught:
        hf.register()
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
@pytest.mark.parametrize("padding", ["none", "left", "right", "packed"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_real_size_on_a_gpu_is_as_close_to_float32_as_sdpa_is(dtype, padding):
    batch, length = (1, 2048) if padding == "packed" else (3, 1024)
    ids = tokens(batch, length).cuda()
    real = torch.arange(length) >= torch.tensor([[0], [100], [length - 1]])
    mask = {"left": real, "right": real.flip(1)}.get(padding)
    inputs = dict(attention_mask=None if mask is None else mask.long().cuda(), use_cache=False)
    if padding == "packed":
        inputs["position_ids"] = torch.cat([torch.arange(n) for n in (700, 1, 1347)])[None].cuda()
    seen = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.cuda()

    def logits(name, format):
        model = llama(name, layers=4, heads=16, kv_heads=4, head_dim=64).to("cuda", format).eval()
        with torch.no_grad():
            return model(ids, **inputs).logits.float()[seen]

    exact = logits("sdpa", torch.float32)
    theirs, ours = ((logits(name, dtype) - exact).abs().max() for name in ("sdpa", "flashlab"))
    assert ours <= 2 * theirs + torch.finfo(dtype).eps * exact.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("padding", ["none", "left"])
def test_training_on_a_gpu_has_the_losses_and_gradients_of_sdpa(padding):
    """float32, where both round as the format does (our kernels use no TF32)."""
    torch.backends.cuda.matmul.allow_tf32 = False
    ids = tokens(3, 500).cuda()
    mask = (
        (torch.arange(500) >= torch.tensor([[0], [100], [499]])).long().cuda() if padding == "left" else None
    )
    make = lambda a: llama(a, heads=8, kv_heads=2, head_dim=64).cuda()  # noqa: E731
    want, got = (results(make(a), ids, mask) for a in ("sdpa", "flashlab"))
    torch.testing.assert_close(got[:2], want[:2], rtol=1e-4, atol=1e-4)
    for name, grad in want[2].items():
        assert (got[2][name] - grad).abs().max() <= 1e-4 * grad.abs().max() + 1e-6, name


@pytest.mark.gpu
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("padding", ["none", "left"])
def test_generation_on_a_gpu_gives_the_same_tokens(padding, cache, monkeypatch):
    """float32: half precision may rightly pick another token where two are equally likely."""
    calls = count(monkeypatch, "decode_attention")
    ids = tokens(3, 300).cuda()
    mask = (
        (torch.arange(300) >= torch.tensor([[0], [100], [250]])).long().cuda() if padding == "left" else None
    )
    how = dict(attention_mask=mask, max_new_tokens=20, do_sample=False, cache_implementation=cache)
    how |= dict(disable_compile=True, min_new_tokens=20)
    want, got = (
        llama(a, heads=8, head_dim=64).cuda().eval().generate(ids, **how) for a in ("sdpa", "flashlab")
    )
    assert torch.equal(want, got) and len(calls) == 2 * 19
