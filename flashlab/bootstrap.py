"""Set-up with nothing but the standard library (first part: what the tests need to know)."""

import os
import shutil

NO_CHROMIUM = (
    "no Chromium or Chrome found: install one (Debian: apt-get install chromium) or set FLASHLAB_CHROMIUM"
)


def find_chromium():
    """Return the path of a Chromium or Chrome, or None: $FLASHLAB_CHROMIUM, then the usual names."""
    wanted = os.environ.get("FLASHLAB_CHROMIUM")
    if wanted:
        return shutil.which(wanted)
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
    return next((path for path in map(shutil.which, names) if path), None)
