"""Claimed over honest for each trick, as a still."""

from flashlab.figures.still import BLUE, VERMILION, Still, fonts, short
from flashlab.text import lang, t


def draw(played, where):
    """A bar for each `Played`, on a log scale that honesty (1) divides."""
    language = lang() if len(fonts()) > 1 else "en"
    say = lambda key, **values: t(f"tricks.{key}", language=language, **values)  # noqa: E731
    played = sorted(played, key=lambda x: x.factor)
    figure = Still(9, 5.2)
    ax = figure.subplots()
    parts = []
    for y, x in enumerate(played):
        name, up = say(f"names.{x.trick}"), x.factor >= 1
        ax.barh(y, x.factor - 1, left=1, color=VERMILION if up else BLUE, height=0.65)
        label = f"{x.factor:.2f}" if 0.1 < x.factor < 10 else short(x.factor)
        label = label if x.factor > 0.1 else f"{x.factor:.2g}"
        ax.annotate(
            f"{label}×", (x.factor, y), (4 if up else -4, 0), textcoords="offset points", va="center",
            ha="left" if up else "right", fontsize=9,
        )  # fmt: skip
        parts.append(say("alt_part", name=name, factor=label))
    ax.axvline(1, color="black", lw=1)
    ax.set(xscale="log", ylim=(-0.6, len(played) - 0.4))
    ax.set_xlabel(f"{say('axis')}\n{where}", family=fonts(), fontsize=9)
    ax.set_xlim(min(0.5, played[0].factor / 6), max(2, played[-1].factor * 8))
    ax.set_yticks(range(len(played)), [say(f"names.{x.trick}") for x in played], family=fonts())
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    joined = ("；" if language == "zh" else "; ").join(reversed(parts))
    least, most = (f"{x.factor:.2g}" if x.factor < 10 else short(x.factor) for x in (played[0], played[-1]))
    return figure.finish(say("title", least=least, most=most), say("alt", parts=joined))
