"""What every widget shares: its files beside the module, its strings from the tables, and its static twin.

A widget is three files with one name: `x.py` (a class derived from `Widget`, with its traits), `x.js` (one
ESM file, no imports, `export default { render }`; render returns its clean-up) and `x.css` (put behind
`base.css`, which holds the colours as variables on `.fl-widget`). The JavaScript holds no language: it reads
`model.get("strings")`.

The static twin is the same ESM and CSS in a sandboxed frame with a stub model: no kernel, no network. It is
added to the output only while FLASHLAB_STATIC=1 (the build of the offline pages sets it), else every saved
notebook would carry it.
"""

import html
import json
import os
import sys
from pathlib import Path

import anywidget
import traitlets

from flashlab.text import lang, table

_HERE = Path(__file__).parent
_NOT_STATE = {"layout", "tabbable", "tooltip", "comm"}

# The model as a widget's JavaScript knows it; `set` tells the listeners, as the real one does.
_STUB = """
const state = JSON.parse(document.getElementById("state").textContent), heard = {};
const model = {
  get: (name) => state[name],
  set(name, value) {
    if (state[name] === value) return;
    state[name] = value;
    for (const call of heard["change:" + name] || []) call();
  },
  save_changes() {}, send() {},
  on: (event, call) => void (heard[event] = [...(heard[event] || []), call]),
  off: (event, call) => void (heard[event] = call ? (heard[event] || []).filter((c) => c !== call) : []),
};
const code = JSON.parse(document.getElementById("code").textContent);
const widget = (await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })))).default;
const el = document.getElementById("widget");
widget.render({ model, el });
const height = () => Math.ceil(el.getBoundingClientRect().height) + 2;
const tell = () => parent.postMessage({ flashlabHeight: height() }, "*");
new ResizeObserver(tell).observe(el);
addEventListener("message", ({ data }) => {
  if (!("flashlabLight" in data)) return;
  document.documentElement.dataset.jpThemeLight = data.flashlabLight;
  document.documentElement.style.colorScheme = data.flashlabLight ? "light" : "dark";
});
"""

# A page needs a heading; in a cell's output it is for screen readers only.
_UNSEEN = "position:absolute;width:1px;height:1px;margin:0;overflow:hidden;clip-path:inset(50%)"

# Outside the frame: give it the height that it asks for (without scripts it keeps the widget's
# `twin_height`), and tell it whether the page around it is light or dark, where it has a colour of its own.
_FIT = """
((frame) => addEventListener("message", (e) => {
  if (e.source !== frame.contentWindow || !(e.data.flashlabHeight > 0)) return;
  frame.style.height = e.data.flashlabHeight + "px";
  const paper = getComputedStyle(document.body).backgroundColor;
  const [r, g, b, a = 1] = paper.match(/[\\d.]+/g).map(Number);
  if (a > 0) frame.contentWindow.postMessage({ flashlabLight: r + g + b > 384 }, "*");
}))(document.currentScript.previousElementSibling)
"""


class Widget(anywidget.AnyWidget):
    """Base of all widgets. Subclasses set `text_area` (the string table they read), `twin_height` (pixels).

    `strings` is the whole table `text_area` in the language chosen when the widget is made, with the language
    code under "lang"; pass `strings=` to change it. `esm_first` names JavaScript files to put in front of the
    widget's own, for logic that is tested by itself.
    """

    text_area = None
    esm_first = ()
    css_first = ()
    twin_height = 420

    strings = traitlets.Dict().tag(sync=True)

    def __init_subclass__(cls, **kwargs):
        module = Path(sys.modules[cls.__module__].__file__)
        if "_esm" not in cls.__dict__ and module.with_suffix(".js").exists():
            parts = [*map(module.with_name, cls.esm_first), module.with_suffix(".js")]
            cls._esm = "\n".join(part.read_text(encoding="utf-8") for part in parts)
            own = module.with_suffix(".css")
            sheets = [_HERE / "base.css", *map(module.with_name, cls.css_first), *[own] * own.exists()]
            cls._css = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
        super().__init_subclass__(**kwargs)

    def __init__(self, **traits):
        if self.text_area:
            traits.setdefault("strings", {"lang": lang(), **table(self.text_area, lang())})
        super().__init__(**traits)

    def summary(self):
        """One sentence for readers who get neither the widget nor its twin (sanitised pages, plain text)."""
        return type(self).__name__

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle and os.environ.get("FLASHLAB_STATIC") == "1":
            data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
            return {**data, "text/html": twin_html(self)}, metadata
        return bundle


def twin_state(widget):
    """The traits of `widget` that its JavaScript may read, as a plain dict."""
    names = [n for n in widget.keys if not n.startswith("_") and n not in _NOT_STATE]
    return {n: _rounded(widget.get_state(n)[n]) for n in sorted(names)}


def _rounded(value):
    """`value` with floats to 12 digits: the last bits of exp differ between machines, files must not."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {k: _rounded(x) for k, x in value.items()}
    return [_rounded(x) for x in value] if isinstance(value, (list, tuple)) else value


def _inline(value):
    """JSON that may stand inside a <script> element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )


def twin_document(widget, *, title=None, head="", before="", after=""):
    """A complete HTML document with the widget alive in it: no kernel, no network, no other file.

    `head` goes into its head, `before` and `after` around the widget (HTML, not escaped).
    """
    title = title or widget.strings.get("name") or type(widget).__name__
    before = before or f'<h1 style="{_UNSEEN}">{html.escape(title)}</h1>'
    language = html.escape({"zh": "zh-CN"}.get(widget.strings.get("lang"), widget.strings.get("lang", "en")))
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{html.escape(title)}</title>'
        f"<style>html,body{{margin:0}}{widget._css}</style>{head}</head>"
        f'<body><main>{before}<div id="widget"></div>{after}</main>'
        f'<script type="application/json" id="state">{_inline(twin_state(widget))}</script>'
        f'<script type="application/json" id="code">{_inline(str(widget._esm))}</script>'
        f'<script type="module">{_STUB}</script></body></html>'
    )


def twin_html(widget):
    """HTML for a cell's output: `twin_document` in a sandboxed frame; a sentence where frames are dropped."""
    name = html.escape(widget.summary(), quote=True)
    return (
        "<style>.fl-twin-summary:has(+ iframe){display:none}</style>"
        f'<p class="fl-twin-summary" style="font-size:85%;opacity:.8;margin:.3em 0">{name}</p>'
        f'<iframe sandbox="allow-scripts" title="{name}" '
        f'srcdoc="{html.escape(twin_document(widget), quote=True)}" '
        f'style="width:100%;height:{widget.twin_height}px;border:0;display:block"></iframe>'
        f"<script>{_FIT.strip()}</script>"
    )
