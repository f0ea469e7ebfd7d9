"""Every notebook of the course, run: whole, section by section, in a real kernel, with and without answers.

In a pytest process of its own (`-m notebook`): modules and the event loop survive from notebook to notebook.
"""

import functools
import os

import pytest

from course import build, percent, run

pytestmark = pytest.mark.notebook

LESSONS = sorted((build.ROOT / "course" / "lessons").glob("*.py"))
EXERCISES = sorted((build.ROOT / "course" / "exercises").glob("*.py"))
SECTIONS = [(path, heading) for path in LESSONS for heading in run.alone(percent.parse(path))]
NOT_STARTED = "not started"


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=[path.stem for path in paths])


@pytest.fixture(scope="module")
def shell():
    return run.make_shell()


@pytest.fixture(autouse=True)
def in_the_notebooks_folder(monkeypatch):
    """A kernel starts in the folder of its notebook: what only the repository's root finds must not count."""
    monkeypatch.chdir(build.ROOT / "notebooks")


def assert_no_complaints(source, results):
    found = run.complaints(source, results)
    assert not found, "\n\n" + "\n\n".join(found)


def checks_of(results):
    return [result for result in results if "check" in result.cell.tags]


HEADER = """\
# title: A
# minutes: 1

# %% tags=["setup"]
import warnings
x = 3

# %% [markdown]
# ## 1. B (1 min)

"""
SHOWN = """\
from IPython.display import HTML, display
print(x)
display(x + 1)
HTML("<b>")
#> 3
#> 4
#> <...HTML...>
"""
FAULTS = {
    "a wrong value": ("x / 7\n#> 0.4386", "expected\n    0.4386\ngot\n    0.42857"),
    "a wrong print": ('print("a", x)\n#> a 4', "expected\n    a 4\ngot\n    a 3"),
    "a missing value": ("x;\n#> 3", "got\n"),
    "an error": ("x / 0", "raised ZeroDivisionError: division by zero"),
    "a warning": ('warnings.warn("look out")', "warned: look out"),
    "a name of another section": ("y", "raised NameError"),
}


@pytest.mark.parametrize("code, words", FAULTS.values(), ids=FAULTS)
def test_a_faulty_cell_is_reported_with_file_line_cell_and_source(shell, tmp_path, code, words):
    path = tmp_path / "a.py"
    path.write_text(f"{HEADER}# %%\n{code}\n")
    source = percent.parse(path)
    (message,) = run.complaints(source, run.run(shell, run.alone(source)["1. B (1 min)"]))
    assert message.startswith(f"{path}:11: cell a-1-2 ") and words in message
    assert "    " + code.split("\n")[0] in message


def test_a_cell_that_shows_what_it_promises_is_not_reported(shell, tmp_path):
    path = tmp_path / "a.py"
    path.write_text(f"{HEADER}# %%\n{SHOWN}")
    source = percent.parse(path)
    assert run.complaints(source, run.run(shell, source.cells)) == []


def test_what_one_notebook_sets_does_not_reach_the_next(shell, tmp_path):
    path = tmp_path / "a.py"
    settings = 'import os, numpy as np\nnp.set_printoptions(precision=2)\nos.environ["FLASHLAB_X"] = "1"'
    path.write_text(f"{HEADER}# %%\n{settings}\n")
    assert [result.error for result in run.run(shell, percent.parse(path).cells)] == [None, None]
    asked = 'import os, numpy\nnumpy.array([1 / 3]), "FLASHLAB_X" in os.environ, "np" in dir()'
    path.write_text(f"{HEADER}# %%\n{asked}\n")
    assert run.run(shell, percent.parse(path).cells)[-1].text == "(array([0.33333333]), False, False)"


@pytest.fixture(scope="module")
def run_whole(shell):
    """Path -> (source, results) of all its cells, each lesson run once."""
    return functools.cache(lambda path: (source := percent.parse(path), run.run(shell, source.cells)))


@named(LESSONS)
def test_a_lesson_runs_whole_and_every_cell_shows_what_its_source_promises(run_whole, path):
    assert_no_complaints(*run_whole(path))


@named(LESSONS)
def test_the_checks_of_a_lesson_never_pass_and_say_not_started_about_its_stub(run_whole, path):
    source, results = run_whole(path)
    for result in checks_of(results):
        assert result.value is not True, f"{path}:{result.cell.line} passed on the untouched stub"
        if any(map(percent.has_solution, source.cells)):
            assert NOT_STARTED in result.text, f"{path}:{result.cell.line} printed {result.text!r}"


@pytest.mark.parametrize("path, heading", SECTIONS, ids=[f"{path.stem}: {h}" for path, h in SECTIONS])
def test_a_section_runs_alone_after_the_setup_cell(shell, path, heading):
    source = percent.parse(path)
    assert_no_complaints(source, run.run(shell, run.alone(source)[heading]))


@named(EXERCISES)
def test_the_untouched_exercise_runs_and_its_check_says_not_started(shell, path):
    source = percent.parse(path)
    results = run.run(shell, source.cells)
    assert [message for message in run.complaints(source, results) if " raised " in message] == []
    assert checks_of(results), f"{path}: no cell has the tag check"
    for result in checks_of(results):
        assert NOT_STARTED in result.text, f"{path}:{result.cell.line} printed {result.text!r}"
        assert result.value is not True, f"{path}:{result.cell.line} passed on the untouched stub"


@named(EXERCISES)
def test_the_solution_runs_and_passes_its_own_check(shell, path):
    source = percent.parse(path)
    results = run.run(shell, source.cells, variant="answers")
    assert_no_complaints(source, results)
    assert checks_of(results), f"{path}: no cell has the tag check"
    for result in checks_of(results):
        assert result.value is True, f"{path}:{result.cell.line} printed\n{result.text}"


BUILT = [path for path in sorted(build.plan(build.ROOT)) if path.suffix == ".ipynb"]


@pytest.mark.parametrize("path", BUILT, ids=[str(path.relative_to(build.ROOT)) for path in BUILT])
def test_the_built_notebook_runs_in_a_real_kernel(path):
    """The file that a learner opens, in a fresh process, with Jupyter's own matplotlib backend."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    try:
        client.execute(env=environment)
    except CellExecutionError as error:
        failed = [
            cell for cell in notebook.cells if any(o.output_type == "error" for o in cell.get("outputs", ()))
        ]
        where = "\n".join(f"cell {cell.id}\n{run.indented(cell.source)}" for cell in failed)
        pytest.fail(f"{path.relative_to(build.ROOT)}: {where}\n{error.ename}: {error.evalue}", pytrace=False)
