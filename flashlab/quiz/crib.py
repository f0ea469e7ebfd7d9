"""The one page for the way there: pitch, numbers, formulas, corrected folklore, as HTML that prints on
one sheet.
"""

import html
import re

import flashlab
from flashlab.quiz import bank_loader, formulas, interview, units
from flashlab.text import t

GPUS = ("A100-40", "A100-80", "H100 SXM", "H200")
MOST_CLAIMS = 13
FIRST = (
    "K15",
    "K17",
    "K06",
    "K16",
    "K14",
    "K20",
    "K33",
    "K36",
    "K38",
    "K23",
    "K25",
    "K35",
    "K45",
    "K24",
    "K18",
)

STYLE = """
@page { size: A4; margin: 9mm; }
:root { color-scheme: light; }
body { font: 8.6pt/1.32 system-ui, "Noto Sans", "Noto Sans CJK SC", sans-serif; color: #111;
  background: #fff; max-width: 192mm; margin: 6mm auto; padding: 0 4mm; }
h1 { font-size: 14pt; margin: 0 0 4pt; }
h2 { font-size: 10pt; margin: 0 0 2pt; border-bottom: 1px solid #777; }
p { margin: 0 0 3pt; } main { columns: 2; column-gap: 7mm; } section { margin: 0 0 7pt; }
section:not(:last-child) { break-inside: avoid; }
table { border-collapse: collapse; width: 100%; font-size: 8pt; } th, td { text-align: left; padding: 1pt 3pt;
  border-bottom: 1px solid #ccc; vertical-align: top; } td { font-variant-numeric: tabular-nums; }
dl { margin: 0; } dt { font-weight: 600; } dd { margin: 0 0 2pt; font-size: 8pt;
  font-family: ui-monospace, Menlo, Consolas, monospace; }
.wrong { margin: 0 0 3pt; break-inside: avoid; } .wrong span { color: #555; }
footer { font-size: 7pt; color: #555; margin-top: 5pt; }
@media print { body { margin: 0; padding: 0; max-width: none; } }
"""


def page(lang="en", folder=None):
    """The crib sheet as one HTML document: no script, no other file."""
    part = "".join(
        f"<section><h2>{_(t(f'quiz.crib.{name}', lang))}</h2>{body}</section>"
        for name, body in (
            ("pitch", f"<p>{_(interview.data()['pitch']['spoken'][lang])}</p>"),
            ("numbers", _numbers(lang)),
            ("formulas", _formulas(lang)),
            ("folklore", _folklore(lang, folder)),
        )
    )
    title, code = _(t("quiz.crib.title", lang)), {"zh": "zh-CN"}.get(lang, lang)
    made = _(t("quiz.crib.made", lang, version=flashlab.__version__))
    return (
        f'<!doctype html>\n<html lang="{code}"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><h1>{title}</h1><main>{part}</main><footer>{made}</footer></body></html>\n"
    )


def _(text):
    return html.escape(str(text), quote=False)


def _table(head, rows):
    cells = "".join(f'<th scope="col">{_(c)}</th>' for c in head)
    body = "".join(
        f'<tr><th scope="row">{_(first)}</th>' + "".join(f"<td>{_(c)}</td>" for c in rest) + "</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _numbers(lang):
    names = ("gpu", "sms", "memory_bandwidth", "peak", "ridge", "shared", "registers")
    rows = []
    for name in GPUS:
        g = formulas.gpu(name)
        rows.append([
            name, g.sms, units.show(g.hbm_bandwidth, "TB/s"), units.show(formulas.peak(name), "TFLOP/s"),
            f"{formulas.ridge(name):.0f}", units.show(g.shared_per_program, "KiB"),
            units.show(g.registers_per_sm, "KiB"),
        ])  # fmt: skip
    sizes = {"B": 8, "Hq": 32, "Nq": 4096}
    more = [
        ("scores", units.largest(formulas.score_bytes(**sizes, Nk=4096))),
        ("lse", units.largest(formulas.lse_bytes(**sizes))),
        ("cache", units.largest(formulas.kv_cache_bytes(1, 8, 8192, 128, layers=32))),
        ("flops", "4 · B · H · N² · D"),
        ("recompute", f"+{units.show(1 / 6, 'percent', lang)}"),
    ]
    extra = "".join(
        f"<tr><th scope='row'>{_(t(f'quiz.crib.{k}', lang))}</th><td>{_(v)}</td></tr>" for k, v in more
    )
    return _table([t(f"quiz.crib.{n}", lang) for n in names], rows) + f"<table><tbody>{extra}</tbody></table>"


def _formulas(lang):
    lines = [
        ("update", "m′ = max(m, max s);  α = exp(m − m′);  p = exp(s − m′)"),
        ("", "l ← α·l + Σp;  acc ← α·acc + p·V;  m ← m′"),
        ("finish", "O = acc / l;  L = m + ln l"),
        ("merge", "L = ln(e^L₁ + e^L₂);  O = e^(L₁−L)·O₁ + e^(L₂−L)·O₂"),
        ("backward", "P = exp(S − L);  δ = rowsum(dO ∘ O);  dV = Pᵀ·dO;  dP = dO·Vᵀ"),
        ("", "dS = P ∘ (dP − δ);  dQ = τ·dS·K;  dK = τ·dSᵀ·Q"),
        ("traffic", "standard 4N² + 4ND;  FA1 ≈ 3N²D/Bc;  FA2 ≈ 2N²D/Br"),
    ]
    return (
        "<dl>"
        + "".join(
            (f"<dt>{_(t(f'quiz.crib.{name}', lang))}</dt>" if name else "") + f"<dd>{_(line)}</dd>"
            for name, line in lines
        )
        + "</dl>"
    )


def _folklore(lang, folder):
    claims = {c.id: c for c in bank_loader.load_claims(lang, folder) if c.verdict == "false"}
    order = [i for i in FIRST if i in claims] + [i for i in claims if i not in FIRST]
    return "".join(
        f'<p class="wrong"><span>✗ {_(claims[i].text)}</span> → {_(_plain(claims[i].polite))}</p>'
        for i in order[:MOST_CLAIMS]
    )


def _plain(text):
    return re.sub(r"[*`]", "", text)
