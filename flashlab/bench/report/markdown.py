"""The report as Markdown: the same blocks as the HTML page, charts as their tables."""

from flashlab.bench.report.blocks import Chart, Claim, Table, Text
from flashlab.text import t


def write(page):
    """The Markdown of a `blocks.Page`, as text."""
    parts = [f"# {_(page.title)}", _(page.lead)]
    for section in page.sections:
        parts.append(f"## {_(section.title)}")
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block):
    if isinstance(block, Text):
        return {"head": f"### {_(block.text)}", "note": f"*{_(block.text)}*"}.get(block.look, _(block.text))
    if isinstance(block, Chart):
        return _table(block.table)
    if isinstance(block, Table):
        return _table(block)
    assert isinstance(block, Claim)
    if block.written:
        return f"> {_(block.text)}\n>\n> {_(block.below)}"
    command = f" `{block.command}`" if block.command else ""
    return f"- **{_(t('report.sentences.none'))}** {_(block.text)}{command}"


def _table(block):
    lines = [f"**{_(block.caption)}**", "", _row(block.head), _row("---" for _cell in block.head)]
    return "\n".join(lines + [_row(row) for row in block.rows])


def _row(cells):
    return "| " + " | ".join(_(cell) for cell in cells) + " |"


def _(text):
    """Text in which nothing is Markdown by accident."""
    for sign in ("\\", "|", "*", "_", "`", "<", "["):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
