"""Where a learner stands in the bank: one line, and a line for each section."""

from flashlab import progress, quiz
from flashlab.quiz import cards, model, units
from flashlab.text import t, textwidth


def numbers(lang="en", events=None):
    """Counts for the line: questions and items of the bank, cards, claims; what of them was done."""
    events = progress.events() if events is None else events
    questions, claims = quiz.load(lang), quiz.load_claims(lang)
    known = {i.id for q in questions for i in q.items}
    ids = {q.id for q in questions}
    free = {e["id"] for e in events if e["kind"] == "free"} & ids
    right = {e["id"] for e in events if e["kind"] == "item" and e.get("right")} & known
    judged = {e["id"] for e in events if e["kind"] == "claim"} & {c.id for c in claims}
    try:
        deck = cards.counts(lang, events=events)
    except RuntimeError:  # no fsrs
        deck = {"all": len(cards.deck(lang)), "seen": 0, "due": 0}
    return {
        "free": len(free), "questions": len(questions), "right": len(right), "items": len(known),
        "seen": deck["seen"], "cards": deck["all"], "due": deck["due"],
        "claims": len(judged), "all_claims": len(claims),
    }  # fmt: skip


def line(lang="en", events=None):
    """One sentence with all counts."""
    return t("quiz.terminal.state", lang, **numbers(lang, events))


def begun(events=None):
    """Was anything of the bank answered yet?"""
    events = progress.events() if events is None else events
    return any(e["kind"] not in progress.LESSON_KINDS for e in events)


def next_section(lang="en", events=None):
    """The first section with a question that was not passed, or ""."""
    events = progress.events() if events is None else events
    passed = {e["id"] for e in events if e["kind"] == "free" and e.get("score", 0) >= 0.99}
    return next((q.section for q in quiz.load(lang) if q.id not in passed), "")


def sections(lang="en", events=None):
    """A line for each section: the best score of each free answer, and the items right."""
    events = progress.events() if events is None else events
    best, right = {}, set()
    for e in events:
        if e["kind"] == "free":
            best[e["id"]] = max(best.get(e["id"], 0), e.get("score", 0))
        elif e["kind"] == "item" and e.get("right"):
            right.add(e["id"])
    lines = []
    for section in model.SECTIONS:
        mine = [q for q in quiz.load(lang) if q.section == section]
        if not mine:
            continue
        items = [i.id for q in mine for i in q.items]
        share = (sum(best.get(q.id, 0) for q in mine) / len(mine) + len(right & set(items)) / len(items)) / 2
        name = textwidth.pad(f"{section}  {t(f'quiz.sections.{section}', lang)}", 36)
        lines.append(
            f"  {name}{'█' * round(10 * share)}{'░' * (10 - round(10 * share))}  "
            f"{units.show(round(share, 2), 'percent', lang)}"
        )
    return lines
