"""The check of `online_softmax`: right answers pass, planted mistakes are named, the stub never passes."""

import functools
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import flashlab as fl
from flashlab import checks, online_softmax
from flashlab.checks import engine, judge, mutants
from flashlab.checks.online_softmax import STAGES
from flashlab.text import table

SOURCE = Path(__file__).parent.parent / "course" / "exercises" / "online_softmax.py"
MUTANTS = mutants.load("online_softmax")
TAU = np.log(2)

# Lesson C's table: what row 5 and its mass become, blocks of 2.
CLASSIC = {
    "nothing wrong": (4.000, 1.00),
    "acc is not converted": (7.600, 1.45),
    "row_sum is not converted": (2.759, 0.69),
    "neither is converted": (5.241, 1.00),
    "both divided by alpha": (6.769, 1.00),
    "only acc divided by alpha": (22.000, 3.25),
    "alpha on the new block": (6.700, 1.00),
    "divide inside the loop": (11.200, 2.05),
    "softmax per block, averaged": (5.467, 1.00),
    "no max subtraction": (4.000, 1.00),
    "max starts at 0": (4.000, 1.00),
    "last partial block dropped": (4.000, 1.00),
    "no division at the end": (10.000, 2.50),
}
# In which stage (1 to 7) each planted mistake is caught.
CAUGHT = {name: 2 for name, (out, _) in CLASSIC.items() if out != 4} | {
    "no max subtraction": 5,
    "max starts at 0": 5,
    "last partial block dropped": 3,
    "scaled again": 2,
    "base 2 instead of e": 2,
    "empty slots not masked": 3,
    "one max and sum for all rows": 3,
    "one max for all rows": 5,
    "max of the first block kept": 5,
    "max is not running": 5,
    "lse in base 2": 2,
    "lse without the max": 2,
    "lse is only the max": 2,
    "lse adds the sum, not its log": 2,
    "float16 accumulator": 4,
    "first masked block gives nan": 6,
    "empty row gives nan": 6,
    "masked with a finite number": 6,
    "changes its input": 1,
    "whole row at once": 7,
}


def examine(answer):
    return engine.examine(STAGES, answer)


def row_five():
    q, k, v = fl.data.tiny()
    return TAU * (q[5:] @ k.T), v


def source_function(text):
    names = {"np": np}
    exec(text[text.index("def online_attention") : text.index("# %% [markdown]\n# **Check it.")], names)
    return names["online_attention"]


# ---- right answers, written differently ----


def fa1_form(scores, values, block):
    """The accumulator holds the finished quotient at every step."""
    rows = scores.shape[0]
    o, total, top = np.zeros((rows, values.shape[1])), np.zeros((rows, 1)), np.full((rows, 1), -np.inf)
    for j in range(0, scores.shape[1], block):
        x, v = scores[:, j : j + block], values[j : j + block]
        block_top = x.max(axis=1, keepdims=True)
        shift = np.where(block_top == -np.inf, 0, block_top)
        p = np.exp(x - shift)
        new_top = np.maximum(top, block_top)
        unit = np.where(new_top == -np.inf, 0, new_top)
        old, new = np.exp(top - unit) * total, np.exp(block_top - unit)
        new_total = old + new * p.sum(axis=1, keepdims=True)
        divisor = np.where(new_total == 0, 1, new_total)
        o, total, top = (old * o + new * (p @ v)) / divisor, new_total, new_top
    return o, np.where(total == 0, -np.inf, top + np.log(np.where(total == 0, 1, total)))[:, 0]


def merged_at_the_end(scores, values, block):
    """Every block on its own, the results weighed by their log-sum-exp."""
    outs, lses = [], []
    for x, v in zip(
        np.split(scores, range(block, scores.shape[1], block), axis=1),
        np.split(values, range(block, scores.shape[1], block)),
        strict=True,
    ):
        top = np.where(np.isneginf(x.max(1)), 0, x.max(1))
        p = np.exp(x - top[:, None])
        total = p.sum(1)
        outs.append(p @ v / np.where(total == 0, 1, total)[:, None])
        lses.append(top + np.log(total))
    outs, lses = np.array(outs), np.array(lses)
    top = np.where(np.isneginf(lses.max(0)), 0, lses.max(0))
    weights = np.exp(lses - top)
    total = weights.sum(0)
    out = (weights[..., None] * outs).sum(0) / np.where(total == 0, 1, total)[:, None]
    return out, top + np.log(total)


def row_by_row_from_the_end(scores, values, block):
    """Plain Python numbers for m and l, one row after another, last block first."""
    out, lse = np.zeros((len(scores), values.shape[1])), np.full(len(scores), -np.inf)
    for i, row in enumerate(scores):
        m, total, acc = -np.inf, 0.0, np.zeros(values.shape[1])
        for j in reversed(range(0, len(row), block)):
            m_new = max(m, float(row[j : j + block].max()))
            if m_new == -np.inf:
                continue
            p = np.exp(row[j : j + block].astype(float) - m_new)
            alpha = np.exp(m - m_new)
            m, total, acc = m_new, alpha * total + p.sum(), alpha * acc + p @ values[j : j + block]
        if total:
            out[i], lse[i] = acc / total, m + np.log(total)
    return out, lse


def with_the_library(scores, values, block):
    state = online_softmax.start(len(scores), values.shape[1], scores.dtype)
    for j in range(0, len(values), block):
        state = online_softmax.absorb(state, scores[:, j : j + block], values[j : j + block])
    return online_softmax.finish(state)


def converted_first(scores, values, block):
    """np.asarray and a cast of everything at the start are no look at the whole row."""
    return fa1_form(np.asarray(scores, dtype=np.float64), np.array(values).astype(np.float64), block)


def two_passes(scores, values, block):
    starts = range(0, scores.shape[1], block)
    top = np.full(len(scores), -np.inf)
    for j in starts:
        top = np.maximum(top, scores[:, j : j + block].max(1))
    shift = np.where(np.isneginf(top), 0, top)[:, None]
    total = sum(np.exp(scores[:, j : j + block] - shift).sum(1) for j in starts)
    acc = sum(np.exp(scores[:, j : j + block] - shift) @ values[j : j + block] for j in starts)
    return acc / np.where(total == 0, 1, total)[:, None], shift[:, 0] + np.log(total)


RIGHT = [fa1_form, merged_at_the_end, row_by_row_from_the_end, with_the_library, converted_first, two_passes]


@pytest.mark.parametrize("answer", RIGHT, ids=lambda f: f.__name__)
def test_a_right_answer_passes_all_stages_however_it_is_written(answer):
    report = examine(answer)
    assert report.passed, engine.lines("online_softmax", STAGES, report)


def test_the_solution_of_the_exercise_passes_and_its_stub_is_not_started(capsys):
    text = SOURCE.read_text()
    solution = source_function(text)
    assert checks.check("online_softmax")(solution) is True
    shown = capsys.readouterr().out
    assert shown.count("✓") == 7 and "All 7 stages pass" in shown
    begin, end = text.index("    ### BEGIN"), text.index("    ### END")
    stub = source_function(text[:begin] + '    raise NotImplementedError("your turn")\n' + text[end:])
    assert checks.check("online_softmax")(stub) is False
    assert capsys.readouterr().out.startswith("not started")


def test_a_right_answer_is_checked_in_less_than_two_seconds():
    began = time.process_time()  # a busy machine takes longer, not more
    assert examine(MUTANTS["nothing wrong"]).passed
    assert time.process_time() - began < 2


def test_going_through_the_scores_twice_is_right_and_gets_a_remark():
    assert [key for key, _ in examine(two_passes).notes] == ["reads_twice"]
    assert not examine(fa1_form).notes and not examine(row_by_row_from_the_end).notes


# ---- planted mistakes ----


def test_the_mutants_print_the_table_of_lesson_c():
    assert list(MUTANTS)[:13] == list(CLASSIC)
    scores, values = row_five()
    for name, wanted in CLASSIC.items():
        out, _ = MUTANTS[name](scores, values, 2)
        assert out[0] == pytest.approx(wanted, abs=6e-3 if wanted[1] != 1 else 6e-4), name


def test_every_mistake_that_changes_row_five_gives_it_a_number_of_its_own():
    scores, values = row_five()
    results = {name: np.append(*MUTANTS[name](scores.copy(), values, 2)) for name in MUTANTS}
    right = results["nothing wrong"]
    seen = {name: r for name, r in results.items() if not np.allclose(r, right)}
    assert len(seen) >= 14
    numbers = np.array(list(seen.values()))
    distance = np.abs(numbers[:, None] - numbers[None]).max(-1) + np.eye(len(numbers))
    assert distance.min() > 0.02


def test_very_negative_and_very_large_float32_scores_tell_the_two_missing_maxima_apart():
    scores, values = (a.astype(np.float32) for a in row_five())
    with np.errstate(all="ignore"):
        for name, wanted in (("no max subtraction", (np.nan, np.nan)), ("max starts at 0", (4, np.nan))):
            got = [MUTANTS[name](scores + np.float32(TAU * s), values, 2)[0][0, 0] for s in (200, -200)]
            np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_mutants_take_a_batch_of_heads_at_once():
    rng = np.random.default_rng(1)
    scores, values = rng.normal(size=(3, 4, 7)), rng.normal(size=(3, 7, 2))
    for name, mutant in MUTANTS.items():
        out, lse = mutant(scores.copy(), values.copy(), 3)
        alone = mutant(scores[1].copy(), values[1].copy(), 3)
        np.testing.assert_allclose(out[1], alone[0], err_msg=name)
        np.testing.assert_allclose(lse[1], alone[1], err_msg=name)


def test_no_planted_mistake_is_missing_from_this_file():
    assert set(CAUGHT) == set(MUTANTS) - {"nothing wrong"}


@pytest.mark.parametrize("name", CAUGHT)
def test_every_planted_mistake_is_caught_in_its_stage_and_named(name, capsys):
    report = examine(MUTANTS[name])
    assert (report.reached + 1, report.diagnosis.key) == (CAUGHT[name], mutants.key(name))
    assert checks.check("online_softmax")(MUTANTS[name]) is False


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", CAUGHT)
def test_the_messages_are_complete_in_both_languages(name, language, monkeypatch):
    monkeypatch.setenv("FLASHLAB_LANG", language)
    shown = engine.lines("online_softmax", STAGES, examine(MUTANTS[name]))
    says = table("checks", language)
    text = (says["engine"] | says["online_softmax"]["says"])[mutants.key(name)]
    assert any(text.split("{")[0] in line for line in shown) and not any("{" in line for line in shown)
    assert shown[-1].endswith('fl.hint("online_softmax")')


def test_the_first_wrong_number_is_explained_and_the_first_wrong_block_named():
    shown = "\n".join(engine.lines("online_softmax", STAGES, examine(MUTANTS["acc is not converted"])))
    assert "[7.6, 1.45]" in shown and "not multiplied by exp(old max − new max)" in shown
    assert "Up to block 1 all is right (out so far [8, 1])" in shown
    assert "block 2 is the first that goes wrong, and there the max moves from 0.69" in shown
    tail = "\n".join(engine.lines("online_softmax", STAGES, examine(MUTANTS["last partial block dropped"])))
    assert "[3.2, 1]" in tail and "only the last, shorter block goes wrong (2 keys instead of 4)" in tail


# ---- the same mistakes in other words ----


def edited(old, new, function=fa1_form):
    """`function` with one piece of its source replaced."""
    import inspect

    text = inspect.getsource(function)
    assert old in text
    names = {"np": np}
    exec(text.replace(old, new), names)
    return names[function.__name__]


@pytest.mark.parametrize(
    "old, new, function, key",
    [
        ("old * o", "total * o", fa1_form, "acc_is_not_converted"),
        ("top + np.log(np.where", "top / np.log(2) + np.log2(np.where", fa1_form, "lse_in_base_2"),
        ("alpha * total + p.sum()", "total + p.sum()", row_by_row_from_the_end, "row_sum_is_not_converted"),
        ("-np.inf, 0.0", "0.0, 0.0", row_by_row_from_the_end, "max_starts_at_0"),
        ("if m_new == -np.inf", "if False", row_by_row_from_the_end, "first_masked_block_gives_nan"),
        ("if total:", "if True:", row_by_row_from_the_end, "empty_row_gives_nan"),
        (
            "np.where(np.isneginf(x.max(1)), 0, x.max(1))",
            "np.zeros(len(x))",
            merged_at_the_end,
            "no_max_subtraction",
        ),
        ("np.exp(lses - top)", "np.ones_like(lses)", merged_at_the_end, "softmax_per_block_averaged"),
        ("max(axis=1, keepdims=True)", "max(keepdims=True)", fa1_form, "one_max_for_all_rows"),
        ("return o, ", "return o.astype(np.float32), ", fa1_form, "float16_accumulator"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_code_that_looks_different(old, new, function, key):
    report = examine(edited(old, new, function))
    assert not report.passed
    assert report.diagnosis.key == key, report


def holds_all(function):
    """A right answer out of `function(scores, values) -> (m, p)`, for ways of looking at the whole row."""

    def answer(scores, values, block):
        top, p = function(scores)
        total = p.sum(1)
        shift = np.where(np.isneginf(top), 0, top)
        return p @ np.asarray(values) / np.where(total == 0, 1, total)[:, None], shift + np.log(total)

    return answer


def weights(scores, top):
    return top, np.exp(scores - np.where(np.isneginf(top), 0, top)[:, None])


def buffered(scores, values, block):
    """Block by block into an array of its own, then the whole row at once."""
    row = np.empty(scores.shape, scores.dtype)
    for j in range(0, scores.shape[1], block):
        row[:, j : j + block] = scores[:, j : j + block]
    return holds_all(lambda s: weights(row, row.max(1)))(scores, values, block)


def by_reduceat(scores):
    return weights(scores, np.maximum.reduce(scores, axis=1))


CHEATS = {
    "method": holds_all(lambda s: weights(s, s.max(1))),
    "np.asarray": holds_all(lambda s: weights(np.asarray(s), np.asarray(s).max(1))),
    "copy": holds_all(lambda s: weights(s.copy(), np.copy(s).max(1))),
    "cast": holds_all(lambda s: weights(s.astype(np.longdouble), s.astype(np.longdouble).max(1))),
    "transpose": holds_all(lambda s: weights(s.T.T, s.T.max(0))),
    "reversed": holds_all(lambda s: weights(s, s[:, ::-1].max(1))),
    "ufunc": holds_all(by_reduceat),
    "sort": holds_all(lambda s: weights(s, np.sort(s, 1)[:, -1])),
    "argmax": holds_all(lambda s: weights(s, s[np.arange(len(s)), s.argmax(1)])),
    "list": holds_all(lambda s: weights(np.array(s.tolist(), s.dtype), np.array(s.tolist(), s.dtype).max(1))),
    "fancy index": holds_all(lambda s: weights(s, s[:, list(range(s.shape[1]))].max(1))),
    "buffer": buffered,
}  # fmt: skip


@pytest.mark.parametrize("way", CHEATS)
def test_looking_at_the_whole_row_is_seen_whichever_way_it_is_done(way):
    report = examine(CHEATS[way])
    assert report.reached == 6, report
    assert report.diagnosis.key in ("whole_row_at_once", "holds_the_whole_row")


def test_a_block_that_is_one_key_too_wide_is_seen():
    report = examine(lambda scores, values, block: fa1_form(scores, values, block + 1))
    assert report.reached == 6
    assert report.diagnosis.values["read"] == 17 and report.diagnosis.values["block"] == 16


def test_values_are_watched_too():
    def answer(scores, values, block):
        return fa1_form(scores, values - 0.0, block)

    assert examine(answer).diagnosis.values["name"] == "values"


# ---- answers that are no answers ----


def unfinished(scores, values, block):
    raise NotImplementedError("your turn")


@pytest.mark.parametrize("stub", [unfinished, lambda s, v, b: None, lambda s, v, b: ...])
def test_a_stub_is_not_started_and_never_passes(stub, capsys):
    assert checks.check("online_softmax")(stub) is False
    assert capsys.readouterr().out.startswith("not started")


@pytest.mark.parametrize(
    "answer, key",
    [
        (lambda s, v, b: fa1_form(s, v, b)[0], "not_a_pair"),
        (lambda s, v, b: (*fa1_form(s, v, b), 1), "not_a_pair"),
        (lambda s, v, b: fa1_form(s, v, b)[::-1], "swapped"),
        (lambda s, v, b: (fa1_form(s, v, b)[0], fa1_form(s, v, b)[1][:, None]), "wrong_shape"),
        (lambda s, v, b: tuple(a.astype(int) for a in fa1_form(s, v, b)), "not_float"),
        (lambda s, v, b: (np.zeros((len(s), v.shape[1])), np.zeros(len(s))), "other"),
        (lambda s, v: None, "raised"),
        (lambda s, v, b: ... * 2, "blank_left"),
        (lambda s, v, b: s[100], "raised"),
        (lambda s, v, b: fa1_form(s, v, b) if len(s) > 1 or s.any() else None, "not started"),
        (lambda s, v, b: None if s.any() else fa1_form(s, v, b), "returned_nothing"),
    ],
)
def test_what_comes_back_in_the_wrong_form_is_said(answer, key, monkeypatch):
    report = examine(answer)
    assert not report.passed
    assert (report.diagnosis.key if report.started else "not started") == key
    for language in ("en", "zh"):
        monkeypatch.setenv("FLASHLAB_LANG", language)
        assert not any("{" in line for line in engine.lines("online_softmax", STAGES, report))


def test_an_exception_is_reported_with_the_learners_own_line(capsys):
    def answer(scores, values, block):
        return scores[:, 10_000].max()

    checks.check("online_softmax")(answer)
    shown = capsys.readouterr().out
    assert "IndexError" in shown and "return scores[:, 10_000].max()" in shown


def test_a_missing_axis_gets_a_word_about_broadcasting():
    report = examine(
        edited("shift = np.where(block_top == -np.inf, 0, block_top)", "shift = block_top[:, 0]")
    )
    assert report.diagnosis.key == "raised" and ("broadcast", {}) in report.diagnosis.more


def test_an_endless_loop_ends_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)

    def answer(scores, values, block):
        while True:
            pass

    assert checks.check("online_softmax")(answer) is False
    assert "Stopped after 0.2 s" in capsys.readouterr().out


def test_rows_that_share_something_unusual_are_told_so():
    def answer(scores, values, block):
        out, lse = fa1_form(scores, values, block)
        return np.broadcast_to(out[:1], out.shape), lse

    assert examine(answer).diagnosis.key == "rows_mix"


def test_a_check_leaves_numpy_and_tracemalloc_as_they_were():
    before, errors = (np.asarray, np.array, np.require), np.geterr()
    examine(fa1_form)
    examine(CHEATS["np.asarray"])
    assert (np.asarray, np.array, np.require) == before and np.geterr() == errors
    assert not tracemalloc.is_tracing()


# ---- the tolerance ----


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_no_right_answer_is_refused_for_rounding(dtype):
    rng = np.random.default_rng(3)
    for _ in range(150):
        keys, block, size = rng.integers(1, 80), int(rng.integers(1, 20)), 10.0 ** rng.integers(-2, 3)
        scores = (size * rng.normal(size=(3, keys))).astype(dtype)
        values = rng.normal(size=(keys, 4)).astype(dtype)
        right = judge.truth(scores, values, block)
        for answer in (MUTANTS["nothing wrong"], fa1_form, merged_at_the_end, row_by_row_from_the_end):
            with np.errstate(all="ignore"):
                assert right.accepts(*answer(scores, values, block)), (answer, keys, block, size)


def test_the_plain_oracle_agrees_with_the_reference():
    q, k, v = fl.data.tiny()
    out, lse = judge.softmax_attention(TAU * (q @ k.T), v)
    wanted, wanted_lse = fl.reference.attention(q, k, v, scale=TAU)
    np.testing.assert_allclose(out, wanted)
    np.testing.assert_allclose(lse, wanted_lse)


# ---- check, hint, solution ----


def test_unknown_names_list_the_closest_ones():
    for call in (checks.check, checks.hint, checks.solution, mutants.load):
        with pytest.raises(ValueError, match="Did you mean 'online_softmax'"):
            call("online_sofmax")


def test_a_result_instead_of_a_function_is_refused():
    with pytest.raises(TypeError, match="expects your function itself"):
        checks.check("online_softmax")((1, 2))


def test_hints_come_in_order_and_each_level_can_be_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(checks, "_hints", {})
    levels = table("checks", "en")["online_softmax"]["hints"]
    for n in (1, 2, 3, 3):
        fl.hint("online_softmax")
        shown = capsys.readouterr().out
        assert f"Hint {n} of 3" in shown and levels[f"level_{n}"].strip() in shown
    fl.hint("online_softmax", 1)
    assert "Hint 1 of 3" in capsys.readouterr().out
    with pytest.raises(ValueError, match="1 to 3"):
        fl.hint("online_softmax", 4)


def test_the_solution_opens_after_two_failed_tries_or_on_request(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "_failed", {})
    monkeypatch.setattr(checks, "SOLUTIONS", tmp_path)
    (tmp_path / "online_softmax.py").write_text("def online_attention(): ...\n")

    def opens(**how):
        capsys.readouterr()
        fl.solution("online_softmax", **how)
        return "def online_attention" in capsys.readouterr().out

    wrong = functools.partial(MUTANTS["no division at the end"])  # as if a learner had written it
    assert not opens() and opens(anyway=True)
    fl.check("online_softmax")(lambda s, v, b: None)  # not started: no try
    fl.check("online_softmax")(wrong)
    assert not opens()
    fl.check("online_softmax")(wrong)
    assert opens()


def test_a_passed_check_opens_the_solution_too_and_is_recorded(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "_failed", {})
    monkeypatch.setattr(checks, "SOLUTIONS", tmp_path)
    (tmp_path / "online_softmax.py").write_text("def online_attention(): ...\n")
    fl.check("online_softmax")(functools.partial(MUTANTS["max starts at 0"]))
    fl.check("online_softmax")(functools.partial(MUTANTS["nothing wrong"]))
    first, second = fl.progress.events("check", "online_softmax")
    assert (first["passed"], first["stage"], first["diagnosis"]) == (False, 4, "max_starts_at_0")
    assert second["passed"] and second["stage"] == second["stages"] == 7
    fl.solution("online_softmax")
    assert "def online_attention" in capsys.readouterr().out


def test_showing_a_planted_answer_is_no_try_of_the_learner(monkeypatch):
    monkeypatch.setattr(checks, "_failed", {})
    fl.check("online_softmax")(MUTANTS["acc is not converted"])
    assert fl.progress.events("check", "online_softmax") == [] and checks._failed == {}


def test_a_progress_file_that_cannot_be_used_breaks_no_check(monkeypatch, capsys):
    def broken(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("flashlab.progress.record", broken)
    monkeypatch.setattr("flashlab.progress.events", broken)
    assert fl.check("online_softmax")(MUTANTS["nothing wrong"]) is True
    fl.solution("online_softmax")
