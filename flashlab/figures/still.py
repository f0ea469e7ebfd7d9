"""A matplotlib Figure that needs no pyplot, describes itself in words and shows itself in a notebook."""

import base64
import html
import io
import textwrap

from matplotlib import font_manager, rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from flashlab.text import lang, t

# Okabe-Ito, as in the widgets.
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"
CHINESE = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei")
CHINESE += ("WenQuanYi Micro Hei", "SimHei", "Noto Sans CJK JP")


def fonts():
    """Families for the text of a figure: DejaVu Sans, then a Chinese one if this machine has any."""
    known = {entry.name for entry in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *[name for name in CHINESE if name in known][:1]]


def words(key, **values):
    """The text `figures.<key>` in the chosen language; in English where no font can show Chinese."""
    language = lang() if len(fonts()) > 1 else "en"
    return t(f"figures.{key}", language=language, **values)


class Still(Figure):
    """A Figure with `alt`, its description in words. `savefig` works as always."""

    alt = ""

    def __init__(self, width=9.0, height=4.5):
        super().__init__(figsize=(width, height), layout="constrained", facecolor="white")
        FigureCanvasAgg(self)

    def finish(self, title, alt):
        """Set title and description; returns the figure."""
        shown = textwrap.fill(title, int(9.4 * self.get_figwidth())) if title.isascii() else title
        self.suptitle(shown, fontsize=13, fontweight="bold", x=0.01, ha="left", family=fonts())
        self.alt = f"{title}. {alt}"
        return self

    def savefig(self, *args, **kwargs):
        """As `Figure.savefig`, with text that stays text in SVG."""
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "flashlab"}):
            return super().savefig(*args, **kwargs)

    def _repr_html_(self):
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        data = base64.b64encode(file.getvalue()).decode()
        alt = html.escape(self.alt, quote=True)
        return f'<img alt="{alt}" src="data:image/png;base64,{data}" style="max-width:100%">'


def alt_text(figure):
    """The description of a figure in words, for `alt=` in HTML, Markdown or slides."""
    return getattr(figure, "alt", "")


def si(x, unit):
    """Three digits and a decimal prefix: 412 GB, 1.61 GB, 980 B."""
    for size, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if float(f"{x / size:.3g}") >= 1:
            return f"{float(f'{x / size:.3g}'):g} {prefix}{unit}"
    return f"{float(f'{x:.3g}'):g} {unit}"


def seconds(x):
    """1.85 ms, 556 µs."""
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if float(f"{x / size:.3g}") >= 1:
            return f"{float(f'{x / size:.3g}'):g} {unit}"
    return f"{x / 1e-9:.3g} ns"


def tokens(n):
    """32k for 32,768, 1M for 1,048,576, else with commas."""
    for size, prefix in ((2**20, "M"), (2**10, "k")):
        if n >= size and n % size == 0 and n < 2**30:
            return f"{n // size:,}{prefix}"
    return f"{n:,}"


def short(x):
    """Two digits, all of them from 100 on."""
    return f"{x:,.0f}" if x >= 100 else f"{float(f'{x:.2g}'):g}"
