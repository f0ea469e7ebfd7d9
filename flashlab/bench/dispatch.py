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
    where there is one: refused (the error), masked_row. Raises RuntimeError where the profiler saw another
    operator than the choice's, for then the table would be wrong.
    """
    from flashlab.dispatch.ask import ask_call, masked_row

    for call in calls:
        asked = ask_call(call, device)
        row = {"device": device, "call": call.changed(), "choice": asked.choice, "order": list(asked.order)}
        row["no"] = {v.backend: list(v.reasons) for v in asked.verdicts if v.can is False}
        if asked.refused:
            row["refused"] = asked.refused
        else:
            seen, row["kernels"] = profiled(call, device)
            confirm(call, asked.choice, seen)
        if call.masked_rows:
            row["masked_row"] = masked_row(call, device)
        say(f"{asked.choice:9} {call}")
        yield row


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
