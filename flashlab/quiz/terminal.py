"""The trainer in a terminal: `Screen` reads and writes lines, `play` leads through one session.

Keyboard only, 80 columns or what there is; Ctrl-C or the end of input ends a session and keeps what was
answered.
"""

import shutil
import sys

from flashlab.quiz import textwidth
from flashlab.text import t

SKIP = ("s", "skip", "跳过")


class Screen:
    """Where lines go and come from: `read(prompt)` and `write(line)` may be replaced."""

    def __init__(self, read=input, write=print, columns=None, lang="en"):
        self.read, self.write, self.lang = read, write, lang
        self.columns = columns or max(40, min(100, shutil.get_terminal_size((80, 24)).columns))

    def say(self, key, **values):
        """A line of the text table, wrapped."""
        self.text(t(f"quiz.{key}", self.lang, **values))

    def text(self, text, indent="", first=None):
        """A paragraph, wrapped."""
        for line in textwidth.wrap(text, self.columns, indent, first):
            self.write(line)

    def markdown(self, text, indent=""):
        """Markdown, made plain and wrapped."""
        for line in textwidth.markdown(text, self.columns, indent):
            self.write(line)

    def head(self, text):
        """A heading between rules."""
        self.write("")
        self.write(text)
        self.write("─" * min(self.columns, textwidth.width(text)))

    def ask(self, text):
        """One line typed after `text`."""
        lines = textwidth.wrap(text, self.columns - 2)
        for line in lines[:-1]:
            self.write(line)
        return self.read(lines[-1] + " ").strip()

    def paragraph(self, text):
        """Lines typed after `text` until an empty one, as one string."""
        self.text(text)
        lines = []
        while line := self.read("> ").rstrip():
            lines.append(line)
        return "\n".join(lines)


def play(session, screen):
    """Lead through `session`; returns its summary, printed too. Never raises on Ctrl-C or end of input."""
    if session.done:
        screen.say("modes.nothing_due" if session.mode == "drill" else "modes.nothing")
        return session.summary()
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
    show_summary(summary, screen)
    return summary


def _turn(session, screen):
    view = session.view()
    if view["phase"] == "ask":
        _head(view, screen)
        _ask(session, view, screen)
    elif view["phase"] == "tick":
        _tick(session, view, screen)
    else:
        _FEEDBACK[view["kind"]](session, view, screen)


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
    if form == "choice":
        for n, text in enumerate(step["shown"]):
            screen.text(text, "     ", f"  {chr(97 + n)}) ")
    elif form in ("order", "spot_the_error"):
        for n, text in enumerate(step["shown"], 1):
            if form == "order":
                screen.text(text, "     ", f"  {n}  ")
            else:
                screen.write(f"  {n}  {text}")
    if form == "free":
        response = screen.paragraph(t("quiz.free.how", screen.lang))
    else:
        response = screen.ask(_how(step, screen.lang))
    if response.lower() in SKIP:
        session.skip()
        return
    problem = session.answer(response)
    if problem:
        screen.text(problem)
        while problem:
            response = screen.ask(_how(step, screen.lang))
            if response.lower() in SKIP:
                session.skip()
                return
            problem = session.answer(response)
            if problem:
                screen.text(problem)


def _how(step, lang):
    form = step["form"]
    if form in ("numeric", "predict"):
        key = "how_numeric" if step["unit"] else "how_number"
        return t(f"quiz.item.{key}", lang, unit=step["unit"])
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
    while True:
        for n, point in enumerate(points, 1):
            mark = "x" if point["ticked"] else " "
            level = t(f"quiz.free.{point['level']}", screen.lang)
            screen.text(f"{point['text']} ({level})", " " * 9, f"  [{mark}] {n}  ")
        typed = screen.ask(t("quiz.free.tick_how", screen.lang))
        change = {int(w) - 1 for w in typed.replace(",", " ").replace("，", " ").split() if w.isdecimal()}
        if not change:
            break
        for n in change & set(range(len(points))):
            points[n]["ticked"] = not points[n]["ticked"]
    session.tick([p["id"] for p in points if p["ticked"]])


def _free_feedback(session, view, screen):
    f = view["feedback"]
    if f["given"].strip():
        screen.head(t("quiz.free.yours", screen.lang))
        screen.markdown(f["given"])
    screen.head(t("quiz.free.model", screen.lang))
    screen.markdown(f["spoken"])
    missing = [p["text"] for p in f["points"] if not p["ticked"] and p["level"] != "bonus"]
    screen.write("")
    if missing:
        screen.say("free.missing", points="; ".join(missing) if screen.lang == "en" else "；".join(missing))
    else:
        screen.say("free.all_musts")
    for m in f["heard"]:
        screen.markdown(t("quiz.free.heard", screen.lang, claim=m["claim"], refutes=m["refutes"]))
    screen.text(labelled("quiz.free.where", f["anchor"], screen.lang))
    if screen.ask(t("quiz.terminal.more", screen.lang)).lower() == "m":
        screen.head(t("quiz.free.full", screen.lang))
        screen.text(labelled("quiz.free.looking_for", view["step"]["intent"], screen.lang))
        screen.write("")
        screen.markdown(f["answer"])
        screen.head(t("quiz.free.wrong", screen.lang))
        for m in f["misconceptions"]:
            screen.markdown(f"- {m['claim']} {m['why']} → {m['refutes']}")
        screen.head(t("quiz.free.sources", screen.lang))
        for source in f["sources"]:
            screen.text(source, "  ", "• ")
        screen.ask(t("quiz.terminal.enter", screen.lang))
    session.next()


def _item_feedback(session, view, screen):
    f = view["feedback"]
    screen.say("item.right" if f["right"] else "item.wrong")
    form = view["step"]["form"]
    if form == "choice":
        for text, because, right in f["explained"]:
            screen.text(f"{text}: {because}", "    ", "  ✓ " if right else "  ✗ ")
    else:
        if f["message"]:
            screen.markdown(f["message"])
        if not f["right"] or form in ("numeric", "predict"):
            screen.say("item.expected", expected=f["expected"])
    if f["ran"]:
        screen.text(f["ran"])
    screen.ask(t("quiz.terminal.enter", screen.lang))
    session.next()


def _card_feedback(session, view, screen):
    screen.markdown(view["feedback"]["answer"], "  ")
    typed = screen.ask(t("quiz.card.rate", screen.lang))
    while typed not in ("1", "2", "3", "4"):
        if typed.lower() in SKIP:
            session.skip()
            return
        typed = screen.ask(t("quiz.card.rate", screen.lang))
    session.rate(int(typed))


def _claim_feedback(session, view, screen):
    f = view["feedback"]
    screen.say("item.right" if f["right"] else "item.wrong")
    screen.say("claim.verdict", verdict=f["verdict"])
    screen.markdown(f["correction"])
    screen.text(labelled("quiz.claim.polite", f["polite"], screen.lang))
    screen.text(labelled("quiz.claim.check", f["check"], screen.lang))
    screen.ask(t("quiz.terminal.enter", screen.lang))
    session.next()


_FEEDBACK = {
    "free": _free_feedback, "item": _item_feedback, "card": _card_feedback, "claim": _claim_feedback,
}  # fmt: skip


def labelled(key, text, lang):
    """Label and text, with the colon of the language."""
    return t(key, lang) + (": " if lang == "en" else "：") + text


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
            screen.markdown(f"- {r['ask']}")
            screen.text(labelled("quiz.summary.given", r["given"], lang), "    ")
            screen.text(t("quiz.item.expected", lang, expected=r["expected"]), "    ")
            if r["message"]:
                screen.text(r["message"], "    ")
    if summary["missed"]:
        screen.head(t("quiz.summary.missed", lang))
        for m in summary["missed"][:8]:
            screen.text(f"{m['question']}: {m['text']} → {m['anchor']}", "  ", "• ")
    if summary["next"] and summary["mode"] != "drill":
        screen.head(t("quiz.summary.next", lang))
        for minutes, lines in summary["next"].items():
            screen.write(t("quiz.summary.minutes", lang, n=minutes))
            for line in lines:
                screen.text(line, "    ", "  • ")
    if summary["answered"]:
        screen.write("")
        screen.say("summary.kept")


def use_utf8():
    """Let Chinese through where the terminal's encoding is another one."""
    for stream in (sys.stdout, sys.stdin):
        if hasattr(stream, "reconfigure") and (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8", errors="replace")
