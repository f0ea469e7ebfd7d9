"""What the kernel calls its buffers and barriers, and where it stands: for messages only.

A buffer is named after the first variable that holds it, looked for from the kernel inwards.
"""

import sys

KERNEL_CODE = set()  # the code of every function that runs as a part of a kernel


def kernel_frames(frame):
    """The frames of kernel functions, from the innermost outwards."""
    while frame is not None:
        if frame.f_code in KERNEL_CODE:
            yield frame
        frame = frame.f_back


def place(thread_id):
    """ "release, line 12": where in the kernel this thread is; None outside of kernels."""
    for frame in kernel_frames(sys._current_frames().get(thread_id)):
        return f"{frame.f_code.co_name}, line {frame.f_lineno}"
    return None


def find_name(thing):
    """Name `thing` after the variable of the running kernel that holds it, or a part of it."""
    for frame in reversed(list(kernel_frames(sys._getframe()))):
        for variable, value in frame.f_locals.items():
            for name, held in parts(variable, value):
                if getattr(held, "root", None) is thing:
                    thing.name = name
                    return


def give_names():
    """Name everything that the running kernel function holds in variables."""
    for frame in kernel_frames(sys._getframe()):
        named = [pair for variable, value in frame.f_locals.items() for pair in parts(variable, value)]
        for name, held in sorted(named, key=lambda pair: "[" in pair[0]):  # a variable of its own comes first
            root = getattr(held, "root", None)
            if root is not None and root.name is None:
                root.name = name
        return


def parts(name, value):
    """(name, object) of `value` and of what tuples and aggregates hold."""
    yield name, value
    if isinstance(value, tuple | list):
        for i, part in enumerate(value):
            yield from parts(f"{name}[{i}]", part)
    elif getattr(type(value), "__triton_aggregate__", False):
        for field, part in vars(value).items():
            yield from parts(f"{name}.{field}", part)
