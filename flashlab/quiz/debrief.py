"""What a session showed, and what to do about it: scores, missed key points, the next 10, 30, 60 minutes,
a plan.
"""

from flashlab.quiz import model, places
from flashlab.quiz.wording import listed
from flashlab.text import t

WEAK = 0.7  # a section below this share wants work


def summarise(mode, steps, lang):
    """Plain data on the answered steps.

    `sections`: {letter: {"right": sum of shares, "of": steps, "score": 0..1}}; `missed`: key points not
    said (or the questions of wrong items), each {"question", "text", "anchor", "level"}; `next`: {"10":
    [...], "30": [...], "60": [...]} as sentences; `answered`, `of`, `review` (wrong items with the right
    answer).
    """
    answered = [s for s in steps if s.right is not None]
    sections = {}
    for step in answered:
        entry = sections.setdefault(step.section, {"right": 0.0, "of": 0})
        entry["right"] += step.right
        entry["of"] += 1
    for entry in sections.values():
        entry["score"] = entry["right"] / entry["of"]
    missed, review = [], []
    for step in answered:
        if step.kind == "free":
            missed += [
                {
                    "question": step.id,
                    "text": k.text,
                    "anchor": step.bank.anchor,
                    "place": places.place(step.bank.anchor, lang),
                    "level": k.level,
                    "id": k.id,
                }
                for k in step.missed()
                if k.level != "bonus"
            ]
        elif step.kind in ("item", "claim") and step.right < 1:
            review.append(
                {"id": step.id, "question": step.question, "ask": step.ask()["ask"], **_short(step)}
            )
    missed.sort(key=lambda m: model.LEVELS.index(m["level"]))
    weak = list(
        dict.fromkeys([m["question"] for m in missed] + [r["question"] for r in review if r["question"]])
    )
    return {
        "mode": mode,
        "answered": len(answered),
        "of": len(steps),
        "right": sum(s.right for s in answered),
        "sections": dict(sorted(sections.items())),
        "missed": missed,
        "missed_ids": weak,
        "review": review,
        "next": next_steps(mode, weak, missed, _exercises(steps), lang) if answered else {},
    }


def _short(step):
    feedback = step.feedback()
    if step.kind == "claim":
        return {"given": step.given, "expected": feedback["verdict"], "message": feedback["correction"]}
    return {"given": step.said(), "expected": feedback["expected"], "message": feedback["message"]}


def _exercises(steps):
    found = {}
    for step in steps:
        if step.kind == "free":
            found[step.id] = step.bank.exercises
    return found


def next_steps(mode, weak, missed, exercises, lang):
    """What to do in 10, 30 and 60 minutes about the questions in `weak`, as sentences."""
    if not weak:
        return {
            "10": [t("quiz.next.folklore", lang)],
            "30": [t("quiz.next.exam", lang)],
            "60": [t("quiz.next.interview", lang)],
        }
    first = weak[0]
    anchors = dict.fromkeys(m["anchor"] for m in missed if m["question"] in weak[:3])
    lessons = [places.place(a, lang) for a in anchors if places.written(a)]
    names = places.exercises(dict.fromkeys(name for q in weak for name in exercises.get(q, ())))[:2]
    thirty = [t("quiz.next.read", lang, anchors=listed(lessons, lang))] if lessons else []
    return {
        "10": [t("quiz.next.drill", lang, section=first[0])],
        "30": [*thirty, t("quiz.next.learn", lang, question=first)],
        "60": [
            *(
                [t("quiz.next.exercise", lang, names=(", " if lang == "en" else "、").join(names))]
                if names
                else []
            ),
            t("quiz.next.section", lang, section=first[0]),
        ],
    }


def plan(evenings, events, questions, lang):
    """A plan for 1 to 3 evenings: [[{"minutes", "text"}, ...] per evening], the weak sections first.

    Weak is what the last diagnosis or exam says; without one, the sections in order, and the plan begins
    with it. Raises ValueError for another number of evenings.
    """
    if evenings not in (1, 2, 3):
        raise ValueError(t("quiz.plan.evenings", lang, got=evenings))
    last = next((e for e in reversed(list(events)) if e["kind"] in ("diagnosis", "exam")), None)
    score = {s: x["score"] for s, x in (last or {}).get("sections", {}).items() if s in model.SECTIONS}
    here = sorted({q.section for q in questions}, key=lambda s: (score.get(s, 0.5), s))
    core = {s: [q.id for q in questions if q.section == s and q.asked == "core"] for s in here}
    days = []
    for day in range(evenings):
        mine = here[day::evenings] if evenings > 1 else here[:4]
        block = []
        if day == 0 and last is None:
            block.append(_block(15, t("quiz.plan.diagnosis", lang)))
        else:
            block.append(_block(10, t("quiz.plan.drill", lang)))
        for section in mine:
            ids = core[section] or [q.id for q in questions if q.section == section]
            share = score.get(section)
            how = "" if share is None else t("quiz.plan.score", lang, percent=round(100 * share))
            text = t("quiz.plan.section", lang, section=section, questions=" ".join(ids[:5]), how=how)
            block.append(_block(25 if (share or 0) < WEAK else 15, text))
        block.append(_block(10, t("quiz.plan.folklore", lang)))
        if day == evenings - 1:
            block.append(_block(30, t("quiz.plan.interview", lang)))
            block.append(_block(10, t("quiz.plan.crib", lang)))
        days.append(block)
    return days


def _block(minutes, text):
    return {"minutes": minutes, "text": text}
