"""What "right" means here: the error that plain PyTorch makes in the same number format, times a small
factor, plus known rounding.

With `plain` = matmul, softmax, matmul in that format and u its eps, a result x is right when

    max|x - ref| <= f max|plain - ref| + u max|ref| + (u16 + g) max C

where ref is float64, f = 2 for o and 3 for gradients, u16 = u for 16-bit formats else 0, g = 2^-23 (4 + 2
max(|Q||K|^T |scale|)) is what recomputing a probability from scores and lse can lose, and C says how much a
probability's error can weigh in each result. The log-sum-exp has an error of at most 2 g in every format.
"""

import numpy as np

from flashlab import reference
from flashlab.problem import default_scale

FACTOR = {"o": 2, "dq": 3, "dk": 3, "dv": 3}


def assert_close_to_reference(got, q, k, v, do=None, *, causal=False, scale=None):
    """Assert that `got`, a dict with any of o, lse, dq, dk, dv, is right for q, k, v (and the gradient
    `do` of o).

    Arrays may be NumPy arrays or PyTorch tensors [..., N, D]; the number format is that of q. Raises
    AssertionError that names the result, its largest error and what was allowed.
    """
    want, allowed = expected(q, k, v, do, causal=causal, scale=scale)
    for name, value in got.items():
        value = as_float64(value)
        assert value.shape == want[name].shape, f"{name}: expected {want[name].shape}, got {value.shape}"
        both_empty = (value == -np.inf) & (want[name] == -np.inf)
        error = np.where(both_empty, 0, np.abs(value - np.where(both_empty, 0, want[name])))
        assert not np.isnan(error).any(), f"{name}: {np.isnan(error).sum()} of {error.size} values are nan"
        worst = error.max(initial=0)
        assert worst <= allowed[name], f"{name}: largest error {worst:.3g}, allowed {allowed[name]:.3g}"


def expected(q, k, v, do=None, *, causal=False, scale=None):
    """The float64 results and the largest error allowed for each: two dicts with o, lse and, given `do`,
    dq, dk, dv.
    """
    dtype = number_format(q)
    q64, k64, v64 = (as_float64(x) for x in (q, k, v))
    scale = default_scale(q64.shape[-1]) if scale is None else scale
    how = dict(causal=causal, scale=scale)
    o, lse = reference.attention(q64, k64, v64, **how)
    want = dict(o=o, lse=lse)
    if do is not None:
        grads = reference.attention_backward(q64, k64, v64, o, lse, as_float64(do), **how)
        want |= dict(zip(("dq", "dk", "dv"), grads, strict=True))
    plain = plain_torch(q, k, v, do, want, **how)
    u, g, weight = rounding(dtype, q64, k64, v64, want, do, **how)
    band = {name: u * np.abs(x).max(initial=0) for name, x in want.items() if name != "lse"}
    allowed = {
        name: FACTOR[name] * np.abs(plain[name] - want[name]).max(initial=0)
        + band[name]
        + ((u if u > 1e-6 else 0) + g) * weight[name].max(initial=0)
        for name in band
    }
    return want, allowed | {"lse": 2 * g}


def rounding(dtype, q, k, v, want, do, *, causal, scale):
    """u (eps of the format), g (loss of a recomputed probability) and C, how much a probability's error
    can weigh in each result.
    """
    import torch

    u = torch.finfo(dtype).eps
    kv_shape = k.shape
    q, k, v = reference.check_qkv(q, k, v)
    size = (np.abs(q) @ np.abs(k).swapaxes(-1, -2)).max(initial=0)
    g = 2.0**-23 * (4 + 2 * abs(scale) * size)
    s, _ = reference.scores(q, k, causal, scale)
    p = np.exp(s - np.where(want["lse"] == -np.inf, np.inf, want["lse"])[..., None])
    weight = dict(o=p @ np.abs(v))
    if do is not None:
        do = np.abs(as_float64(do))
        a = p * (do @ np.abs(v).swapaxes(-1, -2) + (do * np.abs(want["o"])).sum(-1, keepdims=True))
        weight["dq"] = a @ np.abs(k) * abs(scale)
        weight["dk"] = reference.sum_shared_heads(a.swapaxes(-1, -2) @ np.abs(q) * abs(scale), kv_shape)
        weight["dv"] = reference.sum_shared_heads(p.swapaxes(-1, -2) @ do, kv_shape)
    return u, g, weight


def plain_torch(q, k, v, do, want, *, causal, scale):
    """Matmul, softmax, matmul in the format of q, and its gradients: what a careful PyTorch user would
    get. Empty rows give 0.
    """
    import torch

    leaves = [as_tensor(x).detach().clone().requires_grad_(do is not None) for x in (q, k, v)]
    q, k, v = leaves
    if q.ndim > 2:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    _, may_see = reference.scores(as_float64(q), as_float64(k), causal, scale)
    may_see = torch.from_numpy(may_see)
    s = (q @ k.mT * scale).masked_fill(~may_see, float("-inf"))
    empty = ~may_see.any(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(empty, 0), -1).masked_fill(empty, 0)
    o = p @ v
    out = dict(o=as_float64(o))
    if do is not None:
        grads = torch.autograd.grad(o, leaves, as_tensor(do).to(o.dtype))
        out |= {name: as_float64(x) for name, x in zip(("dq", "dk", "dv"), grads, strict=True)}
    return out


def as_tensor(x):
    """A CPU tensor in the same number format."""
    import torch

    return x.detach().cpu() if isinstance(x, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(x))


def as_float64(x):
    """A float64 NumPy array from an array or a tensor of any format."""
    return np.asarray(x, np.float64) if isinstance(x, np.ndarray) else as_tensor(x).double().numpy()


def number_format(x):
    """The torch dtype of an array or tensor."""
    return as_tensor(x).dtype
