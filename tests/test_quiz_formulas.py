"""The formulas of the bank: held to the papers' numbers, and to what the loops count."""

import pytest

from flashlab.quiz import formulas


@pytest.mark.parametrize(
    "expression, value",
    [
        ("score_bytes(B=8, Hq=32, Nq=4096, Nk=4096, dtype='fp16')", 8 * 2**30),
        ("lse_bytes(B=8, Hq=32, Nq=4096)", 4 * 2**20),
        ("qkv_bytes(B=1, Hq=4, Hkv=1, N=10, D=2, dtype='fp32')", (4 + 2) * 10 * 2 * 4),
        ("kv_cache_bytes(B=1, Hkv=8, N=4096, D=128, dtype='bf16', layers=32)", 2**29),
        ("attention_flops(1, 1, 10, 10, 4)", 4 * 400),
        ("attention_flops(1, 1, 10, 10, 4, causal=True, direction='backward')", 5 * 400),
        ("tiles(130, 64)", 3),
        ("causal_share(256, 64)", 10 / 16),
        ("waves(133, 132)", 2),
        ("round(wave_efficiency(133, 132), 3)", 0.504),
        ("schedule.grid(B=1, H=16, N=16384, block_q=128, algorithm='fa2')", 2048),
        ("gpus['A100'].sms", 108),
        ("round(ridge('A100', 'fp16'))", 201),
        ("Problem(Nq=5).Nk + ceil(1.5) + np.arange(3).sum()", 10),
        ("standard_elements(10, 2) + standard_elements(10, 2, 'backward')", 480 + 860),
    ],
)
def test_expressions_have_the_value_one_computes_by_hand(expression, value):
    assert formulas.evaluate(expression) == value


def test_elements_of_both_versions_are_those_of_loops_that_count():
    n, d, block = 48, 8, 16
    fa1 = n * d + 2 * n  # O, l and m begun as zeros
    for _ in range(n // block):  # over K/V blocks
        fa1 += 2 * block * d
        for _ in range(n // block):
            fa1 += 3 * block * d + 4 * block  # Q, O read and written; l, m read and written
    fa2 = 0
    for _ in range(n // block):  # over query blocks
        fa2 += 2 * block * d + block  # Q, O; lse
        fa2 += 2 * n * d
    assert formulas.fa1_elements(n, d, block) == fa1 and formulas.fa2_elements(n, d, block) == fa2


@pytest.mark.parametrize("expression", ["open('x')", "nothing + 1", "1 / 0", "itemsize('fp17')", "("])
def test_an_expression_that_fails_is_named(expression):
    with pytest.raises(ValueError, match="cannot compute"):
        formulas.evaluate(expression)
