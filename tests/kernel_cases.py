"""What every attention kernel must get right: cases shared by the interpreted tests and the tests on a
GPU.
"""

import numpy as np
import torch

from flashlab.testing import assert_close_to_reference

CAUSAL = (False, "top-left", "bottom-right")

# (B, Hq, Hkv, Nq, Nk, D); with blocks of 16: one row, one short of a block, a block, one more, several and
# a rest.
SIZES = [
    (1, 1, 1, 1, 1, 8),
    (1, 1, 1, 15, 15, 16),
    (1, 1, 1, 16, 16, 16),
    (1, 2, 1, 17, 17, 24),
    (1, 1, 1, 35, 35, 2),
    (2, 1, 1, 3, 38, 1),
    (1, 2, 2, 38, 3, 72),
    (1, 6, 2, 18, 20, 80),
    (1, 1, 1, 5, 18, 256),
    (1, 1, 1, 2, 1, 8),
]


def draw(shape, dtype=torch.float32, device="cpu", seed=0, size=1.0):
    """q, k, v for (B, Hq, Hkv, Nq, Nk, D): standard normal, q times `size`."""
    batch, heads, kv_heads, num_queries, num_keys, dim = shape
    g = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, num_queries, dim), *[(batch, kv_heads, num_keys, dim)] * 2
    q, k, v = (torch.randn(s, generator=g) for s in shapes)
    return tuple(x.to(dtype).to(device) for x in (q * size, k, v))


def poison():
    """Outputs are NaN before a kernel writes them: torch fills new tensors when it is deterministic."""

    class Poison:
        def __enter__(self):
            self.before = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = True

        def __exit__(self, *exc):
            torch.use_deterministic_algorithms(self.before)

    return Poison()


def check_forward(forward, q, k, v, **how):
    """Run forward(q, k, v, **how) -> o, lse on poisoned memory and compare with the float64 reference."""
    with poison():
        o, lse = forward(q, k, v, **how)
    assert o.dtype == q.dtype and o.shape == q.shape
    assert lse.dtype == torch.float32 and lse.shape == q.shape[:3]
    how.pop("config", None)
    assert_close_to_reference({"o": o, "lse": lse}, q, k, v, **how)
    return o, lse


def gradients(q, k, v, do, *, causal=False, scale=None, dlse=None, **how):
    """All results of the FA2 kernels, on poisoned memory: a dict with o, lse, dq, dk, dv."""
    from flashlab.kernels import fa2, fa2_backward

    how |= dict(causal=causal or None, scale=q.shape[-1] ** -0.5 if scale is None else scale)
    with poison():
        o, lse = fa2.forward(q, k, v, **how)
        delta = fa2_backward.delta(o, do, dlse)
        dq = fa2_backward.backward_q(q, k, v, do, lse, delta, **how)
        dk, dv = fa2_backward.backward_kv(q, k, v, do, lse, delta, **how)
    return dict(o=o, lse=lse, dq=dq, dk=dk, dv=dv)


def check_all(q, k, v, *, do=None, causal=False, scale=None, config=None):
    """Compare all results with the float64 reference and return them; do is random if not given."""
    if do is None:
        do = torch.randn(q.shape, generator=torch.Generator().manual_seed(99)).to(q.dtype).to(q.device)
    got = gradients(q, k, v, do, causal=causal, scale=scale, config=config)
    for name, like in (("dq", q), ("dk", k), ("dv", v)):
        assert got[name].dtype == like.dtype and got[name].shape == like.shape
    assert_close_to_reference(got, q, k, v, do, causal=causal, scale=scale)
    return got


def strided(x, kind):
    """The same numbers as `x` [B, H, N, D] in another memory order."""
    batch, heads, num_rows, dim = x.shape
    if kind == "rows before heads":  # [B, N, H, D], what a projection gives
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if kind == "columns first":  # the last axis is not the one that is next to each other
        return x.mT.contiguous().mT
    if kind == "slice of qkv":
        return torch.stack([x, x + 1, x - 1], 3)[:, :, :, 0]
    if kind == "off by one element":  # not aligned to 16 bytes
        buffer = torch.zeros(x.numel() + 1, dtype=x.dtype, device=x.device)
        buffer[1:] = x.flatten()
        return buffer[1:].view(x.shape)
    if kind == "every other row":
        return x.repeat_interleave(2, 2)[:, :, ::2]
    raise ValueError(kind)


STRIDES = ("rows before heads", "columns first", "slice of qkv", "off by one element", "every other row")


def assert_rows_without_keys(o, lse, empty):
    """Rows `empty` (bool [Nq]) gave o = 0 and lse = -inf, the others did not."""
    assert (o[..., empty, :] == 0).all() and (lse[..., empty] == -np.inf).all()
    assert torch.isfinite(lse[..., ~empty]).all()
