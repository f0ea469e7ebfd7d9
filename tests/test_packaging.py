"""The lists of what is installed agree: pyproject.toml, constraints.txt, environment.yml, the set-up."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import flashlab
from flashlab import bootstrap, machine

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line.strip()]
DEPENDENCIES = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = [Requirement(text) for texts in PROJECT["optional-dependencies"].values() for text in texts]
MACHINES = [
    {"python_full_version": version, "python_version": version.rsplit(".", 1)[0], **system}
    for version in ("3.11.0", "3.11.2", "3.12.3", "3.13.1", "3.14.0")
    for system in (
        {
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "platform_machine": "x86_64",
        },
        {
            "sys_platform": "darwin",
            "platform_system": "Darwin",
            "os_name": "posix",
            "platform_machine": "arm64",
        },
        {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "platform_machine": "AMD64"},
    )
]


def tracked():
    """Paths of the files that git knows."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def canonical(name):
    return name.lower().replace("_", "-").replace(".", "-")


def test_environment_yml_says_the_same_as_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert [text.split()[0] for text in conda] == ["python", "pip"]
    assert pip["pip"][0] == "-c constraints.txt" and pip["pip"][-1] == "-e .[lab]"
    ranges = [Requirement(text) for text in pip["pip"][1:-1]]
    lab = PROJECT["optional-dependencies"]["lab"]
    jupyterlab = next(str(Requirement(text)) for text in lab if text.startswith("jupyterlab"))
    assert {str(r) for r in ranges} == {str(r) for r in DEPENDENCIES} | {jupyterlab}


def test_python_is_the_same_in_conda_pyproject_and_the_set_up():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (lowest, highest) = machine.PYTHONS
    assert environment["dependencies"][0] == "python >={}.{},<{}.{}".format(
        *lowest, highest[0], highest[1] + 1
    )
    assert PROJECT["requires-python"] == ">={}.{}".format(*lowest)


def test_the_pins_hold_one_version_each_and_no_address():
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text and "--" not in text
    for pin in PINS:
        assert [spec.operator for spec in pin.specifier] == ["=="], str(pin)


def test_torch_triton_and_nvidias_libraries_are_not_among_the_pins():
    names = {canonical(pin.name) for pin in PINS}
    assert not [name for name in names if name in ("torch", "triton") or name.startswith(("nvidia", "cuda"))]


@pytest.mark.parametrize(
    "where", MACHINES, ids=lambda w: f"{w['platform_system']}-{w['python_full_version']}"
)
def test_everything_declared_is_pinned_within_its_range_on_every_machine(where):
    for declared in DEPENDENCIES + EXTRAS:
        if declared.name in ("torch", "triton"):
            continue
        pins = [p for p in PINS if canonical(p.name) == canonical(declared.name)]
        here = [p for p in pins if p.marker is None or p.marker.evaluate(where)]
        assert len(here) == 1, f"{declared.name}: {list(map(str, here))}"
        (spec,) = here[0].specifier
        assert declared.specifier.contains(spec.version), f"{declared} against {spec}"


def test_the_ranges_hold_the_tested_pair_and_an_older_one():
    ranges = {r.name: r.specifier for r in DEPENDENCIES}
    for torch, triton in (
        (bootstrap.TORCH, bootstrap.TRITON),
        ("2.11.0", "3.6.0"),
        ("2.11.0+cu130", "3.6.0"),
    ):
        assert ranges["torch"].contains(torch) and ranges["triton"].contains(triton)
    low, high = ([".".join(map(str, bound))] for bound in bootstrap.TORCH_RANGE)
    assert ranges["torch"] == SpecifierSet(f">={low[0]},<{high[0]}")


def test_triton_is_asked_for_on_linux_only():
    (triton,) = [r for r in DEPENDENCIES if r.name == "triton"]
    wanted = {where["platform_system"] for where in MACHINES if triton.marker.evaluate(where)}
    assert wanted == {"Linux"}


def test_the_tested_pair_is_pinned_in_one_place():
    pinned = []
    for name in tracked():
        if name.endswith(
            (".py", ".toml", ".txt", ".yml", ".yaml", "Makefile", "run")
        ) and not name.startswith("tests/"):
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
            pinned += [
                name
                for line in lines
                if f'"{bootstrap.TORCH}"' in line or f"torch=={bootstrap.TORCH}" in line
            ]
    assert pinned == ["flashlab/bootstrap.py"]


def test_ci_runs_what_the_readme_names_and_nothing_more():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines == ["#!/bin/sh", 'cd "$(dirname "$0")/.." && CI="${CI:-true}" make test']
    readme = (ROOT / "README.md").read_text()
    assert "make lab" in readme[:1500] and "make test" in readme[:1500]


def test_make_only_calls_the_set_up():
    recipes = [line.strip() for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\t")]
    assert "@$(PYTHON) -m flashlab lab $(ARGS)" in recipes and "@$(PYTHON) -m flashlab test" in recipes


def test_the_version_is_one():
    assert flashlab.__version__ == PROJECT["version"]


def test_the_licence_is_the_one_declared():
    assert PROJECT["license"] == "MIT" and (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_the_hooks_fetch_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert {hook["language"] for repo in config["repos"] for hook in repo["hooks"]} == {"system"}


def test_a_wheel_holds_every_file_of_the_package(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in tracked() if name.startswith("flashlab/") and name not in inside]
    assert missing == []
    assert any(name.endswith(".js") for name in inside) and any(name.endswith(".toml") for name in inside)


def test_a_clone_is_small_and_no_single_file_is_large():
    sizes = {name: (ROOT / name).stat().st_size for name in tracked()}
    assert sum(sizes.values()) < 10_000_000
    assert max(sizes.values()) < 1_000_000, max(sizes, key=sizes.get)


def test_no_file_names_the_machine_it_was_written_on():
    own = ("/" + "work/", "/" + "root/", "/" + "opt/wheels")
    for name in tracked():
        text = (ROOT / name).read_bytes()
        assert not [path for path in own if path.encode() in text], name
