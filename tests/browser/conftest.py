"""One JupyterLab for all browser tests, a page for each, axe-core on a part of a page."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import TimeoutError

# The notebook's own session is there and its kernel has answered (the tool bar says so too early).
READY = """async () => {
  const there = () => globalThis.jupyterapp?.shell.currentWidget?.sessionContext;
  while (!there()) await new Promise((r) => setTimeout(r, 50));
  const { context, sessionContext } = jupyterapp.shell.currentWidget;
  await context.ready;
  await sessionContext.ready;
  await sessionContext.session.kernel.info;
}"""


@pytest.fixture
def new_page(browser):
    """`new_page(**options)`: a page in its own context (Playwright's options); no script may fail in it."""
    contexts, faults = [], []

    def make(**options):
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # a machine with two cores may be busy
        page.on("pageerror", lambda error: faults.append(str(error)))
        return page

    yield make
    for context in contexts:
        context.close()
    assert faults == [], "a script failed in the page"


@pytest.fixture
def page(new_page):
    """A page with the defaults: light theme, 1100 by 900."""
    return new_page()


@pytest.fixture
def open_twin(new_page, tmp_path):
    """`open_twin(widget, **options)` -> the frame of its static twin in a page opened offline from a file."""
    from flashlab.widgets._base import twin_html

    def make(widget, **options):
        page = new_page(**options)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.context.set_offline(True)
        file = tmp_path / f"twin{len(list(tmp_path.iterdir()))}.html"
        file.write_text(
            f'<!doctype html><html lang="en"><title>twin</title>{twin_html(widget)}', encoding="utf-8"
        )
        page.goto(file.as_uri())
        frame = page.locator("iframe").element_handle().content_frame()
        frame.wait_for_selector(".fl-widget")
        frame.asked = asked
        return frame

    return make


@pytest.fixture(scope="session")
def violations():
    """`violations(page_or_frame, within=None)` -> {rule: nodes} of axe-core on that document (or element)."""
    from axe_playwright_python.sync_playwright import Axe

    def find(document, within=None):
        # JupyterLab's body has no size and hides what runs over: axe would take its text for unseen.
        document.evaluate("document.body.style.overflow = 'visible'")
        found = Axe().run(document, context=within).response["violations"]
        return {v["id"]: [node["html"] for node in v["nodes"]] for v in found}

    return find


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class LabServer:
    """A running JupyterLab: its address, the folder that it serves, and how to open a notebook."""

    def __init__(self, url, folder):
        self.url, self.folder = url, folder

    def open(self, page, name, *cells):
        """Write notebook `name` with these code cells and open it; returns when its kernel is idle."""
        import nbformat.v4 as v4

        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = v4.new_notebook(
            cells=[v4.new_code_cell(c, id=f"cell-{i}") for i, c in enumerate(cells)],
            metadata={"kernelspec": kernel},
        )
        (self.folder / name).write_text(json.dumps(notebook), encoding="utf-8")
        page.goto(f"{self.url}/doc/tree/{name}?reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        page.evaluate(READY)

    def command(self, page, name, **arguments):
        """Run a JupyterLab command, such as notebook:run-all-cells, without waiting for its result."""
        page.evaluate("([n, a]) => { jupyterapp.commands.execute(n, a); }", [name, arguments])

    def run_cell(self, page, index):
        """Select the cell of that number and run it."""
        page.evaluate("(i) => { jupyterapp.shell.currentWidget.content.activeCellIndex = i; }", index)
        self.command(page, "notebook:run-cell")

    def expect(self, page, index, text, tries=6):
        """Run that cell until it prints `text`: what a widget tells Python may arrive after a first run."""
        told = page.locator(".jp-Notebook .jp-Cell").nth(index).get_by_text(text, exact=True)
        for left in reversed(range(tries)):
            self.run_cell(page, index)
            try:
                return told.wait_for(timeout=10_000)
            except TimeoutError:
                if not left:
                    raise


@pytest.fixture(scope="session")
def lab_server(chromium, tmp_path_factory):
    """A JupyterLab of its own: free port, no token, its settings and files in temporary folders, no news."""
    base = tmp_path_factory.mktemp("lab")
    folder = base / "files"
    news = base / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    folder.mkdir()
    news.write_text('{"fetchNews": "false", "checkForUpdates": false}', encoding="utf-8")
    places = {
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "FLASHLAB_HOME": "home",
    }
    environment = {**os.environ, **{name: str(base / place) for name, place in places.items()}}
    port = _free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--ServerApp.port={port}"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}", "--expose-app-in-browser"]
    command += ["--allow-root", "--ServerApp.log_level=WARN"]
    with open(base / "log.txt", "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_served(server, url, base / "log.txt")
            yield LabServer(url, folder)
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_until_served(server, url, log, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(url + "/api/status", timeout=2).read()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    tail = re.sub(r"\s+\n", "\n", log.read_text(encoding="utf-8"))[-2000:]
    pytest.fail(f"JupyterLab did not answer within {seconds} s:\n{tail}")
