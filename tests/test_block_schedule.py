"""The schedule in the browser: the same programs at the same times as Python's, and the words about them."""

import dataclasses
import json
import random

import pytest
from test_tile_budget import in_node as in_module

import flashlab
from flashlab import gpus, schedule, splits
from flashlab.text import table
from flashlab.widgets import _base
from flashlab.widgets.block_schedule import LAUNCHES, BlockSchedule, facts

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "block_q", "block_k", "causal")


def in_node(expression, given):
    return in_module(expression, given, "schedule_numbers.js")


def as_json(problem):
    return {name: getattr(problem, name) for name in SIZES}


def problems(count, seed):
    """Random problems with a launch each: (problem, algorithm, gpu, how to simulate it)."""
    rng = random.Random(seed)
    for _ in range(count):
        hkv, algorithm = rng.choice([1, 2, 3]), rng.choice(["fa1", "fa2", "fa2", "decode"])
        nk = rng.randint(1, 3000)
        p = flashlab.Problem(
            B=rng.randint(1, 4), Hq=hkv * rng.choice([1, 2, 4]), Hkv=hkv, Nk=nk,
            Nq=rng.randint(1, 40) if algorithm == "decode" else rng.choice([nk, rng.randint(1, 2000)]),
            D=rng.choice([64, 128]), causal=rng.choice([False, "top-left", "bottom-right"]),
            block_q=rng.choice([16, 32, 64, 100]), block_k=rng.choice([16, 64, 100]),
        )  # fmt: skip
        gpu = dataclasses.replace(gpus.get("A100-80"), name="small", sms=rng.randint(1, 20))
        gpu = rng.choice([gpu, gpus.get("H200")])
        parts = rng.choice([None, 1, 3]) if algorithm == "decode" else None
        how = dict(
            order=rng.choice(schedule.ORDERS), splits=parts,
            persistent=rng.random() < 0.3, programs_per_sm=rng.choice([1, 1, 2, 3]),
        )  # fmt: skip
        yield p, algorithm, gpu, how


def test_javascript_and_python_place_every_program_alike_on_random_problems():
    cases = list(problems(100, seed=5))
    given = [
        [as_json(p), a, facts(g, p.dtype), {**how, "perSm": how["programs_per_sm"]}] for p, a, g, how in cases
    ]
    shown = (
        "given.map((g) => { const t = js.simulate(...g), i = t.items; return { ...t, items: null, programs: "
        "t.programs.map((q) => [q.sm, q.slot, q.start, q.end, i.head[q.item], i.block[q.item], "
        "i.work[q.item], i.split[q.item]]) }; })"
    )
    idle = 0
    for (p, algorithm, gpu, how), got in zip(cases, in_node(shown, given), strict=True):
        want = schedule.simulate(p, algorithm, gpu, **how)
        assert len(got["programs"]) == len(want.programs)
        for js, py in zip(got["programs"], want.programs, strict=True):
            assert js == pytest.approx(list(py), rel=1e-12)
        for name in ("makespan", "utilisation", "waves", "tail"):
            assert got[name] == pytest.approx(getattr(want, name), rel=1e-12), name
        assert got["idle"] * got["step"] == pytest.approx(want.idle, abs=1e-12, rel=1e-9)
        idle += want.idle > 0
    assert idle > 30, "problems that fill the GPU evenly would test little"


def test_javascript_and_python_choose_the_same_number_of_parts():
    rng = random.Random(6)
    cases = [[rng.randint(0, 150), rng.randint(1, 100_000), rng.choice([40, 108, 132])] for _ in range(300)]
    got = in_node("given.map((g) => js.chooseSplits(...g))", cases)
    assert got == [splits.choose_splits(1, programs, 1, keys, sms) for programs, keys, sms in cases]
    assert max(got) > 8


def test_a_hundred_thousand_programs_are_refused_in_the_browser_before_they_are_placed():
    p = flashlab.Problem(B=64, Hq=32, Nq=65536, D=64, block_q=16)
    assert in_node("js.simulate(...given)", [as_json(p), "fa2", facts(gpus.get("H200"), "float16")]) is None


def title(problem, algorithm, gpu="A100-80", language="en", **how):
    given = dict(
        p=as_json(problem), a=algorithm, gpu=facts(gpus.get(gpu), problem.dtype),
        how=dict(order="natural", splits=None, persistent=False, perSm=1) | how,
        causal=problem.causal is not False, s=table("schedule", language),
    )  # fmt: skip
    return in_node(
        "(({ p, a, gpu, how, causal, s }) => { const o = js.rival(a, how, causal); "
        "const [x, y] = [js.simulate(p, a, gpu, how), js.simulate(p, o.algorithm, gpu, o.how)]; "
        "return js.scheduleTitle(gpu, x, y, o.name, { ...how, causal }, s); })(given)",
        given,
    )


HEADS_16 = flashlab.Problem(B=1, Hq=16, Nq=4096, D=64, block_q=128, block_k=64)
CAUSAL = flashlab.Problem(B=4, Hq=16, Nq=4096, D=64, block_q=128, block_k=64, causal=True)


@pytest.mark.parametrize(
    ("problem", "algorithm", "how", "says"),
    [
        (
            HEADS_16,
            "fa1",
            {},
            ["FA1 keeps 16 of 108 SMs busy", "FA2 with the same work keeps all of them busy: 6.4× sooner"],
        ),
        (
            HEADS_16,
            "fa2",
            {},
            ["FA2 keeps all 108 SMs busy", "FA1 with the same work keeps 16 of them busy: 6.4× as long"],
        ),
        (HEADS_16, "decode", {"splits": 1}, ["in one program keeps 16 of 108 SMs busy", "sooner"]),
        (HEADS_16, "fa2", {"persistent": True}, ["108 programs take 512 blocks in turn"]),
        (CAUSAL, "fa2", {}, ["Blocks in natural order", "longest first, tail", "sooner"]),
        (
            CAUSAL,
            "fa2",
            {"order": "longest-first"},
            ["longest-first order", "natural order, tail", "as long"],
        ),
    ],
    ids=str,
)
def test_the_title_states_the_finding_and_what_it_is_compared_with(problem, algorithm, how, says):
    p = dataclasses.replace(problem, Nq=1) if algorithm == "decode" else problem
    said = title(p, algorithm, **how)
    for part in says:
        assert part in said, said
    chinese = title(p, algorithm, language="zh", **how)
    assert not any(x in said + chinese for x in ("{", "undefined", "NaN"))


def test_the_words_of_a_number_are_short():
    shares = in_node("given.map((x) => js.percent(x))", [0.1234, 0.00123, 1, 0.999, 0.99999, 0.00001, 0])
    assert shares == ["12%", "0.1%", "100%", "99.9%", "99.9%", "0.1%", "0%"]
    assert in_node("given.map((x) => js.times(x))", [1.04, 2.26, 9.1, 31.7]) == ["1.04", "2.3", "9.1", "32"]
    assert in_node("given.map((x) => js.duration(x))", [0, 2.5e-5, 0.0012, 3]) == [
        "0 µs",
        "25 µs",
        "1.2 ms",
        "3 s",
    ]


@pytest.mark.parametrize(
    ("problem", "how", "words"),
    [
        (dict(Nq=0), {}, "at least one query"),
        (dict(B=0), {}, "at least one query"),
        (dict(), dict(gpu="H20"), "unknown GPU 'H20'. Did you mean 'H200'"),
        (dict(), dict(algorithm="fa3"), "unknown launch 'fa3'. Did you mean"),
        (dict(), dict(order="longest"), "unknown order 'longest'. Did you mean 'longest-first'"),
        (dict(), dict(programs_per_sm=0), "expected programs_per_sm to be a whole number >= 1, got 0"),
        (dict(), dict(splits=-1), "expected splits to be a whole number >= 0, got -1"),
        (dict(B=64, Hq=64, Nq=131072, block_q=16), {}, "too many to follow one by one"),
    ],
    ids=str,
)
def test_what_cannot_be_shown_opens_as_a_sentence(problem, how, words):
    widget = BlockSchedule.of(flashlab.Problem(**problem), **how)
    assert words in widget.error and widget.summary() == widget.error
    json.dumps(_base.twin_state(widget))


def test_something_that_is_no_problem_opens_as_a_sentence_too():
    assert BlockSchedule.of(None).error


def test_few_queries_of_a_long_context_open_as_decoding():
    assert BlockSchedule.of(flashlab.Problem(Nq=1, Nk=8192, Hq=8)).algorithm == "decode"
    assert BlockSchedule.of(flashlab.Problem(Nq=128, Hq=8)).algorithm == "fa2"


def test_every_string_that_the_choices_need_is_there():
    for language in ("en", "zh"):
        words = table("schedule", language)
        for name in (*LAUNCHES, *schedule.ORDERS, *(f"short_{o}" for o in schedule.ORDERS)):
            assert words[name]


def test_the_twin_is_small_and_asks_for_no_address():
    page = _base.twin_html(BlockSchedule.of(HEADS_16, gpu="A100-80"))
    assert len(page) < 120_000 and "https://" not in page
