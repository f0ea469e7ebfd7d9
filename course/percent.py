"""Reads a course source: a percent script with header, Markdown as comments, expected output as `#>` lines.

    # title: One row by hand
    # minutes: 10

    # %% [markdown] tags=["fast"]
    # ## 1. A sum (10 min)

    # %%
    1 + 1
    #> 2

Own and small, so that building needs nothing but Python. Every error says file:line.
"""

import ast
import difflib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # nbgrader's own markers
STUB = 'raise NotImplementedError("your turn")'
TAGS = (
    "setup",
    "fast",
    "slide",
    "stop",
    "exercise",
    "check",
    "answer",
    "predict",
    "reveal",
    "review",
    "widget",
)
MARKER = re.compile(r"# %%( \[markdown\])?(?: tags=(\[.*\]))?")
EXPECTED = re.compile(r"# ?>(?: (.*))?")  # `ruff format` turns "#>" into "# >"
HEADING = re.compile(r"## (?P<title>.+)")
MINUTES = re.compile(r"\((\d+) min\)$")


class SourceError(ValueError):
    """A course source that cannot be read: the message starts with file:line."""

    def __init__(self, path, line, message):
        super().__init__(f"{path}:{line}: {message}")


@dataclass
class Cell:
    """One cell; text without comment marks (Markdown) or `#>` lines (code), beginning after `line`."""

    kind: str  # "markdown" | "code"
    text: str
    tags: list[str]
    line: int
    expected: list[str] = field(default_factory=list)
    id: str = ""


@dataclass
class Source:
    """A parsed file: `header` holds at least title and minutes, `cells` are in order and carry their ids."""

    path: Path
    header: dict[str, str]
    cells: list[Cell]

    @property
    def stem(self):
        return self.path.stem

    @property
    def minutes(self):
        return int(self.header["minutes"])


def parse(path):
    """Read `path` into a Source. Raises SourceError (file:line) for anything malformed."""
    path = Path(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("# %%")]
    if not starts:
        raise SourceError(path, 1, "no cell: expected a line that starts with '# %%'")
    header = _header(path, lines[: starts[0]])
    cells = [
        _cell(path, start, lines[start:stop])
        for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]
    _number(path.stem, cells)
    return Source(path, header, cells)


def sections(source):
    """[(heading, minutes or None, cells)], one entry for each Markdown cell that begins with '## '."""
    found = []
    for cell in source.cells:
        heading = HEADING.match(cell.text) if cell.kind == "markdown" else None
        if heading:
            minutes = MINUTES.search(heading["title"])
            found.append((heading["title"], int(minutes[1]) if minutes else None, []))
        if found:
            found[-1][2].append(cell)
    return found


def has_solution(cell):
    return cell.kind == "code" and BEGIN in cell.text


def blanked(text):
    """The learner's version of a cell: every solution region becomes one line that raises when reached."""
    kept, inside = [], False
    for line in text.split("\n"):
        if line.strip() == BEGIN:
            kept.append(line[: line.index("#")] + STUB)
            inside = True
        elif line.strip() == END:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def unmarked(text):
    """The cell with its solution and without the two marker lines."""
    return "\n".join(line for line in text.split("\n") if line.strip() not in (BEGIN, END))


def _header(path, lines):
    header = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = re.fullmatch(r"# ([a-z_]+): (.+)", line)
        if not found:
            raise SourceError(path, number, f"expected a header line like '# title: …', got {line!r}")
        header[found[1]] = found[2].strip()
    for key in ("title", "minutes"):
        if key not in header:
            raise SourceError(path, 1, f"the header has no '# {key}: …' line")
    if not header["minutes"].isdecimal():
        raise SourceError(path, 1, f"minutes must be a whole number, got {header['minutes']!r}")
    return header


def _cell(path, start, lines):
    marker = MARKER.fullmatch(lines[0].rstrip())
    if not marker:
        raise SourceError(
            path, start + 1, f"expected '# %%' or '# %% [markdown]', then tags=[\"…\"], got {lines[0]!r}"
        )
    tags = _tags(path, start + 1, marker[2]) if marker[2] else []
    body = lines[1:]
    while body and not body[-1].strip():
        body.pop()
    read = _markdown if marker[1] else _code
    return read(path, start + 1, body, tags)


def _tags(path, line, text):
    try:
        tags = json.loads(text)
    except ValueError:
        tags = None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise SourceError(path, line, f'expected tags=["…", "…"] with double quotes, got {text}')
    for tag in tags:
        if tag not in TAGS:
            close = difflib.get_close_matches(tag, TAGS, 1) or TAGS
            raise SourceError(path, line, f"unknown tag {tag!r}; did you mean {', '.join(close)}?")
    return tags


def _markdown(path, line, body, tags):
    text = []
    for number, row in enumerate(body, line + 1):
        if row.strip() and row != "#" and not row.startswith("# "):
            raise SourceError(
                path, number, f"a Markdown cell holds comment lines only ('# …'), got {row.strip()!r}"
            )
        text.append(row[2:].rstrip())
    while text and not text[0]:
        text.pop(0)
    if not text:
        raise SourceError(path, line, "an empty cell")
    return Cell("markdown", "\n".join(text), tags, line)


def _code(path, line, body, tags):
    end = len(body)
    while end and EXPECTED.fullmatch(body[end - 1]):
        end -= 1
    expected = [EXPECTED.fullmatch(row)[1] or "" for row in body[end:]]
    rows = body[:end]
    for number, row in enumerate(rows, line + 1):
        if EXPECTED.fullmatch(row):
            raise SourceError(path, number, "expected output (#>) must be the last lines of its cell")
    while rows and not rows[-1].strip():
        rows.pop()
    while rows and not rows[0].strip():
        rows.pop(0)
        line += 1
    if not rows:
        raise SourceError(path, line, "an empty cell")
    cell = Cell("code", "\n".join(rows), tags, line, expected)
    _check_regions(path, cell)
    for text in {cell.text, blanked(cell.text)}:
        try:
            compile(text, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        except SyntaxError as error:
            raise SourceError(path, line + (error.lineno or 1), f"not Python: {error.msg}") from None
    return cell


def _check_regions(path, cell):
    opened = None
    for number, row in enumerate(cell.text.split("\n"), cell.line + 1):
        mark = row.strip()
        if mark == BEGIN:
            if opened:
                raise SourceError(path, number, f"'{BEGIN}' inside the region that line {opened} began")
            if row == mark:
                raise SourceError(
                    path,
                    number,
                    f"'{BEGIN}' must be inside a function: the stub may raise only when it is called",
                )
            opened = number
        elif mark == END:
            if not opened:
                raise SourceError(path, number, f"'{END}' without '{BEGIN}'")
            opened = None
        elif re.match(r"#+ *(BEGIN|END) +SOLUTION", mark, re.I):
            raise SourceError(path, number, f"a misspelt marker {mark!r}: write '{BEGIN}' or '{END}'")
    if opened:
        raise SourceError(path, opened, f"'{BEGIN}' without '{END}' in the same cell")


def _number(stem, cells):
    """Ids that an edit leaves alone: stem-section-index; a new cell renumbers only its own section."""
    section = index = 0
    for cell in cells:
        if cell.kind == "markdown" and HEADING.match(cell.text):
            section, index = section + 1, 0
        index += 1
        cell.id = f"{stem}-{section}-{index}"
