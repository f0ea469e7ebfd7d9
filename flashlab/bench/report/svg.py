"""A line chart over N as inline SVG: both axes logarithmic, lines named at their ends, no script.

Colours come from the page's style sheet by class (`s0`, `s1`, ... and `floor`), so that they follow its light
and dark theme; a line's shape of marker and its name say the same as its colour.
"""

import html
import math
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 74, 190, 16, 46
APART = 16  # pixels between two names


@dataclass(frozen=True)
class Line:
    """`points`: (x, y, low, high); low and high may be None. `look`: a class of the style sheet."""

    name: str
    points: tuple
    look: str


def number(value):
    """Three significant digits without an exponent: "0.198", "12.3", "1,230"."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else f"{round(value, -len(str(int(value))) + 3):,.0f}"


def chart(lines, label, x_title, y_title, tick=number, base=10, mark=None):
    """The SVG element as text. `label` says in a sentence what is to be seen (for screen readers); `tick`
    writes a y value; `base` 2 puts the ticks on powers of two (bytes); `mark` draws a line at that y.
    """
    points = [p for line in lines for p in line.points]
    xs = sorted({p[0] for p in points})
    ys = [v for p in points for v in p[1:] if v] + ([mark] if mark else [])
    ticks = _ticks(min(ys), max(ys), base)
    low, high = min(ticks[0], min(ys)), max(ticks[-1], max(ys))
    x = _scale(xs[0], xs[-1], LEFT + 14, WIDTH - RIGHT)
    y = _scale(low, high, HEIGHT - BOTTOM, TOP)
    parts = [_grid(xs, ticks, x, y, tick)]
    if mark:
        parts.append(_across("mark", y(mark)))
    parts += [_line(line, x, y) for line in lines]
    parts.append(_names(lines, x, y))
    middle, centre = (TOP + HEIGHT - BOTTOM) / 2, (LEFT + WIDTH - RIGHT) / 2
    parts.append(_title(x_title, f'x="{centre}" y="{HEIGHT - 8}"'))
    parts.append(_title(y_title, f'transform="translate(14 {middle}) rotate(-90)"'))
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def _title(text, place):
    return f'<text class="title" {place} text-anchor="middle">{_(text)}</text>'


def _across(look, at, start=LEFT, end=WIDTH - RIGHT + 8):
    """A level line from the y axis to the right edge."""
    return f'<line class="{look}" x1="{start}" x2="{end}" y1="{at:.1f}" y2="{at:.1f}"/>'


def _scale(low, high, start, end):
    span = math.log(high / low) or 1.0
    return lambda value: start + (end - start) * (math.log(value / low) / span if high > low else 0.5)


def _ticks(low, high, base):
    """Powers of the base from below `low` to above `high`; with few of them also 2 and 5 times as much."""
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    if base == 2:
        step = max(1, -(-(last - first) // 7))
        last += -(last - first) % step
        return [2.0**e for e in range(first, max(last, first + step) + 1, step)]
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    every = [s * 10.0**e for e in range(first, last + 1) for s in steps]
    inside = [v for v in every if low <= v <= high]
    below = [v for v in every if v < low][-1:]
    above = [v for v in every if v > high][:1]
    return below + inside + above


def _grid(xs, ticks, x, y, tick):
    out = []
    for value in ticks:
        out.append(_across("grid", y(value)))
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{_(tick(value))}</text>')
    for value in xs:
        out.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value}</text>')
    return "".join(out)


def _line(line, x, y):
    path = " ".join(f"{x(p[0]):.1f},{y(p[1]):.1f}" for p in line.points)
    out = f'<g class="{line.look}"><polyline points="{path}"/>'
    if line.look != "floor":
        for px, py, low, high in line.points:
            if low and high and y(low) - y(high) > 3:
                out += f'<path class="spread" d="M{x(px):.1f} {y(low):.1f}V{y(high):.1f}"/>'
            out += _marker(line.look, x(px), y(py))
    return out + "</g>"


def _marker(look, x, y):
    """A circle, square, triangle, diamond or bar of about 8 pixels."""
    if look == "s1":
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    if look == "s2":
        return f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z"/>'
    if look == "s3":
        return f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'
    if look == "s4":
        return f'<rect x="{x - 5:.1f}" y="{y - 2:.1f}" width="10" height="4"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _names(lines, x, y):
    """Each line's name beside its last point, moved apart where two would meet."""
    ends = sorted(((y(n.points[-1][1]), i, n) for i, n in enumerate(lines) if n.points), key=lambda e: e[:2])
    places = []
    for at, *_rest in ends:
        places.append(max(at, places[-1] + APART) if places else at)
    over = places[-1] - (HEIGHT - BOTTOM) if places else 0
    if over > 0:  # push back up
        for i in reversed(range(len(places))):
            limit = HEIGHT - BOTTOM if i == len(places) - 1 else places[i + 1] - APART
            places[i] = min(places[i], limit)
    out = []
    for (at, _i, line), place in zip(ends, places, strict=True):
        start, edge = x(line.points[-1][0]) + 7, WIDTH - RIGHT + 18
        out.append(f'<line class="lead" x1="{start:.1f}" y1="{at:.1f}" x2="{edge}" y2="{place:.1f}"/>')
        sign = "" if line.look == "floor" else _marker(line.look, edge + 9, place)
        out.append(f'<g class="{line.look}">{sign}</g>')
        out.append(f'<text class="name" x="{edge + 19}" y="{place + 4:.1f}">{_(line.name)}</text>')
    return "".join(out)


def _(text):
    return html.escape(str(text), quote=False)
