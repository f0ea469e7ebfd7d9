"""What every test needs: no learner's files touched, one thread, no window, and a browser that is there or missed aloud."""

import os

# Before anything imports NumPy, torch or matplotlib.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ.pop("FLASHLAB_STATIC", None)
os.environ.pop("FLASHLAB_LANG", None)

import pytest  # noqa: E402

from flashlab.bootstrap import NO_CHROMIUM, find_chromium  # noqa: E402


@pytest.fixture(autouse=True)
def flashlab_home(tmp_path_factory, monkeypatch):
    """A progress file of its own for every test: FLASHLAB_HOME is a new temporary folder."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("FLASHLAB_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def chromium():
    """Path of a Chromium or Chrome to drive; without one the test is skipped (a failure with CI=true)."""
    path = find_chromium()
    if path is None:
        pytest.skip(NO_CHROMIUM)
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With CI=true a browser test may not be skipped: the skip becomes a failure with the same words."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and item.get_closest_marker("browser"):
        if not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            report.longrepr = f"skipped, which CI does not accept for a browser test: {report.longrepr}"
    return report
