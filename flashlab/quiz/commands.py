"""The commands of the quiz for flashlab.cli: quiz, plan, cards, progress, interview, crib.

`add(commands)` puts them into an argparse parser; each prints to the terminal and returns an exit status.
"""

import sys
from pathlib import Path

from flashlab.quiz.screen import QUIT
from flashlab.text import lang, t

MODES = ("learn", "drill", "exam", "diagnosis", "folklore")
ROLES = ("training", "inference", "intern")


def add(commands):
    """Add the commands to the subparsers `commands`."""
    quiz = _command(commands, "quiz", run_quiz, "the question bank: learn, drill, exam, diagnosis, folklore")
    quiz.add_argument("mode", nargs="?", choices=MODES, help="without one: a menu")
    quiz.add_argument("--section", metavar="C", help="one section (A to G), or in learn one question (C05)")
    quiz.add_argument("--limit", type=int, metavar="N", help="at most so many questions, cards or claims")
    quiz.add_argument("--seed", type=int, help="draw the same again")
    plan = _command(commands, "plan", run_plan, "a plan for one, two or three evenings")
    plan.add_argument("--evenings", type=int, default=3, choices=(1, 2, 3))
    cards = _command(commands, "cards", run_cards, "the cards as an Anki deck, Markdown or CSV")
    cards.add_argument("action", choices=("export",))
    for name in ("anki", "markdown", "csv"):
        cards.add_argument(f"--{name}", metavar="FILE")
    cards.add_argument("--cards-lang", choices=("en", "zh", "both"), help="default: the language in use")
    progress = _command(commands, "progress", run_progress, "how far you are; export and import as JSON")
    progress.add_argument("--export", metavar="FILE", dest="export_to")
    progress.add_argument("--import", metavar="FILE", dest="import_from")
    interview = _command(commands, "interview", run_interview, "a mock interview of 15, 30 or 45 minutes")
    interview.add_argument("--minutes", type=int, default=30, choices=(15, 30, 45))
    interview.add_argument("--role", default="training", choices=ROLES)
    interview.add_argument("--seed", type=int, help="ask the same again")
    crib = _command(commands, "crib", run_crib, "a one-page crib sheet as HTML, ready to print")
    crib.add_argument("--out", metavar="FILE", help="default: flashlab-crib-en.html")


def _command(commands, name, run, help):
    import argparse

    command = commands.add_parser(name, help=help)
    command.add_argument(
        "--lang",
        choices=("en", "zh"),
        default=argparse.SUPPRESS,
        help="language of what is asked and printed",
    )
    command.set_defaults(run=run)
    return command


def _screen():
    from flashlab.quiz import terminal

    return terminal.of_terminal(lang())


def _fail(problem):
    print(problem, file=sys.stderr)
    return 2


def _no(what, file, problem):
    """Why a file cannot be read or written ("write"), in the language in use."""
    return t(f"quiz.terminal.no_{what}", lang(), file=file, problem=problem.strerror or problem)


def run_quiz(args):
    """One session, of the mode given or chosen from a menu."""
    from flashlab import progress
    from flashlab.quiz import engine, terminal

    screen = _screen()
    if args.limit is not None and args.limit < 1:
        return _fail(t("quiz.terminal.positive", lang(), got=args.limit))
    try:
        mode, section = args.mode or _menu(screen), args.section
        if mode == "learn" and not section:
            section = _which(screen)
        if mode is None or section == "q":
            screen.say("terminal.bye")
            return 0
        session = engine.start(
            mode,
            lang(),
            section=section,
            seed=args.seed,
            limit=args.limit,
            events=progress.events(),
            record=progress.record,
        )
    except (ValueError, RuntimeError) as problem:
        return _fail(problem)
    terminal.play(session, screen)
    return 0


def _menu(screen):
    """The mode chosen, or None."""
    from flashlab.quiz import state
    from flashlab.text import textwidth

    screen.text(state.line(screen.lang))
    screen.write("")
    for n, mode in enumerate(MODES, 1):
        name = t(f"quiz.modes.{mode}", screen.lang)
        about = t(f"quiz.modes.about_{mode}", screen.lang)
        screen.text(textwidth.pad(name, 18) + about, " " * 23, f"  {n}  ")
    screen.write("")
    screen.say("terminal.besides")
    if not state.begun():
        screen.say("terminal.first_time")
    try:
        while True:
            typed = screen.ask(t("quiz.terminal.menu", screen.lang)).lower()
            if typed in MODES:
                return typed
            if typed.isdecimal() and 1 <= int(typed) <= len(MODES):
                return MODES[int(typed) - 1]
            if typed in QUIT:
                return None
    except (KeyboardInterrupt, EOFError):
        screen.write("")
        return None


def _which(screen):
    """The section to learn: a letter, a question, None for all, "q" to leave. Enter takes the first in which
    a question was not passed.
    """
    from flashlab import quiz
    from flashlab.quiz import engine, state

    for line in state.sections(screen.lang):
        screen.write(line)
    first = state.next_section(screen.lang)
    key = "modes.which" if first else "modes.which_all"
    try:
        while True:
            typed = screen.ask(t(f"quiz.{key}", screen.lang, first=first)).upper()
            if typed.lower() in QUIT:
                return "q"
            problem = engine.unknown_section(typed, quiz.load(screen.lang), screen.lang) if typed else ""
            if not problem:
                return typed or first
            screen.text(problem)
    except (KeyboardInterrupt, EOFError):
        screen.write("")
        return "q"


def run_plan(args):
    """What to do on which evening."""
    from flashlab import progress, quiz
    from flashlab.quiz import debrief

    screen = _screen()
    days = debrief.plan(args.evenings, progress.events(), quiz.load(lang()), lang())
    screen.say("plan.title_one" if args.evenings == 1 else "plan.title", n=args.evenings)
    for n, day in enumerate(days, 1):
        screen.head(t("quiz.plan.day", lang(), n=n, minutes=sum(b["minutes"] for b in day)))
        for block in day:
            screen.text(block["text"], "      ", f"{block['minutes']:>4}  ")
    return 0


def run_cards(args):
    """Write the cards to files."""
    from flashlab.quiz import export

    screen, wrote = _screen(), False
    for kind in ("anki", "markdown", "csv"):
        file = getattr(args, kind)
        if file:
            try:
                count = export.write(kind, file, args.cards_lang or lang())
            except RuntimeError as problem:
                return _fail(problem)
            except OSError as problem:
                return _fail(_no("write", file, problem))
            screen.count("cards.written", count, file=file)
            wrote = True
    return 0 if wrote else _fail(t("quiz.cards.what", lang()))


def run_progress(args):
    """The state of lessons and quiz; with --export or --import, files."""
    from flashlab import progress
    from flashlab.quiz import state

    screen = _screen()
    if args.import_from:
        try:
            screen.count("terminal.imported", progress.merge(args.import_from), file=args.import_from)
        except ValueError as problem:
            return _fail(problem)
        except OSError as problem:
            return _fail(_no("read", args.import_from, problem))
    if args.export_to:
        try:
            progress.export(args.export_to)
        except OSError as problem:
            return _fail(_no("write", args.export_to, problem))
        screen.count("terminal.exported", len(progress.events()), file=args.export_to)
    if not (args.import_from or args.export_to):
        if any(e["kind"] in progress.LESSON_KINDS for e in progress.events()) or not state.begun():
            print(progress.report())
            print()
        screen.text(t("quiz.terminal.kept_in", lang(), file=progress.path()))
        screen.text(state.line(lang()))
        for line in state.sections(lang()):
            screen.write(line)
    return 0


def run_interview(args):
    """A mock interview."""
    from flashlab import progress
    from flashlab.quiz import interview, interview_terminal

    try:
        talk = interview.start(
            args.minutes, args.role, lang(), seed=args.seed, record=progress.record, events=progress.events()
        )
    except ValueError as problem:
        return _fail(problem)
    interview_terminal.play(talk, _screen())
    return 0


def run_crib(args):
    """Write the crib sheet."""
    from flashlab.quiz import crib

    file = Path(args.out or f"flashlab-crib-{lang()}.html")
    try:
        file.write_text(crib.page(lang()), encoding="utf-8")
    except OSError as problem:
        return _fail(_no("write", file, problem))
    _screen().say("crib.written", file=file)
    return 0
