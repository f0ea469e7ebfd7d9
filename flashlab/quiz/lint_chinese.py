"""The lint of Chinese texts: no English left but names, identifiers and what the glossary allows."""

import re

FUNCTIONS = {"exp", "log", "ln", "max", "min", "sum", "sqrt", "inf", "diag", "rowsum", "softmax", "lse", "us"}
FUNCTIONS |= {"ms", "ns", "nan", "dim", "acc"}
HAN = re.compile(r"[\u4e00-\u9fff]")


def allowed_words(glossary):
    """Lower-case English words that may stand in Chinese text."""
    words = {str(w).lower() for w in glossary.get("allowed", [])}
    for term in glossary.get("term", []):
        if re.search(r"[A-Za-z]{2}", term.get("zh", "")):
            words |= {w.lower() for w in re.findall(r"[A-Za-z]+", term["zh"])}
    return {part for word in words for part in re.findall(r"[a-z]+", word)} | words


def check(text, where, allowed, report):
    """No English but names, identifiers and the glossary's words; at least one Chinese character."""
    if not HAN.search(text) and re.search(r"[A-Za-z]{3}", text) and len(text) > 30:
        report.problems.append(f"{where}: zh has no Chinese")
        return
    bare = re.sub(r"```.*?```|`[^`]*`|\$[^$]*\$|\\\(.*?\\\)|https?://\S+", " ", text, flags=re.S)
    bare = re.sub(r"\w*[\d_]\w*|[A-Za-z_]+\.[A-Za-z_.]+|[A-Za-z_]+\(", " ", bare, flags=re.ASCII)
    words = set(re.findall(r"[A-Za-z]{2,}", bare))
    left = sorted(w for w in words if w.lower() not in allowed and not _name(w))
    if left:
        report.problems.append(
            f"{where}: English in the Chinese text (not in the glossary): {', '.join(left)}"
        )


def _name(word):
    """HBM, FlashAttention, dQ, GiB, Br: names and symbols, which have no translation."""
    return any(c.isupper() for c in word[1:]) or (len(word) == 2 and word[0].isupper()) or word in FUNCTIONS


def check_question(raw, zh, allowed, report):
    for where, text in chinese_texts(zh):
        check(text, f"{raw['id']} {where}", allowed, report)


def chinese_texts(q):
    """(where, text) of all texts of a question that a reader sees."""
    for name in ("intent", "prompt", "spoken", "answer"):
        yield name, getattr(q, name)
    for k in q.key_points:
        yield f"key_point {k.id!r}", k.text
    for m in q.misconceptions:
        yield f"misconception {m.id!r}", f"{m.claim} {m.why} {m.refutes}"
    for f in q.follow_ups:
        yield "follow_up", f"{f.text} {f.say}"
    for c in q.cards:
        yield f"card {c.id!r}", f"{c.ask} {c.answer}"
    for i in q.items:
        slips = (s.text for s in i.slips)
        texts = " ".join((i.ask, *i.options, *i.because, *i.steps, *slips))
        yield f"item {i.id!r}", re.sub(r"\{\w+(:[^}]*)?\}", "0", texts)
