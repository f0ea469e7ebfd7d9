"""Exported pages: nothing is fetched from elsewhere, links lead to pages, and a widget is alive in them."""

import os
import subprocess
import sys

import pytest

from course import build, export

LESSON = """\
# title: A page
# minutes: 1

# %% [markdown]
# # A page
#
# To the [exercise](../exercises/online_softmax.ipynb#check), [elsewhere](https://example.org/a.ipynb).

# %% tags=["setup"]
import os

import matplotlib.pyplot as plt
from IPython.display import HTML

# %%
print("static:", os.environ["FLASHLAB_STATIC"])

# %%
plt.plot([0, 1])
plt.show()

# %%
HTML('<iframe sandbox="allow-scripts" srcdoc="<button>twin</button>"></iframe>')
"""
LOADS = [
    '<script src="https://example.org/a.js"></script>',
    "<script  async src='//example.org/a.js'></script>",
    '<link rel="stylesheet" href="https://example.org/a.css">',
    '<img alt="a" src="http://example.org/a.png">',
    "<style>@import url(https://example.org/a.css)</style>",
    "<style>a {background: url('//example.org/a.png')}</style>",
    '<script type="module">import a from "https://example.org/a.js"</script>',
    '<script>const a = await import("https://example.org/a.js")</script>',
    "<script>fetch('https://example.org')</script>",
    '<iframe srcdoc="&lt;script src=&quot;https://example.org/a.js&quot;&gt;"></iframe>',
]
STAYS = [
    '<a href="https://example.org">a link to click</a>',
    '<img src="data:image/png;base64,AAAA">',
    "<style>/* see https://example.org */ a {background: url(data:image/png;base64,AA)}</style>",
    '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
    "<pre>import a from https://example.org</pre>",
]


@pytest.mark.parametrize("piece", LOADS)
def test_a_page_that_would_load_something_is_noticed(piece):
    assert export.outside(f"<html>{piece}</html>")


@pytest.mark.parametrize("piece", STAYS)
def test_links_comments_and_inlined_data_are_no_loads(piece):
    assert export.outside(f"<html>{piece}</html>") == []


def export_course(folder, lesson=LESSON):
    """Run the exporter, in a process of its own, on a course of one lesson; returns (process, page)."""
    source = folder / "course/lessons/01_P.py"
    source.parent.mkdir(parents=True)
    source.write_text(lesson)
    program = "import sys, pathlib; from course import build; root = pathlib.Path(sys.argv[1])\n"
    program += "sys.exit(build.main(sys.argv[2:], root))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), "--html", str(folder / "site")],
        cwd=build.ROOT,
        env=os.environ | {"PYTHONPATH": str(build.ROOT)},
        capture_output=True,
        text=True,
    )
    return done, folder / "site/notebooks/01_P.html"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    done, path = export_course(tmp_path_factory.mktemp("course"))
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.mark.notebook
def test_an_exported_page_has_outputs_and_no_script_of_jupyters(page_file):
    page = page_file.read_text()
    assert "static: 1" in page and "data:image/png;base64," in page and "<title>A page</title>" in page
    assert "mathjax" not in page.lower() and "require.min.js" not in page and "mermaid.esm" not in page


@pytest.mark.notebook
def test_links_to_notebooks_lead_to_pages_and_other_links_are_left_alone(page_file):
    page = page_file.read_text()
    assert 'href="../exercises/online_softmax.html#check"' in page
    assert 'href="https://example.org/a.ipynb"' in page
    assert '<a href="notebooks/01_P.html">A page</a>' in (page_file.parent.parent / "index.html").read_text()


@pytest.mark.notebook
def test_a_cell_that_fails_or_a_page_that_loads_something_fails_the_export(tmp_path):
    done, page = export_course(tmp_path / "a", LESSON + "\n# %%\n1 / 0\n")
    assert done.returncode == 1 and "notebooks/01_P.ipynb: ZeroDivisionError" in done.stdout
    loads = "\n# %%\nHTML('<script src=\"https://example.org/a.js\"></script>')\n"
    done, page = export_course(tmp_path / "b", LESSON + loads)
    assert done.returncode == 1 and "would load <script" in done.stdout and not page.exists()


@pytest.mark.notebook
def test_the_lesson_with_all_kinds_of_widgets_becomes_a_page_that_loads_nothing():
    notebook, error = export.execute(build.ROOT / "notebooks/03_C.ipynb")
    assert error is None
    page = export.to_html(notebook, "03_C")
    assert page.count("srcdoc=") >= 20 and export.outside(page) == []


@pytest.mark.browser
def test_a_browser_shows_the_page_from_disk_and_asks_for_nothing_else(page_file, browser):
    asked, errors = [], []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_file.as_uri())
    page.frame_locator("iframe").get_by_role("button", name="twin").wait_for()
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
    assert errors == []
