"""Text for terminals: how wide a string is (Chinese characters take two columns), wrapped, and Markdown
made plain.
"""

import re
import unicodedata

NOT_FIRST = set("，。、；：！？）》”’】」』…—,.;:!?)%]}")
NOT_LAST = set("（《“‘【「『([{")


def width(text):
    """Columns that `text` takes in a terminal."""
    total = 0
    for c in text:
        if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf"):
            continue
        total += 2 if unicodedata.east_asian_width(c) in "WF" else 1
    return total


def pad(text, columns):
    """`text` with spaces up to `columns`."""
    return text + " " * max(0, columns - width(text))


def _pieces(text):
    """Words, and single Chinese characters, each with the space before it."""
    found = re.findall(
        r"\s*(?:[\u2e80-\u9fff\uff00-\uffef“”‘’—…]|[^\s\u2e80-\u9fff\uff00-\uffef“”‘’—…]+)", text
    )
    joined = []
    for piece in found:
        bare = piece.strip()
        if joined and not piece[:1].isspace() and (bare[0] in NOT_FIRST or joined[-1][-1] in NOT_LAST):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def wrap(text, columns=80, indent="", first=None, cut=True):
    """`text` (one paragraph) in lines of at most `columns`, broken at spaces and between Chinese
    characters; what has neither and is longer is cut, or with cut=False left whole.
    """
    lines, line = [], indent if first is None else first
    start = True
    for piece in _pieces(text.strip()):
        if not start and width(line) + width(piece) > columns:
            lines.append(line)
            line, start = indent, True
        piece = piece.lstrip() if start else piece
        while cut and width(line) + width(piece) > columns and len(piece) > 1 and start:
            at = next(n for n in range(len(piece), 0, -1) if width(line + piece[:n]) <= columns or n == 1)
            lines.append(line + piece[:at])
            line, piece = indent, piece[at:]
        line, start = line + piece, False
    return [*lines, line]


def code(line, columns=80, indent="    ", first=None):
    """A line of code in lines of at most `columns`: broken at a space, what is left further in."""
    lines, text = [], (indent if first is None else first) + line
    deeper = indent + " " * (len(line) - len(line.lstrip()) + 4)
    while width(text) > columns:
        most = next(n for n in range(len(text), 0, -1) if width(text[:n]) <= columns)
        at = text.rfind(" ", len(deeper) + 1, most + 1)
        at = at if at > 0 else most
        lines.append(text[:at].rstrip())
        text = deeper + text[at:].lstrip()
    return [*lines, text]


def _bare(text):
    text = re.sub(r"\*\*(.+?)\*\*", r"\1", text)
    text = re.sub(r"(?<![\w*])\*(?!\s)([^*\n]+?)\*(?![\w*])", r"\1", text)
    return text.replace("`", "")


def markdown(text, columns=80, indent=""):
    """Markdown as plain lines: paragraphs and lists wrapped, tables as one block a row, code as it is."""
    lines, rows, fenced = [], [], False

    def flush():
        if rows:
            head, *body = [[_bare(c.strip()) for c in r.strip().strip("|").split("|")] for r in rows]
            for cells in body:
                if all(re.fullmatch(r":?-+:?", c) for c in cells):
                    continue
                lines.extend(wrap(cells[0], columns, indent))
                for name, cell in zip(head[1:], cells[1:], strict=False):
                    lines.extend(wrap(f"{name}: {cell}", columns, indent + "    ", indent + "  "))
            rows.clear()

    for raw in text.splitlines():
        if raw.strip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            lines.extend(code(raw, columns, indent + "    "))
        elif raw.lstrip().startswith("|"):
            rows.append(raw)
        else:
            flush()
            found = re.match(r"\s*(?:[-*]|\d+\.)\s+", raw)
            if not raw.strip():
                lines.append("")
            elif found:
                mark = "• " if found[0].strip() in "-*" else found[0].strip() + " "
                rest = _bare(raw[found.end() :])
                lines.extend(wrap(rest, columns, indent + " " * width(mark), indent + mark))
            else:
                lines.extend(wrap(_bare(raw.lstrip("# ")), columns, indent))
    flush()
    return lines
