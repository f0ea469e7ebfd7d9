"""The bank that is shipped follows all rules, and what it runs gives what it says."""

import pytest

from flashlab import bench, quiz
from flashlab.quiz import bank_loader, lint, model

KERNELS = dict(dtype="float16", D=128, H=16, causal=False, direction="forward")
DECODE = dict(Hq=32, Hkv=8, D=128)
MEASURED = {  # (question, what it says): (file, column, the row)
    ("D06", "1.0933"): ("h200_kernels.json", "ms", dict(KERNELS, peer="fa2", N=4096, B=4)),
    ("D06", "4.163"): ("h200_kernels.json", "ms", dict(KERNELS, peer="fa2", N=16384, B=1)),
    ("E05", "339.94"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-flash", N=4096)),
    ("E05", "340"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-flash", N=4096)),
    ("E05", "647.64"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-cudnn", N=4096)),
    ("E05", "648"): ("h200_kernels.json", "tflops", dict(KERNELS, peer="sdpa-cudnn", N=4096)),
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
