"""How far a learner has come: events of flashlab.progress counted by lesson, and the table that shows it."""

import html
import re

from flashlab.progress import LESSON_KINDS
from flashlab.quiz import prompts
from flashlab.text import t


def lesson_of(kind, id):
    """The lesson that an event belongs to: "C" for "C-p01", "C05-a" and the check "online_softmax"; "" if
    none says so.
    """
    if kind == "check":
        return next((name for name, x in prompts.lessons().items() if id in x.checks), "")
    for name, x in prompts.lessons().items():
        if any(id in part for part in (x.prompts, x.predictions, x.before_after, x.say)):
            return name
    found = re.match(r"[A-Za-z]+|\d+", id)
    return found[0] if found else ""


def summarise(events):
    """{"lessons": {name: {...}}, "events": count}; the last event of an id is what counts.

    Per lesson: `predictions` {"made", "right", "total"}, `prompts` {"known", "not_yet", "total"}, `checks`
    (names passed), `tests` {"before", "after", "total"} (right answers; `given` says in which halves there
    are any).
    """
    last = {}
    passed = set()
    events = [e for e in events if e["kind"] in LESSON_KINDS]  # the trainer's own: flashlab.quiz.state
    for event in events:
        last[event["kind"], event["id"]] = event
        if event["kind"] == "check" and event.get("passed"):
            passed.add(event["id"])
    names = list(prompts.lessons()) + [lesson_of(kind, id) for kind, id in last]
    found = {}
    for name in sorted(dict.fromkeys(names), key=lambda name: name != "start"):  # the start page comes first
        data = prompts.lessons().get(name, prompts.Lesson(name))
        mine = {k: e for k, e in last.items() if lesson_of(*k) == name}

        def of(kind, mine=mine):
            return [e for (k, _), e in mine.items() if k == kind]

        found[name] = {
            "predictions": {
                "made": len(of("guess")),
                "right": sum(bool(e.get("right")) for e in of("reveal")),
                "total": len(data.predictions),
            },
            "prompts": {
                "known": sum(bool(e.get("known")) for e in of("prompt")),
                "not_yet": sum(not e.get("known") for e in of("prompt")),
                "total": len(data.prompts),
            },
            "checks": sorted(id for kind, id in mine if kind == "check" and id in passed),
            "tests": {
                "before": sum(bool(e.get("right")) for e in of("pretest")),
                "after": sum(bool(e.get("right")) for e in of("posttest")),
                "total": len(data.before_after),
                "given": [half for half in ("pretest", "posttest") if of(half)],
            },
        }
    return {"lessons": found, "events": len(events)}


class Report:
    """A summary that shows itself as a table (HTML in a notebook, text elsewhere)."""

    def __init__(self, summary):
        self.summary = summary

    def _rows(self):
        for name, x in self.summary["lessons"].items():
            cells = []
            for part, done in (("predictions", "made"), ("prompts", None)):
                y = x[part]
                some = y["made"] if done else y["known"] + y["not_yet"]
                key = f"learn.progress.{part}_" + ("cell" if y["total"] else "free")
                cells.append(t(key, **y) if some else t("learn.progress.none"))
            cells.append(", ".join(x["checks"]) or t("learn.progress.none"))
            tests = x["tests"]
            cells.append(
                t("learn.progress.tests_cell", **tests) if tests["given"] else t("learn.progress.none")
            )
            yield [name or "…", *cells]

    def _heads(self):
        return [t(f"learn.progress.{k}") for k in ("lesson", "predictions", "prompts", "checks", "tests")]

    def __repr__(self):
        if not self.summary["events"]:
            return t("learn.progress.nothing")
        lines = [t("learn.progress.title")]
        for name, *cells in self._rows():
            lines.append(f"{self._heads()[0]} {name}")
            lines += [f"  {head}: {cell}" for head, cell in zip(self._heads()[1:], cells, strict=True)]
        return "\n".join(lines)

    def _repr_html_(self):
        if not self.summary["events"]:
            return f"<p>{html.escape(t('learn.progress.nothing'))}</p>"
        heads = "".join(
            f'<th scope="col" style="text-align:left">{html.escape(h)}</th>' for h in self._heads()
        )
        body = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(name)}</th>'
            + "".join(f'<td style="text-align:left">{html.escape(c)}</td>' for c in cells)
            + "</tr>"
            for name, *cells in self._rows()
        )
        caption = html.escape(t("learn.progress.title"))
        return (
            f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        )
