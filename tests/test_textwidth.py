"""Lines fit the terminal, with Chinese characters two columns wide."""

import pytest

from flashlab.text import textwidth as w

CHINESE = (
    "取 batch 8、32 个头、长度 4096、fp16。每条序列的每个头各有一张 4096×4096 的分数矩阵，"
    "约 1678 万个数，每个两字节（就是 32 MiB）；再乘 8×32。"
)


@pytest.mark.parametrize(
    "text, columns", [("abc", 3), ("分块", 4), ("a分，", 5), ("e\u0301", 1), ("½²·", 3), ("", 0)]
)
def test_width_counts_columns(text, columns):
    assert w.width(text) == columns


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_chinese_breaks_between_characters_and_no_line_begins_with_a_comma(columns):
    lines = w.wrap(CHINESE, columns)
    assert all(w.width(line) <= columns for line in lines) and len(lines) > 1
    assert not any(line[0] in w.NOT_FIRST for line in lines)
    assert "".join(lines).replace(" ", "") == CHINESE.replace(" ", "")


def test_english_breaks_at_spaces_with_an_indent():
    lines = w.wrap("one two three four five", 12, "  ", "- ")
    assert lines == ["- one two", "  three four", "  five"]


def test_a_word_longer_than_the_line_is_cut():
    assert w.wrap("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_a_long_path_can_be_left_whole():
    path = "results/" + "x" * 25
    assert w.wrap(f"written to {path} now", 20, "  ", cut=False) == ["  written to", f"  {path}", "  now"]


def test_markdown_becomes_plain_lines():
    text = "**Bold** and `code`:\n\n- *one*: a * b\n1. two\n\n| a | b |\n|---|---|\n| x | `y` |\n\n"
    text += "```\n  kept  *as*\n```"
    assert w.markdown(text, 40) == [
        "Bold and code:", "", "• one: a * b", "1. two", "", "x", "  b: y", "", "      kept  *as*",
    ]  # fmt: skip


def test_padding_is_by_columns():
    assert w.width(w.pad("分块", 10)) == 10


def test_a_long_line_of_code_goes_on_below_and_loses_nothing():
    line = "    grid = (ceil(Nq / Br), B * H)   # dK, dV stay on chip, dQ += by atomic add"
    lines = w.code(line, 60, "     ", "  3  ")
    assert len(lines) == 2 and all(w.width(x) <= 60 for x in lines)
    assert lines[0].startswith("  3      grid = (ceil") and lines[1].startswith(" " * 13)
    assert "".join("".join(lines).split()) == "3" + "".join(line.split())
    assert w.code("short", 60) == ["    short"] and len(w.code("x" * 150, 60)) == 3
    assert all(w.width(x) <= 40 for x in w.markdown(f"```\n{line}\n```", 40))
