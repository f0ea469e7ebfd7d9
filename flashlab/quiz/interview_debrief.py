"""What a mock interview showed, as plain data for one screen."""

from flashlab.quiz import marking, places


def collect(talk):
    """The debrief of an Interview: pitch, threads, follow-ups, whiteboard, numbers, claim, transfer, what was
    taken back, and the questions of which a must was missed.
    """

    def said(kind):
        return [x for x in talk.turns if x.kind == kind]

    weak = []
    threads = []
    for turn in said("question"):
        later = [x for x in said("follow_up") if x.question.id == turn.question.id]
        found = turn.found.union(*(x.found for x in later))
        missed = [k for k in marking.missed(turn.question, found) if k.level != "bonus"]
        musts = [k.text for k in missed if k.level == "must"]
        strong = [k.text for k in missed if k.level == "strong"]
        entry = {"question": turn.question.id, "score": marking.score(turn.question, found)}
        entry["place"] = places.place(turn.question.anchor, talk.lang)
        entry["heard"] = _heard(turn, *later)
        threads.append({**entry, "musts": musts, "strong": strong, "anchor": turn.question.anchor})
        if musts:
            weak.append(turn.question.id)
    pitch = [x.result for x in said("pitch")]
    return {
        "role": talk.role,
        "minutes": round((talk.now() - talk.begun) / 60),
        "pitch": pitch[0] if pitch else None,
        "threads": threads,
        "follow_ups": [{"text": x.text, "say": x.follow_up.say} for x in said("follow_up")],
        "whiteboard": [x.result for x in said("whiteboard")],
        "numbers": [
            {"ask": x.text, "given": x.answer, "question": x.task.item.question, **x.result}
            for x in said("number")
        ],
        "claims": [{"text": x.claim.text, "given": x.answer, **x.result} for x in said("claim")],
        "transfer": [
            {
                "text": x.text,
                "anchor": x.question.anchor,
                "say": x.follow_up.say,
                "place": places.place(x.question.anchor, talk.lang),
            }
            for x in said("transfer")
        ],
        "back": [x.answer for x in said("back") if x.answer.strip()],
        "weak": weak,
    }


def _heard(*turns):
    """The misconceptions that the answers to these turns seem to state, once each."""
    found = {m.id: m for x in turns for m in marking.asserted(x.question, x.answer)}
    return [{"claim": m.claim, "refutes": m.refutes} for m in found.values()]
