"""Whether a file can be written, asked before minutes are spent on what should go into it."""

import os
import tempfile
from pathlib import Path

from flashlab.text import t


def problem(path):
    """Why nothing can be written to `path`: a sentence in the chosen language, or None. The folder must be
    there.
    """
    path = Path(path)
    folder = path.absolute().parent
    if not folder.is_dir():
        return t("bench.file.no_folder", folder=path.parent, file=path.name)
    if path.is_dir():
        return t("bench.file.folder", file=path)
    if path.exists() and not path.is_file():
        return t("bench.file.no_file", file=path)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        return unwritable(path, error)
    return None


def unwritable(path, error):
    """The sentence for an OSError from writing to `path`."""
    return t("bench.file.unwritable", file=path, why=error.strerror or error)
