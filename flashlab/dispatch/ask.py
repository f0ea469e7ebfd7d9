"""Ask PyTorch: its choice, and each backend's reasons in its own words, taken from the warnings it gives."""

import functools
import re
import threading
import warnings

from flashlab.dispatch.call import Call
from flashlab.dispatch.explanation import BACKENDS, Explanation, Verdict
from flashlab.dispatch.words import keys_of
from flashlab.text import t

SWITCHES = {  # of torch.backends.cuda
    "cudnn": "cudnn_sdp_enabled",
    "flash": "flash_sdp_enabled",
    "efficient": "mem_efficient_sdp_enabled",
    "math": "math_sdp_enabled",
}
HEADINGS = {"cudnn": "cudnn", "flash": "flash", "efficient": "mem"}  # how they begin, in small letters

_lock = threading.RLock()  # warnings and the switches of sdpa_kernel belong to the whole process


def ask_call(call, device="cpu"):
    """The Explanation of a Call on "cpu" or "cuda", from the PyTorch that is installed."""
    q, k, v, options = call.arguments(device)
    notes = ()
    if call.masked_rows:
        notes = (t(f"dispatch.masked_row.{masked_row(call, device)}", where=f"torch {_version()}"),)

    def refused(choice):
        return refusal_of(call) if choice == "math" else ""

    return _ask(q, k, v, options, refused, call=call, notes=notes)


def ask_tensors(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, enable_gqa=False):
    """The same for tensors of any shape."""
    options = dict(attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, enable_gqa=enable_gqa)
    title = " ".join(f"{name} {list(x.shape)}" for name, x in (("q", q), ("k", k), ("v", v)))

    def refused(choice):
        return _refusal_bare(q, k, v, options) if choice == "math" else ""

    return _ask(q, k, v, options, refused, title=f"{title} {str(q.dtype).removeprefix('torch.')}")


def choice_of(q, k, v, options):
    """The name of the backend that PyTorch would run with the switches as they are, or "error"."""
    import torch
    from torch.nn.attention import SDPBackend

    return _short(SDPBackend(torch._fused_sdp_choice(q, k, v, **options)).name)


def _ask(q, k, v, options, refused, **about):
    import torch

    device = q.device.type
    if device not in ("cpu", "cuda"):
        raise ValueError(f"expected tensors on the CPU or on CUDA, got {device}")
    with _lock:
        choice = choice_of(q, k, v, options)
        ask = _ask_cuda if device == "cuda" else _ask_cpu
        verdicts = tuple(ask(backend, q, k, v, options) for backend in BACKENDS)
    source = f"torch {torch.__version__}" + (f", {torch.cuda.get_device_name()}" if device == "cuda" else "")
    return Explanation(
        device=device,
        basis="asked",
        choice=choice,
        order=_order(device),
        verdicts=verdicts,
        refused=refused(choice),
        source=source,
        **about,
    )


def _ask_cpu(backend, q, k, v, options):
    """On the CPU there is no can_use_...: allow that backend alone and hear what PyTorch says."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, _long(backend))):
        chosen, said = _heard(lambda: choice_of(q, k, v, options))
    reasons = tuple(r for r in said if not r.startswith(("Flash attention kernel not used", "No available")))
    if chosen == backend:
        return Verdict(backend, True)
    return Verdict(backend, False, reasons, keys_of(backend, reasons))


def _ask_cuda(backend, q, k, v, options):
    """Allow that backend alone, too: then PyTorch gives each backend's reasons below a heading.

    can_use_..._attention(params, debug=True) would write them to stderr, past Python's warnings.
    """
    import torch
    from torch.backends import cuda
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not getattr(cuda, SWITCHES[backend])():
        return Verdict(backend, False, keys=("disabled",))
    if backend == "math":
        return Verdict(backend, True)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # some reasons are given once in a process
    try:
        with sdpa_kernel(getattr(SDPBackend, _long(backend))):
            chosen, said = _heard(lambda: choice_of(q, k, v, options))
    finally:
        torch.set_warn_always(always)
    if chosen == backend:
        return Verdict(backend, True)
    reasons = below(HEADINGS[backend], said)
    if chosen is None and not said[-1].startswith("No available kernel"):
        reasons += (said[-1],)  # asking failed
    return Verdict(backend, False, reasons, keys_of(backend, reasons))


def below(heading, said):
    """The warnings after "... kernel not used because:" that begins with `heading`, up to the next such."""
    found, mine = [], False
    for text in said:
        if text.endswith("kernel not used because:"):
            mine = text.lower().startswith(heading)
        elif mine and not text.startswith("No available kernel"):
            found.append(text)
    return tuple(found)


def _heard(question):
    """(answer, [warnings]); the answer is None and the last warning the error where there is one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer, error = question(), []
        except RuntimeError as raised:
            answer, error = None, [str(raised)]
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)] + error
    return answer, [re.sub(r"\s*\(Triggered internally at .*\)$", "", text).strip() for text in said]


def _order(device):
    """Backends in the order in which they are tried; on the CPU it is fixed (sdp_utils_cpp.cpp)."""
    import torch
    from torch.nn.attention import SDPBackend

    if device == "cpu":
        return ("flash", "math")
    return tuple(_short(SDPBackend(n).name) for n in torch._C._get_sdp_priority_order())


def refusal_of(call):
    """The error that the math path raises for a Call, or "": run with two tokens."""
    return _refusal_of_heads(call.Hq, call.Hkv, call.enable_gqa) if call.Hq != call.Hkv else ""


@functools.cache
def _refusal_of_heads(Hq, Hkv, enable_gqa):
    """All other fields of a Call suit the math path: only its heads can be refused."""
    q, k, v, options = Call(Hq=Hq, Hkv=Hkv, Nq=2, D=8, dtype="float32", enable_gqa=enable_gqa).arguments(
        "cpu"
    )
    return _error(q, k, v, options)


def _refusal_bare(q, k, v, options):
    """The same for any tensors: run without memory, on meta tensors."""
    import torch

    def bare(x):
        return torch.empty(x.shape, dtype=x.dtype, device="meta") if torch.is_tensor(x) else x

    return _error(bare(q), bare(k), bare(v), {name: bare(x) for name, x in options.items()})


def _error(q, k, v, options):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def masked_row(call, device):
    """What a row that sees nothing returns here, "zero", "nan" or "other": computed on four rows and keys."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    dtype = getattr(torch, call.dtype)
    x = torch.randn(1, 1, 4, 8, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    mask = torch.ones(4, 4, dtype=torch.bool, device=device)
    mask[1] = False
    hidden = torch.zeros(4, 4, dtype=dtype, device=device).masked_fill(~mask, float("-inf"))
    o = scaled_dot_product_attention(x, x, x, attn_mask=mask if call.mask == "bool" else hidden)[0, 0, 1]
    return "nan" if o.isnan().any() else "zero" if not o.any() else "other"


def _version():
    import torch

    return torch.__version__


def _short(name):
    """SDPBackend's name as we say it: FLASH_ATTENTION -> flash."""
    return name.removesuffix("_ATTENTION").lower()


def _long(backend):
    return "MATH" if backend == "math" else f"{backend.upper()}_ATTENTION"
