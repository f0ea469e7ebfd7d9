"""The stills: each states its finding with numbers and units, describes itself, leaves no state behind."""

import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.patches import Rectangle

import flashlab
from flashlab import Problem, bench, figures, gpus, memory, needs, schedule, tile_budget, tiled
from flashlab.figures import still
from flashlab.trace import Trace

P = Problem(B=4, Hq=16, Nq=4096, D=128, block_q=128, block_k=64)


def traces(n=128, d=16):
    q, k, v = np.random.default_rng(0).standard_normal((3, n, d))
    found = {}
    for name, run in (("standard", tiled.standard_forward), ("FA2", tiled.fa2_forward)):
        found[name] = Trace()
        run(q, k, v, block_q=32, block_k=32, trace=found[name])
    return found


MADE = {
    "tile_player": lambda: figures.tile_player(traces()),
    "block_schedule": lambda: figures.block_schedule(schedule.simulate(P, "fa2", "H200")),
    "roofline": lambda: figures.roofline(P),
    "memory_map": lambda: figures.memory_map(P),
    "tile_budget": lambda: figures.tile_budget(),
    "pipeline_timeline": lambda: figures.pipeline_timeline((2, 4)),
}


def texts(figure):
    """All words in a figure, title included."""
    return [t.get_text() for t in figure.findobj(lambda x: hasattr(x, "get_text")) if t.get_text()]


def title(figure):
    return figure.get_suptitle().replace("\n", " ")


@pytest.mark.parametrize("name", MADE)
def test_a_still_is_drawn_describes_itself_and_shows_itself_with_that_description(name, tmp_path):
    figure = MADE[name]()
    alt = figures.alt_text(figure)
    assert title(figure) in alt and len(alt) > len(title(figure)) + 40
    assert len(re.findall(r"\d", title(figure))) >= 2, "the title states the finding with numbers"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "x.svg")
        shown = figure._repr_html_()
    ElementTree.parse(tmp_path / "x.svg")
    assert shown.startswith("<img alt=") and f'"{alt}"'.replace("'", "&#x27;") in shown


@pytest.mark.parametrize("name", MADE)
def test_no_words_run_out_of_the_still(name):
    figure = MADE[name]()
    figure.draw_without_rendering()
    edge = figure.bbox
    own = [text for ax in figure.axes for text in (*ax.texts, ax.title, ax.xaxis.label, ax.yaxis.label)]
    for text in (*figure.texts, *own):
        box = text.get_window_extent()
        if text.get_text():
            assert box.x0 >= edge.x0 - 2 and box.x1 <= edge.x1 + 2, text.get_text()


def test_the_stills_need_no_pyplot():
    code = "import sys, flashlab.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_tiles_carry_the_counts_of_the_trace_and_ghosts_are_dashed():
    given = traces()
    figure = figures.tile_player(given)
    assert title(figure).startswith("FA2 moves ") and " where standard moves " in title(figure)
    for name, trace in given.items():
        assert still.si(trace.bytes(), "B") in title(figure) and name in "".join(texts(figure))
    rows = [figure.axes[:7], figure.axes[7:]]
    by = [{ax.get_title(): ax for ax in row} for row in rows]
    assert by[0]["S"].images[0].get_array().shape == (4, 4)
    assert (by[0]["S"].images[0].get_array() == 2).all()  # written and read once
    assert by[1]["S"].images[0].get_array().mask.all() and by[1]["S"].get_xlabel() == "not moved"
    assert (by[1]["K"].images[0].get_array() == 4).all()  # once for each query block
    assert by[1]["S"].spines["left"].get_linestyle() != by[0]["S"].spines["left"].get_linestyle()


def test_a_still_of_the_middle_of_a_trace_counts_only_what_has_happened():
    trace = traces()["FA2"]
    half = figures.tile_player(trace, step=len(trace) // 2)
    assert title(half) == f"trace moves {still.si(Trace(trace[: len(trace) // 2]).bytes(), 'B')}"


def test_every_program_of_a_schedule_is_a_bar_at_its_time():
    line = schedule.simulate(Problem(Hq=4, Nq=1024, causal=True), "fa2", "T4", order="natural")
    figure = figures.block_schedule(line)
    (drawn,) = figure.axes[0].collections
    assert len(drawn.get_paths()) == len(line.programs)
    ends = max(path.vertices[:, 0].max() for path in drawn.get_paths())
    assert ends == pytest.approx(line.seconds(line.makespan) * 1e6)
    assert f"{100 * line.utilisation:.0f} % busy" in title(figure)


def test_two_schedules_are_compared_in_the_title():
    p = Problem(Hq=8, Nq=4096, causal=True, D=128)
    lines = {o: schedule.simulate(p, "fa2", "H200", order=o) for o in ("natural", "longest-first")}
    shown = title(figures.block_schedule(lines))
    for name, line in lines.items():
        assert f"{name} {100 * line.utilisation:.0f} %" in shown


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_roofline_s_points_are_the_model_s(direction):
    figure = figures.roofline(P, direction=direction)
    points = {tuple(np.round(line.get_xydata()[0], 6)) for line in figure.axes[0].lines}
    for name in ("standard", "fa1", "fa2"):
        x = memory.traffic(P, name, direction, "hbm", gpu="H200")
        assert tuple(np.round([x.intensity, x.flops / x.time("H200")[0]], 6)) in points
    assert "62 FLOP/byte" in title(figure) or direction == "backward"


def test_the_roofline_names_machine_and_date_of_what_was_measured_or_shows_nothing():
    shown = " ".join(texts(figures.roofline(P)))
    assert re.search(r"measured on NVIDIA H200, 20\d\d-\d\d-\d\d", shown) and "fa2 measured" in shown
    assert "measured" not in " ".join(texts(figures.roofline(P, gpu="A100-80")))
    assert "measured" not in " ".join(texts(figures.roofline(P, measured=[])))
    assert bench.recorded("kernels"), "the package keeps measurements of an H200"


def test_the_memory_map_says_what_needs_says():
    p = Problem(Hq=32, Nq=32768, D=128)
    figure = figures.memory_map(p, layers=6)
    kept = needs.total(needs.needs(p, "standard", layers=6), "kept")
    assert still.si(kept, "B") in title(figure) and "At N = 32k" in title(figure)
    end = needs.largest(p, "standard", gpus.get("H200").hbm_bytes, layers=6)
    assert f"full at N = {end:,}" in texts(figure)
    bars = [b for b in figure.axes[1].patches if isinstance(b, Rectangle)]
    whole = sum(needs.total(needs.needs(p, a, layers=6)) for a in ("standard", "fa2"))
    assert sum(b.get_width() for b in bars) == pytest.approx(whole)


def test_the_budget_s_cells_are_the_model_s():
    figure = figures.tile_budget("H200", 64)
    counts = figure.axes[0].images[0].get_array().filled(0)
    for i, q in enumerate(tile_budget.BLOCKS):
        for j, k in enumerate(tile_budget.BLOCKS):
            assert counts[i, j] == tile_budget.tile_budget("H200", q, k, 64).programs


def test_chinese_titles_have_a_font_or_stay_english(monkeypatch):
    monkeypatch.setattr("flashlab.text._chosen", None)
    flashlab.lang("zh")
    if len(still.fonts()) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "Glyph 26631 missing from font"
            figure = figures.memory_map(P)
            figure._repr_html_()
        assert "标准注意力" in title(figure)
    monkeypatch.setattr(still, "CHINESE", ())
    assert "standard attention" in title(figures.memory_map(P))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: figures.tile_player({}), "expected traces with at least one event"),
        (lambda: figures.tile_player(Trace()), "expected traces with at least one event"),
        (lambda: figures.block_schedule({}), "expected at least one timeline"),
        (lambda: figures.roofline(P, gpu="H20O"), "unknown GPU"),
        (lambda: figures.roofline(Problem(dtype="float64")), "has no float64 peak"),
        (lambda: figures.memory_map(P, layers=0), "expected layers"),
        (lambda: figures.tile_budget("H200", 512), "head_dim of at most 256"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_what_was_expected(make, words):
    with pytest.raises(ValueError, match=words):
        make()
