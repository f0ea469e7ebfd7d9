"""PyTorch's two ways to compute the same attention on a CPU, weighed and timed: math path and flash path.

The math path writes the formula down, softmax(q k^T / sqrt(d)) v, and autograd keeps what the formula needs
on the way back, the [N, N] weights among it. The flash path keeps q, k, v, o and one log-sum-exp per row, and
computes the weights again. All numbers in the result are measured when `compare` is called.
"""

import html
import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from flashlab.text import t

SIZES = (4096, 2048, 1024, 512)  # tried in this order when no size is given
PATIENCE = 4.0  # seconds: a path that has taken so long is not repeated
PEAK = 5  # the math path's forward and backward hold about 4 matrices of [heads, N, N] at once; one to spare


@dataclass(frozen=True)
class Run:
    """One path's run: what autograd kept, as (shape, bytes) of each piece, and seconds (medians)."""

    kept: tuple[tuple[tuple[int, ...], int], ...]
    forward: float
    backward: float

    @property
    def kept_bytes(self):
        return sum(size for _, size in self.kept)


@dataclass(frozen=True)
class Comparison:
    """The math and the flash path on one input. Displays as a table; the numbers are attributes."""

    n: int
    heads: int
    d: int
    math: Run
    flash: Run
    difference: float  # largest |math - flash| of the outputs
    grad_difference: float  # the same for the gradients of q, k, v
    threads: int
    torch: str

    @property
    def ratio(self):
        """Memory kept for the backward pass: math divided by flash."""
        return self.math.kept_bytes / self.flash.kept_bytes

    @property
    def weights_bytes(self):
        """What the math path keeps of shape [heads, N, N]: the attention weights."""
        return next(size for shape, size in self.math.kept if shape[-2:] == (self.n, self.n))

    @property
    def lse_bytes(self):
        """What the flash path keeps instead: the smallest piece, one log-sum-exp for each row."""
        return min(size for _, size in self.flash.kept)

    def rows(self):
        """The table as a list of (label, math, flash), all strings in the chosen language."""
        both = (self.math, self.flash)
        pieces = [", ".join(f"{readable_bytes(b)} {list(s)}" for s, b in path.kept) for path in both]
        return [
            (t("start.paths.kept"), *(readable_bytes(path.kept_bytes) for path in both)),
            (t("start.paths.pieces"), *pieces),
            (t("start.paths.forward"), *(f"{path.forward * 1e3:,.0f} ms" for path in both)),
            (t("start.paths.backward"), *(f"{path.backward * 1e3:,.0f} ms" for path in both)),
        ]

    def caption(self):
        """Size, machine and findings in two sentences."""
        values = {name: getattr(self, name) for name in ("n", "heads", "d", "threads", "torch", "ratio")}
        values |= {"difference": f"{self.difference:.0e}", "grad": f"{self.grad_difference:.0e}"}
        return t("start.paths.caption", **values), t("start.paths.finding", **values)

    def __repr__(self):
        where, finding = self.caption()
        (label, *kept), (_, *pieces), *times = self.rows()
        lines = [where, f"  {'':34} {'math':>12} {'flash':>12}"]
        lines += [f"  {name:34} {a:>12} {b:>12}" for name, a, b in ((label, *kept), *times)]
        lines += [f"  {name}: {piece}" for name, piece in zip(("math", "flash"), pieces, strict=True)]
        return "\n".join([*lines, finding])

    def _repr_html_(self):
        where, finding = map(html.escape, self.caption())
        body = ""
        for label, *cells in self.rows():
            body += f'<tr><th scope="row" style="text-align:left">{html.escape(label)}</th>'
            body += "".join(
                f'<td style="text-align:left">{html.escape(c).replace("], ", "]<br>")}</td>' for c in cells
            )
            body += "</tr>"
        head = '<tr><td></td><th scope="col">math</th><th scope="col">flash</th></tr>'
        return (
            f'<table><caption style="text-align:left">{where}</caption><thead>{head}</thead>'
            f"<tbody>{body}</tbody></table><p><b>{finding}</b></p>"
        )


def readable_bytes(size):
    """131072 -> "128 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def free_bytes():
    """Memory this process can still take, in bytes, or None where the system does not say (Linux says)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        try:  # macOS has no such file; psutil comes with ipykernel
            import psutil

            return psutil.virtual_memory().available
        except ImportError:
            return None
    try:  # inside a container the limit of the container counts
        limit, used = (
            Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current")
        )
        return min(free, max(0, int(limit) - int(used)))
    except (OSError, ValueError):  # no limit: "max"
        return free


def choose_size(n, heads, free):
    """The number of tokens to run: `n`, or for None the largest of SIZES that fits into `free` bytes.

    Raises MemoryError, with a size that fits, when `n` does not fit.
    """

    def needed(size):
        return PEAK * heads * size * size * 4

    fitting = next((size for size in SIZES if free is None or needed(size) <= free), SIZES[-1])
    if n is None:
        return fitting
    if free is not None and needed(n) > free:
        values = {
            "n": n,
            "needed": readable_bytes(needed(n)),
            "free": readable_bytes(free),
            "smaller": min(fitting, n),
        }
        raise MemoryError(t("start.paths.short", **values))
    return n


def compare(n=None, heads=8, d=64, repeats=3, quiet=False):
    """Run both paths on one random float32 input [1, heads, n, d] on the CPU; return a Comparison.

    n: tokens; None takes 4096 (some seconds), or less where the matrices do not fit into the free memory.
    Times are medians of up to `repeats` runs, after a warm-up on a small input; the first run is weighed too.
    Raises MemoryError with a size that fits when `n` does not, ValueError for sizes below 1.
    """
    for name, size in (("n", 1 if n is None else n), ("heads", heads), ("d", d), ("repeats", repeats)):
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"expected {name} to be a whole number from 1 up, got {size!r}")
    import torch
    from torch.nn.attention import SDPBackend

    chosen = choose_size(n, heads, free_bytes())
    if n is None and chosen < SIZES[0] and not quiet:
        print(t("start.paths.smaller", n=chosen, wanted=SIZES[0]))
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(1, heads, chosen, d, generator=generator) for _ in range(4))
    runs, results = {}, {}
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("math", SDPBackend.MATH)):
        if not quiet:
            print(t("start.paths.measuring", path=name), end=" ", flush=True)
        runs[name], results[name] = _run(backend, q, k, v, do, repeats, dots=not quiet)
    if not quiet:
        print()
    o_gap, *grad_gaps = ((a - b).abs().max().item() for a, b in zip(*results.values(), strict=True))
    return Comparison(
        chosen,
        heads,
        d,
        runs["math"],
        runs["flash"],
        o_gap,
        max(grad_gaps),
        torch.get_num_threads(),
        torch.__version__,
    )


def weighing(kept):
    """A context in which each piece of memory that autograd keeps goes into the dict `kept`, once, however
    many views of it there are: address -> (shape, bytes).
    """
    import torch

    def weigh(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = (tuple(tensor.shape), storage.nbytes())
        return tensor.detach()  # with its graph, a function's own result would keep itself alive for ever

    return torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor)


def _run(backend, q, k, v, do, repeats, dots):
    """Weigh one run and time up to `repeats` of them; return (Run, (o, dq, dk, dv))."""
    import torch
    from torch.nn.attention import sdpa_kernel

    kept, forward, backward = {}, [], []

    def once(q, k, v, do, hooks):
        q, k, v = (a.detach().requires_grad_() for a in (q, k, v))
        start = time.perf_counter()
        with sdpa_kernel(backend), hooks:
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        middle = time.perf_counter()
        grads = torch.autograd.grad(o, (q, k, v), do)
        return (o.detach(), *grads), middle - start, time.perf_counter() - middle

    once(*(a[..., :64, :] for a in (q, k, v, do)), nullcontext())
    begin = time.perf_counter()
    while not forward or (len(forward) < repeats and time.perf_counter() - begin < PATIENCE):
        hooks = nullcontext() if kept else weighing(kept)
        results, *seconds = once(q, k, v, do, hooks)
        forward.append(seconds[0])
        backward.append(seconds[1])
        if dots:
            print(".", end="", flush=True)
    if dots:
        print(end=" ")
    pieces = tuple(sorted(kept.values(), key=lambda piece: -piece[1]))
    return Run(pieces, statistics.median(forward), statistics.median(backward)), results
