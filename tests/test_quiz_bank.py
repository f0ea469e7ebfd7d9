"""The bank that is shipped follows all rules, and what it runs gives what it says."""

import pytest

from flashlab import bench, quiz
from flashlab.quiz import bank_loader, lint, marking, model

KERNELS = dict(dtype="float16", D=128, H=16, causal=False, direction="forward")
DECODE = dict(Hq=32, Hkv=8, D=128)
MEASURED = {  # (question, what it says): (file, column, the row)
    ("D06", "1.0419"): ("h200_kernels.json", "ms", dict(KERNELS, peer="fa2", N=4096, B=4)),
    ("D06", "4.0455"): ("h200_kernels.json", "ms", dict(KERNELS, peer="fa2", N=16384, B=1)),
    ("E05", "349.21"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-flash", N=4096)),
    ("E05", "349"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-flash", N=4096)),
    ("E05", "638.03"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-cudnn", N=4096)),
    ("E05", "638"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-cudnn", N=4096)),
    ("F07", "465.5e-6"): ("h200_decode.json", "us", dict(DECODE, peer="decode:2", B=1, Nk=65536)),
    ("F07", "466 µs"): ("h200_decode.json", "us", dict(DECODE, peer="decode:2", B=1, Nk=65536)),
    ("F07", "67.4e-6"): ("h200_decode.json", "us", dict(DECODE, peer="decode:16", B=1, Nk=65536)),
    ("F07", "67 µs"): ("h200_decode.json", "us", dict(DECODE, peer="decode:16", B=1, Nk=65536)),
    ("F07", "128 µs"): ("h200_decode.json", "us", dict(DECODE, peer="decode:2", B=16, Nk=8192)),
    ("F07", "138 µs"): ("h200_decode.json", "us", dict(DECODE, peer="decode:16", B=16, Nk=8192)),
    ("F08", "246.2e-6"): ("h200_decode.json", "us", dict(DECODE, peer="decode", B=64, Nk=4096)),
    ("F08", "246 µs"): ("h200_decode.json", "us", dict(DECODE, peer="decode", B=64, Nk=4096)),
    ("F08", "16 to 68 µs"): ("h200_decode.json", "us", dict(DECODE, peer="decode", B=1, Nk=8192)),
    ("F08", "68 µs"): ("h200_decode.json", "us", dict(DECODE, peer="decode", B=1, Nk=65536)),
}


def test_the_lint_finds_no_problem_in_the_bank():
    assert lint.lint().problems == []


def test_predicted_cells_give_what_their_items_expect():  # those of the claims: test_claims.py
    assert lint.lint(only=tuple(model.SECTIONS), run=True).problems == []


def test_both_languages_have_the_same_questions_items_and_claims():
    english, chinese = quiz.load("en"), quiz.load("zh")
    for e, z in zip(english, chinese, strict=True):
        assert (e.id, [i.id for i in e.items], e.anchor) == (z.id, [i.id for i in z.items], z.anchor)
        assert e.prompt != z.prompt
    assert [c.id for c in quiz.load_claims("en")] == [c.id for c in quiz.load_claims("zh")]


def test_all_forty_six_claims_are_there_with_a_verdict():
    claims = quiz.load_claims()
    assert tuple(c.id for c in claims) == model.CLAIM_IDS
    assert {c.verdict for c in claims} == set(model.VERDICTS)


# Fluent and wrong: each has the words of its must points, and says their opposite.
REVERSED = {
    ("C05", "en"): "m' is the max of both. l becomes α times l plus the new sum, and the old accumulator is"
    " multiplied by exp(m_new − m_old).",
    ("C05", "zh"): "m′ 取两者较大者，l 先乘 α 再加新的和；整个新的和都要乘系数 α。",
    (
        "C06",
        "en",
    ): "Both are relative to the old max, so the factor is exp(m_old − m_new) for the ratio acc/l."
    " We need it so that the probabilities sum to one.",
    ("C06", "zh"): "旧的和以旧的最大值为基准，l 和 acc 同乘 exp(m_old − m_new)，比值才对。"
    "这样做是为了让概率加起来等于 1。",
    ("C09", "en"): "Divide acc by l once at the end, row by row, and also divide by l in every step; write"
    " the log-sum-exp.",
    ("C12", "en"): "Skip tiles, mask tiles, leave the rest. Put zero into P after the softmax. Top-left in"
    " PyTorch, bottom-right in flash-attn.",
    ("C15", "zh"): "作用在分数上，反向三个梯度都要乘缩放系数 τ。",
    ("D06", "zh"): "基本对：计算量不再是平方，显存也变线性，HBM 读写减少。",
    ("E03", "en"): "FA1 parallelised over the sequence, so in a batch some heads idled; FA2 moved to one SM"
    " per head in parallel, with warps sharing shared memory.",
    ("E03", "zh"): "一代按序列并行，batch 里的头闲着；二代改成按头并行，每个 SM 一个头，warp 之间同步更少。",
    ("F06", "zh"): "MQA 是多个 KV 头共用一个 query 头，GQA 分组，FLOP 和 KV cache 都降到 1/g。",
    (
        "G07",
        "en",
    ): "The N by N scores cost HBM bandwidth. It approximates attention tile by tile on chip, with a"
    " running max and rescaling, which is exact enough.",
}


@pytest.mark.parametrize(("id", "lang"), REVERSED)
def test_a_fluent_answer_that_says_the_opposite_does_not_pass(id, lang):
    question = next(q for q in quiz.load(lang) if q.id == id)
    given = REVERSED[id, lang]
    heard = marking.asserted(question, given)
    assert heard and not marking.passed(question, marking.found(question, given))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_misconception_that_is_denied_is_not_heard(lang):
    denied = {
        "en": "It is not true that one divides by l in every step.",
        "zh": "并不是每一步都除以 l。",
    }[lang]
    question = next(q for q in quiz.load(lang) if q.id == "C09")
    assert marking.asserted(question, denied) == []


@pytest.fixture(scope="module")
def written():
    """The questions as they stand in the files, by id."""
    return bank_loader.collect().questions


@pytest.mark.parametrize(("id", "says"), MEASURED)
def test_a_measurement_quoted_in_the_bank_is_the_recorded_one(written, id, says):
    file, column, where = MEASURED[id, says]
    rows = next(r["rows"] for r in bench.recorded() if r["file"] == file)
    (row,) = (r for r in rows if where.items() <= r.items())
    assert says in str(written[id])
    number = says.split()[0].removesuffix("e-6")
    assert f"{row[column]:.{len(number.partition('.')[2])}f}" == number
