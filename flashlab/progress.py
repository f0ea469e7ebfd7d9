"""What a learner did, in one local SQLite file: guesses, prompts, checks, the questions before and after.

Written so that several notebooks can share it: every call is a transaction of its own on a connection of its
own (widget callbacks come from several threads), begun with BEGIN IMMEDIATE (a plain BEGIN loses writes), in
SQLite's rollback journal (one file, and it works on network home directories). A file that cannot be used
never breaks a lesson: one sentence, once, and the session goes on in memory.
"""

import contextlib
import datetime
import json
import os
import sqlite3
import sys
import threading
from pathlib import Path

from flashlab.errors import unknown_name
from flashlab.text import t

LESSON_KINDS = ("guess", "reveal", "prompt", "check", "pretest", "posttest", "say")
KINDS = (*LESSON_KINDS, "item", "free", "card", "claim", "exam", "diagnosis", "interview")
MIGRATIONS = (  # what brings a file from version 0, 1, ... to the next
    "CREATE TABLE event (number INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, "
    "name TEXT NOT NULL, data TEXT NOT NULL)",
    "CREATE INDEX event_kind_name ON event (kind, name)",
)
SCHEMA = len(MIGRATIONS)
WAIT_SECONDS = 30
UNUSABLE = (sqlite3.Error, OSError, RuntimeError)  # RuntimeError: there is no home directory

_lock = threading.Lock()
_in_memory = []  # events that the file would not take, for this session
_said = set()  # sentences already said


def path():
    """The progress file: progress.sqlite in $FLASHLAB_DATA_DIR or $FLASHLAB_HOME, else in ~/.flashlab
    where that has one, else in the user's data folder of this system.
    """
    chosen = os.environ.get("FLASHLAB_DATA_DIR") or os.environ.get("FLASHLAB_HOME")
    if chosen:
        return Path(chosen).expanduser() / "progress.sqlite"
    older = Path.home() / ".flashlab" / "progress.sqlite"
    if older.exists():
        return older
    try:
        import platformdirs
    except ImportError:
        return older
    return Path(platformdirs.user_data_dir("flashlab", appauthor=False)) / "progress.sqlite"


def record(kind, id, **data):
    """Store one event; `data` is whatever JSON can hold. Returns True when it is on disk, False when only in
    memory.

    Raises ValueError for an unknown kind, TypeError for data that JSON cannot hold.
    """
    if kind not in KINDS:
        raise unknown_name("kind of event", kind, KINDS)
    row = (
        datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        kind,
        str(id),
        json.dumps(data),
    )
    try:
        _transaction(
            lambda db: db.execute("INSERT INTO event (at, kind, name, data) VALUES (?, ?, ?, ?)", row)
        )
        return True
    except UNUSABLE as problem:
        _say("memory", problem=problem)
        with _lock:
            _in_memory.append(row)
        return False


def events(kind=None, id=None):
    """All events as stored, in order: dicts with `at` (UTC), `kind`, `id` and the recorded data."""
    rows = []
    try:
        if path().exists():
            rows = _transaction(_all, write=False)
    except UNUSABLE as problem:
        _say("memory", problem=problem)
    with _lock:
        rows = rows + _in_memory
    return [
        {**json.loads(data), "at": at, "kind": k, "id": name}
        for at, k, name, data in rows
        if kind in (None, k) and id in (None, name)
    ]


def latest(kind, id):
    """The last event of that kind and id, or None."""
    found = events(kind, id)
    return found[-1] if found else None


def summary():
    """What was done, by lesson; see flashlab.quiz.standing.summarise."""
    from flashlab.quiz.standing import summarise

    return summarise(events())


def report():
    """The summary as a table that shows itself in a notebook (HTML) and in a terminal (text)."""
    from flashlab.quiz.standing import Report

    return Report(summary())


def export(file=None):
    """All events as JSON text; with `file`, also written there."""
    text = json.dumps({"flashlab": "progress", "events": events()}, ensure_ascii=False, indent=1)
    if file is not None:
        Path(file).write_text(text + "\n", encoding="utf-8")
    return text


def merge(source):
    """Read the events of an export (a path, or JSON text) that are not there yet; returns how many.

    They keep their times and are put in order of time when read. Raises ValueError for anything else, OSError
    where the file cannot be read or nothing can be stored.
    """
    text = str(source)
    if not text.lstrip().startswith("{"):
        text = Path(source).read_text(encoding="utf-8")
    try:
        raw = json.loads(text)
        if raw["flashlab"] != "progress":
            raise ValueError
        rows = [_row(dict(event)) for event in raw["events"]]
    except (ValueError, KeyError, TypeError):
        name = str(source) if text != str(source) else "JSON"
        raise ValueError(t("quiz.terminal.not_progress", file=name)) from None

    def add(db):
        known = set(_all(db))
        new = list(dict.fromkeys(row for row in rows if row not in known))
        db.executemany("INSERT INTO event (at, kind, name, data) VALUES (?, ?, ?, ?)", new)
        return len(new)

    try:
        return _transaction(add)
    except sqlite3.Error as problem:
        raise OSError(str(problem)) from problem


def _row(event):
    """A row of the file from an exported event. Raises ValueError for an unknown kind or a time that is
    none.
    """
    at, kind, name = event.pop("at"), event.pop("kind"), event.pop("id")
    if kind not in KINDS or not isinstance(name, str) or not datetime.datetime.fromisoformat(at).tzinfo:
        raise ValueError
    return at, kind, name, json.dumps(event)


def _transaction(work, write=True):
    """Run work(connection) in one transaction. A damaged file is set aside once and a new one begun."""
    file = path()
    for attempt in (1, 2):
        before = _identity(file)
        try:
            with contextlib.closing(_open(file, write)) as db:  # closing without COMMIT rolls back
                result = work(db)
                if write:
                    db.execute("COMMIT")
                return result
        except sqlite3.DatabaseError as problem:
            # A merely locked file is an OperationalError, which is a DatabaseError too: look at the code.
            code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
            if attempt == 2 or code not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise
            _set_aside(file, before)


def _open(file, write):
    if write:
        file.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(file, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        if write:
            db.execute(
                "BEGIN IMMEDIATE"
            )  # before anything is read, so that first use by several at once is safe
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise OSError(t("learn.progress.newer"))
        if write and version < SCHEMA:  # all steps in this one transaction
            for step in MIGRATIONS[version:]:
                db.execute(step)
            db.execute(f"PRAGMA user_version = {SCHEMA}")
    except BaseException:
        db.close()
        raise
    return db


def _all(db):
    if db.execute("PRAGMA user_version").fetchone()[0] == 0:  # made by someone who has not committed yet
        return []
    return db.execute("SELECT at, kind, name, data FROM event ORDER BY at, number").fetchall()


def _identity(file):
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _set_aside(file, damaged):
    """Rename the damaged file, with its journal (which would otherwise be rolled back into the new file)."""
    with contextlib.closing(
        sqlite3.connect(f"{file}-lock", timeout=WAIT_SECONDS, isolation_level=None)
    ) as gate:
        gate.execute("BEGIN EXCLUSIVE")  # several notebooks may find the damage at once: one renames
        if _identity(file) != damaged:
            return
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        kept = file.with_name(f"{file.name}.damaged-{stamp}")
        for end in ("-journal", ""):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{file}{end}", f"{kept}{end}")
        _say("damaged", kept=kept.name)


def _say(what, **values):
    """One sentence, once a session."""
    with _lock:
        if what in _said:
            return
        _said.add(what)
    try:
        where = str(path())
    except RuntimeError:
        where = "~/.flashlab/progress.sqlite"
    print(t(f"learn.progress.{what}", file=where, **values), file=sys.stderr)
