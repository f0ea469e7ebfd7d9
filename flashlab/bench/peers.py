"""Who flashlab's kernels are compared with, each a function (q, k, v, causal) -> o, differentiable.

Tensors are [B, H, N, D], for flash-attn's own packages [B, N, H, D] (`layout_of` says which), each contiguous
as its peer wants it, so that no copy is timed. `standard` is the honest "standard attention": matmul,
softmax, matmul in the inputs' own format (SDPA's math backend computes 16-bit inputs in fp32 and is several
times slower than what a careful user would write).
"""

import functools
import importlib
import importlib.util

from flashlab.errors import unknown_name

# peer: (modules that may hold its flash_attn_func, how to get it)
FLASH_ATTN = {
    "flash-attn": (("flash_attn.flash_attn_interface",), "pip install flash-attn"),
    "flash-attn-3": (
        ("flash_attn_interface", "flash_attn_3.flash_attn_interface"),
        "build the folder hopper of the flash-attention repository; Hopper only",
    ),
    "flash-attn-4": (("flash_attn.cute",), "pip install flash-attn-4; Hopper and Blackwell only"),
}
SDPA = {
    "sdpa-flash": "FLASH_ATTENTION",
    "sdpa-cudnn": "CUDNN_ATTENTION",
    "sdpa-efficient": "EFFICIENT_ATTENTION",
    "sdpa-math": "MATH",
}
NO_HOPPER = "fa3 needs a Hopper GPU (H100, H200)."


class Absent(Exception):
    """A peer that is not installed here; the message is one sentence that says how to get it."""


def all_peers():
    """Name -> function that makes the peer; making one may fail where it is not installed."""
    peers = {"fa2": lambda: flashlab("fa2")}
    peers |= {name: functools.partial(sdpa, backend) for name, backend in SDPA.items()}
    peers |= {"flex": flex, "standard": lambda: standard, "fa1": lambda: flashlab("fa1"), "fa3": fa3}
    return peers | {name: functools.partial(flash_attn, name) for name in FLASH_ATTN}


def make(name):
    """The peer of that name. Raises ValueError for an unknown one, Absent for one that is not installed."""
    check_names([name], all_peers())
    return all_peers()[name]()


def check_names(names, known, what="peer"):
    """Raise ValueError, with the closest names, for the first of `names` that is not `known`."""
    for name in names:
        if name not in known:
            raise unknown_name(what, name, known)


def installed():
    """The names of the peers that are worth trying here."""
    return [name for name in all_peers() if name not in absent()]


def absent():
    """Name -> one sentence, for each peer that is not installed here or cannot run here."""
    missing = {
        name: f"{name} is not installed here: {how}."
        for name, (modules, how) in FLASH_ATTN.items()
        if not any(map(found, modules))
    }
    return missing if on_hopper() else missing | {"fa3": NO_HOPPER}


def on_hopper():
    """Whether the current CUDA device, if there is one, is of compute capability 9."""
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


def found(module):
    """Whether Python finds a module (its parent packages are imported, itself is not)."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, OSError):  # no parent, or a parent that does not import
        return False


def layout_of(peer):
    """The axes of a peer's tensors: "BHND", or "BNHD"."""
    return getattr(peer, "layout", "BHND")


def standard(q, k, v, causal):
    """Matmul, softmax, matmul in the inputs' format, with the whole score matrix."""
    import torch

    s = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        n = q.shape[-2]
        s = s.masked_fill(~torch.ones(n, n, dtype=torch.bool, device=q.device).tril(), float("-inf"))
    return torch.softmax(s, -1) @ v


def sdpa(backend):
    """PyTorch's scaled_dot_product_attention held to one backend ("FLASH_ATTENTION", "CUDNN_ATTENTION",
    ...).
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def run(q, k, v, causal):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def flashlab(backend):
    """flashlab.attention with one of its own kernels."""
    from flashlab import attention

    return lambda q, k, v, causal: attention(q, k, v, causal=causal, backend=backend)


def fa3():
    """flashlab's FlashAttention-3. Raises Absent where there is no Hopper GPU."""
    if not on_hopper():
        raise Absent(NO_HOPPER)
    return flashlab("fa3")


def flex():
    """FlexAttention, compiled, with a block mask for causal."""
    import torch
    import torch._functorch.config as functorch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    functorch.donated_buffer = False  # else its backward pass cannot run twice on one graph; PyTorch's advice
    compiled = torch.compile(flex_attention, dynamic=False)

    @functools.cache
    def mask(n):
        return create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cuda")

    return lambda q, k, v, causal: compiled(q, k, v, block_mask=mask(q.shape[-2]) if causal else None)


def flash_attn(name):
    """flash_attn_func of the flash-attn package, of flash-attn 3 (Hopper) or flash-attn-4 (CuTe), on [B, N,
    H, D]. Some versions of the last two return (o, lse). For Nq = Nk their causal mask is everyone's.
    """
    modules, how = FLASH_ATTN[name]
    module = next(filter(found, modules), None)
    if module is None:
        raise Absent(absent().get(name, f"{name} is not installed here: {how}."))
    try:
        call = importlib.import_module(module).flash_attn_func
    except Exception as problem:  # built for another torch, another GPU, another CUDA
        why = " ".join(str(problem).split())[:150]
        raise Absent(
            f"{name} is installed but cannot be imported: {type(problem).__name__}: {why}."
        ) from None

    def run(q, k, v, causal):
        o = call(q, k, v, causal=causal)
        return o[0] if isinstance(o, tuple) else o

    run.layout = "BNHD"
    return run
