"""Roofline's numbers: the same bytes and FLOPs in JavaScript as in Python, measurements in their places."""

import json
import random

import pytest
from widget_cases import in_node, problems

import flashlab
from flashlab import Problem, bench, gpus, memory
from flashlab.widgets import Roofline, _base
from flashlab.widgets.roofline import measurements
from flashlab.widgets.sizes import plain, sizes

FILES = ["quantities.js", "flows_numbers.js", "roofline_numbers.js"]
H200 = plain(gpus.get("H200"))
RECORD = {
    "suite": "kernels",
    "provenance": {
        "gpu": "NVIDIA H200",
        "date": "2026-11-30T12:02:35+00:00",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "driver": "580",
    },
    "rows": [
        dict(
            dtype="float16",
            D=64,
            N=n,
            causal=c,
            B=1,
            H=4,
            direction="forward",
            peer=peer,
            ms=1.0,
            tflops=100.0 + n,
        )
        for n in (512, 4096)
        for c in (False, True)
        for peer in ("fa2", "sdpa-cudnn")
    ]
    + [dict(dtype="float16", D=64, N=512, causal=False, B=1, H=4, direction="forward", peer="x", error="no")],
}


def ways(count, seed):
    """Random (problem, algorithm, direction, level, GPU)."""
    rng = random.Random(seed)
    for p in problems(count, seed):
        algorithm = rng.choice(memory.NAMES)
        direction = "forward" if algorithm == "decode" else rng.choice(["forward", "backward"])
        yield p, algorithm, direction, rng.choice(["sm", "hbm"]), rng.choice(list(gpus.ALL.values()))


def test_javascript_counts_the_bytes_flops_and_exponentials_of_python():
    given = list(ways(200, seed=1))
    asked = [[sizes(p), a, d, level, plain(gpu)] for p, a, d, level, gpu in given]
    for way, got in zip(given, in_node(FILES, "given.map((g) => js.traffic(...g))", asked), strict=True):
        p, algorithm, direction, level, gpu = way
        want = memory.traffic(p, algorithm, direction, level, gpu=gpu)
        table = {f"{op} {tensor}": n for op, tensor, n in want.table()}
        # to the byte, but for halves, which the two languages round differently
        assert got["table"] == (table if level == "sm" else pytest.approx(table, abs=1)), way
        assert (got["flops"], got["exps"]) == (want.flops, want.exps), way
        assert got["intensity"] == pytest.approx(want.intensity)


@pytest.mark.parametrize("level", ["hbm", "sm"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_points_carry_python_s_times_and_bounds(level, direction):
    rng = random.Random(5)
    for p in problems(8, seed=6):
        gpu = rng.choice([g for g in gpus.ALL.values() if p.dtype in g.peak])
        found = in_node(FILES, "js.points(...given)", [sizes(p), direction, level, plain(gpu)])
        assert [x["name"] for x in found] == [*memory.NAMES][: 4 if direction == "forward" else 3]
        for x in found:
            q = Problem(**{**p.__dict__, "Nq": 1, "causal": False}) if x["name"] == "decode" else p
            want = memory.traffic(q, x["name"], direction, level, gpu=gpu)
            seconds, bound = want.time(gpu)
            assert (x["bytes"], x["bound"]) == (pytest.approx(want.bytes(), abs=3), bound)
            assert x["seconds"] == pytest.approx(seconds)
            roof = min(gpu.peak_of(p.dtype), want.intensity * gpu.hbm_bandwidth)
            assert x["rate"] == pytest.approx(roof)  # every point lies on a roof


def test_the_ridge_and_the_exponential_roof_are_those_of_the_gpu():
    p = sizes(Problem(Nq=4096, D=64))
    assert in_node(FILES, "js.ridge(...given)", [p, H200]) == pytest.approx(gpus.get("H200").ridge())
    exp = in_node(FILES, "js.expRoof(js.points(given[0], 'forward', 'hbm', given[1]), given[1])", [p, H200])
    # one exponential a score, and one a row and key block, for 4 D FLOPs a score
    assert exp == pytest.approx(H200["exp_rate"] * 4 * 64 / (1 + 1 / 64), rel=1e-6)


def laid_over(problem, records, direction="forward", card=H200):
    given = [sizes(problem), direction, "hbm", card, measurements(records)]
    return in_node(FILES, "js.laidOver(...given)", given)


def test_measurements_of_the_same_case_are_laid_over_and_the_nearest_length_is_marked():
    found = laid_over(Problem(Nq=3000, D=64), [RECORD])
    assert [(m["peer"], m["N"], m["nearest"]) for m in found] == [
        ("fa2", 512, False),
        ("sdpa-cudnn", 512, False),
        ("fa2", 4096, True),
        ("sdpa-cudnn", 4096, True),
    ]
    assert found[0]["rate"] == pytest.approx(612e12) and found[0]["date"] == "2026-11-30"
    want = memory.traffic(Problem(Hq=4, Nq=512, D=64), "fa2", level="hbm", gpu="H200").intensity
    assert found[0]["intensity"] == pytest.approx(want)


@pytest.mark.parametrize(
    "change", [dict(D=128), dict(dtype="bfloat16"), dict(direction="backward"), dict(card="H100 SXM")]
)
def test_measurements_of_another_case_are_not(change):
    p = Problem(Nq=512, **{"D": 64, **{k: v for k, v in change.items() if k in ("D", "dtype")}})
    card = plain(gpus.get(change.get("card", "H200")))
    assert laid_over(p, [RECORD], change.get("direction", "forward"), card) == []


def test_a_gpu_whose_name_begins_alike_is_another_gpu():
    record = {**RECORD, "provenance": {**RECORD["provenance"], "gpu": "NVIDIA L40S"}}
    assert laid_over(Problem(Nq=512), [record], card=plain(gpus.get("L4"))) == []


def test_no_kept_measurement_lies_above_its_roof():
    shown = 0
    for direction in ("forward", "backward"):
        for dtype in ("float16", "bfloat16"):
            for d in (64, 128):
                for causal in (False, True):
                    p = Problem(Hq=2048 // d, Nq=4096, D=d, dtype=dtype, causal=causal)
                    for m in laid_over(p, bench.recorded("kernels"), direction):
                        roof = min(H200["peak"][dtype], m["intensity"] * H200["hbm_bandwidth"])
                        assert m["rate"] <= roof, m
                        shown += 1
    assert shown == sum("tflops" in r for record in bench.recorded("kernels") for r in record["rows"])


def test_records_say_where_they_come_from():
    assert bench.recorded("no such suite") == []
    for record in bench.recorded():
        assert record["provenance"]["gpu"] and record["provenance"]["date"] and record["rows"]
        assert (bench.FOLDER / record["file"]).exists()
    assert {r["suite"] for r in bench.recorded("kernels")} == {"kernels"}


def test_without_records_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    assert bench.recorded() == []
    assert Roofline.of(Problem()).measured == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Roofline.of(Problem(), gpu="A100"), "unknown GPU 'A100'. Did you mean"),
        (lambda: Roofline.of(Problem(Nk=0)), "expected at least one query and one key, got Nq = 128, Nk = 0"),
        (
            lambda: Roofline.of(Problem(), direction="back"),
            "unknown direction 'back'. Did you mean 'backward'",
        ),
        (lambda: Roofline.of(Problem(), level="l2"), "unknown level 'l2'"),
        (lambda: Roofline.of(Problem(), measured=[{"rows": []}]), "missing: 'provenance'"),
        (lambda: Roofline.of(None), "expected a flashlab.Problem, got NoneType"),
    ],
)
def test_input_that_does_not_fit_gives_a_sentence_in_the_widget(make, words):
    assert words in make().error


def test_the_state_is_plain_json_and_the_twin_asks_for_nothing():
    widget = Roofline.of(Problem(), gpu="B200")
    json.dumps(_base.twin_state(widget), allow_nan=False)
    page = _base.twin_document(widget)
    assert len(page) < 120_000 and "https://" not in page.replace("https://www.w3.org", "")


def test_the_strings_follow_the_chosen_language(monkeypatch):
    monkeypatch.setattr("flashlab.text._chosen", None)
    flashlab.lang("zh")
    assert Roofline.of(Problem()).strings["forward"] == "前向"
