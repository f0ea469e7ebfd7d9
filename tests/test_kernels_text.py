"""The kernels as something to read: short, in the paper's order, each line of the algorithm once."""

import ast
import re
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent.parent / "flashlab" / "kernels"
LINE = re.compile(r"# (FA\d) Alg\. (\d), lines? (\d+)(?:-(\d+))?(.*)")


def functions(name):
    """The @triton.jit functions of a module: name -> (lines of source, ast node)."""
    source = (KERNELS / f"{name}.py").read_text()
    lines = source.splitlines()
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            found[node.name] = lines[node.lineno - 1 : node.end_lineno], node
    return found


def paper_lines(module, entry, paper, algorithm):
    """The algorithm's lines in order of execution: a helper's lines count where it is first called."""
    known, order, expanded = functions(module), [], set()

    def visit(name):
        for line in known[name][0][1:]:
            match = LINE.search(line)
            if match and (match[1], match[2]) == (paper, algorithm):
                first, last = int(match[3]), int(match[4] or match[3])
                order.extend(range(first, last + 1))
            for helper in known:
                if helper not in expanded and re.search(rf"\b{helper}\($", line.strip()):
                    expanded.add(helper)
                    visit(helper)

    visit(entry)
    return order


def test_the_forward_follows_flashattention_2s_algorithm_1_line_by_line():
    assert paper_lines("fa2", "forward_kernel", "FA2", "1") == list(range(1, 18))


def test_the_backward_follows_flashattention_2s_algorithm_2_but_for_dq():
    first = paper_lines("fa2_backward", "delta_kernel", "FA2", "2")
    second = paper_lines("fa2_backward", "dkdv_kernel", "FA2", "2")
    assert first + second == [n for n in range(1, 21) if n != 15]
    assert paper_lines("fa2_backward", "dq_kernel", "FA2", "2") == [15]
    source = (KERNELS / "fa2_backward.py").read_text()
    assert "line 15, in a second pass (deviation)" in source


@pytest.mark.parametrize(
    ("entry", "algorithm", "count"), [("forward_kernel", "1", 16), ("backward_kernel", "4", 26)]
)
def test_flashattention_1_follows_its_algorithms_line_by_line(entry, algorithm, count):
    assert paper_lines("fa1", entry, "FA1", algorithm) == list(range(1, count + 1))


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda path: path.stem)
def test_a_kernel_fits_on_a_screen_and_says_what_it_does(path):
    for name, (lines, node) in functions(path.stem).items():
        body = lines[node.body[0].lineno - node.lineno :]
        assert len(body) <= 60, f"{name}: {len(body)} lines"
        assert ast.get_docstring(node), f"{name} has no docstring"


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda path: path.stem)
def test_kernels_never_import_the_reference(path):
    imported = re.findall(r"^\s*(?:from|import) (flashlab[\w.]*)", path.read_text(), re.M)
    allowed = ("flashlab.kernels", "flashlab.interpreter", "flashlab.splits", "flashlab")
    for name in imported:
        assert name.startswith(allowed[0]) or name in allowed, name
    assert "flashlab.reference" not in path.read_text()


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda path: path.stem)
def test_a_masked_load_always_says_what_stands_for_the_hidden(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load":
            given = {keyword.arg for keyword in node.keywords}
            assert "mask" not in given or "other" in given, ast.unparse(node)
