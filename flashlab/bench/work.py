"""One peer's forward or backward pass on several sets of inputs, as `timing.measure` wants it: the inputs of
a run are new, what an earlier run wrote is poisoned with NaN, and the timed runs' own results are checked.

So a time cannot come from a result that was kept (the inputs have changed since), nor from a kernel that
writes nothing (the memory that it is given held NaN, and the whole result must be finite).
"""

from flashlab.bench.floors import flops
from flashlab.bench.peers import layout_of, standard
from flashlab.bench.sdpa_paths import weighing
from flashlab.bench.timing import measure
from flashlab.memory import kept
from flashlab.problem import Problem

MOST_SETS = 3
PATIENT = dict(float16=16, bfloat16=16, float32=64)  # how many times eps of the largest value is rounding


class Work:
    """`attend(q, k, v, causal)` on `sets` sets of random inputs on the torch device `where`.

    `case` has B, H, N, D, dtype (a name) and causal. A forward pass runs without gradients; a backward pass
    is autograd's alone, from graphs that are made here. `kept_bytes`: what autograd keeps for the backward
    pass, q, k and v included (None where there is none). `max_error`: the largest error that `check` saw.
    """

    def __init__(self, attend, case, direction, sets, where):
        import torch

        self.attend, self.causal, self.backward = attend, case["causal"], direction == "backward"
        self.layout, dtype = layout_of(attend), getattr(torch, case["dtype"])
        shape = [case[size] for size in self.layout]
        torch.manual_seed(0)
        self.inputs = [
            [torch.randn(shape, device=where, dtype=dtype) for _ in range(3 + self.backward)]
            for _ in range(sets)
        ]
        self.allowed = PATIENT[case["dtype"]] * torch.finfo(dtype).eps
        self.graphs, self.kept_bytes, self.max_error = [], None, 0.0
        for q, k, v, *_ in self.inputs if self.backward else ():
            pieces = {}
            leaves = [x.requires_grad_() for x in (q, k, v)]
            with weighing(pieces):
                self.graphs.append((attend(*leaves, self.causal), leaves))
            self.kept_bytes = sum(size for _, size in pieces.values())

    def __call__(self, i):
        """The results on input set i: (o,), or (dq, dk, dv)."""
        import torch

        if self.backward:
            o, leaves = self.graphs[i]
            return torch.autograd.grad(o, leaves, self.inputs[i][3], retain_graph=True)
        with torch.no_grad():
            return (self.attend(*self.inputs[i], self.causal),)

    def prepare(self, i, results):
        """New numbers in input set i (backward: in dO), NaN in what its last run returned."""
        for x in results or ():
            x.fill_(float("nan"))
        for x in self.inputs[i][3 if self.backward else 0 :]:
            x.normal_()

    def check(self, i, results):
        """Raise AssertionError unless the results are finite and, on one head, right up to rounding."""
        import torch

        if not all(torch.isfinite(x).all() for x in results):
            raise AssertionError("wrong result: not all values were written, or some are not finite")
        first = [self.one_head(x.detach(), i) for x in self.inputs[i]]
        wide = torch.float64 if first[0].dtype == torch.float32 else torch.float32
        q, k, v, *do = (x.to(wide) for x in first)
        leaves = [x.requires_grad_(self.backward) for x in (q, k, v)]
        want = (standard(*leaves, self.causal),)
        if self.backward:
            want = torch.autograd.grad(want, leaves, do)
        for g, w in zip(results, want, strict=True):
            error = (self.one_head(g, i).to(wide) - w).abs().max().item()
            allowed = self.allowed * max(w.abs().max().item(), 1)
            if not error <= allowed:
                raise AssertionError(f"wrong result: largest error {error:.3g}, allowed {allowed:.3g}")
            self.max_error = max(self.max_error, error)

    def one_head(self, x, i):
        """The head [1, 1, N, D] of x that is compared for set i: the first, the last, and between them."""
        x = x.transpose(1, 2) if self.layout == "BNHD" else x
        heads = x.shape[0] * x.shape[1]
        b, h = divmod(i * (heads - 1) // max(len(self.inputs) - 1, 1), x.shape[1])
        return x[b : b + 1, h : h + 1]


def measured(attend, case, direction, device, where, peak, *, sets=MOST_SETS, cold=True, **how):
    """Time, check and weigh one peer: the fields that every row has.

    `device` is for `timing.measure`, `where` a torch device; `peak(call)` gives the bytes that a call needs
    beyond what was there; `how` goes to `timing.measure`.
    """
    work = Work(attend, case, direction, sets, where)
    timing = measure(work, device, sets=sets, prepare=work.prepare, check=work.check, cold=cold, **how)
    row = dict(ms=timing.median, low=timing.low, high=timing.high, runs=timing.runs)
    row |= dict(max_error=work.max_error, tflops=flops(case, direction) / timing.median / 1e9)
    row |= dict(cache="flushed" if cold else "warm", input_sets=sets, peak_bytes=peak(lambda: work(0)))
    return row | (dict(kept_bytes=work.kept_bytes) if work.backward else {})


def how_many_sets(case, peer, free):
    """How many input sets of a backward pass fit into half of the `free` bytes (None: unknown): 1 to 3.

    An estimate: SDPA's math path keeps score matrices in float32, `standard` in the inputs' format.
    """
    problem = Problem(case["B"], case["H"], Nq=case["N"], D=case["D"], dtype=case["dtype"])
    whole = peer in ("standard", "sdpa-math")
    nbytes = 2 * sum(kept(problem, "standard" if whole else "fa2").values())  # and dO and the gradients
    nbytes *= 4 // problem.itemsize if peer == "sdpa-math" else 1
    return MOST_SETS if free is None else max(1, min(MOST_SETS, int(free / 2 // nbytes)))
