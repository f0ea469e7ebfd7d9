"""Runs the cells of a course source in one process and compares what they show with their `#>` lines.

python -m course.run course/lessons/03_C.py            the whole lesson
python -m course.run course/lessons/03_C.py --alone    also every section by itself after the set-up cell
"""

import argparse
import contextlib
import os
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass

from course import expected, percent


@dataclass
class Result:
    """What one cell did: `text` is all it printed or showed, as plain text; `value` its last expression's."""

    cell: percent.Cell
    text: str
    value: object
    error: BaseException | None
    warnings: list[str]


def make_shell():
    """A bare InteractiveShell that prints whatever a cell shows, in order; nothing goes to the home folder.

    One per process: the class is a singleton.
    """
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.environ.setdefault("IPYTHONDIR", tempfile.mkdtemp(prefix="flashlab-ipython-"))
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class PlainValue(DisplayHook):
        def write_output_prompt(self):
            pass  # no "Out[1]: " before the value

        def quiet(self):  # a semicolon at the end; IPython looks into the history, which is off
            return self.semicolon_at_end_of_expression(self.exec_result.info.raw_cell)

    class PlainDisplay(DisplayPublisher):
        def publish(self, data, *args, **kwargs):
            if "text/plain" in data:
                print(data["text/plain"])

    class PlainShell(InteractiveShell):
        displayhook_class = PlainValue
        display_pub_class = PlainDisplay

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    return PlainShell.instance(config=config)


def run(shell, cells, variant="learner"):
    """[Result] of the code cells, in order, in a fresh namespace; stops after the first cell that raises."""
    shell.reset(new_session=True)
    with settings_kept():
        return [*run_cells(shell, cells, variant)]


def run_cells(shell, cells, variant):
    from IPython.utils.capture import capture_output

    for cell in cells:
        if cell.kind != "code" or (variant == "learner" and "answer" in cell.tags):
            continue
        text = percent.blanked(cell.text) if variant == "learner" else cell.text
        with capture_output(display=False) as shown, seen_warnings() as warned:
            done = shell.run_cell(text, store_history=False)
        error = done.error_before_exec or done.error_in_exec
        told = [str(warning.message) for warning in warned]
        yield Result(cell, shown.stdout.rstrip(), done.result, error, told)
        if error:
            return


@contextlib.contextmanager
def settings_kept():
    """Put back what outlives a namespace: environment, print options of NumPy, figures, the language."""
    import numpy

    from flashlab import text

    environment, language = dict(os.environ), text.lang()
    try:
        with numpy.printoptions():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        text.lang(language)
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot:
            pyplot.close("all")
            pyplot.rcdefaults()


@contextlib.contextmanager
def seen_warnings():
    """The warnings that a learner would see: all but those that Python hides outside __main__."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", hidden)
        warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
        yield warned


def complaints(source, results):
    """One message for each cell that raised, warned, or did not show what its `#>` lines say."""
    found = []
    for result in results:
        promised = "\n".join(result.cell.expected)
        if result.error:
            what = f"raised {type(result.error).__name__}: {result.error}{place(result.error)}"
        elif result.warnings:
            what = "warned: " + "; ".join(result.warnings)
        elif promised and not expected.agrees(promised, result.text):
            what = f"expected\n{indented(promised)}\ngot\n{indented(result.text)}"
        else:
            continue
        where = f"{source.path}:{result.cell.line}: cell {result.cell.id}"
        found.append(f"{where} {what}\nsource\n{indented(result.cell.text)}")
    return found


def place(error):
    """Where an error was raised, if that was in a file and not in the cell itself."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = frames and os.path.exists(frames[-1].filename)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if inside else ""


def indented(text):
    return "\n".join("    " + line for line in text.split("\n"))


def alone(source):
    """{heading: cells}: each `## ` section after the set-up cells, as a late-comer runs it."""
    setup = [cell for cell in source.cells if "setup" in cell.tags]
    return {
        heading: setup + [cell for cell in cells if "setup" not in cell.tags]
        for heading, _, cells in percent.sections(source)
    }


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m course.run", description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--alone", action="store_true", help="run each section by itself too")
    options = parser.parse_args(argv)
    os.environ["FLASHLAB_HOME"] = tempfile.mkdtemp(prefix="flashlab-home-")
    shell, failed = make_shell(), 0
    for path in options.sources:
        source = percent.parse(path)
        rounds = {"whole": source.cells} | (alone(source) if options.alone else {})
        for name, cells in rounds.items():
            results = run(shell, cells)
            found = complaints(source, results)
            failed += len(found)
            print(f"{path} ({name}): {len(results)} cells run, {len(found)} to look at")
            print("".join(f"\n{message}\n" for message in found), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
