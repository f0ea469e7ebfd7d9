"""Packed sequences for the tests of attention_varlen, interpreted and on a GPU: the same checks for both."""

import torch
from kernel_cases import poison

from flashlab.testing import assert_close_to_reference


def bounds(lengths, device="cpu"):
    """cu_seqlens of a list of lengths."""
    return torch.tensor([sum(lengths[:n]) for n in range(len(lengths) + 1)], dtype=torch.int32, device=device)


def draw_packed(lens_q, lens_k, heads, kv_heads, dim, dtype=torch.float32, device="cpu", seed=0, tail=(0, 0)):
    """q, k, v, do of packed sequences, standard normal, and both cu_seqlens; `tail` more rows belong to
    nobody.
    """
    g = torch.Generator().manual_seed(seed)
    total_q, total_k = sum(lens_q) + tail[0], sum(lens_k) + tail[1]
    shapes = [
        (total_q, heads, dim),
        (total_k, kv_heads, dim),
        (total_k, kv_heads, dim),
        (total_q, heads, dim),
    ]
    tensors = [torch.randn(s, generator=g).to(dtype).to(device) for s in shapes]
    return *tensors, bounds(lens_q, device), bounds(lens_k, device)


def all_results(q, k, v, do, cu_q, cu_k, *, causal=False, scale=None, config=None, dlse=None):
    """o, lse, dq, dk, dv of the kernels, on poisoned memory."""
    from flashlab.kernels import fa2_backward, varlen, varlen_backward

    how = dict(causal=causal or None, scale=q.shape[-1] ** -0.5 if scale is None else scale, config=config)
    as_batch = varlen.as_batch
    with poison():
        o, lse = varlen.forward(q, k, v, cu_q, cu_k, **how)
        delta = fa2_backward.delta(as_batch(o), as_batch(do), None if dlse is None else as_batch(dlse))
        delta = delta[0].transpose(0, 1)
        dq = varlen_backward.backward_q(q, k, v, do, lse, delta, cu_q, cu_k, **how)
        dk, dv = varlen_backward.backward_kv(q, k, v, do, lse, delta, cu_q, cu_k, **how)
    return dict(o=o, lse=lse, dq=dq, dk=dk, dv=dv)


def by_sequence(x, cu_seqlens):
    """The sequences of a packed tensor [total, heads, ...], each as [heads, rows, ...]."""
    ends = cu_seqlens.tolist()
    return [x[start:end].transpose(0, 1) for start, end in zip(ends, ends[1:], strict=False)]


def assert_right(got, q, k, v, do, cu_q, cu_k, *, causal=False, scale=None):
    """Each sequence's results against the float64 reference, and nothing for rows of no sequence."""
    for name, like in (("o", q), ("dq", q), ("dk", k), ("dv", v)):
        if name in got:
            assert got[name].shape == like.shape and got[name].dtype == like.dtype, name
    assert got["lse"].shape == q.shape[:2] and got["lse"].dtype == torch.float32
    of_rows = {name: by_sequence(got[name], cu_q) for name in ("o", "lse", "dq") if name in got}
    of_keys = {name: by_sequence(got[name], cu_k) for name in ("dk", "dv") if name in got}
    inputs = zip(
        by_sequence(q, cu_q), by_sequence(k, cu_k), by_sequence(v, cu_k), by_sequence(do, cu_q), strict=True
    )
    for n, (q_n, k_n, v_n, do_n) in enumerate(inputs):
        mine = {name: parts[n] for name, parts in (of_rows | of_keys).items()}
        if q_n.shape[1] == 0:  # no queries: nothing comes out, and no gradient for the keys
            assert all((mine[name] == 0).all() for name in ("dk", "dv") if name in mine)
            continue
        gradients_of = do_n if "dq" in got else None
        assert_close_to_reference(mine, q_n, k_n, v_n, gradients_of, causal=causal, scale=scale)
    end_q, end_k = int(cu_q[-1]), int(cu_k[-1])
    assert (got["lse"][end_q:] == float("-inf")).all()
    for name, end in (("o", end_q), ("dq", end_q), ("dk", end_k), ("dv", end_k)):
        if name in got:
            assert (got[name][end:] == 0).all(), f"{name} after the last sequence"


def check_packed(tensors, **how):
    """Run everything on the (q, k, v, do, cu_q, cu_k) of `draw_packed` and compare; returns the results."""
    got = all_results(*tensors, **how)
    how.pop("config", None)
    assert_right(got, *tensors, **how)
    return got
