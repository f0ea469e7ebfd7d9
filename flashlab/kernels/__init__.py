"""Attention kernels in Triton. `launch` decides for each call whether it is interpreted or compiled."""

NO_TRITON = "flashlab's kernels need Triton, which exists for Linux only: use backend='sdpa' or 'naive' here"


def triton_version():
    """The version of the installed Triton, None where there is none. Imports it."""
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__


def require_triton():
    """Raise RuntimeError, in one sentence, where there is no Triton (macOS, Windows)."""
    if triton_version() is None:
        raise RuntimeError(NO_TRITON)


def check_versions(triton, numpy):
    """Raise RuntimeError, saying what to install, unless this Triton's interpreter works with this NumPy."""
    if triton is None:
        raise RuntimeError(NO_TRITON)
    have, numpy = (tuple(int(x) for x in v.split(".")[:2]) for v in (triton, numpy))
    if have == (3, 6) and numpy >= (2, 4):
        raise RuntimeError(
            f"the interpreter of triton {triton} fails with NumPy 2.4 and later: "
            "pip install 'triton>=3.7,<3.10' (or 'numpy<2.4')"
        )
    if not (3, 6) <= have <= (3, 9):
        raise RuntimeError(
            f"flashlab interprets kernels with triton 3.7 to 3.9, this is {triton}: "
            "pip install 'triton>=3.7,<3.10'"
        )
