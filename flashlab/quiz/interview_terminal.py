"""The mock interview in a terminal: the interviewer's lines, your answers, a clock, and one screen at the
end.
"""

from flashlab.quiz import terminal_feedback, units
from flashlab.quiz.items import unit_name
from flashlab.quiz.screen import QUIT
from flashlab.quiz.wording import counted, labelled, listed
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
        _details(found, screen)
    return found


def _turn(talk, screen):
    turn, lang, took = talk.turn, screen.lang, None
    minutes, seconds = divmod(int(talk.left), 60)
    screen.head(t("quiz.terminal.left", lang, minutes=minutes, seconds=f"{seconds:02d}"))
    screen.markdown(turn.text)
    if turn.kind == "pitch":
        screen.ask(t("quiz.interview.ready", lang, seconds=turn.seconds))
        screen.say("interview.speak")
        took = screen.clock(turn.seconds)
        screen.count("interview.took", took)
        answer = screen.paragraph(t("quiz.interview.key_words", lang))
    elif turn.kind == "number":
        unit = unit_name(turn.task.item.unit, lang)
        how = t("quiz.interview.how_number" + ("" if unit else "_plain"), lang, unit=unit)
        answer = screen.ask(how)
        if problem := talk.unreadable(answer):
            screen.text(problem)
            answer = screen.ask(how)
    elif turn.kind == "whiteboard":
        screen.say("interview.how_code")
        answer = _code(screen)
    else:
        answer = screen.paragraph(t("quiz.interview.how", lang))
    if answer.strip().lower() in QUIT:
        raise KeyboardInterrupt
    talk.answer(answer, took)


def _code(screen):
    """Lines of code until one with a single full stop, or two empty ones; "!" wipes the board."""
    lines = []
    while True:
        for line in screen.read("| ").split("\n"):
            if line.strip() == "." or (not line.strip() and lines and not lines[-1].strip()):
                return "\n".join(lines)
            if line.strip() == "!":
                lines = []
            else:
                lines.append(line.rstrip())


def debrief(found, screen):
    """One screen: what held, what was missing, what was said wrong, where it stands."""
    lang = screen.lang
    screen.head(counted("interview.debrief", lang, found["minutes"]))
    if p := found["pitch"]:
        took = "" if p["took"] is None else t("quiz.interview.pitch_took", lang, **p)
        line = t("quiz.interview.pitch", lang, said=p["said"], of=p["of"]) + took
        screen.text(line + _missing(p["missed"], lang), "    ", "  ")
    for thread in found["threads"]:
        mark = "✗" if thread["musts"] or thread["heard"] else "✓"
        line = f"{mark} {thread['question']} {units.show(round(thread['score'], 2), 'percent', lang)}"
        screen.text(line + _missing((thread["musts"] + thread["strong"][:1])[:3], lang), "    ", "  ")
        terminal_feedback.heard(thread["heard"], screen, "    ")
    for board in found["whiteboard"]:
        screen.text(_board(board, lang), "    ", "  ")
    for number in found["numbers"]:
        mark = "✓" if number["right"] else "✗"
        line = t("quiz.interview.number", lang, **{**number, "given": number["given"] or "–"})
        screen.text(f"{mark} {line} {number['message']}".rstrip(), "    ", "  ")
    for claim in found["claims"]:
        said = t("quiz.interview.given", lang, given=_short(claim["given"])) if claim["given"].strip() else ""
        screen.text(t("quiz.interview.verdict", lang, **claim) + said, "    ", "  ")
    for step in found["transfer"]:
        screen.text(t("quiz.interview.transfer", lang, **step), "    ", "  ")
    for said in found["back"]:
        screen.text(t("quiz.interview.taken_back", lang, said=_short(said)), "    ", "  ")
    weak = found["weak"]
    screen.write("")
    key = "next" if weak else "next_none"
    screen.say(f"interview.{key}", questions=listed(weak, lang), first=weak[0] if weak else "")
    screen.say("interview.assisted")


def _details(found, screen):
    """On m: what could have been said, to the pitch, the whiteboard, the follow-ups, the transfer."""
    lang = screen.lang
    try:
        if screen.ask(t("quiz.interview.more", lang)).lower() != "m":
            return
        with screen.paged():
            if found["pitch"]:
                screen.head(t("quiz.crib.pitch", lang))
                screen.markdown(found["pitch"]["spoken"])
            for board in found["whiteboard"]:
                screen.head(labelled("quiz.interview.board", board["question"], lang))
                screen.code(board["solution"])
            for step in [*found["follow_ups"], *found["transfer"]]:
                if step["say"]:
                    screen.head(t("quiz.interview.follow_up", lang))
                    screen.markdown(step["text"])
                    screen.markdown("→ " + step["say"], "  ")
    except (KeyboardInterrupt, EOFError):
        screen.write("")


def _board(board, lang):
    kind, _, detail = board["fault"].partition(": ")
    kind = "none" if detail.startswith("no function ") else kind
    key = {"": "board_right", "empty": "board_empty", "slow": "board_slow"}.get(kind, f"board_{kind}")
    return t(
        f"quiz.interview.{key}", lang, detail=detail.removeprefix("no function "), question=board["question"]
    )


def _short(text, most=60):
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most].rstrip() + " …"


def _missing(points, lang):
    return t("quiz.interview.missing", lang, points=listed(points, lang)) if points else ""
