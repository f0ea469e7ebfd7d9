"""Where a number comes from: machine, versions, date and command, kept beside every measurement."""

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

import flashlab

PACKAGE = Path(flashlab.__file__).parent
CSV = "--format=csv,noheader"


def provenance(command=None):
    """A dict with gpu, driver, clocks, torch, triton, cudnn, python, cpu, its cores and PyTorch's threads,
    date, command, flashlab's version and git commit; None where there is none. No host names, no paths.
    """
    import torch

    cuda = torch.cuda.is_available()
    smi = (
        _output(["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.max.sm,power.limit", CSV])
        if cuda
        else None
    )
    driver, sm, sm_max, power = smi.splitlines()[0].split(", ") if smi else [None] * 4
    return {
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "driver": driver,
        "sm_clock": sm,
        "sm_clock_max": sm_max,
        "power_limit": power,
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command or "python -m flashlab.bench " + " ".join(without_out(sys.argv[1:])),
        "flashlab": flashlab.__version__,
        "commit": commit(),
    }


def commit():
    """The git commit of this flashlab, with "-dirty" where files were changed since; None where it is no
    checkout (it may lie in someone else's).
    """
    if os.environ.get("FLASHLAB_COMMIT"):
        return os.environ["FLASHLAB_COMMIT"]
    top = _output(["git", "-C", str(PACKAGE.parent), "rev-parse", "--show-toplevel"])
    if not top or Path(top).resolve() != PACKAGE.parent.resolve():
        return None
    git = ["git", "--no-optional-locks", "-C", top]
    return _output([*git, "describe", "--always", "--dirty", "--exclude=*"])


def cpu_name():
    """The model of the CPU where the system says it ("AMD EPYC"), else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = _output(["sysctl", "-n", "machdep.cpu.brand_string"]) if sys.platform == "darwin" else None
        return model or platform.processor() or platform.machine()


def without_out(arguments):
    """The arguments without `--out FILE`: where a result was put does not belong to how it came about."""
    at = arguments.index("--out") if "--out" in arguments else len(arguments)
    return arguments[:at] + arguments[at + 2 :]


def _output(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(package):
    try:
        return __import__(package).__version__
    except ImportError:
        return None
