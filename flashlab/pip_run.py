"""Run pip with its output in a log, progress on the screen, one sentence if it fails. Standard library."""

import os
import queue
import re
import subprocess
import sys
import threading
import time


class SetupError(Exception):
    """What is wrong and what to do about it, in one sentence."""


# What pip's log shows -> what to tell. The first match counts: a full disk also breaks downloads.
FAILURES = (
    (
        r"No space left on device|Errno 28\]|ENOSPC|not enough space on the disk",
        "The disk is full: free some space (or set TMPDIR to a larger disk) and run the same command again.",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|SSLError",
        "The package index could not be trusted (a certificate failed): behind a proxy, set PIP_CERT.",
    ),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ConnectionResetError"
        r"|ProxyError|Temporary failure in name resolution|Name or service not known|Network is unreachable"
        r"|getaddrinfo failed|Connection refused|Connection broken|IncompleteRead",
        "No network: the package index did not answer; connect (or set HTTPS_PROXY) and try again.",
    ),
    (
        r"Package '?[\w.-]+'? requires a different Python",
        "The Python of .venv does not fit: delete .venv and run again with Python 3.11 to 3.14.",
    ),
    (r"Permission denied|Errno 13\]", "Something in .venv may not be written: check who owns the folder."),
)


def explain(text):
    """Return the one sentence for what pip printed: a known failure, else pip's own last error line."""
    for pattern, sentence in FAILURES:
        if re.search(pattern, text):
            return sentence
    missing = re.findall(r"No matching distribution found for ([^\s;]+)", text)
    if missing:
        return "The package index has no {} for this machine and this Python.".format(missing[-1])
    errors = re.findall(r"^ERROR: (.+)$", text, re.MULTILINE)
    return "pip failed: {}".format(errors[-1].strip() if errors else "see the log")


def quiet(command, log, failed):
    """Run a command with its output appended to the log; SetupError that starts with `failed` if it fails."""
    with open(str(log), "ab") as out:
        code = subprocess.call(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if code:
        raise SetupError("{} (exit {}): see {}.".format(failed, code, log))


def output_of(command, log):
    """Run a command, append what it prints to the log, and return that as text, whatever its exit status."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment(None),
    )
    with open(str(log), "ab") as out:
        out.write(done.stdout)
    return done.stdout.decode(errors="replace")


def environment(tmp):
    """Return the environment for pip: no --user, no questions, temporary files in `tmp`."""
    values = dict(
        os.environ, PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PYTHONUNBUFFERED="1"
    )
    if tmp is not None:
        values.update(TMPDIR=str(tmp), TMP=str(tmp), TEMP=str(tmp))
    return values


def run_pip(pip, args, log, tmp, say=None, label="", total=0.0, interval=0.3):
    """Run `pip args`, output to `log`. `total`: GB expected, `tmp`: where pip collects what it fetches.

    Raises SetupError with one sentence if pip fails. Ctrl-C ends pip too.
    """
    # Compiling all of torch takes most of the time; imports compile what they need, unless they may not.
    compiled = "--compile" if sys.dont_write_bytecode else "--no-compile"
    command = [*pip, args[0], "--retries", "1", "--progress-bar", "off", compiled, *args[1:]]
    progress = Progress(say, label, total, tmp)
    lines = queue.Queue()
    text = []
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment(tmp),
    )
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        with open(str(log), "ab") as out:
            ended = False
            while not ended:
                try:
                    line = lines.get(timeout=interval)
                except queue.Empty:
                    line = b""
                ended = line is None
                if line:
                    out.write(line)
                    out.flush()
                    text.append(line.decode(errors="replace"))
                    progress.heard(text[-1])
                progress.show()
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        progress.end()
    if code:
        raise SetupError("{} (Everything pip said: {})".format(explain("".join(text)), log))
    progress.done()


def _read(stream, lines):
    for line in stream:
        lines.put(line)
    lines.put(None)


class Progress:
    """One line on a terminal, redrawn; elsewhere a line now and then: something happens."""

    def __init__(self, say, label, total, tmp, terminal=None, every=15.0):
        self.say, self.label, self.total, self.tmp = say, label, total, tmp
        self.terminal = sys.stdout.isatty() if terminal is None else terminal
        self.every = 0.3 if self.terminal else every
        self.start = self.last = time.monotonic()
        self.stage = "looking up versions"
        self.fetched, self.shown = 0.0, ""

    def heard(self, line):
        """Learn from a line of pip's output which stage it is at."""
        if line.startswith("Installing collected packages"):
            self.stage = "installing {} packages".format(line.count(",") + 1)
        elif line.lstrip().startswith("Downloading") or "Using cached" in line:
            self.stage = "fetching"

    def text(self):
        """Return the line to show: stage, gigabytes so far of those expected, time."""
        seconds = time.monotonic() - self.start
        amount = ""
        if self.stage == "fetching" and self.total:
            self.fetched = max(self.fetched, folder_bytes(self.tmp) / 1e9)
            amount = " {:.2f} of about {:.2f} GB".format(self.fetched, self.total)
        return "  {}: {}{} ({:d}:{:02d})".format(self.label, self.stage, amount, *divmod(int(seconds), 60))

    def show(self):
        now = time.monotonic()
        if self.say is None or now - self.last < self.every:
            return
        self.last = now
        if not self.terminal:
            self.say(self.text())
        elif self.text() != self.shown:
            self.shown = self.text()
            sys.stdout.write("\r\x1b[K" + self.shown[:110])
            sys.stdout.flush()

    def end(self):
        if self.say is not None and self.terminal:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    def done(self):
        if self.say is not None:
            self.say("  {}: installed in {:.0f} s".format(self.label, time.monotonic() - self.start))


def folder_bytes(folder):
    """Return the bytes of all files under a folder; files that vanish meanwhile count 0."""
    total = 0
    for where, _, names in os.walk(str(folder)) if folder else ():
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except OSError:
                pass
    return total
