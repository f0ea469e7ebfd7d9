"""The dispatch detective: which backend scaled_dot_product_attention runs for a call, and why not the others.

`explain(...)` asks PyTorch itself: for a call on the CPU always, on CUDA where there is a GPU. Without one
it gives what was recorded on an H200, or, where nothing is recorded, what can be said from PyTorch's
sources. The three are never mixed: an Explanation says which of them it is.

    >>> from flashlab.dispatch import explain
    >>> explain(Hq=8, Nq=128, D=64, dtype="float32", dropout_p=0.1).choice
    'math'

`trap("causal_one_query")` runs one of the usual surprises and prints what came out; `traps()` names them.
"""

from flashlab.dispatch.call import DTYPES, MASKS, Call
from flashlab.dispatch.explanation import BACKENDS, Explanation, Verdict
from flashlab.dispatch.traps import trap, traps
from flashlab.errors import unknown_name

__all__ = [
    "BACKENDS",
    "DTYPES",
    "MASKS",
    "Call",
    "Explanation",
    "Verdict",
    "explain",
    "explain_tensors",
    "trap",
    "traps",
]


def explain(call=None, *, device="cpu", gpu="H200", basis=None, **fields):
    """Which backend runs for a call, and why the others do not: an Explanation, which prints as a table.

    `call`: a Call; or give its fields: B, Hq, Hkv, Nq, Nk, D, dtype, mask, masked_rows, dropout_p, training,
    requires_grad, enable_gqa. `device`: "cpu" or "cuda". On CUDA without a GPU the answer comes from the
    record of an H200, or from PyTorch's sources read for `gpu` (a name of flashlab.gpus). `basis` insists on
    one of "asked", "recorded" and "rules". Raises ValueError for what is no call, and LookupError where the
    basis insisted on has no answer.
    """
    from flashlab.dispatch.answer import answer

    if call is None:
        for name in fields:
            if name not in Call.__dataclass_fields__:
                raise unknown_name("field of a call", name, Call.__dataclass_fields__)
        call = Call(**fields)
    elif fields:
        raise TypeError(f"give a Call or its fields, not both: got a Call and {', '.join(sorted(fields))}")
    elif not isinstance(call, Call):
        raise TypeError(f"expected a flashlab.dispatch.Call, got {type(call).__name__}")
    return answer(call, device, gpu, basis)


def explain_tensors(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, enable_gqa=False):
    """The same for the very tensors of a call, of any shape and on any device: PyTorch is asked.

    Raises TypeError for what is no tensor, ValueError for tensors that are neither on the CPU nor on CUDA.
    """
    from flashlab.dispatch.ask import ask_tensors

    for name, x in (("q", q), ("k", k), ("v", v)):
        if not hasattr(x, "stride"):
            raise TypeError(f"expected {name} as a PyTorch tensor, got {type(x).__name__}")
    return ask_tensors(q, k, v, attn_mask, dropout_p, is_causal, enable_gqa)
