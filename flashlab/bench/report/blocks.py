"""What a report consists of, before it is HTML or Markdown: both write the same blocks, so that they can't
say different numbers.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """A paragraph. `look`: "" | "note" (small print)."""

    text: str
    look: str = ""


@dataclass(frozen=True)
class Table:
    """`head` names the columns; the first cell of each row names the row. `folded`: shut at first in HTML."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    folded: bool = False


@dataclass(frozen=True)
class Chart:
    """A picture (`svg`, None where there is nothing to draw) that `table` says in numbers."""

    svg: str
    alt: str
    table: Table


@dataclass(frozen=True)
class Claim:
    """A sentence with what stands behind it, or why there is none (`written` False) and the command that
    measures it.
    """

    text: str
    written: bool
    below: str = ""
    command: str = ""


@dataclass(frozen=True)
class Section:
    """`look`: "" | "recorded" (not the learner's own)."""

    title: str
    blocks: tuple
    look: str = ""


@dataclass(frozen=True)
class Page:
    title: str
    lead: str
    sections: tuple[Section, ...] = field(default=())
