"""The suite `memory`: what forward and backward need beyond inputs and results, for growing N.

Reported in bytes for each query row and head: constant if the extra memory is O(N), growing with N if an [N,
N] matrix is kept. The results of the run that was weighed are compared with the formula in float32 before its
bytes count: all gradients of the first head and of the last, and every value must be finite. Before it, the
inputs were renewed and the memory that it gets was filled with NaN.

Here, too: how the other suites weigh one call, on a GPU, in PyTorch on a CPU, in NumPy.
"""

import os
import tracemalloc

LENGTHS, QUICK_LENGTHS = (4096, 8192, 16384, 32768, 65536), (4096, 8192)
MOST = {  # [N, N] matrices in several copies; FA1 is slow, and keeps what FA2 keeps
    "standard": 16384,
    "sdpa-math": 16384,
    "fa1": 8192,
}
PEERS = ("fa2", "fa1", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient", "standard", "sdpa-math")
DTYPE = "bfloat16"


def cases(peers=None, lengths=LENGTHS):
    """[(peer, N), ...] that are measured. Raises ValueError for an unknown peer."""
    from flashlab.bench.peers import all_peers, check_names

    check_names(peers or (), all_peers())
    return [(peer, n) for peer in peers or PEERS for n in lengths if n <= MOST.get(peer, n)]


def run(which=None, heads=4, dim=64, say=print, *, where="cuda", peak=None):
    """Measure every peer at every length, bf16, causal; yields one dict a measurement.

    `where` and `peak` are for tests without a GPU: the torch device, and what weighs a call.
    """
    from flashlab.bench.kernels import reason
    from flashlab.bench.peers import make

    for peer, n in which or cases():
        row = dict(peer=peer, N=n, H=heads, D=dim)
        try:
            extra, error = measure(make(peer), n, heads, dim, where, peak or peak_on_gpu)
            row |= dict(extra_bytes=extra, bytes_per_row=extra / n / heads, max_error=error)
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
    return f"{head}{row['extra_bytes'] / 2**20:9.1f} MiB  {per_row}"


def measure(attend, n, heads, dim, where, peak):
    """(peak bytes of one causal forward and backward, less q, k, v, do, o, dq, dk and dv; the largest error).

    Raises AssertionError where a result is wrong.
    """
    import torch

    from flashlab.bench.peers import layout_of

    torch.manual_seed(0)
    sizes = dict(B=1, H=heads, N=n, D=dim)
    shape = [sizes[size] for size in layout_of(attend)]
    given = [torch.randn(shape, device=where, dtype=getattr(torch, DTYPE)) for _ in range(4)]
    leaves, do = [x.requires_grad_() for x in given[:3]], given[3]

    def both():
        o = attend(*leaves, True)
        return o.detach(), *torch.autograd.grad(o, leaves, do)

    for x in both():  # compiles
        x.fill_(float("nan"))
    with torch.no_grad():
        for x in given:
            x.normal_()
    results = []
    extra = peak(lambda: results.extend(both()))
    extra -= sum(x.numel() * x.element_size() for x in results)
    return extra, checked(results, given, layout_of(attend))


def checked(results, given, layout):
    """The largest error of (o, dq, dk, dv) on the first head and the last; raises AssertionError."""
    import torch

    from flashlab.bench.expected import error, one_head
    from flashlab.bench.work import PATIENT

    if not all(torch.isfinite(x).all() for x in results):
        raise AssertionError("wrong result: not all values were written, or some are not finite")
    results, given = (
        [x.detach().transpose(1, 2) if layout == "BNHD" else x.detach() for x in xs]
        for xs in (results, given)
    )
    worst = 0.0
    for head in (slice(0, 1), slice(-1, None)):
        q, k, v, do = (x[:1, head] for x in given)
        want = one_head(q, k, v, True, do)
        worst = max(worst, error([x[:1, head] for x in results], want, PATIENT[DTYPE]))
    return worst


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
