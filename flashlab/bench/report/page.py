"""The report as one HTML file: no script, no other file, light or dark as the system is, ready to print."""

import html
from pathlib import Path

from flashlab.bench.report.blocks import Chart, Claim, Table, Text
from flashlab.text import lang, t

STYLE = Path(__file__).with_name("page.css")


def write(page):
    """The HTML of a `blocks.Page`, as text."""
    code, title = {"zh": "zh-CN"}.get(lang(), lang()), _(page.title)
    body = "".join(_section(section, number) for number, section in enumerate(page.sections, 1))
    return (
        f'<!doctype html>\n<html lang="{code}">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n<p>{_(page.lead)}</p>\n{body}</main>\n</body>\n</html>\n"
    )


def _section(section, number):
    writers = {Text: _text, Table: _table, Chart: _chart, Claim: _claim}
    inside = "".join(writers[type(block)](block) for block in section.blocks)
    look = f' class="{section.look}"' if section.look else ""
    title = f'<h2 id="part{number}">{_(section.title)}</h2>'
    return f'<section{look} aria-labelledby="part{number}">{title}\n{inside}</section>\n'


def _text(block):
    if block.look == "head":
        return f"<h3>{_(block.text)}</h3>\n"
    look = f' class="{block.look}"' if block.look else ""
    return f"<p{look}>{_(block.text)}</p>\n"


def _table(block, caption=True):
    caption = caption and not block.folded  # its summary says it
    head = "".join(f'<th scope="col">{_(cell)}</th>' for cell in block.head)
    rows = "".join(
        f'<tr><th scope="row">{_(first)}</th>' + "".join(f"<td>{_(cell)}</td>" for cell in rest) + "</tr>\n"
        for first, *rest in block.rows
    )
    told = f'<p class="caption">{_(block.caption)}</p>' if caption else ""
    label = html.escape(block.caption)
    words = ' class="words"' if any(len(cell) > 40 for row in block.rows for cell in row) else ""
    table = (
        f'{told}<div class="wide" tabindex="0" role="group" aria-label="{label}">'
        f'<table aria-label="{label}"{words}><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>'
        "</div>\n"
    )
    return f"<details><summary>{_(block.caption)}</summary>{table}</details>\n" if block.folded else table


def _chart(block):
    view = (
        f"<details open><summary>{_(t('report.table.view'))}</summary>{_table(block.table, False)}</details>"
    )
    return f"<figure><figcaption>{_(block.alt)}</figcaption>{block.svg}{view}</figure>\n"


def _claim(block):
    if block.written:
        said = f'<p>{_(block.text)}</p><p class="note">{_(block.below)}</p>'
        return f'<blockquote class="claim">{said}</blockquote>\n'
    command = f" <code>{_(block.command)}</code>" if block.command else ""
    said = f"<p><strong>{_(t('report.sentences.none'))}</strong> {_(block.text)}{command}</p>"
    return f'<div class="claim none">{said}</div>\n'


def _(text):
    return html.escape(str(text), quote=False)
