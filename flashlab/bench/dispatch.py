"""The suite `dispatch`: which SDPA backend PyTorch runs for a grid of calls, and why not the others.

Each call is asked about (flashlab.dispatch), then run under the profiler: the operator that it saw must be
the chosen backend's, and its kernels are kept by name. Rows are written as flashlab.bench.compact
makes them.
"""

import itertools
from collections import Counter

# The operator of each backend, as the profiler names it.
OPERATORS = {
    "cudnn": "aten::_scaled_dot_product_cudnn_attention",
    "flash": "aten::_scaled_dot_product_flash_attention",
    "efficient": "aten::_scaled_dot_product_efficient_attention",
    "math": "aten::_scaled_dot_product_attention_math",
}


def run(calls, device="cuda", tables=None, say=print):
    """Ask about and run every Call; yields one dict a call, and says a line for each dtype and mask of the
    grid and one for the single calls.

    Keys: device, call (what differs from Call()), choice, order, no (backend -> PyTorch's reasons), kernels;
    where there is one: refused (the error that the call raises), masked_row. With "error" instead where no
    answer can be trusted: PyTorch could not be asked, or the profiler saw another operator than the choice's.
    With `tables` (compact.new_tables()) the rows are compact.
    """
    from flashlab.bench.compact import compact
    from flashlab.dispatch.grid import grid

    total, product = Counter(), set(grid())

    def label(call):
        return f"{call.dtype:9} mask={call.mask}" if call in product else "single calls"

    for of, group in itertools.groupby(calls, key=label):
        counts = Counter()
        for call in group:
            row = {"device": device, "call": call.changed()}
            try:
                row |= asked_and_run(call, device)
            except RuntimeError as problem:
                row["error"] = one_line(problem)
                say(f"no answer for {call}: {row['error']}")
            yield row if tables is None else compact(row, tables)
            counts[outcome(row)] += 1
        say(f"{of:23} {summary(counts)}")
        total += counts
    say(f"{f'in all on {device}':23} {summary(total)}")


def outcome(row):
    """One word for a row: what ran, "raises", or "no answer"."""
    return "no answer" if "error" in row else "raises" if "refused" in row else row["choice"]


def summary(counts):
    """Numbers of calls by outcome, as text: `144 calls: cudnn 72, math 60, raises 12`."""
    known = [*OPERATORS, "raises", "no answer"]
    said = ", ".join(f"{name} {counts[name]}" for name in known if counts[name])
    return f"{counts.total():4} calls: {said or '-'}"


def asked_and_run(call, device):
    """The keys of one call's row. Raises RuntimeError where no answer can be trusted."""
    from flashlab.dispatch.ask import ask_call, masked_row

    asked = ask_call(call, device)
    row = {"choice": asked.choice, "order": list(asked.order)}
    row["no"] = {v.backend: list(v.reasons) for v in asked.verdicts if v.can is False}
    refused, seen = asked.refused, None
    if not refused:
        try:
            seen, row["kernels"] = profiled(call, device)
        except RuntimeError as problem:  # as some cuDNN versions do for what they were chosen for
            refused = one_line(problem)
    if refused:
        row["refused"] = refused
    else:
        confirm(call, asked.choice, seen)
    if call.masked_rows:
        row["masked_row"] = masked_row(call, device)
    return row


def one_line(problem):
    """The kind of an error and its first line."""
    return f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"[:300]


def confirm(call, choice, seen):
    """Raise RuntimeError unless the operators `seen` hold that of `choice` and of no other backend."""
    ran = {name for name, operator in OPERATORS.items() if {operator, f"{operator}_for_cpu"} & set(seen)}
    if ran != {choice}:
        raise RuntimeError(f"PyTorch chose {choice} for {call}, but the profiler saw {sorted(ran) or 'none'}")


def profiled(call, device):
    """(names of the operators, names of the kernels) of one forward, with gradients of one backward, too.

    Kernels in their order, each once: CUDA only, without copies and fills.
    """
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    q, k, v, options = call.arguments(device, values=True)

    def once():
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
        if call.requires_grad:
            o.sum().backward()

    once()  # builds plans and loads modules
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=activities, acc_events=True) as seen:  # without it a warning
        once()
        if device == "cuda":
            torch.cuda.synchronize()
    events = seen.events()
    operators = {e.name for e in events if e.device_type == DeviceType.CPU}
    kernels = dict.fromkeys(e.name for e in events if e.device_type == DeviceType.CUDA)
    return operators, [name for name in kernels if not name.startswith(("Memcpy", "Memset"))]
