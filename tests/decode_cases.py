"""Caches, dense and in shuffled pages, and the check of decoding against the reference: for the interpreted
tests and the tests on a GPU.
"""

import torch
from kernel_cases import poison

from flashlab.testing import assert_close_to_reference

NAN = float("nan")


def draw_cache(lengths, kv_heads, room, dim, dtype=torch.float32, device="cpu", seed=0):
    """k and v caches [B, Hkv, room, D], NaN behind each length, and the lengths as int32 [B]."""
    g = torch.Generator().manual_seed(seed)
    k, v = (torch.randn(len(lengths), kv_heads, room, dim, generator=g).to(dtype) for _ in range(2))
    for b, n in enumerate(lengths):
        k[b, :, n:] = v[b, :, n:] = NAN
    return k.to(device), v.to(device), torch.tensor(lengths, dtype=torch.int32, device=device)


def draw_queries(batch, heads, num_queries, dim, dtype=torch.float32, device="cpu", seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, num_queries, dim, generator=g).to(dtype).to(device)


def in_pages(caches, lengths, page, pages, seed=2):
    """The caches in pages [n_pages, page, Hkv, D] in random order, NaN where no token is, and their table.

    Each is a slice of a bigger tensor (rows, heads and columns to spare), and unused entries of the table are
    -1 or huge.
    """
    batch, kv_heads, room, dim = caches[0].shape
    g = torch.Generator().manual_seed(seed)
    num_pages = sum(-(-n // page) for n in lengths) + 3
    order = iter(torch.randperm(num_pages, generator=g).tolist())
    table = torch.full((batch, pages), -1, dtype=torch.int32)
    table[1::2] = 2**31 - 1
    paged = [
        torch.full((num_pages, page + 1, kv_heads + 1, dim + 8), NAN, dtype=x.dtype, device=x.device)
        for x in caches
    ]
    paged = [x[:, :page, :kv_heads, :dim] for x in paged]
    for b, n in enumerate(lengths):
        for i in range(-(-n // page)):
            table[b, i] = next(order)
            first, end = i * page, min((i + 1) * page, n)
            for x, dense in zip(paged, caches, strict=True):
                x[table[b, i].item(), : end - first] = dense[b, :, first:end].transpose(0, 1)
    return *paged, table.to(caches[0].device)


def check_decode(decode, q, k, v, lengths, *, dense=None, scale=None, **how):
    """Run decode(q, k, v, lengths, **how) -> o, lse on poisoned memory and compare each sequence with the
    reference. `dense`: the caches to compare with, if k and v are paged.
    """
    with poison():
        o, lse = decode(q, k, v, lengths, scale=scale, **how)
    assert o.dtype == q.dtype and o.shape == q.shape
    assert lse.dtype == torch.float32 and lse.shape == q.shape[:3]
    k, v = dense or (k, v)
    for b, n in enumerate(lengths.tolist()):
        got = {"o": o[b], "lse": lse[b]}
        assert_close_to_reference(got, q[b], k[b, :, :n], v[b, :, :n], causal="bottom-right", scale=scale)
    return o, lse
