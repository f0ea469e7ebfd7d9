"""Attention kernels in Triton. `launch` decides, call by call, whether a kernel is interpreted or compiled."""


def require_triton():
    """Raise RuntimeError, in one sentence, where there is no Triton (macOS, Windows)."""
    try:
        import triton  # noqa: F401
    except ImportError:
        raise RuntimeError(
            "flashlab's kernels need Triton, which exists for Linux only; backend='sdpa' and backend='naive' work here"
        ) from None
