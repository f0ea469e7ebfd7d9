"""Numbers as people write them: put into texts ("8 GiB", "17 million", "85 %") and read back.

`show` and `fill` write, `read` reads: 8 GiB, 8.6 GB, 8589934592, 2^33, 12.5 %, 37/6, 4k, 1.2 万 are all
numbers. A text may mean two numbers (4k tokens: 4000 or 4096), so `read` returns all of them.
"""

import ast
import math
import operator
import re

BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
TIMES = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
RATES = {"FLOP": 1, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15, "EFLOP": 1e18}
COUNTS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
CHINESE = {"万": 1e4, "亿": 1e8, "万亿": 1e12}
UNITS = ("bytes", "percent", "seconds", "flops", "flops/s", "bytes/s", "flops/byte")  # and any counted thing
FORMATS = (
    *BINARY, *DECIMAL, *TIMES, *RATES, *COUNTS, *CHINESE,
    *(f"{u}/s" for u in (*BINARY, *DECIMAL, *RATES)), "percent", "%", "int", "sci", "k", "Ki",
    *(f"{n}f" for n in range(7)), *(f"{n}g" for n in range(1, 8)), "bytes", "power",
)  # fmt: skip


# --- writing ---


def plain(x, lang="en", digits=3):
    """A number with `digits` significant digits, from 1000 on in full: 2,048 (2048 in Chinese)."""
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        x = x.item() if hasattr(x, "item") else x
        if isinstance(x, bool) or not isinstance(x, (int, float)):
            return str(x)
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    if isinstance(x, int) or (abs(x) < 1e15 and x == int(x)) or 1000 <= abs(x) < 1e15:
        x = round(x)
        return f"{x:,}" if lang == "en" else str(x)
    if x and (abs(x) < 1e-4 or abs(x) >= 1e15):
        return scientific(x)
    return f"{x:.{digits}g}"


def scientific(x):
    """1.2 × 10⁻⁷."""
    if x == 0:
        return "0"
    mantissa, exponent = f"{x:.1e}".split("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa.removesuffix('.0')} × 10{power}"


def show(x, form="", lang="en"):
    """`x` in a format of FORMATS ("" = a plain number). Raises ValueError for an unknown one."""
    if not form:
        return plain(x, lang, digits=4)
    gap = " "
    if form in ("percent", "%"):
        return f"{plain(100 * x, lang)}{gap if lang == 'en' else ''}%"
    base = form.removesuffix("/s")
    table = {**BINARY, **DECIMAL, **TIMES, **RATES, **COUNTS}
    if base in table and form in FORMATS:
        unit = {"us": "µs"}.get(form, form)
        if form in RATES and lang == "en":
            unit = form + "s"
        return f"{plain(x / table[base], lang)}{gap}{unit}"
    if form in CHINESE:
        return plain(x / CHINESE[form], lang)
    if form in ("k", "Ki"):
        return f"{plain(x / (1000 if form == 'k' else 1024), lang)}{'k' if lang == 'en' else 'K'}"
    if form == "bytes":
        return largest(x, lang)
    if form == "int":
        return f"{round(x):,}" if lang == "en" else str(round(x))
    if form == "sci":
        return scientific(x)
    if form == "power":
        return "2" + str(round(math.log2(x))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    if re.fullmatch(r"\d[fg]", form):
        return f"{x:,.{form[0]}f}" if form[1] == "f" and lang == "en" else f"{x:.{form}}"
    raise ValueError(f"unknown format {form!r}; there are: {', '.join(FORMATS)}")


def largest(x, lang="en"):
    """Bytes in the largest binary unit that gives at least one: 8 GiB."""
    unit = next((u for u in reversed(BINARY) if abs(x) >= BINARY[u]), None)
    return show(x, unit, lang) if unit else f"{plain(x, lang)} {'bytes' if lang == 'en' else '字节'}"


def quantity(x, unit, lang="en", name=None):
    """An answer with its unit, as feedback shows it; `name` is the unit in the reader's language."""
    if unit == "bytes":
        short = largest(x, lang)
        exact = f"{plain(round(x), lang)} {name or unit}"
        if abs(x) < 1024:
            return short
        return f"{short} ({exact})" if lang == "en" else f"{short}（{exact}）"
    if unit == "percent":
        return show(x / 100, "percent", lang)
    if unit == "seconds":
        part = next((u for u in TIMES if abs(x) >= TIMES[u]), "ns")
        return show(x, part, lang)
    if unit in ("flops", "flops/s", "bytes/s"):
        table = DECIMAL if unit == "bytes/s" else RATES
        part = next((u for u in reversed(table) if abs(x) >= table[u]), None)
        end = "/s" if unit.endswith("/s") else ""
        return show(x, part + end, lang) if part else f"{plain(x, lang)} {unit}"
    name = unit if name is None else name
    if lang == "en" and x == 1 and name.endswith("s"):
        name = name[:-1]
    return f"{plain(x, lang, digits=4)} {name}".strip()


_SLOT = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)(?::([^{}]*))?\}", re.ASCII)


def fill(text, values, lang="en"):
    """`text` with {name} and {name:format} replaced; {{ and }} stand for braces.

    Braces of LaTeX (after a letter, ^, _ or another brace) are left alone. Raises ValueError for a name that
    `values` lacks or an unknown format.
    """

    def put(found):
        whole, name, form = found[0], found[1], found[2]
        if name is None:
            return whole[0]
        if name in values:
            return show(values[name], form or "", lang)
        if form is None and re.search(r"[A-Za-z^_}\\]$", text[: found.start()]):
            return whole
        raise ValueError(f"{whole} is no value here; there are: {', '.join(values) or 'none'}")

    return _SLOT.sub(put, text)


# --- reading ---

_SIGNS = str.maketrans("−–／％，。；（）×·∗＊⋅＋．０１２３４５６７８９　µμ", "--/%,.;()*****+.0123456789 uu")
_SUPER = {c: d for c, d in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True)}
_OPERATIONS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_FUNCTIONS = {"sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "log2": math.log2, "exp": math.exp}
_PREFIX = {"k": (1e3, 1024), "m": (1e6, 2**20), "g": (1e9, 2**30), "t": (1e12, 2**40), "p": (1e15, 2**50)}
_WORDS = {
    "thousand": 1e3, "million": 1e6, "mio": 1e6, "billion": 1e9, "bn": 1e9, "trillion": 1e12,
    "千": 1e3, "万": 1e4, "百万": 1e6, "千万": 1e7, "亿": 1e8, "十亿": 1e9, "万亿": 1e12,
}  # fmt: skip
_SECONDS = {
    "s": 1, "sec": 1, "second": 1, "秒": 1, "ms": 1e-3, "millisecond": 1e-3, "毫秒": 1e-3, "us": 1e-6,
    "microsecond": 1e-6, "微秒": 1e-6, "ns": 1e-9, "nanosecond": 1e-9, "纳秒": 1e-9, "min": 60, "分钟": 60,
}  # fmt: skip


def arithmetic(text):
    """The value of "2^33", "37/6", "8*32*4096²*2", "sqrt(2)", or None."""
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda m: "**(" + "".join(_SUPER[c] for c in m[0]) + ")", text).replace(
        "^", "**"
    )
    text = re.sub(r"(?<=\d)[, _](?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<=[\d)])\s*x\s*(?=[\d(])", "*", text)
    if len(text) > 120:
        return None

    def value(node):
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.UnaryOp(op=op, operand=one) if type(op) in _OPERATIONS:
                return _OPERATIONS[type(op)](value(one))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                a, b = value(left), value(right)
                if isinstance(op, ast.Pow) and (abs(b) > 200 or abs(a) > 1e9):
                    raise ValueError
                return _OPERATIONS[type(op)](a, b)
            case ast.Call(func=ast.Name(id=name), args=[one], keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](value(one))
        raise ValueError

    try:
        found = value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, TypeError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, (int, float)) and math.isfinite(found) else None


def read(text, unit=""):
    """All numbers, in `unit`, that the typed `text` can mean, most likely first; [] if it is no number.

    Units: those of UNITS, or the name of a counted thing ("tokens", "blocks", "times").
    """
    text = str(text).translate(_SIGNS).strip().strip("=≈~约").strip()
    found = re.fullmatch(r"(.*?[\d).²³⁰¹⁴⁵⁶⁷⁸⁹])\s*([^\d().²³⁰¹⁴⁵⁶⁷⁸⁹]*)", text)
    if not found:
        return []
    number, end = arithmetic(found[1]), found[2].strip().rstrip(".")
    if number is None:
        return []
    factors = _factors(end, unit)
    if unit == "percent" and not end and 0 <= abs(number) <= 1:
        factors = [1, 100]
    return list(dict.fromkeys(number * f for f in factors))


def other_unit(text):
    """Does `text` name a decimal unit of bytes (GB) or a binary one (GiB)? "decimal", "binary" or ""."""
    found = re.search(r"([KMGTP])(i?)B", str(text), re.I)
    return ("binary" if found[2] else "decimal") if found else ""


def _factors(end, unit):
    """What the words after a number multiply it by, for an answer in `unit`; [] if they do not fit."""
    if not end:
        return [1]
    if end in ("%", "percent", "per cent"):
        return [1] if unit == "percent" else [0.01]
    if unit in ("bytes", "bytes/s", "flops/byte"):
        return _byte_factors(end, unit)
    word = end.lower()
    if unit == "seconds":
        return [_SECONDS[w] for w in (word, word.rstrip("s")) if w in _SECONDS][:1]
    if unit in ("flops", "flops/s"):
        word = re.sub(r"(flop(s|/s)?)(/s)?$", "", word).strip()
        if not word:
            return [1]
        if word in _PREFIX:
            return [_PREFIX[word][0]]
        return [{"e": 1e18}.get(word) or _WORDS.get(word, 0)] if word == "e" or word in _WORDS else []
    for name, factor in sorted(_WORDS.items(), key=lambda pair: -len(pair[0])):
        if word.startswith(name):
            return [factor]
    if word[0] in _PREFIX and (len(word) == 1 or word[1] == " "):
        return list(_PREFIX[word[0]]) if word[0] == "k" else [_PREFIX[word[0]][0]]
    counted = re.fullmatch(r"[a-z*/ ]+|[\u4e00-\u9fff]+", word)
    return [1] if counted and not re.fullmatch(r"[kmgtp]i?b(yte)?s?|bytes?|字节|[num]?s", word) else []


def _byte_factors(end, unit):
    per = r"(?:/s|ps|/sec|/second|每秒|/秒)?" if unit == "bytes/s" else ""
    found = re.fullmatch(rf"([kKmMgGtTpP]?)(i?)\s*(b|B|bytes?|Bytes?|字节)?{per}", end)
    if unit == "flops/byte":
        return [1] if re.fullmatch(r"(?i)flops?(/|每| per )?(b|bytes?|字节)?", end) else []
    if found and (found[1] or found[3]):
        if not found[1]:
            return [1]
        decimal, binary = _PREFIX[found[1].lower()]
        if found[2]:
            return [binary]
        if not found[3]:
            return [binary, decimal]  # "8G": either
        return [decimal, binary] if found[1] == "K" else [decimal]
    words = {name: f for name, f in _WORDS.items() if re.fullmatch(rf"{name}\s*(bytes?|字节)?", end.lower())}
    return list(words.values())[:1]
