"""The words that a learner reads, one table per language and area: text/en/learn.toml, text/zh/learn.toml,
...

`t("learn.enter")` is the string at key `enter` of the table `learn` in the chosen language.
"""

import functools
import os
import tomllib
from pathlib import Path

from flashlab.errors import unknown_name

FOLDER = Path(__file__).parent
LANGUAGES = ("en", "zh")
_chosen = None


def lang(code=None):
    """Set the language of prompts, widgets and checks ("en" or "zh"); without an argument, return it.

    The default is the environment variable FLASHLAB_LANG, else "en". Raises ValueError for another code.
    """
    global _chosen
    if code is not None:
        if code not in LANGUAGES:
            raise unknown_name("language", code, LANGUAGES)
        _chosen = code
    if _chosen:
        return _chosen
    default = os.environ.get("FLASHLAB_LANG", "en")
    return default if default in LANGUAGES else "en"


@functools.cache
def table(area, code):
    """The nested dict of one area ("learn", "checks", ...) in one language."""
    path = FOLDER / code / f"{area}.toml"
    if not path.exists():
        raise unknown_name("text table", area, sorted(p.stem for p in (FOLDER / code).glob("*.toml")))
    return tomllib.loads(path.read_text(encoding="utf-8"))


def t(key, /, language=None, **values):
    """The string for `key` = "area.name[.name]" in `language` (default: the chosen one), formatted with
    `values`.

    Raises ValueError that names the closest keys when there is no such string.
    """
    area, *names = key.split(".")
    found = table(area, language or lang())
    for name in names:
        if not isinstance(found, dict) or name not in found:
            raise unknown_name(
                "text", key, [f"{area}.{k}" for k in (found if isinstance(found, dict) else ())]
            )
        found = found[name]
    return found.format(**values) if isinstance(found, str) and values else found
