"""Error messages that help: an unknown name comes back with the names that it could have been."""

import difflib


def unknown_name(kind, name, known):
    """Return the ValueError for a `kind` ("backend", "check", ...) called `name` that is not among
    `known`.
    """
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.4)
    meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return ValueError(f"unknown {kind} {name!r}.{meant} Known: {', '.join(known)}.")
