"""What imports what: `import flashlab` is quick, names are lazy, arrows between modules go one way."""

import ast
import importlib
import pkgutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import flashlab

PACKAGE = Path(flashlab.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(PACKAGE)], "flashlab.")
    if not module.name.endswith("__main__")
)
HEAVY = ("torch", "triton", "matplotlib", "numpy")


def python(code):
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_flashlab_takes_less_than_three_tenths_of_a_second_with_the_interpreters_start():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        python("import flashlab")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.3, times


def test_importing_flashlab_imports_nothing_heavy():
    loaded = python(f"import sys, flashlab; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_every_public_name_is_the_same_thing_before_and_after_all_modules_are_imported():
    code = f"""
import importlib, types, flashlab
names = list(flashlab.__all__)
first = {{name: getattr(flashlab, name) for name in names}}
for module in {MODULES!r}:
    importlib.import_module(module)
second = {{name: getattr(flashlab, name) for name in names}}
assert first == second, [n for n in names if first[n] is not second[n]]
print([name for name in names if isinstance(second[name], types.ModuleType) or not callable(second[name])])
"""
    assert python(code).strip() == "[]"


def test_no_public_function_has_the_name_of_a_module():
    modules = {name.split(".")[1] for name in MODULES}
    assert modules & set(flashlab.__all__) == set()
    assert len(flashlab.__all__) <= 20


def test_every_module_that_is_offered_as_an_attribute_is_there():
    for name in flashlab._MODULES:
        assert importlib.import_module(f"flashlab.{name}") is getattr(flashlab, name)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="attention"):
        flashlab.attenion  # noqa: B018


def imports(path):
    """Full names of the modules that a file imports, anywhere in it, relative imports resolved."""
    parts = ("flashlab", *path.relative_to(PACKAGE).with_suffix("").parts)
    package = parts if path.name == "__init__.py" else parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def arrows(folder, forbidden):
    """(file, module) for each import of something forbidden below a folder, or in a single module."""
    target = PACKAGE / folder if (PACKAGE / folder).is_dir() else PACKAGE / f"{folder}.py"
    files = sorted(target.rglob("*.py")) if target.is_dir() else [target]
    assert files and all(file.is_file() for file in files), f"nothing at {target}"
    found = [(str(f.relative_to(PACKAGE)), name) for f in files for name in imports(f)]
    return [(f, name) for f, name in found if any((name + ".").startswith(bad + ".") for bad in forbidden)]


@pytest.mark.parametrize(
    "where, forbidden",
    [
        ("kernels", ["flashlab.reference", "flashlab.tiled", "flashlab.online_softmax", "flashlab.widgets"]),
        ("widgets", ["torch", "triton", "flashlab.kernels", "flashlab.ops"]),
        (
            "reference",
            ["torch", "triton", "flashlab.tiled", "flashlab.online_softmax", "flashlab.kernels"],
        ),
        ("online_softmax", ["torch", "triton", "flashlab.tiled", "flashlab.kernels"]),
        ("tiled", ["torch", "triton", "flashlab.kernels", "flashlab.ops", "flashlab.widgets"]),
        ("problem", ["torch", "triton", "flashlab.reference", "flashlab.tiled"]),
        *[
            (model, ["torch", "triton", "flashlab.kernels", "flashlab.tiled", "flashlab.widgets"])
            for model in ("gpus", "splits", "flows", "flows_backward", "memory", "schedule")
        ],
        ("progress", ["flashlab.learn", "flashlab.checks", "torch", "triton"]),
    ],
)
def test_arrows_go_one_way(where, forbidden):
    assert arrows(where, forbidden) == []


def test_an_arrow_in_the_wrong_direction_would_be_found(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "bad.py").write_text("def f():\n    from ..reference import attention\n")
    (tmp_path / "kernels" / "worse.py").write_text("from flashlab import reference, text\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert len(arrows("kernels", ["flashlab.reference"])) == 2


def keys(table, before=""):
    """The dotted keys of a nested table."""
    for key, value in table.items():
        yield from keys(value, f"{before}{key}.") if isinstance(value, dict) else [before + key]


def test_english_and_chinese_have_the_same_tables_and_the_same_keys():
    tables = {
        code: {
            p.stem: tomllib.loads(p.read_text(encoding="utf-8"))
            for p in (PACKAGE / "text" / code).glob("*.toml")
        }
        for code in ("en", "zh")
    }
    assert tables["en"].keys() == tables["zh"].keys()
    for area in tables["en"]:
        assert set(keys(tables["en"][area])) == set(keys(tables["zh"][area])), area
