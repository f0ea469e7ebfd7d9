"""The mock interview in a terminal: the interviewer's lines, your answers, a clock, and one screen at the
end.
"""

import time

from flashlab.quiz.items import unit_name
from flashlab.text import t


def play(talk, screen):
    """Lead through an Interview and print its debrief; Ctrl-C ends it with the debrief of what was said."""
    lang = screen.lang
    screen.say("interview.begin", minutes=talk.minutes, role=t(f"quiz.interview.{talk.role}", lang))
    try:
        while talk.turn is not None:
            _turn(talk, screen)
    except (KeyboardInterrupt, EOFError):
        talk.stop()
        screen.write("")
        screen.say("terminal.interrupted")
    found = talk.debrief()
    if talk.turns:
        debrief(found, screen)
    return found


def _turn(talk, screen):
    turn, lang = talk.turn, screen.lang
    minutes, seconds = divmod(int(talk.left), 60)
    screen.head(t("quiz.terminal.left", lang, minutes=minutes, seconds=f"{seconds:02d}"))
    screen.markdown(turn.text)
    if turn.kind == "pitch":
        screen.ask(t("quiz.interview.ready", lang, seconds=turn.seconds))
    begun = time.monotonic()
    if turn.kind == "number":
        unit = unit_name(turn.task.item.unit, lang)
        answer = screen.ask(t("quiz.interview.how_number" + ("" if unit else "_plain"), lang, unit=unit))
    elif turn.kind == "whiteboard":
        screen.say("interview.how_code")
        answer = _code(screen)
    else:
        answer = screen.paragraph(t("quiz.interview.how", lang))
    if turn.kind == "pitch":
        screen.say("interview.took", seconds=round(time.monotonic() - begun))
    talk.answer(answer)


def _code(screen):
    """Lines of code until a line with a single full stop, or two empty ones."""
    lines = []
    while True:
        line = screen.read("| ")
        if line.strip() == "." or (not line.strip() and (not lines or not lines[-1].strip())):
            return "\n".join(lines)
        lines.append(line.rstrip())


def debrief(found, screen):
    """One screen: what held, what was missing, where it stands."""
    lang = screen.lang
    screen.head(t("quiz.interview.debrief", lang, minutes=found["minutes"]))
    if found["pitch"]:
        p = found["pitch"]
        screen.text(
            t("quiz.interview.pitch", lang, said=p["said"], of=p["of"]) + _list(p["missed"], lang), "  "
        )
    for thread in found["threads"]:
        mark = "✓" if not thread["musts"] else "✗"
        missing = _list(thread["musts"] + thread["strong"][:1], lang)
        line = f"{mark} {thread['question']} {round(100 * thread['score'])} %{missing} → {thread['anchor']}"
        screen.text(line, "  ")
    for board in found["whiteboard"]:
        fault = board["fault"]
        key = "board_right" if not fault else "board_empty" if fault == "empty" else "board_wrong"
        screen.text(t(f"quiz.interview.{key}", lang, fault=fault, question=board["question"]), "  ")
        if fault:
            for line in board["solution"].splitlines():
                screen.write("    " + line)
    for number in found["numbers"]:
        mark = "✓" if number["right"] else "✗"
        line = t("quiz.interview.number", lang, given=number["given"] or "–", expected=number["expected"])
        screen.text(f"{mark} {line} {number['message']}".rstrip(), "  ")
    for claim in found["claims"]:
        screen.text(t("quiz.interview.verdict", lang, **claim), "  ")
    for step in found["follow_ups"]:
        if step["say"]:
            screen.text(t("quiz.interview.say", lang, say=step["say"]), "  ")
    for step in found["transfer"]:
        screen.text(t("quiz.interview.transfer", lang, anchor=step["anchor"]), "  ")
    weak = found["weak"]
    key = "next" if weak else "next_none"
    screen.write("")
    screen.say(f"interview.{key}", questions=", ".join(weak), first=weak[0] if weak else "")
    screen.say("interview.assisted")


def _list(points, lang):
    if not points:
        return ""
    return t("quiz.interview.missing", lang, points=("; " if lang == "en" else "；").join(points))
