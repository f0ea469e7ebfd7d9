"""The runs behind the traps: each returns what came out, as values for its words.

No run needs a GPU: what CUDA does is quoted from the record of an H200, or from the rules, each labelled.
"""

import re
from dataclasses import replace

from flashlab.dispatch.answer import from_row, index
from flashlab.dispatch.ask import ask_tensors
from flashlab.dispatch.call import Call
from flashlab.dispatch.rules import VERSIONS, from_source
from flashlab.text import t


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


def _recorded(**fields):
    """The Explanation that the record of an H200 holds for a call."""
    return from_row(*index()[Call(**fields)])


def _kernel(**fields):
    """The name of the first kernel that the recorded call ran, with "…" for its parameters."""
    name = dict(_recorded(**fields).kernels)["forward"][0]
    return re.sub(r"_knob_.*|_[tn]{2}_n_tilesize\w*(?=_ffma)|(?<=_ffma)_.*", "…", name)


def _read(**fields):
    """The choice on an H200 as the rules of the newest version have it."""
    read = from_source(Call(**fields))
    return read.choice or t("dispatch.head.or").join(read.candidates)


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

    plain = _recorded()
    return {
        "here": _order(),
        "machine": plain.machine,
        "hopper": " > ".join(plain.order),
        "cudnn": _kernel(),
        "flash": _kernel(D=100),
        "efficient": _kernel(mask="learned"),
        "ampere": " > ".join(order_on((8, 0))),
    }


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
    h200 = _recorded(mask="bool")
    reason = h200.verdict("flash").reasons[0]
    return {**found, "machine": h200.machine, "h200": h200.choice, "flash": reason}


def masked_rows():
    import torch

    q, k, v = _inputs((1, 1, 4, 8), (1, 1, 4, 8), (1, 1, 4, 8))
    seen = torch.ones(4, 4, dtype=torch.bool)
    seen[1] = False
    least = torch.zeros(4, 4).masked_fill(~seen, torch.finfo(torch.float32).min)
    row = _sdpa(q, k, v, attn_mask=seen)[0, 0, 1]
    low = _sdpa(q, k, v, attn_mask=least)[0, 0, 1]
    kept = {mask: index()[Call(mask=mask, masked_rows=True)][0] for mask in ("bool", "float")}
    return {
        "bool": f"{row.abs().max().item():g}",
        "mean": _gap(low, v[0, 0].mean(0)),
        "version": torch.__version__,
        "machine": _recorded().machine,
        "h200": kept["bool"]["choice"],
        "h200_bool": t(f"dispatch.row.{kept['bool']['masked_row']}"),
        "h200_float": t(f"dispatch.row.{kept['float']['masked_row']}"),
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
        "machine": _recorded().machine,
        "h200_one": _recorded(Hkv=1).choice,
        "h200_flagged": _recorded(Hkv=1, enable_gqa=True).choice,
        "h200_fp32": _recorded(Hkv=1, enable_gqa=True, dtype="float32").choice,
    }


def requires_grad():
    import torch

    (q,) = _inputs((1, 2, 8, 16))
    leaf = q.clone().requires_grad_()
    bias = torch.zeros(8, 8)
    consumer = [from_source(Call(D=208, requires_grad=g), gpu="RTX 4090").choice for g in (False, True)]
    chosen = {call: row["choice"] for call, (row, _) in index().items()}
    pairs = [(call, replace(call, requires_grad=True)) for call in chosen if not call.requires_grad]
    pairs = [(chosen[without], chosen[grad]) for without, grad in pairs if grad in chosen]
    return {
        "without": ask_tensors(q, q, q).choice,
        "with": ask_tensors(leaf, leaf, leaf).choice,
        "bias": ask_tensors(q, q, q, attn_mask=bias).choice,
        "learned": ask_tensors(q, q, q, attn_mask=bias.clone().requires_grad_()).choice,
        "machine": _recorded().machine,
        "pairs": len(pairs),
        "changed": sum(without != grad for without, grad in pairs),
        "h200_bias": _recorded(mask="float").choice,
        "h200_learned": _recorded(mask="learned").choice,
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
        "machine": _recorded().machine,
        "h200": _recorded(dtype="float32").choice,
        "half": _recorded(dtype="bfloat16").choice,
        "product": _kernel(Hkv=1, dtype="bfloat16"),
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


def versions():
    kept = [_recorded(dropout_p=0.1), _recorded(D=256), _recorded(dropout_p=0.125)]
    newer = [_read(dropout_p=0.1), _read(D=256), _read(dropout_p=0.125)]
    names = ("tenth", "large", "eighth")
    return {
        "machine": kept[0].machine,
        **{name: found.choice for name, found in zip(names, kept, strict=True)},
        "version": VERSIONS[0],
        **{f"{name}_newer": choice for name, choice in zip(names, newer, strict=True)},
    }
