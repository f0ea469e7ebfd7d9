"""Fill .venv from a fresh clone, with nothing but the standard library; parses on Python 3.8.

Order: is this machine able (Python, platform, disk)? -> an empty .venv -> torch and triton, the tested pair,
if the .venv has no torch yet -> everything else, as constraints.txt says -> a stamp that says what is in.
What pip prints goes to .venv/install.log; what went wrong is one sentence (SetupError).
"""

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import machine, pip_run
from .pip_run import SetupError

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"

# The tested pair, the one PyTorch itself ships: this is the one place where it is pinned.
TORCH = "2.13.0"
TRITON = "3.7.1"
TORCH_RANGE = ((2, 11), (3,))  # as in pyproject.toml
# PyTorch's own index of CPU wheels: asked only where there is no GPU and pip's index offers no CPU build.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# kind of torch -> (GB to fetch, GB on disk) with everything else, of which REST; measured on Linux x86_64.
SIZES = {"cpu": (0.49, 2.4), "cuda": (2.83, 5.4), "other": (0.3, 1.5)}
REST = 0.1


def venv_python(venv=VENV):
    """Return the path of the interpreter inside a .venv, whether or not it is there."""
    return Path(venv, "Scripts", "python.exe") if os.name == "nt" else Path(venv, "bin", "python")


def fingerprint(root=ROOT):
    """Return a hash of what decides what is installed: both lists, the pinned pair, the clone's place."""
    digest = hashlib.sha256(repr((TORCH, TRITON, str(root))).encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update(Path(root, name).read_bytes())
    return digest.hexdigest()


def read_stamp(venv=VENV):
    """Return (fingerprint, set of extras) of what was installed last, or (None, set())."""
    try:
        stamp = json.loads(Path(venv, "flashlab.json").read_text())
        return stamp["fingerprint"], set(stamp["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, set()


def torch_kind(system=None, gpus=None):
    """Return ("cpu" | "cuda" | "other", sentence or None): the build to ask for, and why a GPU is no use."""
    if (system or platform.system()) != "Linux":
        return "other", None
    gpus = machine.query_gpus() if gpus is None else gpus
    why = machine.gpu_problem(gpus)
    return ("cuda", None) if gpus and not why else ("cpu", why)


def disk_problem(kind, venv=VENV, tmp=None, free=None):
    """Return (sentence or None, folder for pip's temporary files).

    pip keeps every download there until all is installed. Where the usual temporary folder is too small (on
    some systems a tmpfs), one inside .venv is used. `free` maps a folder to its free bytes.
    """
    tmp = Path(tmp or tempfile.gettempdir())
    home = Path(venv).parent
    free = free or (lambda folder: shutil.disk_usage(str(folder)).free)
    fetch, disk = (size * 1e9 for size in SIZES[kind])
    own = same_disk(tmp, home) or free(tmp) < 1.1 * fetch
    need = disk + (1.1 * fetch if own else 0)
    if free(home) < need:
        text = "Not enough disk space: {} has {:.1f} GB free, and the set-up needs {:.1f} GB"
        text = text.format(home, free(home) / 1e9, need / 1e9)
        if free(tmp) < 1.1 * fetch and not same_disk(tmp, home):
            text += " (or {:.1f} GB there and {:.1f} GB in TMPDIR, {})".format(
                disk / 1e9, 1.1 * fetch / 1e9, tmp
            )
        return text + ".", None
    return None, Path(venv, "tmp") if own else tmp


def same_disk(a, b):
    """Whether two folders lie on one file system."""
    return os.stat(str(a)).st_dev == os.stat(str(b)).st_dev


def make_venv(venv=VENV, has_ensurepip=None):
    """Make a .venv with nothing but pip; without ensurepip (Debian: python3-venv) by `pip --python`."""
    if has_ensurepip is None:
        has_ensurepip = importlib.util.find_spec("ensurepip") is not None
    if importlib.util.find_spec("venv") is None or not (has_ensurepip or importlib.util.find_spec("pip")):
        raise SetupError(
            "This Python ({}) can make no virtual environment: install its venv or its pip "
            "(Debian, Ubuntu: apt-get install python3-venv).".format(sys.executable)
        )
    venv = Path(venv)
    venv.mkdir()
    unfinished(venv).write_text("the first set-up of this folder has not finished\n")
    log = venv / "install.log"
    flags = [] if has_ensurepip else ["--without-pip"]
    pip_run.quiet([sys.executable, "-m", "venv", *flags, str(venv)], log, "Python could not make .venv")
    if not has_ensurepip:
        pip = [sys.executable, "-m", "pip", "--python", str(venv_python(venv))]
        pip_run.run_pip(pip, ["install", "pip"], log, tmp=None)


def unfinished(venv=VENV):
    """Return the path of the file that stands in a .venv of ours until it has torch."""
    return Path(venv, "flashlab-unfinished")


def installed_torch(venv=VENV):
    """Return the version of the torch inside a .venv, or None; SetupError if its Python is no use."""
    code = (
        "import sys, importlib.metadata as m\nprint(*sys.version_info[:3])\n"
        "try: print(m.version('torch'))\nexcept m.PackageNotFoundError: pass"
    )
    command = [str(venv_python(venv)), "-c", code]
    try:
        lines = (
            subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            .stdout.decode()
            .split("\n")
        )
    except OSError:
        lines = [""]
    version = tuple(int(part) for part in lines[0].split())
    if not version:
        raise SetupError("The Python inside {} does not run: delete that folder and try again.".format(venv))
    if machine.python_problem(version, which=lambda name: None):
        text = "{} has Python {}.{}, and flashlab needs 3.11 to 3.14: delete that folder and try again."
        raise SetupError(text.format(venv, *version[:2]))
    return lines[1].strip() or None


def torch_request(kind, pip, log):
    """Return pip's arguments for the tested pair; for a CPU, the CPU build wherever one is offered."""
    triton = ["triton=={}".format(TRITON)] if platform.system() == "Linux" else []
    plain = ["torch=={}".format(TORCH), *triton]
    if kind != "cpu":
        return plain
    cpu = "{}+cpu".format(TORCH)
    for where in ([], ["--index-url", CPU_INDEX, "--retries", "0", "--timeout", "6"]):
        if cpu in pip_run.output_of([*pip, "index", "versions", "torch", *where], log):
            extra = ["--extra-index-url", CPU_INDEX] if where else []
            return ["torch=={}".format(cpu), *triton, *extra]
    return plain


def install(extras, say=print, root=ROOT, venv=VENV):
    """Bring .venv up to what the lists say, with these extras; return False if there was nothing to do."""
    stamp, had = read_stamp(venv)
    wanted = had | set(extras)
    if stamp == fingerprint(root) and wanted == had and venv_python(venv).exists():
        return False
    if unfinished(venv).exists():
        say("An earlier set-up did not finish: starting again.")
        shutil.rmtree(str(venv))
    new = not Path(venv).exists()
    torch = None if new else installed_torch(venv)
    kind, tmp = "other", Path(tempfile.gettempdir())
    if torch is None:
        kind, tmp = _check_machine(say, venv, new)
    elif not TORCH_RANGE[0] <= machine.version_tuple(torch) < TORCH_RANGE[1]:
        raise SetupError(
            "The torch in .venv is {}, flashlab needs 2.11 or later: upgrade it or delete .venv.".format(
                torch
            )
        )
    if new:
        make_venv(venv)
    tmp.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="flashlab-", dir=str(tmp)))
    try:
        _fill(torch, kind, wanted, say, Path(root), Path(venv), scratch)
    finally:
        shutil.rmtree(str(scratch), ignore_errors=True)
    stamp = {"fingerprint": fingerprint(root), "extras": sorted(wanted), "torch": installed_torch(venv)}
    Path(venv, "flashlab.json").write_text(json.dumps(stamp) + "\n")
    return True


def _check_machine(say, venv, new):
    """Raise SetupError if torch cannot come in here; return the kind of torch and pip's temporary folder."""
    problem = (machine.python_problem() if new else None) or machine.platform_problem()
    if problem:
        raise SetupError(problem)
    kind, why = torch_kind()
    problem, tmp = disk_problem(kind, venv)
    if problem:
        raise SetupError(problem)
    if why:
        say(why + " Until then the CPU build is installed; after that, delete .venv and run this again.")
    return kind, tmp


def _fill(torch, kind, extras, say, root, venv, scratch):
    """The two pip commands: the tested pair (if there is no torch), then everything else."""
    log = venv / "install.log"
    pip = [str(venv_python(venv)), "-m", "pip"]
    if torch is None:
        request = torch_request(kind, pip, log)
        if kind == "cpu" and "+cpu" not in request[0]:
            say("No CPU build of PyTorch is on offer here: pip takes its default, on Linux a CUDA build.")
            kind = "cuda"
        fetch, disk = SIZES[kind]
        build = {"cpu": "CPU build", "cuda": "CUDA build", "other": "PyPI's build"}[kind]
        say("Setting up flashlab in {}: about {} GB to fetch, {} GB on disk".format(venv, fetch, disk))
        say("  (PyTorch {}, {}; JupyterLab and the rest). pip's own words: {}".format(TORCH, build, log))
        args = ["install", "-c", str(root / "constraints.txt"), *request]
        pip_run.run_pip(pip, args, log, tmp=scratch, say=say, label="PyTorch", total=fetch - REST)
        if unfinished(venv).exists():
            unfinished(venv).unlink()
    else:
        say("Bringing .venv up to date (it keeps its torch {}); pip's own words: {}".format(torch, log))
    target = "{}[{}]".format(root, ",".join(sorted(extras)))
    args = ["install", "-c", str(root / "constraints.txt"), "-e", target]
    pip_run.run_pip(pip, args, log, tmp=scratch, say=say, label="JupyterLab and the rest", total=REST)
