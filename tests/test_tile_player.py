"""TilePlayer: packing goes there and back, and its JavaScript shows what a plain Python replay says."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from widget_cases import in_node

import flashlab
from flashlab import Problem, tiled
from flashlab.text import table
from flashlab.trace import OPS, Event, Trace
from flashlab.widgets import TilePlayer, _base, packing, tile_player

JS = ["tile_frames.js", "tile_layout.js"]
WORDS = {"lang": "en", **table("player", "en")}
SMALL = Problem(Nq=100, Nk=130, D=16, block_q=32, block_k=48, causal=True)
OPEN = "const traces = given.traces.map((t) => js.open(t, given.sizes));"


def run(body, traces, **more):
    """The value of the JavaScript function `body` with `traces` opened and `given` at hand."""
    given = {"traces": [packing.pack(t) for t in traces], "words": WORDS, **more}
    return in_node(JS, f"(() => {{ {OPEN} {body} }})()", given)


def all_traces():
    """Every loop of flashlab.tiled on a ragged causal problem."""
    for direction in ("forward", "backward"):
        for name, trace in tile_player.one_head(SMALL, direction)[0].items():
            yield f"{name} {direction}", trace


EVENTS = st.builds(
    Event,
    step=st.integers(0, 2**32 - 1),
    program=st.lists(st.one_of(st.integers(0, 300), st.sampled_from(["dkdv", "dq", "ü"]))).map(tuple),
    op=st.sampled_from(OPS),
    tensor=st.sampled_from(["q", "k", "weights", "Ω"]),
    tile=st.lists(st.integers(0, 70_000), max_size=3).map(tuple),
    bytes=st.integers(0, 2**53),
    flops=st.integers(0, 2**53),
)


@settings(max_examples=60, deadline=None)
@given(events=st.lists(EVENTS, max_size=40), dtype=st.sampled_from(["float16", "float32"]))
def test_any_trace_comes_back_as_it_was_packed_also_through_json(events, dtype):
    trace = Trace(events, dtype)
    back = packing.unpack(json.loads(json.dumps(packing.pack(trace))))
    assert list(back) == events and back.dtype == dtype
    assert all(isinstance(e, Event) for e in back)


def test_columns_take_the_narrowest_width_that_holds_their_numbers():
    def widths(kinds):
        trace = Trace(Event(i, (), "load", "q", (i % kinds,), 8) for i in range(2 * kinds))
        return packing.pack(trace)["columns"]["tile"][0]

    assert [widths(n) for n in (256, 257, 65_536, 65_537)] == [1, 2, 2, 4]
    assert "step" not in packing.pack(Trace([Event(0, (), "load", "q", (0,), 8)]))["columns"]


def test_what_is_no_event_is_refused_with_a_sentence():
    with pytest.raises(TypeError, match="expected flashlab.trace.Event entries, got 'q'"):
        packing.pack(["q"])


def ten_thousand_events():
    """A real FA2 order of more than 10,000 events."""
    return tile_player.one_head(Problem(Nq=3264), algorithms=["FA2"])[0]["FA2"]


def test_ten_thousand_events_are_a_state_under_200_kb_made_in_a_moment():
    trace = ten_thousand_events()
    assert len(trace) > 10_000
    took = []
    for _ in range(3):
        start = time.process_time()
        player = TilePlayer(trace)
        took.append(time.process_time() - start)
    state = json.dumps(_base.twin_state(player))
    assert len(state) < 200_000, f"{len(state)} bytes"
    assert min(took) < 0.15, took


@pytest.mark.parametrize(("name", "trace"), list(all_traces()))
def test_javascript_counts_every_tensor_s_bytes_as_python_does_at_every_step(name, trace):
    steps = sorted({0, 1, len(trace) // 3, len(trace) // 2, len(trace)})
    got = run(
        "const t = traces[0], s = js.begin(t); return given.steps.map((n) => { js.seek(t, s, n);"
        "return t.tensors.map((x) => [x.name, s.read[x.index], s.written[x.index]]); })",
        [trace],
        steps=steps,
    )
    for n, rows in zip(steps, got, strict=True):
        part = Trace(trace[:n])
        for tensor, read, written in rows:
            assert (read, written) == (part.bytes("load", tensor), part.bytes("store", tensor)), (n, tensor)


def lives_until(trace, e):
    """The last event at which the tile loaded at `e` is on chip, worked out the slow way."""
    end = next((i for i in range(e, len(trace)) if trace[i].program != trace[e].program), len(trace))
    again = (i for i in range(e + 1, end) if trace[i][2:4] == ("load", trace[e].tensor))
    end = next(again, end)
    work = [i for i in range(e + 1, end) if trace[i].op not in ("load", "store")]
    return work[-1] if work else end - 1


@pytest.mark.parametrize(("name", "trace"), list(all_traces()))
def test_a_loaded_tile_stays_on_chip_until_its_last_use(name, trace):
    got = run(
        "const t = traces[0], s = js.begin(t), out = [];"
        "for (let n = 1; n <= t.n; n++) { js.seek(t, s, n);"
        "const full = t.tensors.filter((x) => s.slots[x.index].how === 'load');"
        "out.push(full.map((x) => [x.name, s.slots[x.index].since])); }"
        "return out",
        [trace],
    )
    until = {e: lives_until(trace, e) for e in range(len(trace)) if trace[e].op == "load"}
    touched = ("store", "update", "finish", "scores")
    for n, slots in enumerate(got, 1):
        now = {}
        for e in range(n):
            if trace[e].op == "load" and until[e] >= n - 1:
                now[trace[e].tensor] = e
            elif trace[e].op in touched:
                now.pop(trace[e].tensor, None)
        assert dict(slots) == now, (name, n)


@pytest.mark.parametrize(("name", "trace"), list(all_traces()))
def test_going_back_shows_what_going_forth_had_shown(name, trace):
    walked, jumped = run(
        "const t = traces[0], a = js.begin(t), b = js.begin(t);"
        "js.seek(t, a, t.n); js.seek(t, a, given.n);"
        "for (let i = 0; i <= given.n; i++) js.seek(t, b, i); return [a, b]",
        [trace],
        n=len(trace) // 2,
    )
    assert walked == jumped and walked["at"] == len(trace) // 2


def shapes(trace, sizes=None):
    """[name, place, rows, columns, length of the last row and of the last column] of each tensor."""
    last = "t.down.at(-1), t.across.at(-1)"
    return run(
        f"return traces[0].tensors.map((t) => [t.name, t.place, t.rows, t.cols, {last}])",
        [trace],
        sizes=sizes,
    )


def test_grids_come_from_the_trace_and_the_last_ragged_block_is_narrower():
    traces = tile_player.one_head(SMALL)[0]
    sizes = TilePlayer.of(SMALL).players[0]["sizes"]
    by_name = {name: rest for name, *rest in shapes(traces["FA2"], sizes)}
    assert by_name["q"] == ["memory", 4, 1, 0.15, 1]  # 4 of 32 rows, but never too thin to see
    assert by_name["k"] == ["memory", 1, 3, 1, pytest.approx(34 / 48)]
    assert by_name["s"][3:] == [0.15, pytest.approx(34 / 48)]
    assert by_name["s"][:3] == ["ghost", 4, 3] and by_name["p"][:3] == ["ghost", 4, 3]
    assert by_name["acc"][:3] == ["chip", 1, 4]
    by_name = {name: rest for name, *rest in shapes(traces["standard"])}
    assert by_name["s"][:3] == ["memory", 4, 3] and by_name["p"][:3] == ["memory", 4, 3]


def test_without_sizes_the_last_block_is_as_long_as_what_it_moves():
    q = np.zeros((100, 16), np.float32)
    tiled.fa2_forward(q, q, q, block_q=32, block_k=60, trace=(trace := Trace()))
    by_name = {name: rest for name, *rest in shapes(trace)}
    assert by_name["q"][3] == 0.15 and by_name["k"][4] == pytest.approx(40 / 60)


def test_in_the_backward_pass_dp_and_ds_are_ghosts_too_and_scores_are_computed_again():
    trace = tile_player.one_head(SMALL, "backward")[0]["FA2"]
    assert {n for n, place, *_ in shapes(trace) if place == "ghost"} == {"s", "p", "dp", "ds"}
    first = next(i for i, e in enumerate(trace) if e.op == "scores")
    said = run(
        "const t = traces[0], s = js.begin(t); js.seek(t, s, given.n); return js.sentence(t, s, given.words)",
        [trace],
        n=first + 1,
    )
    assert said.startswith("S 1,1 is computed again: no bytes move; kept: ")


def test_unknown_tensors_get_grids_of_their_own():
    trace = Trace(
        [Event(i, (i,), "load", "weights", (64 * i, 128 * j), 512) for i in range(3) for j in range(4)]
        + [Event(0, (i,), "store", "out", (64 * i,), 128) for i in range(3)]
    )
    assert shapes(trace) == [["weights", "memory", 3, 4, 1, 1], ["out", "memory", 1, 3, 1, 1]]


def test_tiles_of_a_kernel_with_heads_lie_by_block_and_head():
    heads = [(0, h, 32 * i, 0) for h in range(2) for i in range(3)]
    trace = Trace([Event(0, (), "load", name, tile, 8) for name in "qk" for tile in heads])
    assert shapes(trace)[:2] == [["q", "memory", 3, 2, 1, 1], ["k", "memory", 2, 3, 1, 1]]
    assert shapes(trace)[2:] == [["s", "ghost", 3, 3, 1, 1], ["p", "ghost", 3, 3, 1, 1]]


def test_the_places_of_all_tensors_are_inside_the_picture_at_any_width():
    for direction in ("forward", "backward"):
        traces = list(tile_player.one_head(Problem(Nq=1024), direction)[0].values())
        for width in (250, 272, 420, 560):
            for boxes, height in run(
                "return traces.map((t) => { const m = js.memoryLayout(t, given.width);"
                "const box = (b) => [b.x, b.y, b.xs.at(-1), b.ys.at(-1), b.tensor.name];"
                "return [[...m.boxes.values()].map(box), m.height]; })",
                traces,
                width=width,
            ):
                for left, top, right, bottom, name in boxes:
                    assert left >= 0 and top >= 20 and right <= width and bottom <= height, (width, name)
                for a in boxes:
                    for b in boxes:
                        apart = a is b or a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
                        assert apart, (width, a, b)


def test_in_step_by_bytes_every_player_has_moved_as_much_as_it_can_of_the_same_sum():
    traces = [t for _, t in all_traces()]
    sums = [0, 1, 5000, 123_457, 10**9]
    got = run("return given.sums.map((x) => traces.map((t) => js.eventsAt(t, x)))", traces, sums=sums)
    for x, row in zip(sums, got, strict=True):
        for trace, n in zip(traces, row, strict=True):
            moved = np.cumsum([0] + [e.bytes for e in trace])
            assert moved[n] <= x and (n == len(trace) or moved[n + 1] > x)


@pytest.mark.parametrize("sync", ["bytes", "step"])
def test_steps_forth_visit_every_move_and_steps_back_return(sync):
    traces = list(tile_player.one_head(SMALL)[0].values())
    forth, back = run(
        "const { sync } = given, length = (t) => (sync === 'step' ? t.n : t.total[t.n]);"
        "const end = Math.max(...traces.map(length)), out = [0], back = []; let p = 0;"
        "while (p < end) out.push((p = js.nextPosition(traces, sync, p, 1)));"
        "while (p > 0) back.push((p = js.nextPosition(traces, sync, p, -1))); return [out, back]",
        traces,
        sync=sync,
    )
    if sync == "bytes":
        stops = {int(x) for t in traces for x in np.cumsum([0] + [e.bytes for e in t])}
        assert forth == sorted(stops)
    else:
        assert forth == list(range(max(map(len, traces)) + 1))
    assert back[-1] == 0 and back[0] < forth[-1] and len(back) == len(forth) - 1


def title(players, level=None):
    players = [{"name": n, "sum": b, "ghosts": g} for n, b, g in players]
    return in_node(
        JS,
        "js.finding(given.players, given.words, given.level)",
        {"players": players, "words": WORDS, "level": level},
    )


def test_the_title_states_the_finding_with_numbers():
    squares = ["s", "p"]
    assert title([("standard", 33.6e6, []), ("FA2", 2.1e6, squares)]) == (
        "FA2 moves 2.1 MB where standard attention moves 33.6 MB"
    )
    assert title([("standard", 8.91e6, []), ("FA1", 11.7e6, squares), ("FA2", 4.46e6, squares)]) == (
        "FA2 moves 4.46 MB where standard attention moves 8.91 MB (FA1: 11.7 MB)"
    )
    assert title([("standard", 1e3, []), ("mine", 2e3, squares)]) == (
        "standard attention moves 1 kB where mine moves 2 kB"
    )
    assert title([("FA2", 2.1e6, squares)]) == "FA2 moves 2.1 MB, and S and P never leave the chip"
    assert title([("a", 500, []), ("b", 500, [])]) == "a and b move the same 500 B"
    assert title([("a", 12, [])], "From HBM") == "From HBM: a moves 12 B"


def test_bytes_are_written_alike_in_both_languages_of_the_code():
    sizes = [0, 1, 999, 999.4, 1000, 1024, 8192, 33_554_432, 999_499, 999_500, 5e9, 7e15]
    assert in_node(JS, "given.map(js.bytes)", sizes) == [tile_player.bytes_text(x) for x in sizes]
    assert tile_player.bytes_text(33_554_432) == "33.6 MB"


def test_of_plays_standard_fa1_and_fa2_in_step_by_bytes():
    player = TilePlayer.of(Problem(Nq=256))
    assert [p["name"] for p in player.players] == ["standard", "FA1", "FA2"] and player.fault == ""
    assert player.sync == "bytes" and player.position > 0
    q = np.zeros((256, 64), np.float32)
    trace = Trace()
    tiled.fa2_forward(q, q, q, trace=trace)
    assert list(packing.unpack(player.players[2]["trace"])) == list(trace)
    assert "256 queries, 256 keys, D = 64, float16, blocks of 64 and 64." in player.setting


def test_what_comes_through_the_l2_is_a_head_s_share_of_the_traffic_model():
    problem = Problem(B=2, Hq=4, Nq=2048)
    traffic = flashlab.memory.traffic(problem, "fa2", level="hbm", gpu="L4")
    player = TilePlayer.of(problem, gpu="L4")
    assert sum(player.players[2]["hbm"].values()) == pytest.approx(traffic.bytes() / 8)
    assert player.l2 == {"gpu": "L4", "size": "48 MiB"}


def test_one_trace_plays_by_step_and_a_position_outside_is_brought_inside():
    trace = tile_player.one_head(SMALL)[0]["FA2"]
    player = TilePlayer(trace, position=10**9)
    assert (player.sync, player.position) == ("step", len(trace))
    assert player.players[0]["name"] == "this trace"


def add_kernel():
    torch, triton = pytest.importorskip("torch"), pytest.importorskip("triton")
    tl = pytest.importorskip("triton.language")

    @triton.jit
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, MASK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n) if MASK else tl.load(x_ptr + i)
        tl.store(out_ptr + i, x + tl.load(y_ptr + i, mask=i < n), mask=i < n)

    add.fn.__globals__.setdefault("tl", tl)
    x = torch.randn(100)
    return lambda masked: add[(4,)](x, x.clone(), torch.empty(100), 100, 32, masked)


def test_a_learner_s_kernel_is_recorded_and_its_tensors_keep_their_names():
    launch = add_kernel()
    player = TilePlayer({"mine": lambda: launch(True)})
    assert player.fault == ""
    trace = packing.unpack(player.players[0]["trace"])
    assert trace.bytes("load", "x") == trace.bytes("load", "y") == trace.bytes("store", "out") == 400
    assert shapes(trace)[0] == ["x", "memory", 1, 4, 1, 0.15]


def test_a_kernel_that_raises_leaves_its_sentence_in_the_widget():
    launch = add_kernel()
    player = TilePlayer({"mine": lambda: launch(False)})
    assert player.fault.startswith(
        "mine could not be recorded. program (3,): load from x ends 112 bytes past it"
    )
    assert player.players == [] and player.summary() == player.fault


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TilePlayer(Trace()), "There is nothing to play: the trace of this trace has no events."),
        (lambda: TilePlayer.of(Problem(Nq=0)), "has no events"),
        (lambda: TilePlayer({}), "expected at least one trace, got none"),
        (lambda: TilePlayer(3), "expected a Trace or a function that launches kernels, got int"),
        (lambda: TilePlayer([1, 2]), "expected flashlab.trace.Event entries, got 1"),
        (lambda: TilePlayer(lambda: 1 / 0), "this trace could not be recorded. division by zero."),
        (lambda: TilePlayer([Event(0, (), "load", "q", (0,), 8)], sync="time"), "unknown sync 'time'"),
        (lambda: TilePlayer.of(Problem(), "sideways"), "unknown direction 'sideways'"),
        (lambda: TilePlayer.of(Problem(), algorithms=["FA4"]), "unknown algorithm 'FA4'. Did you mean"),
        (lambda: TilePlayer.of(Problem(), gpu="H20"), "Did you mean 'H200'"),
        (lambda: TilePlayer.of("big"), "expected a flashlab.Problem, got str"),
        (lambda: TilePlayer.of(Problem(Nq=2**20)), "are too many to watch (at most 4096)"),
    ],
)
def test_input_that_cannot_be_played_becomes_a_sentence_in_the_widget(make, words):
    player = make()
    assert words in player.fault and player.fault.endswith(".")
    json.dumps(_base.twin_state(player), allow_nan=False)


def test_the_words_follow_the_chosen_language(monkeypatch):
    monkeypatch.setattr("flashlab.text._chosen", None)
    flashlab.lang("zh")
    player = flashlab.TilePlayer.of(Problem(Nq=128))
    assert (
        player.strings["play"] == "播放" and "128 个 query" in player.setting and "字节" not in player.fault
    )
    assert "FA2 共搬" in player.summary()


def test_the_summary_names_every_player_s_bytes():
    words = TilePlayer.of(Problem(Nq=1024), strings=WORDS).summary()
    assert words.startswith("FA2 moves 4.46 MB, standard attention moves 8.91 MB, FA1 moves 11.7 MB.")


def test_the_twin_carries_the_state_and_is_made_only_while_pages_are_built(monkeypatch):
    player = TilePlayer.of(Problem(Nq=1024))

    def output():
        bundle = player._repr_mimebundle_()
        return bundle[0] if isinstance(bundle, tuple) else bundle

    assert "text/html" not in output()
    monkeypatch.setenv("FLASHLAB_STATIC", "1")
    page = output()["text/html"]
    assert "hbm" in _base.twin_state(player)["players"][0] and len(page) < 200_000
    assert "https://" not in page
