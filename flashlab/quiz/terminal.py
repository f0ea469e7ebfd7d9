"""The trainer in a terminal: `play` leads through one session on a Screen.

Keyboard only, 80 columns or what there is; q, Ctrl-C or the end of input ends a session and keeps what was
answered.
"""

from flashlab.quiz import terminal_feedback
from flashlab.quiz.screen import QUIT, SKIP, Screen, of_terminal
from flashlab.quiz.wording import labelled
from flashlab.text import t, textwidth

__all__ = ["Screen", "of_terminal", "play", "show_summary"]


def play(session, screen):
    """Lead through `session`; returns its summary, printed too. Never raises on Ctrl-C or end of input."""
    if session.done:
        screen.say("modes.nothing_due" if session.mode == "drill" else "modes.nothing")
        return session.summary()
    screen.text(labelled(f"quiz.modes.{session.mode}", _about(session.mode, screen.lang), screen.lang))
    screen.say("terminal.help")
    try:
        while not session.done:
            _turn(session, screen)
    except (KeyboardInterrupt, EOFError):
        session.stop()
        screen.write("")
        screen.say("terminal.interrupted")
    if session.left == 0:
        screen.say("summary.over")
    summary = session.summary()
    try:
        with screen.paged():
            show_summary(summary, screen)
    except (KeyboardInterrupt, EOFError):
        screen.write("")
    return summary


def _about(mode, lang):
    return t(f"quiz.modes.about_{mode}", lang) + ("." if lang == "en" else "。")


def _turn(session, screen):
    view = session.view()
    if view["phase"] == "ask":
        _head(view, screen)
        _ask(session, view, screen)
    elif view["phase"] == "tick":
        _tick(session, view, screen)
    else:
        terminal_feedback.show(session, view, screen)


def _head(view, screen):
    name = view["id"] if view["kind"] == "claim" else view["question"] or view["id"]
    title = f"{view['number']}/{view['total']} · {name}"
    if view["left"] is not None:
        minutes, seconds = divmod(view["left"], 60)
        title += " · " + t("quiz.terminal.left", screen.lang, minutes=minutes, seconds=f"{seconds:02d}")
    screen.head(title)
    screen.markdown(view["step"]["ask"])


def _ask(session, view, screen):
    step, form = view["step"], view["step"]["form"]
    for n, text in enumerate(step.get("shown", ())):
        if form == "choice":
            screen.text(text, "     ", f"  {chr(97 + n)}) ")
        elif form == "order":
            screen.text(text, "     ", f"  {n + 1}  ")
        elif form == "spot_the_error":
            screen.code(text, "     ", f"  {n + 1}  ")
    while True:
        if form == "free":
            response = screen.paragraph(t("quiz.free.how", screen.lang))
        else:
            response = screen.ask(_how(step, screen.lang))
        if response.lower() in QUIT:
            raise KeyboardInterrupt
        if response.lower() in SKIP:
            session.skip()
            return
        problem = session.answer(response)
        if not problem:
            return
        screen.text(problem if response else t("quiz.terminal.empty", screen.lang))


def _how(step, lang):
    form = step["form"]
    if form in ("numeric", "predict"):
        key = "how_numeric" if step["unit"] else "how_number"
        return t(f"quiz.item.{key}", lang, unit=step["unit"], example=step["example"])
    if form == "order" and step["gone"]:
        return t("quiz.item.how_order_gone", lang, count=step["gone"])
    return t(
        {
            "choice": "quiz.item.how_choice",
            "order": "quiz.item.how_order",
            "spot_the_error": "quiz.item.how_spot",
            "card": "quiz.card.show",
            "claim": "quiz.claim.how",
        }[form],
        lang,
    )


def _tick(session, view, screen):
    points = view["points"]
    screen.write("")
    screen.say("free.tick")
    shown = False
    while True:
        if not shown:
            for n, point in enumerate(points, 1):
                mark = "x" if point["ticked"] else " "
                screen.text(terminal_feedback.point(point, screen.lang), " " * 9, f"  [{mark}] {n}  ")
        typed = screen.ask(t("quiz.free.tick_how", screen.lang))
        if typed.lower() in QUIT:
            raise KeyboardInterrupt
        words = typed.replace(",", " ").replace("，", " ").replace("、", " ").split()
        change = {int(w) - 1 for w in words if w.isdecimal()} & set(range(len(points)))
        if not typed:
            break
        shown = not change
        if shown:
            screen.say("free.tick_which", last=len(points))
        for n in change:
            points[n]["ticked"] = not points[n]["ticked"]
    session.tick([p["id"] for p in points if p["ticked"]])


def show_summary(summary, screen):
    """The end of a session: scores, key points missed, answers to look at, what to do next."""
    lang = screen.lang
    screen.head(t("quiz.summary.title", lang))
    screen.say("summary.answered", answered=summary["answered"], of=summary["of"])
    for section, x in summary["sections"].items():
        score = t("quiz.summary.score", lang, percent=round(100 * x["score"]), of=x["of"])
        name = textwidth.pad(f"{section}  {t(f'quiz.sections.{section}', lang)}", 34)
        bar = "█" * round(10 * x["score"]) + "░" * (10 - round(10 * x["score"]))
        screen.write(f"  {name}{bar}  {score}")
    if summary["mode"] in ("exam", "diagnosis") and summary["review"]:
        screen.head(t("quiz.summary.review", lang))
        for r in summary["review"]:
            screen.markdown(f"- {r['question']} · {r['ask']}")
            screen.text(labelled("quiz.summary.given", r["given"], lang), "    ")
            screen.text(t("quiz.item.expected", lang, expected=r["expected"]), "    ")
            if r["message"]:
                screen.markdown(r["message"], "    ")
            screen.write("")
    if summary["missed"]:
        screen.head(t("quiz.summary.missed", lang))
        screen.points(t("quiz.summary.point", lang, **m) for m in summary["missed"][:8])
    if summary["next"] and summary["mode"] != "drill":
        screen.head(t("quiz.summary.next", lang))
        for minutes, lines in summary["next"].items():
            screen.write(t("quiz.summary.minutes", lang, n=minutes))
            screen.points(lines)
    if summary["answered"]:
        screen.write("")
        screen.say("summary.kept")
