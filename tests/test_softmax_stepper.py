"""The stepper's numbers: what Python computes, what it refuses, and that its JavaScript computes the same."""

import json
import math
import shutil
import subprocess

import numpy as np
import pytest

import flashlab
from flashlab import data, reference
from flashlab.text import table
from flashlab.widgets import _base
from flashlab.widgets.softmax_stepper import KNOCK_OUTS, SoftmaxStepper, block_frames

q, k, v = data.tiny()
ROW_5 = q[5] @ k.T


def node():
    """Path of a Node: the system's, else the one that Playwright's package brings along."""
    found = shutil.which("node")
    if found is None:
        driver = pytest.importorskip("playwright._impl._driver")
        found = driver.compute_driver_executable()[0]
    try:
        subprocess.run([found, "--version"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        pytest.skip(
            "no Node that runs: the stepper's JavaScript is not compared (Debian: apt install libatomic1)"
        )
    return found


def in_node(expression, given):
    """The JSON value of a JavaScript `expression`: `js` is the stepper's module, `given` the input."""
    program = (
        'const fs = await import("node:fs");'
        'const source = fs.readFileSync(process.argv[1], "utf8");'
        'const js = await import("data:text/javascript;base64," + Buffer.from(source).toString("base64"));'
        'const given = JSON.parse(fs.readFileSync(0, "utf8"));'
        "const text = (k, x) => typeof x === 'number' && !Number.isFinite(x) ? String(x) : x;"
        f"console.log(JSON.stringify({expression}, text))"
    )
    source = _base._HERE / "softmax_numbers.js"
    done = subprocess.run(
        [node(), "--input-type=module", "-e", program, str(source)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def problems(count, seed):
    """Random rows, some keys masked, whole blocks masked now and then: what `run` in JavaScript takes."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        keys, d = int(rng.integers(1, 14)), int(rng.integers(1, 4))
        scores = rng.normal(scale=rng.choice([1, 30]), size=keys).round(3)
        scores[rng.random(keys) < 0.25] = -np.inf
        yield scores, rng.normal(size=(keys, d)), int(rng.integers(1, 6)), str(rng.choice(["log2", "e"]))


def as_json(scores, values, block, unit, off=()):
    return [[None if x == -np.inf else x for x in scores], values.tolist(), block, unit, list(off)]


def knocked_out(scores, values, block, unit, off):
    """The knocked-out programs once more, in plain Python: (row_sum, acc) after each block."""
    tau, m, row_sum, acc = {"log2": math.log(2), "e": 1.0}[unit], -np.inf, 0.0, np.zeros(values.shape[1])
    m = 0.0 if "max_at_0" in off else m
    after = []
    for a in range(0, len(scores), block):
        x, new = scores[a : a + block], values[a : a + block]
        m_old, m = m, max(m, x.max())
        alpha = 0.0 if m_old == -np.inf else np.exp(tau * (m_old - m))
        factor = 1 / alpha if "upside_down" in off and alpha else alpha
        p = np.exp(tau * (x - (0 if m == -np.inf else m)))
        row_sum = row_sum * (1 if "sum" in off else factor) + p.sum()
        acc = acc * (1 if "acc" in off else factor) + p @ new
        after.append((row_sum, acc))
    return after


def test_the_running_example_gives_the_numbers_of_the_lesson():
    frames = block_frames(ROW_5, v, 2)
    assert [round(f["m"], 9) for f in frames] == [1, 3, 3]
    assert [round(f["alpha"], 9) for f in frames] == [0, 0.25, 1]
    np.testing.assert_allclose([f["l"] for f in frames], [1.5, 1.875, 2.5])
    np.testing.assert_allclose([f["acc"][0] for f in frames], [12, 6, 10])
    np.testing.assert_allclose([f["out"][0] for f in frames], [8, 3.2, 4])


@pytest.mark.parametrize("unit", ["log2", "e"])
def test_after_each_block_the_answer_is_reference_attention_over_the_keys_seen(unit):
    for scores, values, block, _ in problems(40, seed=1):
        for frame in block_frames(scores, values, block, unit):
            np.testing.assert_allclose(frame["out"], frame["ref"], atol=1e-12)


def test_the_reference_beside_the_answer_is_the_whole_row_s_softmax():
    weights = 2.0**ROW_5
    np.testing.assert_allclose(block_frames(ROW_5, v, 4)[-1]["ref"], weights @ v / weights.sum())
    o, _ = reference.attention(q, k, v, scale=math.log(2))
    np.testing.assert_allclose(block_frames(ROW_5, v, 2)[-1]["ref"], o[5])


def test_a_row_that_sees_nothing_answers_zero_and_stays_plain_json():
    frames = block_frames(np.full(4, -np.inf), v[:4], 2)
    assert [f["m"] for f in frames] == [None, None]
    assert [f["out"] for f in frames] == [[0.0, 0.0]] * 2
    stepper = SoftmaxStepper([-np.inf] * 4, v[:4])
    json.dumps(_base.twin_state(stepper), allow_nan=False)


def test_javascript_and_python_agree_on_random_rows():
    given = list(problems(60, seed=2))
    blocks = in_node("given.map((g) => js.run(...g))", [as_json(*g) for g in given])
    for (scores, values, block, unit), got in zip(given, blocks, strict=True):
        want = block_frames(scores, values, block, unit)
        assert len(got) == len(want)
        for js, py in zip(got, want, strict=True):
            assert js["m"] == ("-Infinity" if py["m"] is None else pytest.approx(py["m"], rel=1e-12))
            np.testing.assert_allclose([js["alpha"], js["l"]], [py["alpha"], py["l"]], rtol=1e-9)
            np.testing.assert_allclose(js["acc"][:-1], py["acc"], rtol=1e-9, atol=1e-12)
            assert js["acc"][-1] == pytest.approx(js["l"])  # the column of ones


@pytest.mark.parametrize("off", [[name] for name in KNOCK_OUTS] + [["sum", "acc"], ["acc", "upside_down"]])
def test_javascript_and_python_agree_on_every_knock_out(off):
    given = list(problems(20, seed=3))
    blocks = in_node("given.map((g) => js.run(...g))", [as_json(*g, off) for g in given])
    for g, got in zip(given, blocks, strict=True):
        for js, (row_sum, acc) in zip(got, knocked_out(*g, off), strict=True):
            assert js["l"] == pytest.approx(row_sum, rel=1e-9)
            np.testing.assert_allclose(js["acc"][:-1], acc, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("off", "answer"),
    [([], 4.0), (["acc"], 7.6), (["sum"], 2.759), (["sum", "acc"], 5.241), (["upside_down"], 6.769)],
)
def test_each_knock_out_gives_row_5_a_number_of_its_own(off, answer):
    last = in_node("js.run(...given).at(-1)", as_json(ROW_5, v, 2, "log2", off))
    assert last["acc"][0] / last["l"] == pytest.approx(answer, abs=1e-3)


def test_a_max_that_starts_at_0_is_shown_to_fail_on_very_negative_scores():
    scores = [s - 2000 for s in ROW_5]
    right = in_node("js.run(...given).at(-1)", as_json(scores, v, 2, "log2"))
    wrong = in_node("js.run(...given).at(-1)", as_json(scores, v, 2, "log2", ["max_at_0"]))
    assert right["acc"][0] / right["l"] == pytest.approx(4.0)
    assert wrong["l"] == 0


SENTENCES = {
    0: "Nothing seen yet: max −∞, sum 0, accumulator 0",
    1: "Block 1: the max becomes 1, nothing in the book to convert",
    2: "Block 1: sum 1.5, accumulator 12, answer so far 8",
    3: "Block 2: max 1 → 3, old sum and accumulator × ¼",
    4: "Block 2: sum 1.875, accumulator 6, answer so far 3.2",
    5: "Block 3: the max stays 3, nothing to convert",
    6: "Block 3: all keys seen, answer 10 / 2.5 = 4",
}
SENTENCE = (
    "given.at.map((n) => js.sentence(given.rows.map((r, i) => js.view(r, js.run(...given.run[i]), "
    "given.frames[i], n, 0)), given.strings, 'log2'))"
)


def sentences(stepper, at, language="en"):
    rows = [{"name": n, "scores": s} for n, s in zip(stepper.row_names or [""], stepper.scores, strict=True)]
    runs = [[s, stepper.values, stepper.block, stepper.unit, stepper.knock_out] for s in stepper.scores]
    words = table("stepper", language)
    return in_node(
        SENTENCE, {"at": at, "rows": rows, "run": runs, "frames": stepper.frames, "strings": words}
    )


def test_the_title_states_the_finding_of_every_frame():
    assert sentences(SoftmaxStepper(ROW_5, v), list(SENTENCES)) == list(SENTENCES.values())


def test_the_title_of_a_knocked_out_program_says_what_is_not_converted():
    stepper = SoftmaxStepper(ROW_5, v, knock_out=["sum"])
    assert sentences(stepper, [3]) == ["Block 2: max 1 → 3, old sum × 1, old accumulator × ¼"]


def test_the_title_of_two_rows_names_both_and_a_masked_block_says_so():
    stepper = SoftmaxStepper(q[2:4] @ k.T, v, row_names=["row 2", "row 3"])
    (title,) = sentences(stepper, [3], "zh")
    assert "row 2：" in title and "× ½" in title and "无需换算" in title
    stepper = SoftmaxStepper([1, 0, -np.inf, -np.inf], v[:4])
    assert sentences(stepper, [3]) == ["Block 2: every key is masked, nothing changes"]


def test_numbers_are_written_for_people():
    shown = in_node("given.map((x) => js.number(x))", [0.1 + 0.2, -1.25, None, 1e-17, 123456.0, 2.5e9])
    assert shown == ["0.3", "−1.25", "−∞", "0", "123500", "2.50e9"]
    rates = in_node("given.map((x) => js.rate(x, 'log2'))", [0.5, 0.25000000000000006, 0.0625, 0.3, 4])
    assert rates == ["½", "¼", "1/16", "0.3", "4"]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"scores": [[1, 0]] * 3}, ValueError, r"expected scores \[keys\] or \[2, keys\].* got \[3, 2\]"),
        ({"scores": []}, ValueError, r"got \[0\]"),
        ({"scores": [1.0, np.nan, 0, 0, 0, 0]}, ValueError, "got nan"),
        ({"scores": [1.0, np.inf, 0, 0, 0, 0]}, ValueError, r"\+inf"),
        ({"scores": ["a"] * 6}, TypeError, "expected scores to be an array of real numbers, got list"),
        ({"scores": ROW_5 * 1j}, TypeError, "got complex128"),
        ({"values": v[:5]}, ValueError, r"with 6 keys, as in scores, got \[5, 2\]"),
        ({"values": v[:, 0]}, ValueError, r"expected values \[keys, d\].* got \[6\]"),
        ({"values": v * np.nan}, ValueError, "expected finite values"),
        ({"block": 0}, ValueError, "expected block from 1, got 0"),
        ({"block": 2.0}, TypeError, "expected block to be a whole number, got float"),
        ({"unit": "log"}, ValueError, "unknown unit 'log'. Did you mean 'log2'"),
        ({"labels": ["a", "b"]}, ValueError, "expected 6 labels, got 2"),
        ({"labels": "abcdef"}, TypeError, "expected labels to be a list of strings"),
        ({"row_names": ["x", "y"]}, ValueError, "expected 1 row_names, got 2"),
        ({"component": 2}, ValueError, "expected component from 0 to 1, got 2"),
        ({"knock_out": ["accu"]}, ValueError, "unknown knock-out 'accu'. Did you mean 'acc'"),
        ({"step": 7}, ValueError, "expected step from 0 to 6, got 7"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_what_was_expected(change, error, words):
    with pytest.raises(error, match=words):
        SoftmaxStepper(**{"scores": ROW_5, "values": v, **change})


def test_a_step_out_of_range_is_refused_later_too():
    stepper = SoftmaxStepper(ROW_5, v)
    stepper.step = 6
    with pytest.raises(ValueError, match="from 0 to 6, got 9"):
        stepper.step = 9
    assert stepper.step == 6


def test_traits_hold_the_problem_and_the_switches_are_off():
    stepper = SoftmaxStepper(ROW_5, v, block=4, labels=list("abcdef"))
    assert (stepper.step, stepper.component, stepper.knock_out) == (0, 0, [])
    assert stepper.scores == [ROW_5.tolist()] and stepper.labels == list("abcdef")
    assert len(stepper.frames[0]) == 2


def test_the_strings_follow_the_chosen_language(monkeypatch):
    monkeypatch.setattr("flashlab.text._chosen", None)
    flashlab.lang("zh")
    stepper = SoftmaxStepper(ROW_5, v)
    assert stepper.strings["play"] == "播放" and "6 个 key" in stepper.summary()
    flashlab.lang("en")
    assert SoftmaxStepper(ROW_5, v).strings["play"] == "Play"


def test_the_twin_is_in_the_output_only_while_pages_are_built(monkeypatch):
    def output():
        bundle = SoftmaxStepper(ROW_5, v)._repr_mimebundle_()
        return bundle[0] if isinstance(bundle, tuple) else bundle

    assert "text/html" not in output()
    monkeypatch.setenv("FLASHLAB_STATIC", "1")
    page = output()["text/html"]
    assert 'sandbox="allow-scripts"' in page and len(page) < 120_000
    assert "https://" not in page.replace("https://www.w3.org", "")


def test_a_label_cannot_break_out_of_the_twin_s_script():
    page = _base.twin_document(SoftmaxStepper([0.0, 1.0], v[:2], labels=["</script><b>", "&"]))
    assert "</script><b>" not in page


def test_merging_in_another_order_ends_in_the_same_answer():
    forwards, backwards = (
        block_frames(ROW_5[s], v[s], 2)[-1]["out"] for s in (slice(None), slice(None, None, -1))
    )
    np.testing.assert_allclose(forwards, backwards)


def test_the_committed_preview_is_what_its_source_makes():
    import importlib.util

    path = _base._HERE.parents[1] / "course" / "preview.py"
    if not path.exists():
        pytest.skip("the course folder is not here")
    spec = importlib.util.spec_from_file_location("preview", path)
    preview = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(preview)
    assert preview.main(["--check"]) == 0
    assert preview.PAGE.stat().st_size < 150_000 and preview.PICTURE.stat().st_size < 150_000
