"""Lines for a terminal of 80 columns: what is longer is folded, with the rest further in."""

import argparse
import sys

from flashlab.text.textwidth import width, wrap

COLUMNS = 79


def folded(text, indent="    "):
    """The text in lines of at most COLUMNS, broken at spaces and between Chinese characters; a
    longer word, the path of a file say, stays whole.
    """
    lines = []
    for line in str(text).split("\n"):
        lead = line[: len(line) - len(line.lstrip())]
        long = width(line) > COLUMNS
        lines += wrap(line, COLUMNS, lead + indent, lead, cut=False) if long else [line]
    return "\n".join(lines)


def say(text=""):
    """Print at once, folded."""
    print(folded(text), flush=True)


def fail(message, status=1):
    """Say on stderr what is wrong, and give the exit status for it."""
    print(folded(message), file=sys.stderr)
    return status


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are folded, and those of its subparsers."""

    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(2, folded(f"{self.prog}: error: {message}") + "\n")
