"""What every test needs: no learner's file touched, one thread, no window, a browser or a word about it."""

import os

# Before anything imports NumPy, torch or matplotlib.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ.pop("FLASHLAB_STATIC", None)
os.environ.pop("FLASHLAB_LANG", None)

import pytest

from flashlab.machine import browser_problem, find_chromium


@pytest.fixture(autouse=True)
def flashlab_home(tmp_path_factory, monkeypatch):
    """A progress file of its own for every test: FLASHLAB_HOME is a new temporary folder."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("FLASHLAB_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def chromium():
    """Path of a Chromium or Chrome to drive; without one the test is skipped (a failure with CI=true)."""
    problem = browser_problem()
    if problem:
        pytest.skip(problem)
    return find_chromium()


@pytest.fixture(scope="session")
def browser(chromium):
    """A headless Chromium for the whole run: one, because Playwright allows one at a time in a process."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield started
        started.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With CI=true a browser test may not be skipped: the skip becomes a failure with the same words."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and item.get_closest_marker("browser"):
        if not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            report.longrepr = f"skipped, which CI does not accept for a browser test: {report.longrepr}"
    return report
