"""What this machine can do with the course, and what to do about each thing that is missing.

`collect()` looks; `findings(facts)` and `parts(facts)` judge, and look at nothing but their argument.
"""

import html
import importlib.metadata
import platform
import sys
from dataclasses import dataclass, field

from flashlab import bootstrap, machine
from flashlab.text import t

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "matplotlib",
    "jupyterlab",
    "ipywidgets",
    "anywidget",
    "pytest",
    "playwright",
)
MARKS = {"ok": "✓", "note": "·", "missing": "✗"}
FIRST_TENSOR_CORES = (8, 0)  # compute capability from which Triton makes tensor-core code


@dataclass
class Facts:
    """What was found. Versions are strings, None for a package that is not installed."""

    system: str = "Linux"
    python: tuple = (3, 11, 7)
    platform_problem: str | None = None
    versions: dict = field(default_factory=dict)
    gpus: list = field(default_factory=list)  # machine.Gpu
    torch_cuda: str | None = None  # CUDA version that torch was built for
    cuda_available: bool = False
    torch_error: str | None = None  # why torch is installed and does not import
    cjk_font: bool = True
    browser_problem: str | None = None

    def version(self, name):
        """The version of a package as a tuple of int, () if it is not there."""
        return machine.version_tuple(self.versions.get(name) or "")


@dataclass(frozen=True)
class Finding:
    """One line: level "ok", "note" or "missing", what is so, and what to do about it ("" for nothing)."""

    level: str
    text: str
    advice: str = ""


def collect():
    """Look at this machine (imports torch if it is there: about a second) and return Facts."""
    facts = Facts(
        system=platform.system(),
        python=tuple(sys.version_info[:3]),
        platform_problem=machine.platform_problem(),
        versions={name: _version(name) for name in PACKAGES},
        gpus=machine.query_gpus(),
        cjk_font=machine.has_cjk_font(),
        browser_problem=machine.browser_problem(),
    )
    if facts.versions["torch"]:
        try:
            import torch

            facts.torch_cuda = torch.version.cuda
            facts.cuda_available = torch.cuda.is_available()
            if facts.cuda_available and not facts.gpus:
                found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
                facts.gpus = [machine.Gpu(gpu.name, "", (gpu.major, gpu.minor)) for gpu in found]
        except Exception as error:  # whatever a broken installation raises is the finding
            facts.torch_error = f"{type(error).__name__}: {error}".splitlines()[0]
    return facts


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def findings(facts):
    """Return the list of Finding: Python and platform, torch and triton, GPU, JupyterLab, fonts, browser."""
    return [*_platform(facts), *_torch(facts), *_triton(facts), _gpu(facts), *_lab(facts), *_extras(facts)]


def _platform(facts):
    version = ".".join(map(str, facts.python))
    fits = machine.PYTHONS[0] <= facts.python[:2] <= machine.PYTHONS[1]
    yield Finding("ok" if fits else "missing", f"Python {version}", "" if fits else t("doctor.python"))
    if facts.platform_problem:
        yield Finding("missing", facts.platform_problem, t("doctor.platform"))


def _torch(facts):
    torch, tested = facts.versions.get("torch"), bootstrap.TORCH
    if not torch:
        yield Finding("missing", t("doctor.no_torch"), "" if facts.platform_problem else t("doctor.setup"))
    elif facts.torch_error:
        yield Finding("missing", t("doctor.torch_broken", error=facts.torch_error), t("doctor.again"))
    elif not bootstrap.TORCH_RANGE[0] <= facts.version("torch") < bootstrap.TORCH_RANGE[1]:
        yield Finding("missing", f"PyTorch {torch}", t("doctor.torch_range"))
    elif facts.version("torch")[:3] != machine.version_tuple(tested):
        yield Finding("note", t("doctor.untested", name="PyTorch", version=torch, tested=tested))
    else:
        yield Finding("ok", f"PyTorch {torch}")


def _triton(facts):
    triton, tested = facts.versions.get("triton"), bootstrap.TRITON
    if facts.system != "Linux" and not triton:
        yield Finding("note", t("doctor.triton_linux", system=facts.system), t("doctor.use_linux"))
    elif not triton:
        yield Finding("missing", t("doctor.no_triton"), t("doctor.install_triton", version=tested))
    elif not (3, 6) <= facts.version("triton")[:2] <= (3, 9):
        yield Finding(
            "note",
            t("doctor.untested", name="Triton", version=triton, tested=tested),
            t("doctor.triton_range"),
        )
    elif _interpreter_broken(facts):
        advice = t("doctor.triton36_do", version=tested)
        yield Finding("missing", t("doctor.triton36", triton=triton, numpy=facts.versions["numpy"]), advice)
    elif triton != tested:
        yield Finding("note", t("doctor.untested", name="Triton", version=triton, tested=tested))
    else:
        yield Finding("ok", f"Triton {triton}")


def _interpreter_broken(facts):
    """Triton 3.6's interpreter fails with NumPy 2.4 and later."""
    return facts.version("triton")[:2] == (3, 6) and facts.version("numpy") >= (2, 4)


def _gpu(facts):
    if not facts.gpus:
        return Finding("note", t("doctor.no_gpu"))
    best = max(facts.gpus, key=lambda gpu: gpu.capability)
    capability = ".".join(map(str, best.capability))
    gpu = t(
        "doctor.gpu", count=len(facts.gpus), name=best.name, capability=capability, driver=best.driver or "?"
    )
    if facts.cuda_available:
        old = best.capability < FIRST_TENSOR_CORES
        return Finding("note" if old else "ok", gpu, t("doctor.old_gpu") if old else "")
    if not facts.versions.get("torch") or facts.torch_error:
        return Finding("note", gpu)
    if not facts.torch_cuda:
        problem = machine.gpu_problem(facts.gpus)
        return Finding("missing", gpu + t("doctor.cpu_build"), problem or t("doctor.again"))
    if (
        facts.torch_cuda.startswith("13")
        and best.driver
        and machine.version_tuple(best.driver) < (machine.MIN_DRIVER,)
    ):
        advice = t("doctor.update_driver", least=machine.MIN_DRIVER)
        return Finding("missing", gpu + t("doctor.driver_too_old", cuda=facts.torch_cuda), advice)
    return Finding(
        "missing", gpu + t("doctor.cuda_unavailable", cuda=facts.torch_cuda), t("doctor.look_at_driver")
    )


def _lab(facts):
    for name in ("numpy", "matplotlib", "jupyterlab", "ipywidgets", "anywidget"):
        version = facts.versions.get(name)
        yield (
            Finding("ok", f"{name} {version}")
            if version
            else Finding("missing", t("doctor.no_package", name=name), t("doctor.setup"))
        )


def _extras(facts):
    yield (
        Finding("ok", t("doctor.cjk"))
        if facts.cjk_font
        else Finding("note", t("doctor.no_cjk"), t("doctor.install_cjk"))
    )
    if facts.browser_problem:
        yield Finding(
            "note", t("doctor.no_browser"), facts.browser_problem[0].upper() + facts.browser_problem[1:] + "."
        )
    else:
        yield Finding("ok", t("doctor.browser"))


def parts(facts):
    """Return [(part of the course, True | False, how or why not)]."""
    torch = bool(facts.versions.get("torch")) and not facts.torch_error
    widgets = all(facts.versions.get(name) for name in ("jupyterlab", "ipywidgets", "anywidget"))
    triton = torch and bool(facts.versions.get("triton"))
    interpreted = triton and not _interpreter_broken(facts)
    best = max((gpu.capability for gpu in facts.gpus), default=())
    compiled = triton and facts.cuda_available and best >= FIRST_TENSOR_CORES
    tests = bool(facts.versions.get("pytest"))
    browser = bool(facts.versions.get("playwright")) and not facts.browser_problem
    rows = [
        ("numpy", bool(facts.versions.get("numpy"))),
        ("surprise", torch),
        ("widgets", widgets),
        ("interpreted", interpreted),
        ("compiled", compiled),
        ("tests", tests),
        ("browser_tests", tests and browser),
    ]
    return [
        (t(f"doctor.parts.{key}"), runs, "" if runs else t(f"doctor.without.{key}")) for key, runs in rows
    ]


class Report:
    """Findings and parts; prints as text, shows as HTML in a notebook."""

    def __init__(self, facts):
        self.findings, self.parts = findings(facts), parts(facts)

    def __str__(self):
        lines = [t("doctor.title"), ""]
        for found in self.findings:
            lines.append(f"  {MARKS[found.level]} {found.text}")
            if found.advice:
                lines.append(f"      → {found.advice}")
        lines += ["", t("doctor.parts_title"), ""]
        for part, runs, why in self.parts:
            lines.append(f"  {MARKS['ok' if runs else 'note']} {part}" + (f": {why}" if why else ""))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self):
        rows = [(t(f"doctor.levels.{f.level}"), f.text, f.advice) for f in self.findings]
        more = [
            (t("doctor.runs") if runs else t("doctor.runs_not"), part, why) for part, runs, why in self.parts
        ]
        return _table(t("doctor.title"), rows) + _table(t("doctor.parts_title"), more)


def _table(caption, rows):
    cells = ("".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<table><caption style="text-align:left"><b>{html.escape(caption)}</b></caption>{body}</table>'


def report():
    """Look at this machine and return a Report: `print(report())`, or the last line of a notebook cell."""
    return Report(collect())
