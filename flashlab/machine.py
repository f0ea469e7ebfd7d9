"""What this machine is: GPU and driver, platform, browser, fonts. Standard library, parses on Python 3.8.

Functions take what they look at as an argument, the real thing by default: tests can hand in any machine.
"""

import ctypes.util
import glob
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections import namedtuple

PYTHONS = ((3, 11), (3, 14))  # oldest and newest that every part has wheels for
MIN_DRIVER = (
    580  # CUDA 13 builds of PyTorch: NVIDIA, CUDA 13.0 release notes, table "minimum required driver version"
)
MIN_CAPABILITY = (7, 5)  # CUDA 13 dropped Maxwell, Pascal and Volta (same release notes)
DEBIAN_PACKAGES = ("chromium", "libatomic1", "fonts-noto-cjk")
NO_CHROMIUM = (
    "no Chromium or Chrome found: install one (Debian: apt-get install chromium) "
    "or set FLASHLAB_CHROMIUM to its path"
)
NO_LIBATOMIC = "Playwright's own Node needs libatomic.so.1: install it (Debian: apt-get install libatomic1)"

Gpu = namedtuple("Gpu", "name driver capability")  # "NVIDIA H200", "580.65.06", (9, 0)


def query_gpus(run=subprocess.run):
    """Return a list of Gpu, empty where there is no NVIDIA GPU or no driver that answers."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        done = run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return []
    gpus = []
    for line in done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[1][:1].isdigit():
            gpus.append(Gpu(fields[0], fields[1], version_tuple(fields[2])))
    return gpus


def version_tuple(text):
    """Return "2.13.0+cpu" as (2, 13, 0); parts that are no number end it."""
    numbers = []
    for part in str(text).split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def gpu_problem(gpus):
    """Return why PyTorch's CUDA 13 build cannot use these GPUs, one sentence, or None."""
    if not gpus:
        return None
    newest = max(gpus, key=lambda gpu: gpu.capability)
    if newest.capability and newest.capability < MIN_CAPABILITY:
        text = "The {} (compute capability {}.{}) is too old for PyTorch's CUDA 13 build, which needs 7.5."
        return text.format(newest.name, *newest.capability[:2])
    if version_tuple(newest.driver) < (MIN_DRIVER,):
        return (
            "The NVIDIA driver {} is too old for PyTorch's CUDA 13 build: update it to {} or later.".format(
                newest.driver, MIN_DRIVER
            )
        )
    return None


def python_problem(version=None, executable=None, which=shutil.which):
    """Return why this Python will not do, one sentence that names a better one if there is one, or None."""
    version = tuple(version or sys.version_info)[:3]
    if PYTHONS[0] <= version[:2] <= PYTHONS[1]:
        return None
    names = ["python3.{}".format(minor) for minor in range(PYTHONS[1][1], PYTHONS[0][1] - 1, -1)]
    better = next((name for name in names if which(name) and _runs(which(name))), None)
    return "flashlab needs Python 3.{} to 3.{}, and this is Python {} ({}): {}.".format(
        PYTHONS[0][1],
        PYTHONS[1][1],
        ".".join(map(str, version)),
        executable or sys.executable,
        "{0} is here, use `make lab PYTHON={0}` or `{0} -m flashlab lab`".format(better)
        if better
        else "install one of them and name it, for example `make lab PYTHON=python3.12`",
    )


def _runs(python):
    """Whether this interpreter starts (a pyenv shim can be there and lead nowhere)."""
    try:
        done = subprocess.run(
            [python, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20
        )
        return done.returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def platform_problem(system=None, machine=None, soabi=None, glibc=None, mac=None):
    """Return why PyTorch 2.13 has no wheel for this platform, one sentence, or None."""
    system = system or platform.system()
    machine = (machine or platform.machine()).lower()
    soabi = (sysconfig.get_config_var("SOABI") or "") if soabi is None else soabi
    if system == "Darwin" and machine != "arm64":
        return "PyTorch 2.13 has no build for Intel Macs (or for an Intel Python on an Apple one)."
    if system == "Windows" and machine not in ("amd64", "x86_64"):
        return "PyTorch 2.13 has no build for Windows on Arm: use an x64 Python or WSL."
    if system == "Linux":
        if "musl" in soabi:
            return "PyTorch 2.13 has no build for musl (Alpine): use a glibc system such as Debian."
        if machine not in ("x86_64", "aarch64"):
            return "PyTorch 2.13 has no build for Linux on {}.".format(machine)
        glibc = version_tuple(platform.libc_ver()[1]) if glibc is None else glibc
        if glibc and glibc < (2, 28):
            return "PyTorch 2.13 needs glibc 2.28 or later, and this system has {}.{}.".format(*glibc[:2])
    if system == "Darwin":
        mac = version_tuple(platform.mac_ver()[0]) if mac is None else mac
        if mac and mac < (14,):
            return "PyTorch 2.13 needs macOS 14 or later, and this is macOS {}.".format(mac[0])
    return None


def find_chromium(environ=os.environ, which=shutil.which):
    """Return the path of a Chromium or Chrome, or None: $FLASHLAB_CHROMIUM, then the usual names."""
    wanted = environ.get("FLASHLAB_CHROMIUM")
    if wanted:
        return which(wanted)
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
    mac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    return next((path for path in map(which, names + [mac]) if path), None)


def has_libatomic():
    """Whether libatomic.so.1 is here (asked on Linux only; elsewhere Node does not need it)."""
    if platform.system() != "Linux":
        return True
    places = glob.glob("/usr/lib*/libatomic.so.1") + glob.glob("/usr/lib*/*/libatomic.so.1")
    return bool(places or ctypes.util.find_library("atomic"))


def has_cjk_font(run=subprocess.run):
    """Whether a font with Chinese characters is here (macOS and Windows bring one)."""
    if platform.system() != "Linux":
        return True
    try:
        listed = run(
            ["fc-list", ":lang=zh-cn", "family"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
        if listed.stdout.strip():
            return True
    except (OSError, subprocess.SubprocessError):
        pass
    return bool(glob.glob("/usr/share/fonts/**/*CJK*", recursive=True))


def browser_problem(chromium=None, libatomic=None):
    """Return what the browser tests lack, one sentence that says what to install, or None."""
    if not (find_chromium() if chromium is None else chromium):
        return NO_CHROMIUM
    if not (has_libatomic() if libatomic is None else libatomic):
        return NO_LIBATOMIC
    return None
