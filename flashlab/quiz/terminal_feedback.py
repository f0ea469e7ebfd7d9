"""What a terminal shows after an answer, for each kind of step."""

from flashlab.quiz import lab
from flashlab.quiz.screen import QUIT, SKIP
from flashlab.quiz.wording import labelled
from flashlab.text import t


def show(session, view, screen):
    """The feedback of the current step; goes on to the next."""
    _FEEDBACK[view["kind"]](session, view, screen)


def point(point, lang):
    """A key point with its level."""
    return t("quiz.free.point", lang, text=point["text"], level=t(f"quiz.free.{point['level']}", lang))


def heard(found, screen, indent=""):
    """The misconceptions that an answer seems to state, each with what refutes it."""
    for m in found:
        screen.markdown("✗ " + t("quiz.free.heard", screen.lang, claim=m["claim"]), indent)
        screen.markdown(labelled("quiz.free.refutes", m["refutes"], screen.lang), indent + "  ")


def _on(screen, key="terminal.enter"):
    """What is typed to go on; q ends the session."""
    typed = screen.ask(t(f"quiz.{key}", screen.lang)).lower()
    if typed in QUIT:
        raise KeyboardInterrupt
    return typed


def _free(session, view, screen):
    f, lang = view["feedback"], screen.lang
    if f["given"].strip():
        screen.head(t("quiz.free.yours", lang))
        screen.markdown(f["given"])
    screen.head(t("quiz.free.model", lang))
    screen.markdown(f["spoken"])
    screen.write("")
    if f["heard"]:
        heard(f["heard"], screen)
        screen.write("")
    missing = [p for p in f["points"] if not p["ticked"] and p["level"] != "bonus"]
    if missing:
        screen.say("free.missing")
        screen.points(point(p, lang) for p in missing)
    else:
        screen.say("free.all_musts")
    screen.text(labelled("quiz.free.where", f["place"], lang))
    if _on(screen, "terminal.more") == "m":
        with screen.paged():
            _full(f, view["step"]["intent"], screen)
        _on(screen)
    session.next()


def _full(f, intent, screen):
    lang = screen.lang
    screen.head(t("quiz.free.full", lang))
    screen.text(labelled("quiz.free.looking_for", intent, lang))
    screen.write("")
    screen.markdown(f["answer"])
    screen.head(t("quiz.free.wrong", lang))
    for m in f["misconceptions"]:
        screen.markdown(f"- {m['claim']}")
        screen.markdown(labelled("quiz.free.why", m["why"], lang), "  ")
        screen.markdown(labelled("quiz.free.refutes", m["refutes"], lang), "  ")
    screen.head(t("quiz.free.sources", lang))
    screen.points(f["sources"])


def _item(session, view, screen):
    f, form = view["feedback"], view["step"]["form"]
    screen.say("item.right" if f["right"] else "item.wrong")
    if form == "choice":
        for text, because, right in f["explained"]:
            screen.text(text, "    ", "  ✓ " if right else "  ✗ ")
            screen.markdown(because, "      ")
    else:
        if f["message"]:
            screen.markdown(f["message"])
        if not f["right"] or form in ("numeric", "predict"):
            screen.say("item.expected", expected=f["expected"])
    if f["ran"]:
        screen.text(f["ran"])
    _on(screen)
    session.next()


def _card(session, view, screen):
    screen.markdown(view["feedback"]["answer"], "  ")
    while (typed := _on(screen, "card.rate")) not in ("1", "2", "3", "4"):
        if typed in SKIP:
            session.skip()
            return
    session.rate(int(typed))


def _claim(session, view, screen):
    f = view["feedback"]
    screen.say("item.right" if f["right"] else "item.wrong")
    screen.say("claim.verdict", verdict=f["verdict"])
    screen.markdown(f["correction"])
    for key in ("polite", "check"):
        screen.write("")
        screen.text(labelled(f"quiz.claim.{key}", f[key], screen.lang))
    if _on(screen, "claim.run_how" if f["code"] else "terminal.enter") == "r" and f["code"]:
        screen.code(f["code"])
        screen.write("")
        screen.code(lab.printed(f["code"], screen.lang), "  ")
        _on(screen)
    session.next()


_FEEDBACK = {"free": _free, "item": _item, "card": _card, "claim": _claim}
