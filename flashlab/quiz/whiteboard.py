"""The whiteboard tasks of the interview: a few lines of NumPy, checked without a word."""

import numpy as np

from flashlab.checks import guard


def check(task, code):
    """ "" if the function in `code` is right, else "empty", "error: …", "wrong" or "slow". Prints nothing."""
    if not code.strip():
        return "empty"
    names = {"np": np, "numpy": np}
    try:
        guard.call(lambda: exec(compile(code, "<whiteboard>", "exec"), names), seconds=2.0)
        answer = names.get(task["name"])
        if not callable(answer):
            return f"error: no function {task['name']}"
        for seed in range(4):
            inputs, expected = CASES[task["id"]](np.random.default_rng(seed))
            with np.errstate(all="ignore"):
                got = guard.call(lambda: answer(*inputs), seconds=2.0)  # noqa: B023
            if not _same(got, expected):
                return "wrong"
    except guard.TooSlow:
        return "slow"
    except (Exception, SystemExit) as problem:
        return f"error: {type(problem).__name__}: {problem}"
    return ""


def _same(got, expected):
    if not isinstance(expected, tuple):
        got, expected = (got,), (expected,)
    try:
        parts = [np.asarray(g, float) for g in got]
    except (TypeError, ValueError):
        return False
    return len(parts) == len(expected) and all(
        g.shape == np.shape(e) and np.allclose(g, e, rtol=1e-9) for g, e in zip(parts, expected, strict=True)
    )


def _absorb(rng):
    s, v = rng.normal(size=(2, 5)) * 3, rng.normal(size=(2, 5, 3))
    m, l, acc = -np.inf, 0.0, np.zeros(3)  # noqa: E741
    if rng.integers(2):  # a second block
        m = s[0].max()
        l, acc = np.exp(s[0] - m).sum(), np.exp(s[0] - m) @ v[0]  # noqa: E741
    new = max(m, s[1].max())
    p = np.exp(s[1] - new)
    return (m, l, acc, s[1], v[1]), (new, np.exp(m - new) * l + p.sum(), np.exp(m - new) * acc + p @ v[1])


def _merge(rng):
    s, v = rng.normal(size=7) * 20, rng.normal(size=(7, 3))

    def part(s, v):
        lse = np.logaddexp.reduce(s)
        return np.exp(s - lse) @ v, lse

    return (*part(s[:3], v[:3]), *part(s[3:], v[3:])), part(s, v)


def _ds(rng):
    s, dp, delta = rng.normal(size=(4, 6)), rng.normal(size=(4, 6)), rng.normal(size=4)
    lse = np.logaddexp.reduce(np.concatenate([s, rng.normal(size=(4, 6))], 1), 1)  # keys outside the tile too
    return (s, lse, dp, delta), np.exp(s - lse[:, None]) * (dp - delta[:, None])


CASES = {"absorb": _absorb, "merge": _merge, "ds": _ds}
