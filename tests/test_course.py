"""The course sources and their builder: what a source may hold, what is built from it, that both agree."""

import json
import re
import subprocess

import pytest

from course import build, expected, percent

LESSONS = sorted((build.ROOT / "course" / "lessons").glob("*.py"))
EXERCISES = sorted((build.ROOT / "course" / "exercises").glob("*.py"))
LONGEST_CELL = 12

LESSON = """\
# title: Sums
# minutes: 5

# %% [markdown]
# # Sums
#
# Two lines.

# %% tags=["setup"]
import math

# %% [markdown] tags=["fast", "slide"]
# ## 1. One (2 min)

# %%
print("a")
math.pi
#> a
#> 3.1416

# %% [markdown]
# ## 2. Two (3 min)

# %%
1 + 1
"""
EXERCISE = """\
# title: Double
# minutes: 4

# %% tags=["setup"]
import math
import operator


# %% tags=["exercise"]
def double(x):
    ### BEGIN SOLUTION
    y = operator.mul(x, 2)
    return y
    ### END SOLUTION


# %% tags=["check"]
print("checked")

# %% [markdown] tags=["answer"]
# Because.
"""


@pytest.fixture
def root(tmp_path):
    """A small course of one lesson and one exercise."""
    for folder, name, text in (("lessons", "01_S", LESSON), ("exercises", "double", EXERCISE)):
        path = tmp_path / "course" / folder / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


def parse_text(tmp_path, text, name="s.py"):
    path = tmp_path / name
    path.write_text(text)
    return percent.parse(path)


def built(root, path):
    build.main([], root)
    return json.loads((root / path).read_text())


def source_of(cell):
    return "".join(cell["source"])


# Reading a source


def test_a_source_is_read_into_cells_with_tags_lines_and_expected_output(root):
    source = percent.parse(root / "course/lessons/01_S.py")
    assert (source.header["title"], source.minutes) == ("Sums", 5)
    assert [cell.kind for cell in source.cells] == "markdown code markdown code markdown code".split()
    assert source.cells[0].text == "# Sums\n\nTwo lines."
    assert source.cells[2].tags == ["fast", "slide"]
    assert source.cells[3].text == 'print("a")\nmath.pi'
    assert source.cells[3].expected == ["a", "3.1416"]
    assert (root / "course/lessons/01_S.py").read_text().split("\n")[source.cells[3].line] == 'print("a")'


def test_expected_output_is_read_after_the_formatter_has_put_a_space_into_its_mark(tmp_path):
    source = parse_text(tmp_path, "# title: A\n# minutes: 1\n\n# %%\n1\n# > 1\n# >\n# >  2\n")
    assert source.cells[0].text == "1"
    assert source.cells[0].expected == ["1", "", " 2"]


def test_sections_carry_heading_minutes_and_cells(root):
    found = percent.sections(percent.parse(root / "course/lessons/01_S.py"))
    assert [(heading, minutes, len(cells)) for heading, minutes, cells in found] == [
        ("1. One (2 min)", 2, 2),
        ("2. Two (3 min)", 3, 2),
    ]


MALFORMED = {
    "no cell": ("# title: A\n# minutes: 1\n", 1, "no cell"),
    "no title": ("# minutes: 1\n\n# %%\n1\n", 1, "no '# title"),
    "no minutes": ("# title: A\n\n# %%\n1\n", 1, "no '# minutes"),
    "minutes in words": ("# title: A\n# minutes: ten\n\n# %%\n1\n", 1, "whole number, got 'ten'"),
    "code in the header": ("# title: A\nimport os\n\n# %%\n1\n", 2, "header line"),
    "unknown marker": ("# title: A\n# minutes: 1\n\n# %% A title\n1\n", 4, "expected '# %%'"),
    "tags without quotes": ("# title: A\n# minutes: 1\n\n# %% tags=[setup]\n1\n", 4, "double quotes"),
    "unknown tag": ('# title: A\n# minutes: 1\n\n# %% tags=["setpu"]\n1\n', 4, "did you mean setup?"),
    "code in Markdown": (
        "# title: A\n# minutes: 1\n\n# %% [markdown]\n# a\nb = 1\n",
        6,
        "comment lines only",
    ),
    "no space in Markdown": ("# title: A\n# minutes: 1\n\n# %% [markdown]\n#a\n", 5, "comment lines only"),
    "empty code cell": ("# title: A\n# minutes: 1\n\n# %%\n\n# %%\n1\n", 4, "an empty cell"),
    "empty Markdown cell": ("# title: A\n# minutes: 1\n\n# %% [markdown]\n#\n", 4, "an empty cell"),
    "not Python": ("# title: A\n# minutes: 1\n\n# %%\na = 1\nb = = 2\n", 6, "not Python"),
    "output before code": ("# title: A\n# minutes: 1\n\n# %%\n1\n#> 1\n2\n", 6, "must be the last lines"),
    "never ended": (
        "# title: A\n# minutes: 1\n\n# %%\ndef f():\n    ### BEGIN SOLUTION\n    1\n",
        6,
        "without",
    ),
    "never begun": (
        "# title: A\n# minutes: 1\n\n# %%\ndef f():\n    1\n    ### END SOLUTION\n",
        7,
        "without",
    ),
    "misspelt": ("# title: A\n# minutes: 1\n\n# %%\ndef f():\n    # BEGIN SOLUTION\n    1\n", 6, "misspelt"),
    "not in a function": (
        "# title: A\n# minutes: 1\n\n# %%\n### BEGIN SOLUTION\n1\n### END SOLUTION\n",
        5,
        "inside a function",
    ),
    "begun twice": (
        "# title: A\n# minutes: 1\n\n# %%\ndef f():\n    ### BEGIN SOLUTION\n    ### BEGIN SOLUTION\n    1\n",
        7,
        "that line 6 began",
    ),
}


@pytest.mark.parametrize("text, line, words", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_source_is_refused_with_file_and_line(tmp_path, text, line, words):
    with pytest.raises(percent.SourceError) as caught:
        parse_text(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 's.py'}:{line}: ")
    assert words in str(caught.value)


def test_the_command_reports_a_malformed_source_without_a_traceback(root, capsys):
    (root / "course/lessons/02_bad.py").write_text("# title: A\n# minutes: 1\n")
    assert build.main([], root) == 2
    assert capsys.readouterr().err.startswith(f"{root}/course/lessons/02_bad.py:1: no cell")


# Building


def test_notebooks_have_no_outputs_a_kernel_and_the_tags_of_their_source(root):
    made = built(root, "notebooks/01_S.ipynb")
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    assert made["metadata"]["kernelspec"]["name"] == "python3"
    assert made["metadata"]["title"] == "Sums"
    assert source_of(made["cells"][3]) == 'print("a")\nmath.pi'
    assert made["cells"][2]["metadata"] == {
        "tags": ["fast", "slide"],
        "slideshow": {"slide_type": "slide"},
    }
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_built_notebooks_are_valid_nbformat(root):
    nbformat = pytest.importorskip("nbformat")
    build.main([], root)
    for path in ["notebooks/01_S.ipynb", "exercises/double.ipynb", "solutions/double.ipynb"]:
        nbformat.validate(json.loads((root / path).read_text()))


def test_cell_ids_are_unique_and_a_new_cell_changes_those_of_its_own_section_only(root):
    before = [cell["id"] for cell in built(root, "notebooks/01_S.ipynb")["cells"]]
    path = root / "course/lessons/01_S.py"
    path.write_text(
        path.read_text().replace("# %% [markdown]\n# ## 2.", "# %%\n3\n\n# %% [markdown]\n# ## 2.")
    )
    after = [cell["id"] for cell in built(root, "notebooks/01_S.ipynb")["cells"]]
    assert len(set(before)) == len(before)
    assert after[:4] + after[5:] == before


def test_the_exercise_has_a_stub_and_no_answer_while_the_solution_has_both_the_code_and_the_markers(root):
    exercise = built(root, "exercises/double.ipynb")["cells"]
    solution = built(root, "solutions/double.ipynb")["cells"]
    assert source_of(exercise[1]) == 'def double(x):\n    raise NotImplementedError("your turn")'
    assert "    ### BEGIN SOLUTION\n    y = operator.mul(x, 2)\n" in source_of(solution[1])
    assert len(exercise) == 3 and source_of(solution[3]) == "Because."


def test_the_solution_module_stands_alone_with_only_the_imports_that_it_uses(root):
    build.main([], root)
    text = (root / "flashlab/checks/solutions/double.py").read_text()
    assert "import operator" in text and "import math" not in text and "SOLUTION" not in text
    names = {}
    exec(text, names)
    assert names["double"](4) == 8


def test_an_exercise_without_a_solution_is_refused(root):
    path = root / "course/exercises/double.py"
    path.write_text(
        path.read_text().replace("    ### BEGIN SOLUTION\n", "").replace("    ### END SOLUTION\n", "")
    )
    assert build.main([], root) == 2


def test_a_second_build_touches_no_file(root):
    build.main([], root)
    files = [path for path in root.rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in files]
    build.main([], root)
    assert [path.stat().st_mtime_ns for path in files] == before


def test_check_lists_what_is_missing_different_and_left_over_and_writes_nothing(root, capsys):
    build.main([], root)
    assert build.main(["--check"], root) == 0
    capsys.readouterr()
    (root / "exercises/double.ipynb").unlink()
    changed = root / "solutions/double.ipynb"
    changed.write_text(changed.read_text() + " ")
    (root / "course/lessons/01_S.py").unlink()
    assert build.main(["--check"], root) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "missing: exercises/double.ipynb",
        "extra: notebooks/01_S.ipynb",
        "differs: solutions/double.ipynb",
    ]
    assert (root / "notebooks/01_S.ipynb").exists() and not (root / "exercises/double.ipynb").exists()


def test_a_build_removes_what_lost_its_source_but_never_a_learners_own_notebook(root):
    build.main([], root)
    ours = root / "notebooks/01_S.ipynb"
    copied, own = root / "notebooks/01_S-Copy1.ipynb", root / "notebooks/Untitled.ipynb"
    copied.write_text(ours.read_text())
    own.write_text('{"cells": [], "metadata": {}}')
    (root / "course/lessons/01_S.py").unlink()
    build.main([], root)
    assert not ours.exists() and copied.exists() and own.exists()
    assert build.main(["--check"], root) == 0


# Comparing outputs

AGREE = [
    ("0.17", "0.1666666"),
    ("0.3333", "0.3334"),
    ("array([4., 1.])", "array([4., \n       1.])"),
    ("1.0 1.5 [12.  1.5]", "1.0 1.5 [12.   1.5]"),
    ("7e-07", "6.8e-07"),
    ("-0.0", "0.0"),
    ("a ... z", "a 1 2 3 z"),
    ("...", ""),
    ("[0 ... 9] ok ...", "[0 1 9] ok yes"),
    ("nan inf True", "nan inf True"),
    ("fa2_forward 0.50", "fa2_forward 0.5"),
    ("'17% of 2664 rows'", "'17% of 2664 rows'"),
]
DIFFER = [
    ("0.17", "0.176"),
    ("0.3333", "0.3335"),
    ("37", "38"),
    ("4.", "4.3"),
    ("4.0", "4.04"),
    ("4.", "-4."),
    ("a ... z", "a 1 2 3"),
    ("a ... z", "b z"),
    ("a ... b ... c", "a c b"),
    ("1 2", "12"),
    ("1", "1 2"),
    ("1 2", "1"),
    ("aa ... aa", "aa a"),
    ("True", "False"),
    ("nan", "4.0"),
    ("fa2_forward", "fa1_forward"),
    ("7e-07", "7e-06"),
    ("2.5e-07", "2.6e-08"),
    ("3", ""),
]


@pytest.mark.parametrize("promised, shown", AGREE)
def test_output_agrees_within_the_printed_precision(promised, shown):
    assert expected.agrees(promised, shown)


@pytest.mark.parametrize("promised, shown", DIFFER)
def test_output_that_says_something_else_does_not_agree(promised, shown):
    assert not expected.agrees(promised, shown)


# The course itself


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=[path.stem for path in paths])


def test_there_are_lessons_and_exercises_to_test():
    assert LESSONS and EXERCISES


def test_built_files_are_in_step_with_their_sources(capsys):
    assert build.main(["--check"]) == 0, capsys.readouterr().err


def test_no_notebook_in_the_repository_was_written_by_hand():
    if not (build.ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "notebooks", "exercises", "solutions", "flashlab/checks/solutions"],
        cwd=build.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    made = {str(path.relative_to(build.ROOT)) for path in build.plan(build.ROOT)}
    kept = {"", *made, "flashlab/checks/solutions/__init__.py"}
    assert [name for name in listed if name not in kept] == []


@named(EXERCISES)
def test_exercise_and_solution_differ_in_their_solution_cells_only(path):
    source = percent.parse(path)
    blank = {cell["id"]: cell for cell in build.notebook(source, "learner")["cells"]}
    full = {cell["id"]: cell for cell in build.notebook(source, "answers")["cells"]}
    for cell in source.cells:
        if "answer" in cell.tags:
            assert cell.id not in blank
        elif percent.has_solution(cell):
            assert percent.STUB in source_of(blank[cell.id])
        else:
            assert blank[cell.id] == full[cell.id]


@named(LESSONS)
def test_every_section_says_its_minutes_and_they_add_up_to_the_lessons(path):
    source = percent.parse(path)
    found = percent.sections(source)
    assert found, f"{path}: no '## ' section"
    assert [heading for heading, minutes, _ in found if minutes is None] == [], "these lack '(N min)'"
    assert sum(minutes for _, minutes, _ in found) == source.minutes, f"{path}: minutes in the header"


@named(LESSONS)
def test_a_lesson_has_a_setup_cell_and_its_sections_are_tagged_on_their_headings_only_as_paths(path):
    source = percent.parse(path)
    setup = [cell for cell in source.cells if "setup" in cell.tags]
    assert setup and all(cell.kind == "code" for cell in setup), f"{path}: no code cell has the tag setup"
    for heading, _, cells in percent.sections(source):
        assert set(cells[0].tags) <= {"fast", "slide", "stop"}, f"{path}:{cells[0].line}: {heading}"


@named(LESSONS)
def test_no_code_cell_of_a_lesson_is_longer_than_twelve_lines(path):
    source = percent.parse(path)
    lengths = {
        f"{path}:{cell.line}": len(cell.text.split("\n")) for cell in source.cells if cell.kind == "code"
    }
    assert {where: n for where, n in lengths.items() if n > LONGEST_CELL} == {}


@named(LESSONS + EXERCISES)
def test_formulas_are_written_without_latex_so_that_they_show_without_a_network(path):
    for cell in percent.parse(path).cells:
        if cell.kind == "markdown":
            prose = re.sub(r"```.*?```|`[^`]*`", "", cell.text, flags=re.S)
            assert not re.search(r"\$[^$\s][^$]*\$|\\[(\[]", prose), f"{path}:{cell.line}: write it as code"
