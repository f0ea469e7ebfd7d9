"""The recorded numbers of the shipped kernels' machine code, one file for each version of Triton.

golden/<version>.tsv has a line for each case of `flashlab.kernels.shipped`; `python -m flashlab.kernels.gate
--record` writes it. A compiler of another version gives other numbers, so there is nothing to compare then.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
# tensor core of Hopper, waits for it, tensor core before Hopper, exp2, scale and rescale
COUNTED = ("HGMMA", "WARPGROUP", "HMMA", "MUFU", "FFMA")
EXACT = ("spills", "HGMMA", "WARPGROUP", "HMMA")
NUMBERS = ("registers", "spills", "shared", *COUNTED)
TOLERANCE = 0.05  # of MUFU and FFMA


def row(report):
    """The numbers of a `gate.Report` that are recorded: a dict with the keys NUMBERS."""
    of_kernel = dict(registers=report.registers, spills=report.spills, shared=report.shared)
    return of_kernel | {name: report.count(name) for name in COUNTED}


def path(version):
    return FOLDER / f"{version}.tsv"


def load(version):
    """Case -> numbers, as recorded for a version of Triton; empty if nothing is. Raises ValueError if the
    file is not what `save` writes.
    """
    if not path(version).exists():
        return {}
    header, *lines = path(version).read_text().splitlines()
    if header.split("\t") != ["case", *NUMBERS]:
        raise ValueError(f"expected {path(version).name} to begin with case, {', '.join(NUMBERS)}: {header}")
    rows = (line.split("\t") for line in lines)
    return {case: dict(zip(NUMBERS, map(int, numbers), strict=True)) for case, *numbers in rows}


def save(version, rows):
    """Write case -> numbers."""
    lines = ["\t".join(["case", *NUMBERS])]
    lines += ["\t".join([case, *(str(numbers[name]) for name in NUMBERS)]) for case, numbers in rows.items()]
    FOLDER.mkdir(exist_ok=True)
    path(version).write_text("\n".join(lines) + "\n")


def differences(report, recorded):
    """How a report differs from what is recorded, as sentences; `recorded` None says that nothing is."""
    if recorded is None:
        return ["nothing is recorded for it: python -m flashlab.kernels.gate --record"]
    found = []
    for name, got in row(report).items():
        want = recorded[name]
        if name in EXACT and got != want:
            found.append(f"{name}: {got}, recorded {want}")
        elif name in ("MUFU", "FFMA") and abs(got - want) > max(2, TOLERANCE * want):
            found.append(f"{name}: {got}, recorded about {want}")
    return found
