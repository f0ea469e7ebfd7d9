"""The command `flashlab`. Each command's module is imported when it is called."""

from flashlab.bench import __main__ as bench
from flashlab.bench import report
from flashlab.quiz import commands as quiz_commands
from flashlab.text.lines import Parser, say
from flashlab.train import __main__ as train


def doctor(args):
    """Print what this machine can do; with --strict, exit 1 if something is missing."""
    from flashlab import doctor

    report = doctor.report()
    say(report)
    return 1 if args.strict and any(found.level == "missing" for found in report.findings) else 0


def parser():
    """Return the argument parser; every command has its function in `run`."""
    top = Parser(prog="flashlab", description="An open course on FlashAttention.")
    top.add_argument(
        "--lang", choices=("en", "zh"), help="language of what is printed (default: FLASHLAB_LANG or en)"
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="command")
    command = commands.add_parser(
        "doctor", help="what this machine can do, and what to do about what is missing"
    )
    command.add_argument("--strict", action="store_true", help="exit with 1 if something is missing")
    command.set_defaults(run=doctor)
    command = commands.add_parser("bench", help="measure attention on this machine")
    bench.add_arguments(command)
    command.set_defaults(run=bench.run)
    report.add(commands)
    command = commands.add_parser("train", help="train a character model on two backends, and compare")
    train.add_arguments(command)
    command.set_defaults(run=train.run)
    quiz_commands.add(commands)
    return top


def main(argv=None):
    """Run one command; return its exit status."""
    args = parser().parse_args(argv)
    if args.lang:
        from flashlab.text import lang

        lang(args.lang)
    return args.run(args)
