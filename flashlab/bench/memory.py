"""The suite `memory`: what forward and backward need beyond inputs and results, for growing N.

Reported in bytes for each query row and head: constant if the extra memory is O(N), growing with N if an [N,
N] matrix is kept. Here, too: how the other suites weigh one call, on a GPU, in PyTorch on a CPU, in NumPy.
"""

import os
import tracemalloc

LENGTHS = (4096, 8192, 16384, 32768, 65536)
STANDARD_UP_TO = 16384  # the standard formula keeps several [N, N] matrices
FA1_UP_TO = 8192  # slow, and it keeps what FA2 keeps
PEERS = ("fa2", "fa1", "sdpa-flash", "standard")


def cases(peers=None, lengths=LENGTHS):
    """[(peer, N), ...] that are measured."""
    most = {"standard": STANDARD_UP_TO, "fa1": FA1_UP_TO}
    return [(peer, n) for peer in peers or PEERS for n in lengths if n <= most.get(peer, n)]


def run(which=None, heads=4, dim=64, say=print):
    """Measure every peer at every length, bf16, causal; yields one dict a measurement."""
    from flashlab.bench.kernels import reason
    from flashlab.bench.peers import make

    for peer, n in which or cases():
        row = dict(peer=peer, N=n, H=heads, D=dim)
        try:
            extra = measure(make(peer), n, heads, dim)
            row |= dict(extra_bytes=extra, bytes_per_row=extra / n / heads)
        except Exception as problem:  # too little memory, or no such peer here
            row["error"] = reason(problem)
        yield row
        say(line(row))


def line(row):
    """One line of progress."""
    head = f"{row['peer']:15} N {row['N']:6}  "
    if "error" in row:
        return head + row["error"]
    per_row = f"{row['bytes_per_row']:10.1f} bytes a row and head"
    return f"{head}extra {row['extra_bytes'] / 2**20:10.1f} MiB  {per_row}"


def measure(attend, n, heads, dim):
    """Peak bytes of one causal forward and backward, less q, k, v, do, o, dq, dk and dv."""
    import torch

    from flashlab.bench.peers import layout_of

    sizes = dict(B=1, H=heads, N=n, D=dim)
    shape = [sizes[size] for size in layout_of(attend)]
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    do = torch.randn_like(q)
    attend(q, k, v, True).backward(do)  # compiles
    q.grad = k.grad = v.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    o = attend(q, k, v, True)
    o.backward(do)
    torch.cuda.synchronize()
    results = sum(x.numel() * x.element_size() for x in (o, q.grad, k.grad, v.grad))
    return torch.cuda.max_memory_allocated() - before - results


def peak_on_gpu(call):
    """Most bytes that `call()` holds at once on the current CUDA device beyond what was there, its result
    included.
    """
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated() - before


def peak_on_cpu(call):
    """The same for PyTorch on the CPU, from the allocations that its profiler sees."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler announces itself on stderr
    import torch

    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=False) as seen:
        result = call()
    del result
    changes = [e for e in seen.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for change in sorted(changes, key=lambda e: e.start_ns()):
        held += change.nbytes()
        most = max(most, held)
    return most


def peak_in_numpy(call):
    """The same for NumPy (and all other Python objects), which tells tracemalloc what it allocates."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = call()
        _, most = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return most - before
