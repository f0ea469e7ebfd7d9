"""PipelineTimeline without a browser: the kept logs are the simulator's, the numbers shown are the logs'."""

import json
import subprocess
import sys

import pytest
from widget_cases import in_node

import flashlab
from flashlab import figures, pipeline
from flashlab.text import table
from flashlab.widgets import PipelineTimeline, _base

FILES = ["pipeline_numbers.js", "pipeline_picture.js"]
SOME = [(D, causal, step) for D, causal in ((64, True), (128, False)) for step in pipeline.STEPS]
S = table("pipeline", "en")


@pytest.fixture(autouse=True)
def english():
    flashlab.lang("en")
    yield
    flashlab.lang("en")


def kept(D, causal, step):
    return pipeline.logs(D, causal)[step - 1]


@pytest.mark.parametrize(("D", "causal", "step"), SOME)
def test_the_kept_log_is_the_simulator_s(D, causal, step):
    pytest.importorskip("triton.experimental.gluon")
    here, there = pipeline.packed(D, causal, step), kept(D, causal, step)
    again = "the kernels or the simulator have changed: python -m flashlab.pipeline"
    assert here["order"] == there["order"], again
    mine, theirs = pipeline.unpack(here), pipeline.unpack(there)
    assert len(mine) == len(theirs), again
    for a, b in zip(mine, theirs, strict=True):
        assert a[:5] == b[:5] and abs(a.start - b.start) <= 1 and abs(a.end - b.end) <= 1, again


@pytest.mark.parametrize("causal", [False, True])
def test_every_step_does_the_same_products(causal):
    """6 times 64 rows and 8 tiles of 128 keys; under the mask 8, 8, 7, 7, 6 and 6 of them."""
    for D in pipeline.DIMS:
        for step in pipeline.STEPS:
            log = kept(D, causal, step)
            events = pipeline.unpack(log)
            assert len([e for e in events if e.unit == "tensor"]) == (42 if causal else 48) * 2
            blocks = pipeline.ROWS // log["rows"]
            assert {e.block for e in events} == set(range(blocks))
            queries = [e.tile[1] for e in events if e.op == "load" and e.tile[0] == "q"]
            assert sorted(queries) == list(range(6)) or (step == 5 and not causal and len(queries) == 6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", [64, 128, 256])
def test_the_plan_gives_one_sm_as_many_rows_in_step_5_as_a_head_has(D, causal):
    pytest.importorskip("triton.experimental.gluon")
    for step in pipeline.STEPS:
        config, rows, tiles = pipeline.share(D, causal, step)
        assert len(tiles) * rows == pipeline.ROWS
        assert rows == 64 * (1 if step == 1 else config.consumers)
        if causal or step < 5:  # each block of a head once: without a mask all blocks are alike
            assert sorted(tile % len(tiles) for tile in tiles) == list(range(len(tiles)))


def test_three_consumers_work_on_three_rows_of_the_picture():
    who = {(D, s): len({w for w in kept(D, False, s)["who"] if w.startswith("consume")})
           for D in pipeline.DIMS for s in pipeline.STEPS}  # fmt: skip
    assert who == {(D, s): 0 if s == 1 else 3 if (D, s) == (64, 5) else 2 for D, s in who}
    code = "given.map((x) => js.layout(js.unpackLog(x), [0, 5000]).rows.map((row) => row.name))"
    two, three = in_node(FILES, code, [kept(128, False, 5), kept(64, False, 5)])
    assert two == ["producer", "consumer0", "consumer1", "tensor", "exp", "fp32"]
    assert three == [*two[:3], "consumer2", *two[3:]]
    svg = in_node(FILES, "js.drawStep(js.unpackLog(given[0]), [5000, 8000], 900, {id: 'x', s: given[1]})",
                  [kept(64, False, 5), S])  # fmt: skip
    assert 'class="two"' in svg and "url(#xt)" in svg and ">2: S3<" in svg


def test_step_1_never_has_two_units_at_work_and_step_2_copies_under_products():
    both = {}
    for step in (1, 2):
        events = pipeline.unpack(kept(128, False, step))
        units = {u: [e for e in events if e.unit == u] for u in pipeline.UNITS}
        both[step] = sum(
            max(0, min(a.end, b.end) - max(a.start, b.start))
            for one, other in (("copy", "tensor"), ("copy", "exp"), ("tensor", "exp"))
            for a in units[one]
            for b in units[other]
        )
    assert both[1] <= 4 and both[2] > 10_000  # a clock is lost or won by rounding


def test_waits_name_the_tile_that_ends_them():
    """For a copy: a latency (500 clocks) after it. For a place: with the last product that read it."""
    events = pipeline.unpack(kept(128, False, 3))
    waits = [e for e in events if e.op.startswith(("k_filled", "v_filled"))]
    assert waits
    for wait in waits:
        ends = [e.end for e in events if e.op == "load" and e.tile == wait.tile]
        assert any(abs(end + 500 - wait.end) <= 2 for end in ends), wait
    events = pipeline.unpack(kept(128, False, 2))  # where a product's tile is given back when it ends
    emptied = [e for e in events if e.op.startswith("k_emptied") and e.block == 0]
    assert emptied
    for wait in emptied:  # ends with the later of the two products that read this K
        read = [e for e in events if e.unit == "tensor" and (e.tile, e.block) == (wait.tile, wait.block)]
        assert abs(max(e.end for e in read) - wait.end) <= 1, wait


@pytest.mark.parametrize(("D", "rings"), [(64, (3, 3)), (128, (2, 3))])
def test_a_place_in_the_rings_of_step_5_is_free_when_its_tile_was_read(D, rings):
    """At D 128 the ring of V is longer than that of K, and V is given back after the softmax."""
    events = pipeline.unpack(kept(D, False, 5))
    for tensor, stages in zip("kv", rings, strict=True):
        waits = [e for e in events if e.op.startswith(f"{tensor}_emptied")]
        assert waits and all(int(e.op[-2]) < stages for e in waits)
        for wait in waits:
            read = [e for e in events if e.unit == "tensor" and e.tile == wait.tile]
            ends = [max(e.end for e in read if e.block == block) for block in {e.block for e in read}]
            late = 1500 if (D, tensor) == (128, "v") else 1  # a tile takes 2048 clocks there
            assert any(-1 <= wait.end - end <= late for end in ends), wait


def test_the_next_q_comes_when_the_last_scores_of_this_one_are_made():
    for D in pipeline.DIMS:
        events = pipeline.unpack(kept(D, False, 5))
        brought = [e for e in events if e.op == "load" and e.tile[0] == "q"]
        for wait in (e for e in events if e.op.startswith("q_filled")):
            mine = [e for e in brought if e.block == wait.block][int(wait.op[-2])]
            assert wait.tile == mine.tile and abs(mine.end + 500 - wait.end) <= 2
        waits = [e for e in events if e.op.startswith("q_emptied")]
        assert waits
        for wait in waits:
            mine = [
                e for e in events if e.partition == f"consume {wait.op[-2]}" and e.block == wait.block - 1
            ]
            last = [e for e in mine if e.unit == "tensor" and e.tile[0] == "k"][-1]
            output = [e for e in mine if e.unit == "tensor"][-1]
            assert last.tile == ("k", 7) and last.end - 1 <= wait.end < output.end


def test_the_bubbles_close_from_step_to_step_or_not():
    """Of the model: 2 and 3 gain, 4 gains at D 64 only, 5 leaves a quarter of the pause between blocks."""
    share = {
        (D, s): pipeline.busy(kept(D, False, s), "tensor") for D in pipeline.DIMS for s in pipeline.STEPS
    }
    for D in pipeline.DIMS:
        assert share[D, 1] < share[D, 2] - 0.2 < share[D, 3] - 0.25
        pauses = in_node(FILES, "given.map((x) => js.pause(js.unpackLog(x)))", pipeline.logs(D))
        assert min(pauses[:4]) > 2000 and 0 < pauses[4] < 0.25 * pauses[3]
        assert share[D, 5] > share[D, 4] + 0.05
    assert share[64, 4] > share[64, 3] + 0.05 and abs(share[128, 4] - share[128, 3]) < 0.02


def test_the_browser_unpacks_what_python_packed():
    log = kept(64, True, 5)
    got = in_node(FILES, "js.unpackLog(given).stretches", log)
    want = [[e.partition, e.unit, e.op, e.tile and list(e.tile), *e[4:]] for e in pipeline.unpack(log)]
    assert [[g[n] for n in ("who", "unit", "op", "tile", "block", "start", "end")] for g in got] == want
    shares = in_node(
        FILES, "['copy', 'tensor', 'exp', 'fp32'].map((u) => js.busy(js.unpackLog(given), u))", log
    )
    assert shares == pytest.approx([pipeline.busy(log, unit) for unit in pipeline.UNITS])


def say(D, causal, *steps, language="en"):
    shown = [[s, kept(D, causal, s)] for s in steps]
    code = "((x) => [js.titleOf(x, given[1]), js.moreOf(x, given[1])])"
    code += "(given[0].map(([s, l]) => [s, js.unpackLog(l)]))"
    title, more = in_node(FILES, code, [shown, table("pipeline", language)])
    return title.replace("\xa0", " "), more.replace("\xa0", " ")


def test_the_title_states_the_finding_in_numbers():
    share = [f"{100 * pipeline.busy(kept(128, False, s), 'tensor'):.0f} %" for s in (2, 4)]
    title, more = say(128, False, 2, 4)
    assert title == f"Step 4 keeps the tensor cores busy {share[1]} of the time, step 2 {share[0]}"
    assert "sooner" in more
    assert say(128, False, 1)[0].startswith("Step 1 keeps")


def test_a_step_that_does_not_help_in_the_model_is_said_not_to():
    assert "changes next to nothing" in say(128, False, 3, 4)[1]
    assert "no gap that could be closed" in say(128, False, 3, 4)[1]
    assert "it is not better" in say(128, False, 5, 2)[1]
    assert "(the order of step 4 at this D)" in say(128, False, 4, 5)[1]
    assert "(the order of step 2, with three consumers at this D)" in say(64, False, 4, 5)[1]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_bar_can_be_told_in_words(language):
    code = "given[0].flatMap((x, i) => js.unpackLog(x).stretches"
    code += ".map((e) => js.tell(e, i + 1, given[1]) + js.label(e)))"
    words = table("pipeline", language)
    told = in_node(FILES, code, [pipeline.logs(64, True) + pipeline.logs(128), words])
    assert len(told) > 5000
    assert any("consumer 2" in x for x in told)
    assert not [x for x in told if "{" in x or "undefined" in x or "null" in x]
    put = [x for x in told if "V7 out" in x or "写出 V7" in x]
    assert put == [], "only o leaves"
    for steps in ((1,), (2, 4), (5, 1), (4, 5)):
        assert "{" not in "".join(say(64, False, *steps, language=language))


def test_the_views_show_what_their_names_say():
    code = "['whole', 'steady', 'between'].map((n) => js.pipelineView(given.map((x) => js.unpackLog(x)), n))"
    logs = [kept(128, False, s) for s in (4, 5)]
    whole, steady, between = in_node(FILES, code, logs)
    assert whole == [0, max(log["end"] for log in logs)]
    assert 0 < steady[0] < steady[1] < between[1] and 5000 < steady[1] - steady[0] < 9000
    for log in logs:
        first = [e for e in pipeline.unpack(log) if e.unit == "tensor" and e.block == 0]
        second = [e for e in pipeline.unpack(log) if e.unit == "tensor" and e.block == 1]
        assert between[0] < max(e.end for e in first) and second[0].start < between[1]


def test_rates_are_shown_only_where_they_were_measured():
    assert pipeline.measured([]) == []
    origin = {"gpu": "NVIDIA H200", "date": "2026-12-24T00:00:00"}
    row = dict(part="forward", direction="forward", D=128, causal=False, N=4096, dtype="float16", tflops=1.5)
    rows = [
        row | dict(peer="fa3 step 4"),
        row | dict(peer="fa3 step 4", N=16384, tflops=9.0),
        row | dict(peer="fa3 step 4", dtype="bfloat16", tflops=8.0),
        row | dict(peer="fa2", tflops=7.0),
        {k: x for k, x in row.items() if k != "tflops"} | dict(peer="fa3 step 5", error="hung"),
        dict(part="first", step=1, D=64),
    ]
    (found,) = pipeline.measured([{"provenance": origin, "rows": rows}])
    assert (found["step"], found["tflops"], found["N"]) == (4, 1.5, 4096)
    shown = in_node(
        FILES, "[4, 5].map((n) => js.measuredOf(given[0], n, 128, false, given[1]))", [[found], S]
    )
    assert shown[0] == "measured: 2 TFLOP/s (N = 4,096, float16, NVIDIA H200, 2026-12-24)"
    assert shown[1] == "not yet measured on the H200"


def rates(D, causal, tflops):
    """Rows as `measured` gives them, of invented rates."""
    record = {"provenance": {"gpu": "NVIDIA H200", "date": "2026-12-24T00:00:00"}, "rows": []}
    for step, rate in tflops.items():
        row = dict(direction="forward", D=D, causal=causal, N=4096, dtype="float16", tflops=rate)
        record["rows"].append(row | dict(peer=f"fa3 step {step}"))
    return pipeline.measured([record])


def compared(D, causal, tflops, *steps, **other):
    shown = [[s, kept(D, causal, s)] for s in steps]
    rows = [row | other if row["step"] == steps[0] else row for row in rates(D, causal, tflops)]
    code = "js.comparedOf(given[0].map(([s, l]) => [s, js.unpackLog(l)]), ...given.slice(1))"
    return in_node(FILES, code, [shown, rows, D, causal, S])


def test_the_model_is_laid_beside_the_measurement_and_said_to_be_wrong_where_it_is():
    ratio = kept(128, False, 2)["end"] / kept(128, False, 4)["end"]
    agrees = compared(128, False, {2: 500, 4: 550}, 2, 4)
    assert agrees == (
        "Measured on the NVIDIA H200 (N = 4,096, float16), step 4 runs at 1.10× the rate of step 2; "
        f"in the model at {ratio:.2f}×."
    )
    assert compared(128, False, {2: 500, 4: 490}, 2, 4).endswith(S["contradicted"])
    assert "wrong" not in compared(128, False, {3: 500, 4: 550}, 3, 4)  # the model sees no difference
    wrong = compared(64, False, {1: 400, 2: 300}, 1, 2)
    assert S["contradicted"] in wrong and wrong.endswith(S["shared_sm"])


def test_what_was_measured_differently_or_not_at_all_is_not_compared():
    rate = {2: 500, 4: 550}
    assert compared(128, False, rate, 4) == ""
    assert compared(128, False, {4: 550}, 2, 4) == ""
    for other in (dict(N=1024), dict(dtype="bfloat16"), dict(gpu="another")):
        assert compared(128, False, rate, 2, 4, **other) == ""


def test_a_record_of_every_step_leaves_nothing_unmeasured():
    rows = [
        r
        for D in pipeline.DIMS
        for c in (False, True)
        for r in rates(D, c, {s: 100 * s for s in range(1, 6)})
    ]
    code = "given[2].map(([n, D, c]) => js.measuredOf(given[0], n, D, c, given[1]))"
    which = [(step, D, c) for D in pipeline.DIMS for c in (False, True) for step in pipeline.STEPS]
    said = in_node(FILES, code, [rows, S, which])
    assert len(said) == 20 and all(
        x.startswith(f"measured: {100 * (i % 5 + 1)} TFLOP/s") for i, x in enumerate(said)
    )
    table_row = "js.measuredRow(given[0], [1, 2, 3, 4, 5], 64, true, given[1])"
    name, cells = in_node(FILES, table_row, [rows, S])
    assert name == "measured TFLOP/s (N = 4,096, float16, NVIDIA H200, 2026-12-24)"
    assert cells == ["100", "200", "300", "400", "500"]
    assert in_node(FILES, table_row, [[], S]) == ["measured", ["not yet"] * 5]
    mixed = [r | dict(dtype="bfloat16") if r["step"] == 5 else r for r in rows]
    name, cells = in_node(FILES, table_row, [mixed, S])
    assert name == "measured" and "bfloat16" in cells[4] and "float16" in cells[0]


def test_the_still_shows_the_rates_of_a_record(monkeypatch):
    rows = rates(64, False, {4: 400, 5: 440.4})
    monkeypatch.setattr(pipeline, "measured", lambda: rows)
    alt = figures.alt_text(figures.pipeline_timeline((4, 5), D=64))
    assert "440 TFLOP/s (N = 4,096" in alt and "not yet measured" not in alt


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (dict(step=6), r"expected step to be one of [1, 2, 3, 4, 5], got 6"),
        (dict(above=-1), "expected above to be one of"),
        (dict(D=100), "expected D to be a multiple of 8 from 8 to 256, got 100"),
        (dict(causal="bottom-right"), "expected causal to be False or True"),
    ],
    ids=str,
)
def test_what_cannot_be_shown_opens_as_a_sentence(how, words):
    widget = PipelineTimeline.of(**how)
    assert words in widget.error and widget.summary() == widget.error


def test_a_head_dim_that_is_not_kept_is_simulated_or_says_what_is_missing(monkeypatch):
    def no_triton(D, causal, step):
        raise ImportError("No module named 'triton'")

    monkeypatch.setattr(pipeline, "packed", no_triton)
    assert "needs Triton: No module named 'triton'" in PipelineTimeline.of(D=256).error
    monkeypatch.setattr(pipeline, "packed", lambda D, causal, step: kept(128, causal, step))
    assert set(PipelineTimeline.of(D=256).logs) == {"64", "64 causal", "128", "128 causal", "256"}


def test_the_widget_opens_without_torch_and_triton_and_is_small():
    code = """
import sys
sys.modules["torch"] = sys.modules["triton"] = None
from flashlab.widgets import PipelineTimeline
print(len(PipelineTimeline.of(step=5).logs))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "4", done.stderr
    widget = PipelineTimeline.of()
    assert len(json.dumps(_base.twin_state(widget))) < 170_000
    page = _base.twin_html(widget)
    assert len(page) < 240_000 and "https://" not in page


def test_the_still_says_the_same_and_that_it_is_a_model():
    figure = figures.pipeline_timeline((3,), D=64, window=(0, 4000))
    share = f"{100 * pipeline.busy(kept(64, False, 3), 'tensor'):.0f} %"
    assert (
        figure.get_suptitle().replace("\n", " ") == f"Step 3 keeps the tensor cores busy {share} of the time"
    )
    assert "Not a measurement" in figures.alt_text(figure)
    assert "not yet measured" in figures.alt_text(figure) or "measured: " in figures.alt_text(figure)
    with pytest.raises(ValueError, match="expected some of the steps"):
        figures.pipeline_timeline((0, 2))


@pytest.mark.parametrize("D", [64, 128])
def test_no_head_of_the_still_is_cut_off(D):
    figure = figures.pipeline_timeline(pipeline.STEPS, D=D, causal=True)
    figure.canvas.draw()
    for ax in figure.axes:
        (head,) = (x for x in ax.get_children() if getattr(x, "get_text", str)().startswith("Step"))
        assert head.get_window_extent().x1 <= figure.bbox.x1, head.get_text()


def test_at_every_clock_each_lane_works_waits_queues_or_has_nothing_to_do():
    code = "given[1].map((c) => Object.fromEntries(js.now(js.unpackLog(given[0]), c, given[2])))"
    start, inside, end = in_node(FILES, code, [kept(64, False, 3), [10, 5370, 42770], S])
    assert start["Consumer 0"] == "waits: Q4" and start["Tensor cores"] == "idle"
    assert inside["Consumer 0"] == "queues for a unit" and inside["Exponential"] == "1: 2"
    assert end["Consumer 1"] == end["Consumer 0"] == "no work" and end["Producer, copies"].startswith("O")
