"""The usual surprises of scaled_dot_product_attention, each run when it is asked for.

A function here computes numbers and names; the words around them are in text/*/dispatch.toml under `trap`.
"""

import html
from dataclasses import dataclass

from flashlab.dispatch import shown
from flashlab.errors import unknown_name
from flashlab.text import t


@dataclass(frozen=True)
class Trap:
    """One surprise: `title`, what came out when it was run (`lines`), what follows (`lesson`), `values`."""

    name: str
    title: str
    lines: tuple
    lesson: str
    values: dict

    def __repr__(self):
        return "\n".join([self.title, *(f"  {line}" for line in self.lines), self.lesson])

    def _repr_html_(self):
        items = "".join(f"<li>{html.escape(line)}</li>" for line in self.lines)
        title, lesson = html.escape(self.title), html.escape(self.lesson)
        return f"<p><b>{title}</b></p><ul>{items}</ul><p>{lesson}</p>"


def traps():
    """The names that `trap` takes."""
    return [name for name in vars(shown) if not name.startswith("_") and name in t("dispatch.trap")]


def trap(name):
    """Run one trap on this machine's CPU and return what came out; ValueError for an unknown name.

    What only a GPU can show is quoted from the record of an H200 or PyTorch's source, and says so.
    """
    if name not in traps():
        raise unknown_name("trap", name, traps())
    values = getattr(shown, name)()
    words = t(f"dispatch.trap.{name}")
    lines = tuple(line.format(**values) for line in words["shown"])
    return Trap(name, words["title"], lines, words["lesson"], values)
