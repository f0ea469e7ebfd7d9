"""The runs behind the traps: each returns what came out, as values for its words. No run needs a GPU."""

from flashlab.dispatch.ask import ask_tensors
from flashlab.dispatch.call import Call
from flashlab.dispatch.rules import from_source


def _inputs(*shapes, dtype="float32", seed=0):
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for shape in shapes]


def _sdpa(*args, **options):
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(*args, **options)


def _only(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(getattr(SDPBackend, backend))


def _gap(a, b):
    return f"{(a.double() - b.double()).abs().max().item():.1e}"


def _cuda(**fields):
    """The choice on an H200 as the rules have it."""
    read = from_source(Call(**fields))
    return read.choice or "/".join(read.candidates)


def _operators(run):
    """The operators that did attention's work while `run` ran: attention's own, else products and softmax."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            names.append(operator.name())
            return operator(*args, **(kwargs or {}))

    names = []
    with Seen():
        run()
    fused = [name for name in names if "attention" in name]
    return ", ".join(dict.fromkeys(fused or [n for n in names if n in ("aten::bmm", "aten::_softmax")]))


def _order(most=5):
    """The backends in the order in which this PyTorch would try them on CUDA."""
    import torch

    names = ("math", "flash", "efficient", "cudnn", "overrideable")
    return " > ".join(names[n] for n in torch._C._get_sdp_priority_order()[:most])


def cudnn_first():
    from flashlab.dispatch.rules import order_on

    hopper, ampere = (" > ".join(order_on(sm)) for sm in ((9, 0), (8, 0)))
    return {"here": _order(), "hopper": hopper, "ampere": ampere}


def causal_one_query():
    import torch

    q, k, v = _inputs((1, 2, 1, 16), (1, 2, 6, 16), (1, 2, 6, 16))
    flagged, plain = _sdpa(q, k, v, is_causal=True), _sdpa(q, k, v)
    from torch.nn.attention.bias import causal_lower_right

    right = _sdpa(q, k, v, attn_mask=causal_lower_right(1, 6))
    assert torch.isfinite(flagged).all()
    return {"first": _gap(flagged, v[:, :, :1]), "off": _gap(flagged, plain), "right": _gap(right, plain)}


def kernel_list_order():
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    (q,) = _inputs((1, 2, 8, 16))
    names = {0: "math", 1: "flash"}
    found = {}
    for key, priority in (("plain", False), ("priority", True)):
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=priority):
            found[key] = names[torch._fused_sdp_choice(q, q, q)]
            found[f"list_{key}"] = _order(2)
    return found


def masks():
    import torch

    (q,) = _inputs((1, 2, 8, 16))
    seen = torch.ones(8, 8, dtype=torch.bool).tril()
    tried = {
        "bool": seen,
        "float": torch.zeros(8, 8),
        "three": torch.zeros(2, 8, 8),
        "learned": torch.zeros(8, 8, requires_grad=True),
    }
    found = {name: ask_tensors(q, q, q, attn_mask=mask).choice for name, mask in tried.items()}
    return {
        **found,
        "h200": _cuda(mask="bool"),
        "flash": from_source(Call(mask="bool")).verdict("flash").check,
    }


def masked_rows():
    import torch

    q, k, v = _inputs((1, 1, 4, 8), (1, 1, 4, 8), (1, 1, 4, 8))
    seen = torch.ones(4, 4, dtype=torch.bool)
    seen[1] = False
    least = torch.zeros(4, 4).masked_fill(~seen, torch.finfo(torch.float32).min)
    row = _sdpa(q, k, v, attn_mask=seen)[0, 0, 1]
    low = _sdpa(q, k, v, attn_mask=least)[0, 0, 1]
    return {
        "bool": f"{row.abs().max().item():g}",
        "mean": _gap(low, v[0, 0].mean(0)),
        "version": torch.__version__,
    }


def gqa_without_flag():
    q, two, one = _inputs((1, 4, 8, 16), (1, 2, 8, 16), (1, 1, 8, 16))
    unflagged, flagged = ask_tensors(q, two, two), ask_tensors(q, two, two, enable_gqa=True)
    o = _sdpa(q, two, two, enable_gqa=True)
    each, tiled = two.repeat_interleave(2, 1), two.repeat(1, 2, 1, 1)
    return {
        "error": unflagged.refused,
        "flagged": flagged.choice,
        "one": ask_tensors(q, one, one).choice,
        "one_flagged": ask_tensors(q, one, one, enable_gqa=True).choice,
        "interleave": _gap(o, _sdpa(q, each, each)),
        "repeat": _gap(o, _sdpa(q, tiled, tiled)),
    }


def requires_grad():
    import torch

    (q,) = _inputs((1, 2, 8, 16))
    leaf = q.clone().requires_grad_()
    bias = torch.zeros(8, 8)
    consumer = [from_source(Call(D=208, requires_grad=g), gpu="RTX 4090").choice for g in (False, True)]
    return {
        "without": ask_tensors(q, q, q).choice,
        "with": ask_tensors(leaf, leaf, leaf).choice,
        "bias": ask_tensors(q, q, q, attn_mask=bias).choice,
        "learned": ask_tensors(q, q, q, attn_mask=bias.clone().requires_grad_()).choice,
        "consumer": consumer[0],
        "consumer_grad": consumer[1],
    }


def need_weights():
    import torch

    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    (x,) = _inputs((1, 8, 32))
    found = {
        "default": _operators(lambda: attention(x, x, x)),
        "without": _operators(lambda: attention(x, x, x, need_weights=False)),
    }
    attention.eval()
    with torch.no_grad():
        found["eval"] = _operators(lambda: attention(x, x, x, need_weights=False))
    return found


def fp32():
    (q,) = _inputs((1, 2, 64, 64))
    exact = _sdpa(q.double(), q.double(), q.double())
    low = q.bfloat16()
    with _only("MATH"):
        math = _sdpa(low, low, low)
    with _only("FLASH_ATTENTION"):
        flash = _sdpa(low, low, low)
    return {
        "cpu": ask_tensors(q, q, q).choice,
        "h200": _cuda(dtype="float32"),
        "half": _cuda(dtype="bfloat16"),
        "math": _gap(math, exact),
        "flash": _gap(flash, exact),
    }


def dropout_in_eval():
    import torch

    (q,) = _inputs((1, 2, 8, 16))
    torch.manual_seed(0)
    with torch.no_grad():
        twice = [_sdpa(q, q, q, dropout_p=0.5) for _ in range(2)]
    return {"gap": _gap(*twice), "choice": ask_tensors(q, q, q, dropout_p=0.5).choice}


def mask_and_causal():
    import torch

    (q,) = _inputs((1, 2, 8, 16))
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[:, 2] = False
    with _only("FLASH_ATTENTION"):
        both = _sdpa(q, q, q, attn_mask=mask, is_causal=True)
    meant = _sdpa(q, q, q, attn_mask=mask & torch.ones(8, 8, dtype=torch.bool).tril())
    try:
        with _only("MATH"):
            _sdpa(q, q, q, attn_mask=mask, is_causal=True)
        error = "-"
    except RuntimeError as raised:
        error = str(raised).splitlines()[0]
    return {"gap": _gap(both, meant), "error": error}


def not_4d():
    (q,) = _inputs((2, 8, 16))
    three, four = ask_tensors(q, q, q), ask_tensors(q[None], q[None], q[None])
    return {"three": three.choice, "four": four.choice, "reason": three.verdict("flash").reasons[0]}
