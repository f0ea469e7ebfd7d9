"""The kernels as PyTorch operators: what autograd, torch.compile and torch.export know about them.

Each operator has an implementation, a fake one (shapes and strides only) and, for the forward, a gradient.
The backward is two operators, dq and (dk, dv), and each runs only if someone wants its result. Gradients of
gradients raise RuntimeError. `causal` is "" (all keys seen), "top-left" or "bottom-right".
"""

import torch
from torch import Tensor
from torch.autograd import forward_ad

from flashlab.kernels import require_triton


def _how(causal, scale, key_lengths, dropout_p, seed):
    from flashlab.kernels.launch import dropout_arguments

    return dict(
        causal=causal or None,
        scale=scale,
        key_lengths=key_lengths,
        dropout=dropout_arguments(dropout_p, seed),
    )


def _fa2(
    q: Tensor, k: Tensor, v: Tensor, key_lengths: Tensor | None, seed: Tensor | None, causal: str,
    scale: float, dropout_p: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o [B, Hq, Nq, D] and lse [B, Hq, Nq] fp32 by FlashAttention-2."""
    require_triton()
    from flashlab.kernels import fa2 as kernels

    return kernels.forward(q, k, v, **_how(causal, scale, key_lengths, dropout_p, seed))


def _delta(o: Tensor, do: Tensor, dlse: Tensor | None) -> Tensor:
    """rowsum(dO * O) - dlse, [B, Hq, Nq] fp32."""
    from flashlab.kernels import fa2_backward as kernels

    return kernels.delta(o, do, dlse)


def _fa2_dkdv(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, key_lengths: Tensor | None,
    seed: Tensor | None, causal: str, scale: float, dropout_p: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dk and dv of FlashAttention-2."""
    from flashlab.kernels import fa2_backward as kernels

    return kernels.backward_kv(q, k, v, do, lse, delta, **_how(causal, scale, key_lengths, dropout_p, seed))


def _fa2_dq(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, key_lengths: Tensor | None,
    seed: Tensor | None, causal: str, scale: float, dropout_p: float,
) -> Tensor:  # fmt: skip
    """dq of FlashAttention-2."""
    from flashlab.kernels import fa2_backward as kernels

    return kernels.backward_q(q, k, v, do, lse, delta, **_how(causal, scale, key_lengths, dropout_p, seed))


def _fa3(q: Tensor, k: Tensor, v: Tensor, causal: str, scale: float) -> tuple[Tensor, Tensor]:
    """o [B, Hq, Nq, D] and lse [B, Hq, Nq] fp32 by FlashAttention-3."""
    require_triton()
    from flashlab.kernels import hopper_host as kernels

    return kernels.forward(q, k, v, causal=causal or None, scale=scale)


def _fa3_traced(q: Tensor, k: Tensor, v: Tensor, causal: str, scale: float) -> tuple[Tensor, Tensor]:
    """The same for a traced call, where nobody could look at the tensors: what TMA cannot move is copied."""
    from flashlab.kernels.hopper_host import movable

    moved = movable(q)
    o, lse = _fa3(moved, movable(k), movable(v), causal, scale)
    return o if moved is q else torch.empty_like(q).copy_(o), lse


# From this many queries on, fa3 goes backward with `hopper_backward` (up to D 128), and beyond D 64 without a
# mask from half as many; below, fa2's kernels are mostly faster: bench/recorded/h200_hopper.json, "backward".
FA3_BACKWARD_FROM = 1024


def _takes_fa2s_backward(q, k, v, causal):
    from flashlab.kernels.hopper_backward_host import lacks_backward

    enough = FA3_BACKWARD_FROM / (1 if causal or q.shape[-1] <= 64 else 2)
    return q.shape[2] < enough or lacks_backward(q, k, v) is not None


def _fa3_dkdv(q, k, v, do, lse, delta, key_lengths, seed, causal, scale, dropout_p):
    from flashlab.kernels import hopper_backward_host as kernels

    if _takes_fa2s_backward(q, k, v, causal):
        return _fa2_dkdv(q, k, v, do, lse, delta, key_lengths, seed, causal, scale, dropout_p)
    return kernels.backward_kv(q, k, v, do, lse, delta, causal=causal or None, scale=scale)


def _fa3_dq(q, k, v, do, lse, delta, key_lengths, seed, causal, scale, dropout_p):
    from flashlab.kernels import hopper_backward_host as kernels

    if _takes_fa2s_backward(q, k, v, causal):
        return _fa2_dq(q, k, v, do, lse, delta, key_lengths, seed, causal, scale, dropout_p)
    return kernels.backward_q(q, k, v, do, lse, delta, causal=causal or None, scale=scale)


def _fa1(q: Tensor, k: Tensor, v: Tensor, causal: str, scale: float) -> tuple[Tensor, Tensor]:
    """o [B, Hq, Nq, D] and lse [B, Hq, Nq] fp32 by FlashAttention-1."""
    require_triton()
    from flashlab.kernels import fa1 as kernels

    return kernels.forward(q, k, v, causal=causal or None, scale=scale)


def _fa1_backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, dlse: Tensor | None, causal: str,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk and dv of FlashAttention-1, which makes all three at once."""
    from flashlab.kernels import fa1 as kernels

    return kernels.backward(q, k, v, o, lse, do, dlse, causal=causal or None, scale=scale)


def _operator(name, run):
    return torch.library.custom_op(f"flashlab::{name}", run, mutates_args=())


fa2, delta = _operator("fa2", _fa2), _operator("delta", _delta)
fa2_dkdv, fa2_dq = _operator("fa2_dkdv", _fa2_dkdv), _operator("fa2_dq", _fa2_dq)
fa3 = _operator("fa3", _fa3_traced)
fa1, fa1_backward = _operator("fa1", _fa1), _operator("fa1_backward", _fa1_backward)


@fa2.register_fake
@fa3.register_fake
@fa1.register_fake
def _(q, k, v, *rest):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@delta.register_fake
def _(o, do, dlse):
    return o.new_empty(o.shape[:3], dtype=torch.float32)


@fa2_dkdv.register_fake
def _(q, k, v, *rest):
    return torch.empty_like(k), torch.empty_like(v)


@fa2_dq.register_fake
def _(q, k, v, *rest):
    return torch.empty_like(q)


@fa1_backward.register_fake
def _(q, k, v, *rest):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx, inputs, output):
    q, k, v, key_lengths, seed, *ctx.how = inputs
    ctx.save_for_backward(q, k, v, *output, key_lengths, seed)
    ctx.set_materialize_grads(False)


def _gradients(ctx, do, dlse, passes=None):
    """One gradient, or None, for each input of `fa2`. `passes` (None: fa2's) make dq and (dk, dv) where
    nobody traces.
    """
    q, k, v, o, lse, key_lengths, seed = ctx.saved_tensors
    if do is None and dlse is None:
        return (None,) * 8
    # As operators if someone traces this or wants gradients of gradients (to tell them no), else directly.
    traced = torch.is_grad_enabled() or is_traced(q)
    run_delta, run_dq, run_dkdv = (
        (delta, fa2_dq, fa2_dkdv) if traced else (_delta, *(passes or (_fa2_dq, _fa2_dkdv)))
    )
    do = torch.zeros_like(o) if do is None else do
    inputs = (q, k, v, do, lse, run_delta(o, do, dlse), key_lengths, seed, *ctx.how)
    want_q, want_k, want_v = ctx.needs_input_grad[:3]
    dq = run_dq(*inputs) if want_q else None
    dk, dv = run_dkdv(*inputs) if want_k or want_v else (None, None)
    return dq, dk if want_k else None, dv if want_v else None, None, None, None, None, None


class EagerFA2(torch.autograd.Function):
    """`fa2` with its gradient, without the dispatcher, which costs more than the launch of a kernel."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _fa2(*inputs)
        _keep(ctx, inputs, output)
        return output

    backward = staticmethod(_gradients)


def run_fa2(q, k, v, *rest):
    """`fa2` by the shortest way: the operator where PyTorch traces, a plain call where it does not."""
    if is_traced(q):
        return fa2(q, k, v, *rest)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return EagerFA2.apply(q, k, v, *rest)
    return _fa2(q, k, v, *rest)


def _keep_fa3(ctx, inputs, output):
    q, k, v, causal, scale = inputs
    _keep(ctx, (q, k, v, None, None, causal, scale, 0.0), output)


def _gradients_fa3(ctx, do, dlse):
    return *_gradients(ctx, do, dlse, (_fa3_dq, _fa3_dkdv))[:3], None, None


class EagerFA3(torch.autograd.Function):
    """`fa3` with its gradient, without the dispatcher (traced, its gradients are fa2's operators)."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _fa3(*inputs)
        _keep_fa3(ctx, inputs, output)
        return output

    backward = staticmethod(_gradients_fa3)


def run_fa3(q, k, v, *rest):
    """`fa3` by the shortest way, as `run_fa2`."""
    if is_traced(q):
        return fa3(q, k, v, *rest)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return EagerFA3.apply(q, k, v, *rest)
    return _fa3(q, k, v, *rest)


def refuse_tangents(*tensors):
    """Raise RuntimeError for forward-mode differentiation, whose tangents would be lost in a kernel, and for
    gradients by torch.func, which PyTorch does not have for operators from outside.
    """
    if torch.compiler.is_compiling():
        return
    if torch._C._are_functorch_transforms_active() and "Grad" in transforms():
        raise RuntimeError(
            "flashlab's kernels have no gradients by torch.func (grad, vjp, jacrev): use backward() or "
            "torch.autograd.grad, or attention with backend='naive'"
        )
    if forward_ad._current_level < 0:
        return
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise RuntimeError(
            "flashlab's kernels have no forward-mode differentiation: use attention with backend='naive'"
        )


def is_traced(x):
    """Whether PyTorch records or transforms operators instead of running them (torch.compile, export, fake
    tensors, torch.func.vmap).
    """
    plain = type(x) is Tensor or type(x) is torch.nn.Parameter
    traced = torch.compiler.is_compiling() or not plain or torch._C._len_torch_dispatch_stack() > 0
    return traced or torch._C._are_functorch_transforms_active()


def transforms():
    """Names of torch.func's transforms, of which some are at work: "Vmap", "Grad", "Jvp"."""
    return [one.key().name for one in torch._C._functorch.get_interpreter_stack()]


def _keep_fa1(ctx, inputs, output):
    q, k, v, *ctx.how = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def _gradients_fa1(ctx, do, dlse):
    q, k, v, o, lse = ctx.saved_tensors
    if do is None and dlse is None:
        return (None,) * 5
    do = torch.zeros_like(o) if do is None else do
    return *fa1_backward(q, k, v, o, lse, do, dlse, *ctx.how), None, None


def _no_second_gradient(ctx, *grads):
    raise RuntimeError(
        "flashlab's kernels have no double backward: use backend='naive' for gradients of gradients"
    )


fa2.register_autograd(_gradients, setup_context=_keep)
fa3.register_autograd(_gradients_fa3, setup_context=_keep_fa3)
fa1.register_autograd(_gradients_fa1, setup_context=_keep_fa1)
for _op in (delta, fa2_dkdv, fa2_dq, fa1_backward):
    _op.register_autograd(_no_second_gradient)
