"""The lesson data: readable, the same in both languages, and every number in it recomputed here."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from flashlab import data
from flashlab.quiz import answers, prompts

LESSONS = prompts.lessons()
C = prompts.lesson("C")
ROOT = Path(__file__).parents[1]


def answer(id):
    return C.predictions[id]["answer"]


def wrong(id):
    return [answers.number(str(w["guess"])) for w in C.predictions[id]["wrong"]]


# --- the form of the data ---

GOOD = """
lesson = "X"
stops = ["X-1"]
[[prompt]]
id = "X01-a"
stop = "X-1"
en = {ask = "Why?", answer = "So."}
zh = {ask = "为什么？", answer = "因此。"}
[[prediction]]
id = "X-p01"
kind = "number"
answer = 4
en = "How many?"
zh = "多少？"
[[prediction.wrong]]
guess = "5"
en = "one too many"
zh = "多了一个"
"""


def test_good_data_is_read():
    lesson = prompts.parse(GOOD, "X.toml")
    assert list(lesson.prompts) == ["X01-a"] and list(lesson.predictions) == ["X-p01"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('lesson = "X"', "", "'lesson' must be given"),
        ('lesson = "X"', "lesson = X", "Invalid value"),
        (', answer = "因此。"', "", "prompt 'X01-a': zh: 'answer' must be given"),
        ('zh = "多少？"', "", "prediction 'X-p01': 'zh' must be given"),
        ('stop = "X-1"', 'stop = "X-2"', "unknown stop 'X-2'. Did you mean 'X-1'?"),
        ('stops = ["X-1"]', 'stops = ["X-1", "X-2"]', "stop 'X-2' has no prompts"),
        ('kind = "number"', 'kind = "numbr"', "unknown kind 'numbr'. Did you mean 'number'"),
        ("answer = 4", 'answer = "four"', "answer must be a number"),
        ('guess = "5"', 'guess = "4.0"', "'4.0' is the right answer"),
        ('guess = "5"', 'guess = "five"', "'five' is no number"),
        ('kind = "number"', 'kind = "choice"', "answer must be a position in choices"),
        ('[[prediction]]\nid = "X-p01"', '[[prediction]]\nid = ""', "'id' must be given"),
        (
            "[[prediction]]",
            GOOD[GOOD.index("[[prompt]]") : GOOD.index("[[prediction]]")] + "[[prediction]]",
            "twice",
        ),
    ],
)
def test_broken_data_is_refused_with_the_place_and_the_reason(old, new, says):
    assert GOOD.count(old) >= 1
    with pytest.raises(ValueError, match=r"^X\.toml: ") as error:
        prompts.parse(GOOD.replace(old, new, 1), "X.toml")
    assert says in str(error.value)


def test_unknown_names_come_back_with_the_closest_ones():
    with pytest.raises(ValueError, match="'C-1'"):
        prompts.at_stop("C1")
    with pytest.raises(ValueError, match="Known: .*C"):
        prompts.lesson("Q")
    with pytest.raises(ValueError, match="'C01'"):
        prompts.to_say("C1")


def test_lesson_c_has_its_prompts_predictions_and_stops():
    assert len(C.prompts) == 25
    assert list(C.predictions) == [f"C-p{n:02}" for n in range(1, 19)]
    assert C.stops == tuple(f"C-{n}" for n in range(1, 7))
    assert [len(prompts.at_stop(stop)[1]) for stop in C.stops] == [3, 5, 3, 6, 6, 2]
    assert len(C.before_after) == 3 and list(C.say) == ["C01"]


def test_every_question_of_the_lesson_has_a_prompt():
    assert {id[:3] for id in C.prompts} == {f"C{n:02}" for n in range(1, 16)}


def test_every_prediction_says_what_a_wrong_guess_was_thinking():
    for lesson in LESSONS.values():
        for id, entry in lesson.predictions.items():
            assert entry.get("wrong"), id


def strings(entry):
    """Every (English, Chinese) pair below `entry`."""
    if isinstance(entry, list):
        for item in entry:
            yield from strings(item)
    elif isinstance(entry, dict):
        if "en" in entry:
            yield from pairs(entry["en"], entry["zh"])
        for key, value in entry.items():
            if key not in ("en", "zh"):
                yield from strings(value)


def pairs(en, zh):
    if isinstance(en, str):
        yield en, zh
    elif isinstance(en, dict):
        assert set(en) == set(zh)
        for key in en:
            yield from pairs(en[key], zh[key])
    else:
        for a, b in zip(en, zh, strict=True):
            yield from pairs(a, b)


def all_pairs():
    for lesson in LESSONS.values():
        for part in (lesson.prompts, lesson.predictions, lesson.before_after, lesson.say):
            for id, entry in part.items():
                for en, zh in strings(entry):
                    yield id, en, zh


def test_chinese_is_chinese_and_english_is_english():
    for id, en, zh in all_pairs():
        assert not re.search(r"[\u4e00-\u9fff]", en), (id, en)
        if re.sub(r"[^A-Za-z]", "", en) != re.sub(r"[^A-Za-z]", "", zh):
            assert re.search(r"[\u4e00-\u9fff]", zh), (id, zh)


def test_both_languages_hold_the_same_numbers():
    words = {"one": "1", "half": "½", "three": "3", "five": "5"}
    for id, en, zh in all_pairs():
        found = [
            {n.replace(",", "") for n in re.findall(r"\d[\d,]*\.?\d*|[½¼]", text) if n.strip(",.")}
            for text in (en, zh)
        ]
        tidy = [{n.rstrip(".") for n in numbers} for numbers in found]
        spelled = {words[w] for w in re.findall(r"[a-z]+", en.lower()) if w in words}
        assert tidy[1] - tidy[0] <= spelled | {"0", "1", "2"}, (id, en, zh)


def test_the_notebooks_ask_only_what_the_data_knows():
    asked = []
    for source in sorted((ROOT / "course" / "lessons").glob("*.py")):
        code = re.sub(r"(?m)^\s*[%!].*$", "", source.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(code)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            first = node.args[0]
            if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
                continue
            if node.func.attr in ("predict", "reveal"):
                assert prompts.prediction(first.value), f"{source.name}: {first.value}"
                asked.append((node.func.attr, first.value))
            elif node.func.attr == "review":
                prompts.at_stop(first.value)
    predicted = [id for what, id in asked if what == "predict"]
    assert len(predicted) == len(set(predicted)), "an id asked twice"
    assert set(predicted) == {id for what, id in asked if what == "reveal"}


# --- the numbers of lesson C, from the running example ---

q, k, v = data.tiny()
x = q[5] @ k.T
w = 2.0**x
BLOCKS = [slice(0, 2), slice(2, 4), slice(4, 6)]


def test_row_five():
    assert answer("C-p01") == w @ v[:, 0] / w.sum() == 4
    np.testing.assert_allclose(
        wrong("C-p01"), [v[:, 0].mean(), x @ v[:, 0] / x.sum(), w @ v[:, 0], v[w.argmax(), 0]]
    )


def test_blocks_on_their_own():
    own = np.array([w[b] @ v[b] / w[b].sum() for b in BLOCKS])
    total = np.array([w[b].sum() for b in BLOCKS])
    assert answer("C-p02") == own.sum(0)[1] == 3
    assert answer("C-p03") == total[1] / total.sum() == 0.6
    tops, heaviest = np.array([x[b].max() for b in BLOCKS]), np.array([w[b].max() for b in BLOCKS])
    np.testing.assert_allclose(wrong("C-p03"), [1 / 3, tops[1] / tops.sum(), heaviest[1] / heaviest.sum()])
    assert C.before_after["C-t1"]["before"]["answer"] == len(BLOCKS)


def test_the_update_of_block_two():
    m, row_sum, acc = 1, w[:2].sum() / 2, w[:2] @ v[:2, 0] / 2
    alpha, p = 2.0 ** (m - 3), 2.0 ** (x[2:4] - 3)
    new_l, new_acc = alpha * row_sum + p.sum(), alpha * acc + p @ v[2:4, 0]
    assert (answer("C-p05"), answer("C-p06"), answer("C-p07")) == (alpha, new_l, new_acc) == (0.25, 1.875, 6)
    assert wrong("C-p05") == [1 / alpha, 1 / 3, 2.0**-3]
    new_weights = [row_sum + p.sum(), row_sum / alpha + p.sum(), alpha * row_sum]
    assert wrong("C-p06") == [*new_weights, row_sum + w[2:4].sum(), w[:4].sum()]
    assert wrong("C-p07") == [
        acc + p @ v[2:4, 0],
        acc / alpha + p @ v[2:4, 0],
        w[:4] @ v[:4, 0],
        new_acc / new_l,
    ]
    assert "1.5 · ¼ + 1 + ½ = 1.875" == C.prompts["C05-b"]["en"]["answer"]
    assert C.before_after["C-t2"]["before"]["answer"] == new_l
    assert C.before_after["C-t2"]["after"]["answer"] == 1.5 * 2.0 ** (2 - 3) + 2.0 ** (1 - 3) + 1


def test_the_choice_about_the_prefix():
    assert w[:4] @ v[:4, 0] / w[:4].sum() == 3.2 and w[2:4] @ v[2:4, 0] / w[2:4].sum() == 2.0
    assert C.predictions["C-p08"]["choices"][answer("C-p08")]["en"] == "attention over keys 0 to 3"


def test_rows_two_and_three_have_a_max_of_their_own():
    assert answer("C-p11") == (q[2:4] @ k.T).max(-1).tolist()


def test_sizes_of_p_and_l():
    B, H, N = 8, 32, 4096
    assert answer("C-p13") == (2 * B * H * N * N) / (4 * B * H * N) == N / 2
    assert wrong("C-p13") == [N, 2 * N]


def test_tiles_under_a_causal_mask():
    below = sum(j <= i for i in range(3) for j in range(3))
    assert answer("C-p14") == below == 6 and wrong("C-p14") == [9, 3]


def test_a_lone_query_and_empty_slots():
    assert answer("C-p15") == v[0, 0] == 9
    assert answer("C-p16") == pytest.approx(w.sum() / (w.sum() + 2), abs=1e-4)


def test_padding():
    lengths = np.array([37, 20])
    assert answer("C-p17") == pytest.approx(1 - (lengths**2).sum() / (2 * 37**2), abs=1e-3)
    np.testing.assert_allclose(wrong("C-p17"), [17 / 74, 17 / 37])
    assert f"[0, 37, {lengths.sum()}]" in C.prompts["C13-a"]["en"]["answer"]


def test_scales():
    outs = []
    for scale in (1.0, np.log(2) ** 2, 1 / np.sqrt(2)):
        weight = np.exp(scale * x)
        outs.append(weight @ v[:, 0] / weight.sum())
    assert answer("C-p18") == np.argmin(np.abs(np.array(outs) - 4)) == 2
    for entry, out in zip(C.predictions["C-p18"]["wrong"], outs, strict=False):
        assert f"{out:.2f}" in entry["en"] and f"{outs[2]:.2f}" in entry["en"]


def test_the_real_sentence():
    Q, K, V, _ = data.minilm()
    S = Q.astype(float) @ K.astype(float).swapaxes(-1, -2) / np.sqrt(32)
    with np.errstate(over="ignore"):
        broken = np.isinf(np.exp(S.astype(np.float16))).any(-1)
    assert answer("C-p04") == broken.any(-1).sum() == 1 and broken.sum() == 37 == wrong("C-p04")[2]
    assert f"{S.max():.1f}" in C.predictions["C-p04"]["wrong"][0]["en"]
    # acc never converted, blocks of 16: right only if every rise of the max happens in the first block
    tops = np.stack([S[..., j : j + 16].max(-1) for j in range(0, 37, 16)])
    V = V.astype(float)
    m, row_sum, acc = tops[0] * 0 - np.inf, 0, 0
    for n, j in enumerate(range(0, 37, 16)):
        new = np.maximum(m, tops[n])
        p = np.exp(S[..., j : j + 16] - new[..., None])
        row_sum, acc, m = np.exp(m - new) * row_sum + p.sum(-1), acc + p @ V[:, j : j + 16], new
    P = np.exp(S - S.max(-1, keepdims=True))
    exact = P @ V / P.sum(-1, keepdims=True)
    share = (np.abs(acc / row_sum[..., None] - exact).max(-1) > 1e-2).mean()
    assert answer("C-p10") == pytest.approx(share, abs=0.005)


def test_the_mass_of_twelve_wrong_programs():
    from flashlab.checks import mutants

    programs = list(mutants.load("online_softmax").items())[1:13]
    masses = [float(f(np.log(2) * x[None], v, 2)[0][0, 1]) for _, f in programs]
    assert answer("C-p09") == sum(abs(mass - 1) < 1e-9 for mass in masses)


# --- reading what a learner typed ---


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("4", 4),
        (" 4.0 ", 4),
        ("37/6", 37 / 6),
        ("2^-2", 0.25),
        ("2**3", 8),
        ("60 %", 0.6),
        ("６０％", 0.6),
        ("−1", -1),
        (".25", 0.25),
        ("1e3", 1000),
        ("2,048", 2048),
        ("= 4", 4),
        ("≈4", 4),
    ],
)
def test_many_ways_to_write_a_number(typed, value):
    assert answers.number(typed) == pytest.approx(value)


@pytest.mark.parametrize("typed", ["", "four", "1/0", "4 or 5", "--1", "2^9999", "(-8)^0.5", "-8^0.5"])
def test_what_is_no_number_is_none(typed):
    assert answers.number(typed) is None


@pytest.mark.parametrize("typed", ["(3, -1)", "3 -1", "3, −1", "3 and -1", "3，-1", "[3, -1]"])
def test_many_ways_to_write_two_numbers(typed):
    assert answers.same(typed, [3, -1], "numbers")


@pytest.mark.parametrize(
    ("typed", "answer", "kind", "same"),
    [
        ("60", 0.6, "share", True),
        ("60%", 0.6, "share", True),
        ("0.6", 0.6, "share", True),
        ("3/5", 0.6, "share", True),
        ("0.6%", 0.6, "share", False),
        ("3", 3, "number", True),
        ("3.02", 3, "number", True),
        ("3.1", 3, "number", False),
        ("3", [3, -1], "numbers", False),
        ("no idea", 3, "number", False),
        (1, 1, "choice", True),
        ("1", 1, "choice", False),
    ],
)
def test_a_guess_is_compared_by_its_meaning(typed, answer, kind, same):
    assert answers.same(typed, answer, kind) is same
