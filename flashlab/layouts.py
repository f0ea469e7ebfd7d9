"""Two layouts for one thing: SDPA's [B, H, N, D] ("bhnd") and flash-attn's [B, N, H, D] ("bnhd").

Given the other's layout neither library complains: both axes are sizes, and attention over heads instead of
tokens is attention too. `to_bhnd` and `to_bnhd` convert and refuse where the swap can be seen; `check_layout`
looks without converting; `silent_swap` shows what happens to those who do neither.

What can be seen. Sizes that you state (heads=, tokens=, dim=) settle it, unless heads and tokens are equal.
Without them: heads of k and v that do not divide those of q; k and v with different axes; more heads than any
model has (MAX_HEADS) where the other axis would do. What cannot: one tensor whose two axes could both be
either, such as [2, 16, 12, 64]. Then nothing is said, because nothing is known. More heads than tokens, and
memory that lies in the other order, happen in right programs too (decoding; a view that was converted
already): they are refused with strict=True only.
"""

from flashlab.errors import unknown_name

LAYOUTS = ("bhnd", "bnhd")
MAX_HEADS = 256  # no model known to us has more; DeepSeek-V3 has 128


class LayoutError(ValueError):
    """The tensor looks as if it were in the other layout."""


def to_bhnd(x, *, heads=None, tokens=None, dim=None, contiguous=False, strict=False):
    """[B, N, H, D] -> [B, H, N, D], for scaled_dot_product_attention: a view of the same memory.

    `contiguous=True` copies. `heads`, `tokens`, `dim`: what you expect, checked. Raises LayoutError where x
    looks as if it were [B, H, N, D] already, ValueError where it is not 4-dimensional or of other sizes.
    """
    return _converted(x, "bnhd", heads, tokens, dim, contiguous, strict)


def to_bnhd(x, *, heads=None, tokens=None, dim=None, contiguous=False, strict=False):
    """[B, H, N, D] -> [B, N, H, D], for flash-attn: a view of the same memory. Otherwise like `to_bhnd`."""
    return _converted(x, "bhnd", heads, tokens, dim, contiguous, strict)


def _converted(x, layout, heads, tokens, dim, contiguous, strict):
    check_tensor(x, layout, heads=heads, tokens=tokens, dim=dim, strict=strict)
    turned = x.transpose(1, 2)
    return turned.contiguous() if contiguous else turned


def check_layout(q, k, v, layout="bhnd", *, Hq=None, Hkv=None, Nq=None, Nk=None, D=None, strict=False):
    """Are q, k and v of one call in `layout`? Returns True where stated sizes settle it, None where nothing
    speaks against it but nothing settles it either.

    Raises LayoutError that says which axes look swapped, ValueError for sizes that fit neither layout.
    """
    settled = [
        check_tensor(x, layout, heads=h, tokens=n, dim=D, name=name, strict=strict)
        for name, x, h, n in (("q", q, Hq, Nq), ("k", k, Hkv, Nk), ("v", v, Hkv, Nk))
    ]
    if tuple(k.shape[:3]) != tuple(v.shape[:3]):
        swapped = (v.shape[0], v.shape[2], v.shape[1]) == tuple(k.shape[:3])
        hint = "axes 1 and 2 of one of them look swapped" if swapped else "they must have the same B, H and N"
        raise (LayoutError if swapped else ValueError)(f"k is {list(k.shape)}, v is {list(v.shape)}: {hint}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"expected q and k with one B and one D, got q {list(q.shape)}, k {list(k.shape)}")
    (hq, nq), (hkv, nk) = _heads_tokens(q, layout), _heads_tokens(k, layout)
    if hq % hkv:
        if nq % nk == 0:
            raise LayoutError(
                f"read as {layout}, {hkv} K/V heads do not divide {hq} query heads, but {nk} divides {nq}: "
                f"axes 1 and 2 of q, k and v look swapped; they look like {_other(layout)}"
            )
        raise ValueError(f"read as {layout}, {hkv} K/V heads do not divide {hq} query heads")
    if hq == hkv and nq != nk and nq % nk == 0 and hq > nq and _settles(settled) is None:
        raise LayoutError(
            f"read as {layout}, q has {hq} heads and {nq} tokens, k {hkv} heads and {nk} tokens: read as "
            f"{_other(layout)}, {hq} tokens with {nq} query and {nk} K/V heads. Axes 1 and 2 look swapped; "
            "state Hq= and Nq= if they are not"
        )
    return _settles(settled)


def _settles(answers):
    return True if all(answers) else None


def check_tensor(x, layout, *, heads=None, tokens=None, dim=None, name="the tensor", strict=False):
    """The same for one tensor: True where `heads` or `tokens` settle it, None where nothing does."""
    if layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    if not hasattr(x, "stride"):
        raise TypeError(f"expected {name} as a PyTorch tensor, got {type(x).__name__}")
    shape = list(x.shape)
    if len(shape) != 4:
        raise ValueError(f"expected {name} with 4 axes, {layout}, got {shape}")
    h, n = _heads_tokens(x, layout)
    at = f"{name} of shape {shape}, read as {layout}, has {h} heads and {n} tokens"
    looks = f"axes 1 and 2 look swapped; it looks like {_other(layout)}"
    if dim is not None and shape[3] != dim:
        raise ValueError(f"expected {name} with D = {dim} as last axis, got {shape}")
    if heads not in (None, h) or tokens not in (None, n):
        if heads in (None, n) and tokens in (None, h):
            raise LayoutError(f"{at}; expected {_stated(heads, tokens)}: {looks}")
        raise ValueError(f"{at}; expected {_stated(heads, tokens)}")
    if heads is not None or tokens is not None:
        return True if h != n else None
    if h > MAX_HEADS >= n:
        raise LayoutError(f"{at}, more heads than any model has: {looks}")
    if strict and h > n:
        raise LayoutError(f"{at}, more heads than tokens: {looks}, or this is a short sequence: state heads=")
    if strict and _turned(x):
        raise LayoutError(
            f"{at}, but its memory lies in the other order: {looks}, or it was converted before"
        )
    return None


def _turned(x):
    """Does axis 2 step further in memory than axis 1, as in a transposed view?"""
    return x.shape[1] > 1 and x.shape[2] > 1 and x.stride(1) < x.stride(2)


def _heads_tokens(x, layout):
    return (x.shape[1], x.shape[2]) if layout == "bhnd" else (x.shape[2], x.shape[1])


def _other(layout):
    return LAYOUTS[1 - LAYOUTS.index(layout)]


def _stated(heads, tokens):
    both = (("heads", heads), ("tokens", tokens))
    return " and ".join(f"{count} {what}" for what, count in both if count is not None)


def silent_swap(B=2, N=16, H=12, D=64, seed=0):
    """Give [B, N, H, D] to SDPA as it is, and rightly; returns what came out, a dict.

    Keys: shape_right, shape_wrong (equal), spread_right, spread_wrong (standard deviations of the output:
    both look like averages of v), difference (largest, in units of spread_right), attended_right and
    attended_wrong (over how many positions each query looked: all tokens, or the heads of its own).
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(B, N, H, D, generator=generator) for _ in range(3))
    right = to_bnhd(sdpa(*(to_bhnd(x, heads=H, tokens=N) for x in (q, k, v))))
    wrong = sdpa(q, k, v)
    spread = right.std().item()
    return {
        "shape_right": tuple(right.shape),
        "shape_wrong": tuple(wrong.shape),
        "spread_right": spread,
        "spread_wrong": wrong.std().item(),
        "difference": (right - wrong).abs().max().item() / spread,
        "attended_right": N,
        "attended_wrong": H,
    }
