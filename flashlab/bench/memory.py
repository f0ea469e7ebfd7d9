"""The suite `memory`: what forward and backward need beyond inputs and results, for growing N.

Reported in bytes for each query row and head: constant if the extra memory is O(N), growing with N if an [N,
N] matrix is kept.
"""

import functools

LENGTHS = (4096, 8192, 16384, 32768, 65536)
STANDARD_UP_TO = 16384  # the standard formula keeps several [N, N] matrices


def run(lengths=LENGTHS, peers=("fa2", "fa1", "sdpa-flash", "standard"), heads=4, dim=64, say=print):
    """Measure every peer at every length, bf16, causal; yields one dict a measurement."""
    from flashlab.bench.peers import all_peers

    for peer in peers:
        attend = all_peers()[peer]()
        for n in lengths:
            if (peer == "standard" and n > STANDARD_UP_TO) or (peer == "fa1" and n > 8192):
                continue
            extra = measure(functools.partial(attend, causal=True), n, heads, dim)
            per_row = extra / n / heads
            say(f"{peer:15} N {n:6}  extra {extra / 2**20:10.1f} MiB  {per_row:10.1f} bytes a row and head")
            yield dict(peer=peer, N=n, H=heads, D=dim, extra_bytes=extra, bytes_per_row=per_row)


def measure(attend, n, heads, dim):
    """Peak bytes of one forward and backward, less q, k, v, do, o, dq, dk and dv."""
    import torch

    q, k, v = (
        torch.randn(1, heads, n, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    do = torch.randn_like(q)
    attend(q, k, v).backward(do)  # compiles
    q.grad = k.grad = v.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    o = attend(q, k, v)
    o.backward(do)
    torch.cuda.synchronize()
    results = sum(x.numel() * x.element_size() for x in (o, q.grad, k.grad, v.grad))
    return torch.cuda.max_memory_allocated() - before - results
