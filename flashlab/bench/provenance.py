"""Where a number comes from: machine, versions, date and command, kept beside every measurement."""

import datetime
import os
import platform
import subprocess
import sys


def provenance():
    """A dict with gpu, driver, clocks, torch, triton, cudnn, python, date, command and git commit; None
    where there is none.
    """
    import torch

    cuda = torch.cuda.is_available()
    smi = (
        _output(
            "nvidia-smi --query-gpu=driver_version,clocks.sm,clocks.max.sm,power.limit --format=csv,noheader"
        )
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
        "cpu": platform.processor() or platform.machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": "python -m flashlab.bench " + " ".join(without_out(sys.argv[1:])),
        "commit": os.environ.get("FLASHLAB_COMMIT") or _output("git rev-parse --short HEAD"),
    }


def without_out(arguments):
    """The arguments without `--out FILE`: where a result was put does not belong to how it came about."""
    at = arguments.index("--out") if "--out" in arguments else len(arguments)
    return arguments[:at] + arguments[at + 2 :]


def _output(command):
    try:
        done = subprocess.run(command.split(), capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(package):
    try:
        return __import__(package).__version__
    except ImportError:
        return None
