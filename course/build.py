"""Builds notebooks/, exercises/, solutions/ and flashlab/checks/solutions/ from the sources in course/.

    python course/build.py            write what is out of date
    python course/build.py --check    fail and list the files that differ from their sources
    python course/build.py --html DIR execute everything and export HTML that works without network or kernel

The first two need nothing but Python (the preview page also needs flashlab's widgets).
"""

import argparse
import ast
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # not course/: its modules are course.percent, course.export, …

from course import percent  # noqa: E402

BUILT_BY = "course/build.py"


def notebook(source, variant):
    """The notebook of a Source, nbformat 4.5 (a dict); variant "learner" has no solutions, "answers" has."""
    cells = [
        cell_json(cell, variant) for cell in source.cells if variant == "answers" or "answer" not in cell.tags
    ]
    return {
        "cells": cells,
        "metadata": {
            "flashlab": {"built_by": BUILT_BY, "minutes": source.minutes},
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "title": source.header["title"],
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def cell_json(cell, variant):
    text = percent.blanked(cell.text) if variant == "learner" else cell.text
    metadata = {"slideshow": {"slide_type": "slide"}} if "slide" in cell.tags else {}
    if cell.tags:
        metadata["tags"] = cell.tags
    made = {
        "cell_type": cell.kind,
        "id": cell.id,
        "metadata": metadata,
        "source": text.splitlines(keepends=True),
    }
    if cell.kind == "code":
        made |= {"execution_count": None, "outputs": []}
    return dict(sorted(made.items()))


def solution_module(source):
    """The solution cells as a module that stands alone: the imports that it uses, no markers."""
    code = "\n\n\n".join(percent.unmarked(cell.text) for cell in source.cells if percent.has_solution(cell))
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    imports = []
    for cell in source.cells:
        if cell.kind != "code" or percent.has_solution(cell):
            continue
        for node in ast.parse(cell.text).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {(name.asname or name.name).split(".")[0] for name in node.names}
                if names & used and ast.unparse(node) not in imports:
                    imports.append(ast.unparse(node))
    return (
        built_header(source.path.name)
        + "".join(f"\n{line}" for line in imports)
        + "\n" * (3 if imports else 2)
        + code
        + "\n"
    )


def built_header(name):
    return f'"""Built from course/exercises/{name} by {BUILT_BY}: edit that file."""\n'


def plan(root):
    """{path: text} of everything that the sources under `root`/course make, and nothing else."""
    made = {}
    for path in sorted((root / "course" / "lessons").glob("*.py")):
        made[root / "notebooks" / f"{path.stem}.ipynb"] = as_json(notebook(percent.parse(path), "learner"))
    for path in sorted((root / "course" / "exercises").glob("*.py")):
        source = percent.parse(path)
        if not any(map(percent.has_solution, source.cells)):
            raise percent.SourceError(path, 1, f"an exercise needs a '{percent.BEGIN}' region")
        made[root / "exercises" / f"{path.stem}.ipynb"] = as_json(notebook(source, "learner"))
        made[root / "solutions" / f"{path.stem}.ipynb"] = as_json(notebook(source, "answers"))
        made[root / "flashlab" / "checks" / "solutions" / f"{path.stem}.py"] = solution_module(source)
    if (root / "course" / "preview.py").exists():
        made[root / "course" / "preview.html"] = preview_page()
    return made


def preview_page():
    """The page to look at before installing; the one thing here that needs flashlab's environment."""
    from course import preview

    try:
        return preview.build_preview()
    except ModuleNotFoundError as error:
        sys.exit(f"course/preview.html needs {error.name}: run .venv/bin/python course/build.py")


def as_json(made):
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def compare(root, made):
    """[(what, path)] by path; what: "differs", "missing", "extra" (built once, its source is gone)."""
    found = []
    for path, text in made.items():
        if not path.exists():
            found.append(("missing", path))
        elif path.read_bytes() != text.encode():
            found.append(("differs", path))
    folders = {
        "notebooks": "*.ipynb",
        "exercises": "*.ipynb",
        "solutions": "*.ipynb",
        "flashlab/checks/solutions": "*.py",
    }
    for folder, pattern in folders.items():
        found += [
            ("extra", path) for path in (root / folder).glob(pattern) if path not in made and was_built(path)
        ]
    return sorted(found, key=lambda item: item[1])


def was_built(path):
    """True for a file that this builder wrote under this name: never a learner's own or copied notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return text.startswith(built_header(path.name))
    try:
        found = json.loads(text)
        return "flashlab" in found["metadata"] and found["cells"][0]["id"].startswith(f"{path.stem}-0-")
    except (ValueError, KeyError, IndexError, TypeError):
        return False


def write(root, found, made):
    for what, path in found:
        if what == "extra":
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made[path].encode())
        print(f"{'removed' if what == 'extra' else 'wrote'} {path.relative_to(root)}")


def main(argv=None, root=ROOT):
    """Returns the exit status: 1 when --check finds a difference, 2 for a source that cannot be read."""
    parser = argparse.ArgumentParser(prog="python course/build.py", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a built file differs")
    parser.add_argument("--html", metavar="DIR", type=Path, help="execute and export offline HTML into DIR")
    options = parser.parse_args(argv)
    try:
        made = plan(root)
    except percent.SourceError as error:
        print(error, file=sys.stderr)
        return 2
    found = compare(root, made)
    if options.check:
        for what, path in found:
            print(f"{what}: {path.relative_to(root)}", file=sys.stderr)
        if found:
            print("Run `python course/build.py` and commit what it writes.", file=sys.stderr)
        return 1 if found else 0
    write(root, found, made)
    if not found:
        print(f"{len(made)} files are up to date")
    if options.html:
        from course.export import export

        return export(root, options.html)
    return 0


if __name__ == "__main__":
    sys.exit(main())
