"""The commands of the quiz for flashlab.cli: quiz, plan, cards, progress, interview, crib.

`add(commands)` puts them into an argparse parser; each prints to the terminal and returns an exit status.
"""

import sys
from pathlib import Path

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

    terminal.use_utf8()
    return terminal.Screen(lang=lang())


def _fail(problem):
    print(problem, file=sys.stderr)
    return 2


def run_quiz(args):
    """One session, of the mode given or chosen from a menu."""
    from flashlab import progress
    from flashlab.quiz import engine, terminal

    screen = _screen()
    try:
        mode = args.mode or _menu(screen)
        if mode is None:
            screen.say("terminal.bye")
            return 0
        session = engine.start(
            mode,
            lang(),
            section=args.section,
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

    screen.text(state.line(screen.lang))
    screen.write("")
    for n, mode in enumerate(MODES, 1):
        name = t(f"quiz.modes.{mode}", screen.lang)
        screen.text(f"{name}: {t(f'quiz.modes.about_{mode}', screen.lang)}", "     ", f"  {n}  ")
    try:
        while True:
            typed = screen.ask(t("quiz.terminal.menu", screen.lang)).lower()
            if typed in MODES:
                return typed
            if typed.isdecimal() and 1 <= int(typed) <= len(MODES):
                return MODES[int(typed) - 1]
            if typed in ("q", ""):
                return None
    except (KeyboardInterrupt, EOFError):
        screen.write("")
        return None


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
            except (RuntimeError, OSError) as problem:
                return _fail(problem)
            screen.say("cards.written", count=count, file=file)
            wrote = True
    return 0 if wrote else _fail(t("quiz.cards.what", lang()))


def run_progress(args):
    """The state of lessons and quiz; with --export or --import, files."""
    from flashlab import progress
    from flashlab.quiz import state

    screen = _screen()
    try:
        if args.import_from:
            count = progress.merge(args.import_from)
            screen.say("terminal.imported", count=count, file=args.import_from)
        if args.export_to:
            progress.export(args.export_to)
            screen.say("terminal.exported", count=len(progress.events()), file=args.export_to)
    except (ValueError, OSError) as problem:
        return _fail(problem)
    if not (args.import_from or args.export_to):
        print(progress.report())
        print()
        screen.write(str(progress.path()))
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
        return _fail(problem)
    print(file)
    return 0
