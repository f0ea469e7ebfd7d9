"""Compares what a cell showed with its `#>` lines: numbers as numbers, no white space, `...` for anything.

A number agrees when it rounds to the one on the page (0.17 accepts 0.1666); with equal digits on both sides
the last may differ by one. Whole numbers, and 4. or 4.0, must be equal: that is how exact values print.
"""

import math
import re

NUMBER = r"(?<![A-Za-z_0-9.])[-+]?(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![A-Za-z_0-9])"
TOKEN = re.compile(rf"(?P<any>\.\.\.)|(?P<number>{NUMBER})|(?P<other>\S)")


def agrees(expected, got):
    """True when the text `got` is what the text `expected` promises."""
    segments = [[]]
    for kind, text in tokens(expected):
        if kind == "any":
            segments.append([])
        else:
            segments[-1].append((kind, text))
    rest = [("other" if kind == "any" else kind, text) for kind, text in tokens(got)]
    if len(segments) == 1:
        return len(rest) == len(segments[0]) and matches(segments[0], rest)
    first, *middle, last = segments
    if not matches(first, rest) or len(first) + len(last) > len(rest):
        return False
    rest = rest[len(first) :]
    if last and not matches(last, rest[-len(last) :]):
        return False
    rest = rest[: len(rest) - len(last)]
    for segment in middle:
        found = next((at for at in range(len(rest) + 1) if matches(segment, rest[at:])), None)
        if found is None:
            return False
        rest = rest[found + len(segment) :]
    return True


def tokens(text):
    """[(kind, text)] with kind in "number", "any" (...), "other" (one character)."""
    return [(found.lastgroup, found[0]) for found in TOKEN.finditer(text)]


def matches(segment, rest):
    """True when the tokens `rest` begin with those of `segment`."""
    return len(rest) >= len(segment) and all(map(same, segment, rest))


def same(expected, got):
    if expected[0] == got[0] == "number":
        return same_number(expected[1], got[1])
    return expected == got


def same_number(expected, got):
    want, have = float(expected), float(got)
    if re.fullmatch(r"[-+]?\d+(\.0?)?", expected):
        return math.isclose(want, have, rel_tol=1e-9, abs_tol=1e-9)
    unit = last_digit(expected)
    slack = 1.0 if last_digit(got) >= unit else 0.5
    return abs(want - have) <= slack * unit * (1 + 1e-6) + 1e-9 * abs(want)


def last_digit(number):
    """What one unit in the last printed digit is worth: 0.01 for 3.25, 1e-8 for 1.5e-7."""
    mantissa, _, exponent = number.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
