"""What the cells of predict items and the checks of claims run: autograd's saved tensors counted, launches
simulated, a program's output.
"""

import contextlib
import io

from flashlab.quiz import formulas
from flashlab.text import t


def printed(code, lang="en"):
    """What a claim's check prints, run now; a sentence where it does not run here."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, "<check>", "exec"), {"__name__": "__check__"})
    except Exception as problem:
        return t("quiz.item.no_run", lang, problem=f"{type(problem).__name__}: {problem}")
    return out.getvalue().rstrip()


def saved_bytes(backend="math", B=1, H=1, N=128, D=64, dtype="fp32", dropout=0.0, causal=False):
    """Bytes that autograd keeps for the backward pass of torch's SDPA on this machine's CPU.

    `backend`: "math" (plain operations) or "flash" (the fused CPU kernel). Every storage counts once.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
    backends = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
    q, k, v = (torch.randn(B, H, N, D, dtype=names[dtype], requires_grad=True) for _ in range(3))
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with sdpa_kernel(backends[backend]), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    kept.pop(out.untyped_storage().data_ptr(), None)  # the result is there in any case
    return sum(kept.values())


def saved_bytes_of_qkv(B=1, H=1, N=128, D=64, dtype="fp32"):
    """Bytes of Q, K and V."""
    return formulas.qkv_bytes(B, H, H, N, D, dtype)


def traced(algorithm, N, D, block_q, block_k, causal=False):
    """The `flashlab.trace.Trace` of the forward pass of "fa1" or "fa2" on one head of ones."""
    import numpy as np

    from flashlab import tiled
    from flashlab.trace import Trace

    ones, events = np.ones((N, D)), []
    forward = {"fa1": tiled.fa1_forward, "fa2": tiled.fa2_forward}[algorithm]
    forward(ones, ones, ones, block_q=block_q, block_k=block_k, causal=causal, trace=events)
    return Trace(events)


def makespan(algorithm, B=1, H=1, N=4096, D=128, gpu="H200", block=128, causal=False):
    """Tile steps until the last thread block of a forward launch is done, one block per SM at a time."""
    from flashlab.problem import Problem
    from flashlab.schedule import simulate

    problem = Problem(B=B, Hq=H, Nq=N, D=D, block_q=block, block_k=block, causal=causal)
    return simulate(problem, algorithm, formulas.gpu(gpu)).makespan
