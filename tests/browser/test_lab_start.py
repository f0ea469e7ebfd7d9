"""What a newcomer sees after `make lab`: the start page, rendered, with no question in front of it."""

import os
import signal
import subprocess
import time
import urllib.request

import pytest

from flashlab import bootstrap, commands

pytestmark = pytest.mark.browser


@pytest.fixture
def address(tmp_path):
    """The address of a JupyterLab started as `make lab` does, by a user who never started one before."""
    commands.write_settings(bootstrap.VENV)
    port = commands.free_port(9300)
    places = ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = dict(os.environ, **{name: str(tmp_path / name) for name in places})
    for name in places:
        (tmp_path / name).mkdir()
    for name in ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
        environment.pop(name, None)
    command = commands.lab_command(port, ["--no-browser", "--IdentityProvider.token=secret"])
    process = subprocess.Popen(command, cwd=bootstrap.ROOT, env=environment, start_new_session=True)
    try:
        yield wait_for(f"http://127.0.0.1:{port}", process)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def wait_for(address, process):
    for _ in range(600):
        assert process.poll() is None, "JupyterLab ended"
        try:
            urllib.request.urlopen(f"{address}/api", timeout=5)
            return address
        except OSError:
            time.sleep(0.1)
    raise AssertionError("JupyterLab did not answer")


def test_the_start_page_opens_without_a_question_in_front_of_it(address, new_page):
    page = new_page()
    page.goto(f"{address}/?token=secret")
    page.wait_for_url("**/lab/tree/notebooks/00_start.ipynb*", timeout=60_000)
    page.locator(".jp-Notebook .jp-RenderedMarkdown h1").first.wait_for(timeout=60_000)
    page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').first.wait_for(timeout=60_000)
    page.wait_for_timeout(1500)  # a question about news or a kernel would come in this time
    assert page.locator(".jp-Dialog").count() == 0
    assert page.locator(".Toastify__toast").count() == 0, page.locator(".Toastify__toast").all_inner_texts()
