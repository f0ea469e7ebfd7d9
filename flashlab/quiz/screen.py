"""A terminal as the quiz sees it: lines written within its columns, answers read, long texts a page at a
time, a clock that runs.
"""

import contextlib
import shutil
import sys
import threading
import time

from flashlab.quiz.wording import counted
from flashlab.text import t, textwidth

SKIP = ("s", "skip", "跳过")
QUIT = ("q", "quit", "exit", "退出")


class Screen:
    """Where lines go and come from: `read(prompt)` and `write(line)` may be replaced. `rows`: the height that
    `paged` keeps to, or None for no pages and no running clock (no terminal).
    """

    def __init__(self, read=input, write=print, columns=None, lang="en", rows=None):
        self.read, self.write, self.lang, self.rows = read, write, lang, rows
        self.columns = columns or max(40, min(100, shutil.get_terminal_size((80, 24)).columns))

    def say(self, key, **values):
        """A line of the text table, wrapped."""
        self.text(t(f"quiz.{key}", self.lang, **values))

    def count(self, key, count, **values):
        """The same with a number in it, which may be one ("1 card")."""
        self.text(counted(key, self.lang, count, **values))

    def text(self, text, indent="", first=None):
        """A paragraph, wrapped."""
        for line in textwidth.wrap(text, self.columns, indent, first):
            self.write(line)

    def markdown(self, text, indent=""):
        """Markdown, made plain and wrapped."""
        for line in textwidth.markdown(text, self.columns, indent):
            self.write(line)

    def code(self, text, indent="    ", first=None):
        """Code as it is; a line that is too long goes on below, further in."""
        for line in text.splitlines():
            for part in textwidth.code(line, self.columns, indent, first):
                self.write(part)

    def points(self, texts):
        """A list."""
        for text in texts:
            self.text(text, "    ", "  • ")

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
        """Lines typed after `text` until an empty one, as one string; a word that skips or ends the session
        needs no empty line after it.
        """
        self.text(text)
        lines = []
        while line := self.read("> ").rstrip():
            lines.append(line)
            if len(lines) == 1 and line.strip().lower() in SKIP + QUIT:
                break
        return "\n".join(lines)

    @contextlib.contextmanager
    def paged(self):
        """What is written inside comes a page at a time; q leaves out the rest."""
        lines, write = [], self.write
        self.write = lines.append
        try:
            yield
        finally:
            self.write = write
        page = max(5, self.rows - 2) if self.rows else len(lines)
        for n, line in enumerate(lines):
            more = n and n % page == 0 and len(lines) - n > 2
            if more and self.ask(t("quiz.terminal.page", self.lang)).lower() in QUIT:
                return
            write(line)

    def clock(self, seconds):
        """Wait for Enter while the seconds run down (and on below zero); returns the seconds it took."""
        begun, over = time.monotonic(), threading.Event()
        ticking = threading.Thread(target=self._tick, args=(begun, seconds, over), daemon=True)
        if self.rows:
            ticking.start()
        try:
            self.read("")
        finally:
            over.set()
            if self.rows:
                ticking.join()
        return round(time.monotonic() - begun)

    @staticmethod
    def _tick(begun, seconds, over):
        rung = False
        while True:
            left = seconds - int(time.monotonic() - begun)
            bell = "\a" if left <= 0 and not rung else ""
            rung = rung or left <= 0
            sign = "-" if left < 0 else " "
            sys.stdout.write(f"\r {sign}{abs(left) // 60}:{abs(left) % 60:02d} {bell}")
            sys.stdout.flush()
            if over.wait(0.5):
                return


def of_terminal(lang):
    """The Screen of this process: UTF-8, the keys that edit a line (arrows, Backspace over wide characters,
    a paste of several lines), pages as high as the window.
    """
    for stream in (sys.stdout, sys.stdin):
        if hasattr(stream, "reconfigure") and (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8", errors="replace")
    tty = sys.stdin.isatty() and sys.stdout.isatty()
    if tty:
        with contextlib.suppress(ImportError):  # Windows edits lines without it
            import readline  # noqa: F401
    return Screen(lang=lang, rows=shutil.get_terminal_size((80, 24)).lines if tty else None)
