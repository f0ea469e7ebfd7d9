"""Executes the built notebooks and writes HTML that lives without network and without kernel.

Widgets appear as their static twins (FLASHLAB_STATIC=1 adds them as text/html). No MathJax, no require.js, no
Mermaid: formulas are written as code, and a page that would load anything from elsewhere is refused.
"""

import html
import os
import re
import tempfile
import time

FOLDERS = ("notebooks", "exercises", "solutions")
PRIORITY = ["text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain"]
TEMPLATE = """{% extends 'index.html.j2' %}
{% block html_head_js %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
"""
LOADED = (  # what a browser fetches by itself; links that a reader may click are no part of it
    r"<(?:script|img|iframe|source|audio|video|embed|track|input)\b[^>]*?\s(?:src|srcset)\s*=\s*[\"']?\s*(?:https?:)?//",
    r"<link\b[^>]*?\shref\s*=\s*[\"']?\s*(?:https?:)?//",
    r"@import\s+(?:url\()?[\"']?\s*(?:https?:)?//",
    r"url\(\s*[\"']?\s*(?:https?:)?//",
    r"\bimport\s*\(\s*[\"'`](?:https?:)?//",
    r"\b(?:import|from)\s*[\"'](?:https?:)?//",
    r"\bfetch\s*\(\s*[\"'`](?:https?:)?//",
)


def export(root, folder):
    """Write a page for each built notebook, and index.html, into `folder`; return 1 if one failed, else 0."""
    made, failed = [], 0
    for path in [path for name in FOLDERS for path in sorted((root / name).glob("*.ipynb"))]:
        target = folder / path.parent.name / f"{path.stem}.html"
        began = time.perf_counter()
        notebook, error = execute(path)
        page = to_html(notebook, path.stem)
        problems = ([error] if error else []) + [f"would load {found}" for found in outside(page)]
        for problem in problems:
            print(f"{path.relative_to(root)}: {problem}")
        if problems:
            failed += 1
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
        made.append((target.relative_to(folder).as_posix(), notebook.metadata.get("title", path.stem)))
        print(f"wrote {target} ({len(page.encode()) / 1e6:.2f} MB, {time.perf_counter() - began:.1f} s)")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(index(made), encoding="utf-8")
    return 1 if failed else 0


def execute(path):
    """(notebook with outputs, None or what went wrong), by a kernel and with a progress file of its own."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    with tempfile.TemporaryDirectory(prefix="flashlab-home-") as home:
        try:
            client.execute(env=environment | {"FLASHLAB_STATIC": "1", "FLASHLAB_HOME": home})
        except CellExecutionError as error:
            return notebook, f"{error.ename}: {error.evalue}"
    return notebook, None


def to_html(notebook, stem):
    """One self-contained page; links between notebooks become links between pages."""
    from nbconvert import HTMLExporter

    notebook.metadata.pop("widgets", None)
    exporter = HTMLExporter(template_name="lab", raw_template=TEMPLATE, anchor_link_text="")
    for part in [exporter, *exporter._preprocessors]:
        if part.has_trait("display_data_priority"):
            part.display_data_priority = PRIORITY
    page, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": stem}})
    return re.sub(r'(<a\b[^>]*\shref="(?![a-z]+:)[^"#]*)\.ipynb(["#])', r"\1.html\2", page)


def outside(page):
    """The pieces of a page, srcdoc frames included, that would make a browser fetch something by itself."""
    texts = [page, *(html.unescape(found) for found in re.findall(r'srcdoc="([^"]*)"', page))]
    return [found[0][:120] for text in texts for rule in LOADED for found in re.finditer(rule, text, re.I)]


def index(made):
    rows = "\n".join(f'<li><a href="{link}">{html.escape(title)}</a></li>' for link, title in made)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>flashlab</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f"<body><h1>flashlab</h1>\n<ul>\n{rows}\n</ul></body></html>\n"
    )
