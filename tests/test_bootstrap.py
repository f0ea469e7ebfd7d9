"""The set-up, with machines made up: flashlab/bootstrap.py, machine.py and pip_run.py."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashlab import bootstrap, machine, pip_run
from flashlab.__main__ import main
from flashlab.machine import Gpu
from flashlab.pip_run import SetupError

ROOT = Path(__file__).parent.parent
EARLY = ["__init__", "__main__", "bootstrap", "commands", "machine", "pip_run"]
H200 = Gpu("NVIDIA H200", "580.95.05", (9, 0))
OLD_DRIVER = Gpu("NVIDIA A100", "535.183.01", (8, 0))
OLD_GPU = Gpu("Tesla P100", "580.95.05", (6, 0))
posix = pytest.mark.skipif(os.name == "nt", reason="the stand-in for .venv's Python is a shell script")


@pytest.fixture(autouse=True)
def no_jupyterlab(monkeypatch):
    """No test here may turn the test run into a JupyterLab."""

    def execv(path, command):
        raise AssertionError(f"would start {command}")

    monkeypatch.setattr(os, "execv", execv)


@pytest.mark.parametrize("name", EARLY)
def test_the_set_up_parses_on_python_3_8_and_needs_only_the_standard_library(name):
    tree = ast.parse((ROOT / "flashlab" / f"{name}.py").read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots = [node.module.split(".")[0]]
        else:
            continue
        assert set(roots) <= sys.stdlib_module_names, f"{name}.py imports {roots}"


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 3), (3, 14, 1)])
def test_a_python_with_wheels_is_taken(version):
    assert machine.python_problem(version) is None


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 8, 18), (3, 10, 13), (3, 15, 0)])
def test_another_python_is_refused_in_one_sentence_that_names_it(version):
    problem = machine.python_problem(version, "/usr/bin/python3", which=lambda name: None)
    assert "Python 3.11 to 3.14" in problem and ".".join(map(str, version)) in problem
    assert "PYTHON=" in problem and "\n" not in problem


def test_a_better_python_on_the_path_is_named():
    def which(name):
        return sys.executable if name == "python3.12" else None

    assert "make lab PYTHON=python3.12" in machine.python_problem((3, 8, 18), which=which)


def test_too_old_a_python_ends_the_command_with_one_line_and_no_traceback(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bootstrap.install, "__defaults__", (print, ROOT, tmp_path / ".venv"))
    monkeypatch.setattr(bootstrap, "read_stamp", lambda venv=None: (None, set()))
    monkeypatch.setattr(machine.sys, "version_info", (3, 8, 18, "final", 0))
    assert main(["lab"]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "this is Python 3.8.18" in said.err
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    "facts, word",
    [
        (dict(system="Darwin", machine="x86_64"), "Intel"),
        (dict(system="Darwin", machine="arm64", mac=(13, 2)), "macOS 14"),
        (dict(system="Windows", machine="ARM64"), "Windows on Arm"),
        (dict(system="Linux", machine="x86_64", soabi="cpython-312-x86_64-linux-musl", glibc=()), "musl"),
        (dict(system="Linux", machine="riscv64", soabi="", glibc=(2, 36)), "riscv64"),
        (dict(system="Linux", machine="x86_64", soabi="", glibc=(2, 17)), "glibc 2.28"),
    ],
)
def test_a_platform_without_wheels_of_torch_is_named(facts, word):
    assert word in machine.platform_problem(**facts)


@pytest.mark.parametrize(
    "facts",
    [
        dict(system="Darwin", machine="arm64", mac=(15, 1)),
        dict(system="Windows", machine="AMD64"),
        dict(system="Linux", machine="x86_64", soabi="cpython-311-x86_64-linux-gnu", glibc=(2, 36)),
        dict(system="Linux", machine="aarch64", soabi="", glibc=(2, 28)),
    ],
)
def test_a_platform_with_wheels_of_torch_is_taken(facts):
    assert machine.platform_problem(**facts) is None


def test_nvidia_smi_is_read_line_by_line():
    class Done:
        returncode = 0
        stdout = b"NVIDIA H200, 580.95.05, 9.0\nTesla T4, 535.183.01, 7.5\n"

    gpus = machine.query_gpus(run=lambda *args, **kwargs: Done)
    assert gpus == [Gpu("NVIDIA H200", "580.95.05", (9, 0)), Gpu("Tesla T4", "535.183.01", (7, 5))]


def test_without_nvidia_smi_or_with_one_that_fails_there_is_no_gpu():
    def absent(*args, **kwargs):
        raise FileNotFoundError

    class Failed:
        returncode = 9
        stdout = b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver\n"

    assert machine.query_gpus(run=absent) == []
    assert machine.query_gpus(run=lambda *args, **kwargs: Failed) == []


def test_the_build_of_torch_follows_the_gpu_and_its_driver():
    assert bootstrap.torch_kind("Linux", []) == ("cpu", None)
    assert bootstrap.torch_kind("Linux", [H200]) == ("cuda", None)
    assert bootstrap.torch_kind("Linux", [OLD_GPU, H200]) == ("cuda", None)
    assert bootstrap.torch_kind("Darwin", []) == ("other", None)
    kind, why = bootstrap.torch_kind("Linux", [OLD_DRIVER])
    assert kind == "cpu" and "535.183.01" in why and "580" in why
    kind, why = bootstrap.torch_kind("Linux", [OLD_GPU])
    assert kind == "cpu" and "P100" in why and "7.5" in why


def folders(tmp_path, monkeypatch, same):
    home, tmp = tmp_path / "clone", tmp_path / "tmp"
    home.mkdir(), tmp.mkdir()
    monkeypatch.setattr(bootstrap, "same_disk", lambda a, b: same)
    return home, tmp


@pytest.mark.parametrize("kind, gigabytes", [("cpu", 2.5), ("cuda", 8.0)])
def test_too_little_disk_space_is_said_with_both_numbers(kind, gigabytes, tmp_path, monkeypatch):
    home, tmp = folders(tmp_path, monkeypatch, same=True)
    problem, _ = bootstrap.disk_problem(kind, home / ".venv", tmp, free=lambda folder: gigabytes * 1e9)
    need = sum(size * more for size, more in zip(bootstrap.SIZES[kind], (1.1, 1), strict=True))
    assert (
        f"{gigabytes:.1f} GB free" in problem and f"needs {need:.1f} GB" in problem and str(home) in problem
    )


def test_a_small_temporary_folder_is_passed_by(tmp_path, monkeypatch):
    home, tmp = folders(tmp_path, monkeypatch, same=False)
    problem, used = bootstrap.disk_problem(
        "cpu", home / ".venv", tmp, free=lambda folder: 0.2e9 if folder == tmp else 50e9
    )
    assert problem is None and used == home / ".venv" / "tmp"


def test_a_large_temporary_folder_on_another_disk_is_used_and_counts_apart(tmp_path, monkeypatch):
    home, tmp = folders(tmp_path, monkeypatch, same=False)
    free = {tmp: 1e9, home: 2.45e9}
    assert bootstrap.disk_problem("cpu", home / ".venv", tmp, free=free.get) == (None, tmp)


def test_when_both_disks_are_small_the_sentence_names_the_two(tmp_path, monkeypatch):
    home, tmp = folders(tmp_path, monkeypatch, same=False)
    free = {tmp: 0.2e9, home: 2.6e9}
    problem, _ = bootstrap.disk_problem("cpu", home / ".venv", tmp, free=free.get)
    assert "TMPDIR" in problem and str(tmp) in problem and str(home) in problem


@pytest.mark.parametrize(
    "text, word",
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "disk is full",
        ),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(...)'\nERROR: No matching ...",
            "No network",
        ),
        ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "PIP_CERT"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no torch==2.13.0"),
        ("ERROR: Package 'flashlab' requires a different Python: 3.10.1 not in '>=3.11'", "3.11 to 3.14"),
        ("noise\nERROR: something new\nmore", "something new"),
        ("no error line at all", "log"),
    ],
)
def test_what_pip_printed_becomes_one_sentence(text, word):
    sentence = pip_run.explain(text)
    assert word in sentence and "\n" not in sentence


def test_an_index_that_does_not_answer_is_told_as_no_network(tmp_path):
    args = [
        "install",
        "--isolated",
        "--index-url",
        "http://127.0.0.1:9/simple",
        "--target",
        str(tmp_path),
        "no-such",
    ]
    with pytest.raises(SetupError, match="No network") as caught:
        pip_run.run_pip([sys.executable, "-m", "pip"], args, tmp_path / "log", tmp=tmp_path)
    assert str(tmp_path / "log") in str(caught.value)
    assert "Retrying" in (tmp_path / "log").read_text()


def test_progress_counts_what_has_been_fetched(tmp_path):
    said = []
    progress = pip_run.Progress(said.append, "PyTorch", 0.5, tmp_path, terminal=False, every=0.0)
    progress.heard("  Downloading torch-2.13.0-cp311-none-any.whl (190.3 MB)\n")
    (tmp_path / "torch.whl").write_bytes(b"x" * 20_000_000)
    progress.show()
    progress.heard("Installing collected packages: mpmath, sympy, torch\n")
    progress.show()
    assert "fetching 0.02 of about 0.50 GB" in said[0] and "installing 3 packages" in said[1]


def test_the_index_of_cpu_wheels_is_named_in_one_place_only():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    address = "download." + "pytorch.org"
    texts = {name: (ROOT / name).read_bytes() for name in names if name and (ROOT / name).is_file()}
    assert [name for name, text in texts.items() if address.encode() in text] == ["flashlab/bootstrap.py"]


# ---- the whole of install(), with a stand-in for .venv's Python that writes down what it is asked

FAKE = """#!/bin/sh
here=$(dirname "$0")/..
if [ "$1" = -c ]; then echo 3 11 7; cat "$here/torch" 2>/dev/null; exit 0; fi
echo "$@" >> "$here/../calls"
case "$*" in
  *"pip index"*"--index-url"*) cat "$here/../offered-by-pytorch" 2>/dev/null ;;
  *"pip index"*) cat "$here/../offered" 2>/dev/null ;;
  *"pip install"*"torch=="*) echo 2.13.0+cpu > "$here/torch" ;;
esac
[ ! -e "$here/../fail" ] || { echo "ERROR: [Errno 28] No space left on device"; exit 1; }
"""


class Clone:
    """A folder with the two lists in it, whose .venv is made of a shell script."""

    def __init__(self, folder):
        self.folder, self.venv, self.said = folder, folder / ".venv", []
        for name in ("pyproject.toml", "constraints.txt"):
            (folder / name).write_text((ROOT / name).read_text())

    def make_venv(self, venv=None):
        (self.venv / "bin").mkdir(parents=True)
        python = self.venv / "bin" / "python"
        python.write_text(FAKE)
        python.chmod(0o755)
        bootstrap.unfinished(self.venv).write_text("")

    def install(self, *extras):
        return bootstrap.install(set(extras), self.said.append, self.folder, self.venv)

    @property
    def installs(self):
        calls = (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []
        return [call for call in calls if "pip install" in call]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    clone = Clone(tmp_path)
    monkeypatch.setattr(bootstrap, "make_venv", clone.make_venv)
    monkeypatch.setattr(machine, "query_gpus", lambda: [])
    monkeypatch.setattr(bootstrap.platform, "system", lambda: "Linux")
    monkeypatch.setattr(bootstrap, "disk_problem", lambda kind, venv: (None, tmp_path / "tmp"))
    (tmp_path / "offered").write_text("Available versions: 2.13.0+cpu, 2.13.0\n")
    return clone


@posix
def test_a_new_venv_gets_the_tested_pair_and_then_the_rest(clone):
    assert clone.install("lab") is True
    pair, rest = clone.installs
    assert "torch==2.13.0+cpu triton==3.7.1" in pair and "--extra-index-url" not in pair
    assert "constraints.txt -e" in rest and rest.endswith("[lab]") and "torch==" not in rest
    assert "0.49 GB to fetch" in clone.said[0]


@posix
def test_a_second_set_up_has_nothing_to_do_and_starts_no_process(clone):
    clone.install("lab")
    before = (clone.folder / "calls").read_text()
    assert clone.install("lab") is False
    assert (clone.folder / "calls").read_text() == before


@posix
def test_the_tests_add_their_packages_and_the_lab_keeps_them(clone):
    clone.install("lab")
    assert clone.install("lab", "test") is True
    assert len(clone.installs) == 3 and clone.installs[2].endswith("[lab,test]")
    assert clone.install("lab") is False


@posix
def test_changed_lists_are_installed_again_without_touching_torch(clone):
    clone.install("lab")
    (clone.folder / "constraints.txt").write_text("numpy==2.4.6\n")
    assert clone.install("lab") is True
    assert len(clone.installs) == 3 and "torch==" not in clone.installs[2]


@posix
def test_a_torch_that_is_there_is_never_replaced(clone):
    clone.make_venv()
    bootstrap.unfinished(clone.venv).unlink()
    (clone.venv / "torch").write_text("2.11.0+cu128\n")
    clone.install("lab")
    assert len(clone.installs) == 1 and "torch==" not in clone.installs[0]
    assert "2.11.0+cu128" in clone.said[0]


@posix
def test_a_torch_out_of_range_is_said_and_left_alone(clone):
    clone.make_venv()
    bootstrap.unfinished(clone.venv).unlink()
    (clone.venv / "torch").write_text("2.5.1\n")
    with pytest.raises(SetupError, match="2.5.1"):
        clone.install("lab")
    assert clone.installs == []


@posix
def test_a_set_up_that_was_interrupted_starts_again(clone):
    clone.make_venv()
    (clone.venv / "torch").write_text("half of one\n")
    clone.install("lab")
    assert len(clone.installs) == 2 and not bootstrap.unfinished(clone.venv).exists()


@posix
def test_a_set_up_that_fails_says_why_and_leaves_no_stamp(clone):
    (clone.folder / "fail").write_text("")
    with pytest.raises(SetupError, match="disk is full"):
        clone.install("lab")
    assert bootstrap.read_stamp(clone.venv) == (None, set())
    (clone.folder / "fail").unlink()
    assert clone.install("lab") is True


@posix
def test_a_venv_whose_python_is_gone_is_named(clone):
    (clone.venv / "bin").mkdir(parents=True)
    with pytest.raises(SetupError, match="delete that folder"):
        clone.install("lab")


@posix
def test_pytorchs_own_index_is_asked_when_pips_offers_no_cpu_build(clone):
    (clone.folder / "offered").write_text("Available versions: 2.13.0, 2.12.1\n")
    (clone.folder / "offered-by-pytorch").write_text("Available versions: 2.13.0+cpu\n")
    clone.install("lab")
    assert f"torch==2.13.0+cpu triton==3.7.1 --extra-index-url {bootstrap.CPU_INDEX}" in clone.installs[0]


@posix
def test_without_any_cpu_build_the_plain_pin_is_taken_and_its_size_told(clone):
    (clone.folder / "offered").write_text("Available versions: 2.13.0, 2.12.1\n")
    clone.install("lab")
    assert "torch==2.13.0 triton==3.7.1" in clone.installs[0]
    assert any("2.83 GB to fetch" in line for line in clone.said)


@posix
def test_with_a_gpu_the_cuda_build_is_taken(clone, monkeypatch):
    monkeypatch.setattr(machine, "query_gpus", lambda: [H200])
    clone.install("lab")
    assert "torch==2.13.0 triton==3.7.1" in clone.installs[0] and "2.83 GB to fetch" in clone.said[0]


@posix
def test_with_a_driver_too_old_it_says_so_and_takes_the_cpu_build(clone, monkeypatch):
    monkeypatch.setattr(machine, "query_gpus", lambda: [OLD_DRIVER])
    clone.install("lab")
    assert "too old" in clone.said[0] and "delete .venv" in clone.said[0] and "\n" not in clone.said[0]
    assert "torch==2.13.0+cpu" in clone.installs[0]


@posix
def test_the_venv_of_a_system_without_ensurepip_is_filled_by_pip_python(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(bootstrap.pip_run, "quiet", lambda command, log, failed: calls.append(command))
    monkeypatch.setattr(bootstrap.pip_run, "run_pip", lambda pip, args, log, tmp: calls.append([*pip, *args]))
    bootstrap.make_venv(tmp_path / ".venv", has_ensurepip=False)
    assert "--without-pip" in calls[0]
    assert calls[1][-4:] == ["--python", str(bootstrap.venv_python(tmp_path / ".venv")), "install", "pip"]
