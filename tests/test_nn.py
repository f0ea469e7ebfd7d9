"""flashlab.nn.MultiHeadAttention beside torch.nn.MultiheadAttention."""

import copy

import pytest
import torch

from flashlab.nn import MultiHeadAttention, from_torch_names


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pair(batch_first=True, seed=0, **kwargs):
    """torch's layer with weights and biases all drawn, and ours made from it."""
    torch.manual_seed(seed)
    theirs = torch.nn.MultiheadAttention(24, 3, batch_first=batch_first, **kwargs)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    return theirs, MultiHeadAttention.from_torch(theirs)


def gradients(layer, inputs, **kwargs):
    """(o, gradients of the inputs, gradients of the parameters under our names) for a fixed gradient of o."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    layer.zero_grad()
    o, _ = layer(*inputs, **kwargs)
    o.backward(draw(*o.shape, seed=9).to(o.dtype))
    grads = {name: p.grad for name, p in layer.named_parameters()}
    if isinstance(layer, torch.nn.MultiheadAttention):
        from_torch_names(None, grads, "")
    return o.detach(), [x.grad for x in inputs], grads


def assert_same(theirs, ours, inputs, for_theirs, for_ours):
    """Beside torch's layer in float64, ours may be a few times as far off as torch's own in float32."""
    torchs = results(theirs, inputs, need_weights=False, **for_theirs)
    wide = {name: x.double() if x.is_floating_point() else x for name, x in tensors(for_theirs).items()}
    exact = results(
        copy.deepcopy(theirs).double(),
        [x.double() for x in inputs],
        need_weights=False,
        **(for_theirs | wide),
    )
    got = results(ours, inputs, **for_ours)
    assert got.keys() == exact.keys() and len(got) >= 8
    size = max(x.abs().max() for x in exact.values())  # a gradient that is 0 is a sum of others' errors
    for name, want in exact.items():
        error, torchs_error = ((x[name] - want).abs().max() for x in (got, torchs))
        allowed = 3 * torchs_error + 4 * torch.finfo(torch.float32).eps * size
        assert error <= allowed, f"{name}: largest error {error:.3g}, allowed {allowed:.3g}"


def tensors(kwargs):
    return {name: x for name, x in kwargs.items() if isinstance(x, torch.Tensor)}


def results(layer, *args, **kwargs):
    """o and all gradients by name."""
    o, dx, dp = gradients(layer, *args, **kwargs)
    return dict(o=o, dquery=dx[0], dkey=dx[1], dvalue=dx[2]) | dp


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sizes", [{}, dict(kdim=10, vdim=14), dict(bias=False)], ids=str)
def test_outputs_and_gradients_are_those_of_torchs_layer(sizes, batch_first):
    theirs, ours = pair(batch_first, **sizes)
    inputs = [
        draw(2, 5, 24),
        draw(2, 7, sizes.get("kdim", 24), seed=1),
        draw(2, 7, sizes.get("vdim", 24), seed=2),
    ]
    inputs = inputs if batch_first else [x.transpose(0, 1) for x in inputs]
    assert_same(theirs, ours, inputs, {}, {})


@pytest.mark.parametrize("how", ["layer", "call"])
def test_causal_is_torchs_causal_mask(how):
    theirs, ours = pair()
    ours.causal = how == "layer"
    mask = torch.nn.Transformer.generate_square_subsequent_mask(6)
    for_ours = {} if how == "layer" else dict(is_causal=True)
    assert_same(theirs, ours, [draw(2, 6, 24)] * 3, dict(attn_mask=mask, is_causal=True), for_ours)


def test_padding_is_the_same_as_a_mask_and_as_lengths():
    theirs, ours = pair()
    lengths = torch.tensor([4, 7, 1])
    mask = torch.arange(7) >= lengths[:, None]
    inputs = [draw(3, 5, 24), draw(3, 7, 24, seed=1), draw(3, 7, 24, seed=2)]
    assert_same(theirs, ours, inputs, dict(key_padding_mask=mask), dict(key_padding_mask=mask))
    assert_same(theirs, ours, inputs, dict(key_padding_mask=mask), dict(key_lengths=lengths))


def test_the_kernel_interpreted_gives_the_same():
    theirs, ours = pair()
    ours.backend = "fa2"
    mask = torch.tensor([[False] * 5, [False, False, True, True, True]])
    assert_same(theirs, ours, [draw(2, 5, 24)] * 3, dict(key_padding_mask=mask), dict(key_padding_mask=mask))


def test_a_sequence_without_keys_gives_the_bias_and_no_nan():
    _, ours = pair()
    o, _ = ours(draw(2, 3, 24), key_lengths=torch.tensor([3, 0]))
    torch.testing.assert_close(o[1], ours.out_proj.bias.expand(3, 24))
    assert o.isfinite().all()


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_shared_heads_are_heads_repeated_next_to_each_other(kv_heads):
    torch.manual_seed(0)
    few = MultiHeadAttention(32, 4, num_kv_heads=kv_heads, causal=True, batch_first=True)
    many = MultiHeadAttention(32, 4, causal=True, batch_first=True)
    state = few.state_dict()
    for name in ("k_proj", "v_proj"):
        for kind in ("weight", "bias"):
            rows = state[f"{name}.{kind}"].unflatten(0, (kv_heads, 8))
            state[f"{name}.{kind}"] = rows.repeat_interleave(4 // kv_heads, 0).flatten(0, 1)
    many.load_state_dict(state)
    x = draw(2, 6, 32)
    torch.testing.assert_close(few(x)[0], many(x)[0])
    assert few.k_proj.weight.shape == (kv_heads * 8, 32)


def test_a_state_dict_of_torchs_layer_loads_inside_a_bigger_module():
    theirs, _ = pair()
    mine = torch.nn.ModuleDict({"attention": MultiHeadAttention(24, 3, batch_first=True)})
    mine.load_state_dict(torch.nn.ModuleDict({"attention": theirs}).state_dict())
    x = draw(2, 4, 24)
    torch.testing.assert_close(mine["attention"](x)[0], theirs(x, x, x)[0])


def test_its_own_state_dict_goes_round():
    torch.manual_seed(0)
    a, b = (MultiHeadAttention(24, 3, num_kv_heads=1) for _ in range(2))
    b.load_state_dict(a.state_dict())
    x = draw(1, 4, 24)
    assert torch.equal(a(x)[0], b(x)[0])


def test_dropout_is_applied_in_training_only_and_a_seed_repeats_it():
    layer = MultiHeadAttention(16, 2, dropout=0.5, batch_first=True)
    x = draw(2, 6, 16)
    assert torch.equal(layer(x, seed=1)[0], layer(x, seed=1)[0])
    assert not torch.equal(layer(x, seed=1)[0], layer(x, seed=2)[0])
    trained = layer(x, seed=1)[0]
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0]) and not torch.equal(layer(x)[0], trained)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("masked", ["nothing", "padding", "causal"])
@pytest.mark.parametrize("kind", ["Encoder", "Decoder"])
def test_torchs_encoder_and_decoder_layers_may_hold_it(kind, masked, training):
    torch.manual_seed(0)
    how = dict(d_model=24, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
    layer = getattr(torch.nn, f"Transformer{kind}Layer")(**how)
    make = getattr(torch.nn, f"Transformer{kind}")
    theirs = make(layer, 2).train(training)
    swapped = copy.deepcopy(theirs)
    swapped.use_nested_tensor = False
    for one in (layer, *swapped.layers):
        one.self_attn = MultiHeadAttention.from_torch(one.self_attn)
    made = make(layer, 2, **(dict(enable_nested_tensor=False) if kind == "Encoder" else {})).train(training)
    padding = torch.arange(6) >= torch.tensor([4, 6, 1])[:, None]
    mask = torch.nn.Transformer.generate_square_subsequent_mask(6)
    given, name = draw(3, 6, 24), "" if kind == "Encoder" else "tgt_"
    inputs = (given,) if kind == "Encoder" else (given, given.flip(1))
    causal = {f"{name}mask": mask, f"{name}is_causal": True}
    more = dict(nothing={}, padding={f"{name or 'src_'}key_padding_mask": padding}, causal=causal)[masked]
    real = ~padding if masked == "padding" else torch.ones_like(padding)
    with torch.set_grad_enabled(training):  # without gradients torch's own encoder has a kernel for it all
        want = theirs(*inputs, **more)[real]
        for ours in (swapped, made):
            torch.testing.assert_close(ours(*inputs, **more)[real], want)


def test_weights_are_refused_with_the_reason():
    layer = MultiHeadAttention(16, 2)
    with pytest.raises(ValueError, match=r"never in memory.*torch\.nn\.MultiheadAttention"):
        layer(draw(1, 3, 16), need_weights=True)


@pytest.mark.parametrize(
    "kwargs, error, words",
    [
        (dict(attn_mask=torch.zeros(3, 3)), TypeError, "arbitrary masks are not offered"),
        (dict(attn_mask=torch.zeros(3, 3), is_causal=True), ValueError, r"or the causal one \[N, N\]"),
        (dict(attn_mask=torch.ones(3, 3).triu(1), is_causal=True), ValueError, "a bias is not offered"),
        (dict(key_padding_mask=torch.zeros(2, 3).int()), TypeError, "to be bool, True for padding"),
        (dict(key_padding_mask=torch.ones(2, 3)), ValueError, "-inf .hidden. or 0"),
        (
            dict(key_padding_mask=torch.zeros(2, 4, dtype=torch.bool)),
            ValueError,
            r"to be \[2, 3\], got \[2, 4\]",
        ),
        (dict(key_padding_mask=torch.tensor([[True, False, False]] * 2)), ValueError, "end of each sequence"),
        (dict(key_padding_mask=torch.zeros(2, 3, dtype=torch.bool), key_lengths=[3]), ValueError, "got both"),
        (dict(key_lengths=torch.tensor([4, 1])), ValueError, "key_lengths from 0 to Nk = 3"),
        (dict(key=draw(3, 16)), ValueError, r"expected key to be \[B, N, features\]"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(kwargs, error, words):
    with pytest.raises(error, match=words):
        MultiHeadAttention(16, 2, batch_first=True)(draw(2, 3, 16), **kwargs)


@pytest.mark.parametrize(
    "args, kwargs, words",
    [
        ((10, 3), {}, "multiple of num_heads"),
        ((12, 4), dict(num_kv_heads=3), "multiple of num_kv_heads"),
        ((12, 4), dict(dropout=1.5), "dropout from 0 to 1"),
        ((12, 4), dict(backend="fa22"), "unknown backend 'fa22'.*fa2"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(args, kwargs, words):
    with pytest.raises(ValueError, match=words):
        MultiHeadAttention(*args, **kwargs)


def test_only_torchs_layer_is_converted_and_not_with_keys_of_its_own():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.MultiheadAttention, got Linear"):
        MultiHeadAttention.from_torch(torch.nn.Linear(2, 2))
    for extra in ("add_bias_kv", "add_zero_attn"):
        with pytest.raises(ValueError, match="keys of their own"):
            MultiHeadAttention.from_torch(torch.nn.MultiheadAttention(8, 2, **{extra: True}))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_a_gpu_the_layer_is_close_to_torchs_in_half_precision(dtype):
    """Both round q, k, v and o to `dtype`; each is compared with float32 on the same weights."""
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(512, 8, batch_first=True, device="cuda")
    ours = MultiHeadAttention.from_torch(theirs).to(dtype)
    half = torch.nn.MultiheadAttention(512, 8, batch_first=True, device="cuda").to(dtype)
    half.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 1000, 512, device="cuda")
    want = theirs(x, x, x, need_weights=False)[0]
    xh = x.to(dtype)
    error = (ours(xh)[0].float() - want).abs().max()
    their_error = (half(xh, xh, xh, need_weights=False)[0].float() - want).abs().max()
    assert error <= 2 * their_error + torch.finfo(dtype).eps * want.abs().max()
