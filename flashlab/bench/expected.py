"""What one head's attention should give, in float32, for lengths whose score matrix would not fit: a few rows
of it at a time.
"""

ROWS = 1024


def one_head(q, k, v, causal, do=None, rows=ROWS):
    """(o,), or (o, dq, dk, dv) where `do` is given, in float32, for q, k, v and do [1, 1, N, D] of any dtype.

    Causal: row i sees keys up to i. Needs memory for `rows` * N numbers.
    """
    import torch

    q, k, v = (x.detach().float() for x in (q, k, v))
    n, scale = q.shape[-2], q.shape[-1] ** -0.5
    o, dq, dk, dv = (torch.zeros_like(x) for x in (q, q, k, v))
    columns = torch.arange(k.shape[-2], device=q.device)
    for start in range(0, n, rows):
        mine = slice(start, min(start + rows, n))
        s = q[..., mine, :] @ k.mT * scale
        if causal:
            seen = columns <= torch.arange(mine.start, mine.stop, device=q.device)[:, None]
            s = s.masked_fill(~seen, float("-inf"))
        p = torch.softmax(s, -1)
        o[..., mine, :] = p @ v
        if do is not None:
            g = do[..., mine, :].float()
            dv += p.mT @ g
            ds = p * (g @ v.mT - (g * o[..., mine, :]).sum(-1, keepdim=True))
            dq[..., mine, :] = ds @ k * scale
            dk += ds.mT @ q[..., mine, :] * scale
    return (o,) if do is None else (o, dq, dk, dv)


def error(results, want, patience):
    """The largest error of `results` against `want`, tensor by tensor. Raises AssertionError where it is more
    than `patience` times eps of the largest value: no rounding any more.
    """
    import torch

    worst = 0.0
    for got, right in zip(results, want, strict=True):
        off = (got.float() - right).abs().max().item()
        allowed = patience * torch.finfo(got.dtype).eps * max(right.abs().max().item(), 1)
        if not off <= allowed:
            raise AssertionError(f"wrong result: largest error {off:.3g}, allowed {allowed:.3g}")
        worst = max(worst, off)
    return worst
