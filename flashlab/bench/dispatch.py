"""The suite `dispatch`: which SDPA backend PyTorch runs for a grid of calls, and why not the others.

Each call is asked about (flashlab.dispatch), then run under the profiler: the operator that it saw must be
the chosen backend's, and its kernels are kept by name.
"""

# The operator of each backend, as the profiler names it.
OPERATORS = {
    "cudnn": "aten::_scaled_dot_product_cudnn_attention",
    "flash": "aten::_scaled_dot_product_flash_attention",
    "efficient": "aten::_scaled_dot_product_efficient_attention",
    "math": "aten::_scaled_dot_product_attention_math",
}


def run(calls, device="cuda", say=print):
    """Ask about and run every Call; yields one dict a call.

    Keys: device, call (what differs from Call()), choice, order, no (backend -> PyTorch's reasons), kernels;
    where there is one: refused (the error that the call raises), masked_row. With "error" instead where no
    answer can be trusted: PyTorch could not be asked, or the profiler saw another operator than the choice's.
    """
    for call in calls:
        row = {"device": device, "call": call.changed()}
        try:
            row |= asked_and_run(call, device)
        except RuntimeError as problem:
            row["error"] = one_line(problem)
        yield row
        say(f"{row.get('choice', 'error'):9} {call} {row.get('error', '')}".rstrip())


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
    with profile(activities=activities) as seen:
        once()
        if device == "cuda":
            torch.cuda.synchronize()
    events = seen.events()
    operators = {e.name for e in events if e.device_type == DeviceType.CPU}
    kernels = dict.fromkeys(e.name for e in events if e.device_type == DeviceType.CUDA)
    return operators, [name for name in kernels if not name.startswith(("Memcpy", "Memset"))]
