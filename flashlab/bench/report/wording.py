"""The parts of a sentence that say which case and which machine."""

from flashlab.text import t

VOWEL_SOUND = "AEFHILMNORSX"  # letters whose names begin with a vowel: an H100, an RTX 4090


def batch(rows):
    """ "B = 2" of rows that share it, "B · N = 16384" where that is what they share, else None."""
    sizes, tokens = {r.get("B") for r in rows}, {r.get("B", 0) * r["N"] for r in rows}
    if len(sizes) == 1:
        return None if None in sizes else f"B = {sizes.pop()}"
    return f"B · N = {tokens.pop()}" if len(tokens) == 1 else None


def case(row, way=None, several=None):
    """ "fp16, N = 8192, D = 64, B = 2, 32 heads, causal, forward", as far as the row says it; without N
    where it speaks of `several` rows.
    """
    short = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
    parts = [short.get(row.get("dtype"), row.get("dtype"))]
    parts += [None if several else f"N = {row['N']}", f"D = {row['D']}", batch(several or [row])]
    parts += [t("report.case.heads", heads=row["H"]) if "H" in row else None]
    if "causal" in row:
        parts.append(t("report.case.causal" if row["causal"] else "report.case.full"))
    way = row.get("direction") if way is None else way
    parts.append(t(f"report.case.{way}") if way else None)
    return t("report.case.comma").join(p for p in parts if p)


def with_article(name):
    """ "an RTX 4090", "a Tesla T4", "an AMD EPYC"."""
    word = name.split()[0] if name.split() else ""
    spelled = word.isupper() and not (len(word) > 3 and word.isalpha()) or any(c.isdigit() for c in word)
    vowel = word[:1].upper() in VOWEL_SOUND if spelled else word[:1].upper() in "AEIO" or word == "NVIDIA"
    return f"{'an' if vowel else 'a'} {name}"
