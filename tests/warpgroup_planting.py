"""How a mistake is planted into a copy of the Hopper kernels."""

import importlib
import sys
from pathlib import Path
from typing import NamedTuple

import flashlab.kernels

ENDS = ("_parts", "_orders", "_first", "", "_backward_parts", "_backward", "_backward_dq")
FILES = [Path(flashlab.kernels.__file__).parent / f"hopper{end}.py" for end in ENDS]


class Fault(NamedTuple):
    """`old` in hopper<file>.py becomes `new`: a run in `order`, and so on as `how` says, must raise one of
    `kinds` that `says` this.
    """

    name: str
    file: str
    old: str
    new: str
    kinds: str
    says: tuple
    order: str = "look_ahead"
    how: dict = {}


def plant(fault, folder):
    """Write the kernel's files, with the fault (None: without) in one of them, into a package in `folder`.

    Returns its modules, by the end of their names (ENDS).
    """
    name = "planted_" + "".join(c if c.isalnum() else "_" for c in fault.name) if fault else "planted"
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        if fault and path.stem == "hopper" + fault.file:
            assert source.count(fault.old) == 1, f"{source.count(fault.old)} x {fault.old!r} in {path.name}"
            source = source.replace(fault.old, fault.new)
        source = source.replace("flashlab.kernels.hopper", f"{name}.hopper")
        (folder / name / path.name).write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return {
            path.stem.removeprefix("hopper"): importlib.import_module(f"{name}.{path.stem}") for path in FILES
        }
    finally:
        sys.path.remove(str(folder))
