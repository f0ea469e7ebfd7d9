"""Numbers as people write them, both ways."""

import pytest

from flashlab.quiz import units

GIB8 = 8 * 2**30


@pytest.mark.parametrize(
    "text, unit, value",
    [
        ("8 GiB", "bytes", GIB8),
        ("8.6 GB", "bytes", 8.6e9),
        ("8589934592", "bytes", GIB8),
        ("8,589,934,592 bytes", "bytes", GIB8),
        ("2^33", "bytes", GIB8),
        ("2**33 B", "bytes", GIB8),
        ("2³³", "bytes", GIB8),
        ("8×32×4096²×2", "bytes", GIB8),
        ("8 * 2^30 字节", "bytes", GIB8),
        ("１２８ 块", "blocks", 128),
        ("37/6", "times", 37 / 6),
        ("4x", "times", 4),
        ("4 倍", "times", 4),
        ("1e9", "flops", 1e9),
        ("1.2 TFLOPs", "flops", 1.2e12),
        ("3.35 TB/s", "bytes/s", 3.35e12),
        ("5 µs", "seconds", 5e-6),
        ("5 微秒", "seconds", 5e-6),
        ("12.5%", "percent", 12.5),
        ("12.5 ％", "percent", 12.5),
        ("50 %", "times", 0.5),
        ("1.2万", "entries", 12_000),
        ("17 million", "entries", 17e6),
        ("= 6", "blocks", 6),
        ("-3", "", -3),
        ("201 FLOP/byte", "flops/byte", 201),
    ],
)
def test_what_people_type_is_read(text, unit, value):
    assert units.read(text, unit)[0] == pytest.approx(value)


@pytest.mark.parametrize(
    "text, unit, values",
    [
        ("4k tokens", "tokens", [4000, 4096]),
        ("0.125", "percent", [0.125, 12.5]),
        ("8G", "bytes", [GIB8, 8e9]),
        ("164 KB", "bytes", [164_000, 164 * 1024]),
    ],
)
def test_what_can_mean_two_numbers_gives_both(text, unit, values):
    assert units.read(text, unit) == pytest.approx(values)


@pytest.mark.parametrize(
    "text, unit",
    [
        ("", "bytes"), ("a lot", "bytes"), ("8 apples", "bytes"), ("8 GiB", "tokens"), ("9**9**9**9", ""),
        ("1/0", ""), ("__import__('os')", ""), ("2^9999", ""), ("(((", ""), ("1e999", ""), ("[1]", ""),
        ("5 ms", "bytes"),
    ],
)  # fmt: skip
def test_what_is_no_number_of_that_unit_is_not_read(text, unit):
    assert units.read(text, unit) == []


def test_texts_are_filled_in_both_languages():
    values = {"a": GIB8, "n": 4096**2, "share": 0.852, "t": 4.5e-6, "f": 3.2e12}
    text = "{a:GiB}, {n:million}, {share:percent}, {t:us}, {f:TFLOP/s}, {n}, {a:bytes}, {share:2f}"
    english = "8 GiB, 16.8 million, 85.2 %, 4.5 µs, 3.2 TFLOP/s, 16,777,216, 8 GiB, 0.85"
    assert units.fill(text, values) == english
    assert units.fill("{n:万} 万，{share:%}，{n}", values, "zh") == "1678 万，85.2%，16777216"


def test_braces_of_formulas_stay():
    text = r"\frac{1}{2} \mathrm{exp} x_{i} {{y}}"
    assert units.fill(text, {}) == r"\frac{1}{2} \mathrm{exp} x_{i} {y}"


@pytest.mark.parametrize(
    "text, says", [("{b}", "{b} is no value here; there are: a"), ("{a:MIB}", "unknown format 'MIB'")]
)
def test_a_name_or_a_format_that_is_not_there_is_named(text, says):
    with pytest.raises(ValueError, match=says):
        units.fill(text, {"a": 1})


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (GIB8, "bytes", "8 GiB (8,589,934,592 bytes)"),
        (12.5, "percent", "12.5 %"),
        (4.2e-6, "seconds", "4.2 µs"),
        (3.2e13, "flops", "32 TFLOPs"),
        (2048, "blocks", "2,048 blocks"),
        (0.5, "times", "0.5 times"),
    ],
)
def test_an_answer_is_shown_with_its_unit(value, unit, text):
    assert units.quantity(value, unit) == text


@pytest.mark.parametrize("form", units.FORMATS)
def test_every_format_writes_something_in_both_languages(form):
    assert units.show(123.0, form, "en") and units.show(123.0, form, "zh")
