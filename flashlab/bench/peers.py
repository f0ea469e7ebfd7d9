"""Who flashlab's kernels are compared with, each a function (q, k, v, causal) -> o on CUDA tensors [B, H,
N, D].

`standard` is the honest "standard attention": matmul, softmax, matmul in the inputs' own format (SDPA's math
backend computes in fp32 and is several times slower than what a careful user would write).
"""

import functools


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


def flex():
    """FlexAttention, compiled, with a block mask for causal."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)

    @functools.cache
    def mask(n):
        return create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cuda")

    return lambda q, k, v, causal: compiled(q, k, v, block_mask=mask(q.shape[-2]) if causal else None)


def all_peers():
    """Name -> function that makes the peer; making one may fail where it is not installed."""
    return {
        "fa2": lambda: flashlab("fa2"),
        "sdpa-flash": lambda: sdpa("FLASH_ATTENTION"),
        "sdpa-cudnn": lambda: sdpa("CUDNN_ATTENTION"),
        "sdpa-efficient": lambda: sdpa("EFFICIENT_ATTENTION"),
        "sdpa-math": lambda: sdpa("MATH"),
        "flex": flex,
        "standard": lambda: standard,
        "fa1": lambda: flashlab("fa1"),
    }


def make(name):
    """The peer of that name. Raises ValueError for an unknown one."""
    known = all_peers()
    if name not in known:
        from flashlab.errors import unknown_name

        raise unknown_name("peer", name, known)
    return known[name]()
