"""A progress bar in plain text: how much is done, and about how long the rest takes."""

import sys
import time

from flashlab.text import lines, t

WIDTH = 24


class Bar:
    """`done` of `total` on stderr, rewritten in place; nothing at all where stderr is no terminal.

    total: None where it is not known. `say` prints a line on stdout above the bar.
    """

    def __init__(self, total, stream=None, clock=time.monotonic):
        self.total, self.done, self.stream, self.clock = total, 0, stream or sys.stderr, clock
        self.shown, self.start = self.stream.isatty(), clock()
        self.draw()

    def step(self):
        """One more is done."""
        self.done += 1
        self.draw()

    def say(self, text):
        """Print a line that stays, folded where it is too long."""
        self.clear()
        lines.say(text)
        self.draw()

    def clear(self):
        """Take the bar away."""
        if self.shown:
            self.stream.write("\r\033[K")
            self.stream.flush()

    def draw(self):
        if self.shown:
            self.stream.write("\r\033[K" + self.text())
            self.stream.flush()

    def text(self):
        """`[######..................] 12/48 about 1:05 left`."""
        if not self.total:
            return t("bench.done", done=self.done)
        full = WIDTH * self.done // self.total
        left = ""
        if self.done:
            seconds = round((self.clock() - self.start) / self.done * max(self.total - self.done, 0))
            left = " " + t("bench.left", minutes=seconds // 60, seconds=seconds % 60)
        return f"[{'#' * full}{'.' * (WIDTH - full)}] {self.done}/{self.total}{left}"
