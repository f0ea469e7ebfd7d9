"""`flashlab report`: what this machine does with attention, as one HTML page and as Markdown.

`records` and `gather` bring together what was measured and checked, `pairs` compares, `sentences` says it (or
refuses to), `content` puts it in order, `page` and `markdown` write it down.
"""

import argparse
import json
from pathlib import Path

from flashlab.text import t
from flashlab.text.lines import fail, say


def add(commands):
    """Add the command `report` to the subparsers `commands`."""
    command = commands.add_parser(
        "report", help="measure this machine and write a page about it, with sentences for a résumé"
    )
    command.add_argument("--out", type=Path, default=Path("report.html"), help="the page (report.html)")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="the same as Markdown")
    command.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="results of `flashlab bench` instead of measuring now",
    )
    command.add_argument("--quick", action="store_true", help="measure fewer lengths")
    command.add_argument("--lang", choices=("en", "zh"), default=argparse.SUPPRESS, help="language")
    command.set_defaults(run=run)
    return command


def run(args):
    """Measure or read, write the files; returns the exit status."""
    from flashlab.bench import files
    from flashlab.bench.report import records

    kept = None if args.sources else args.out.with_suffix(".json")
    if kept and kept in (args.out, args.markdown):
        return _fail(t("report.file.measurements", file=kept))
    for file in filter(None, (args.out, args.markdown, kept)):  # before minutes are spent on measuring
        if problem := files.problem(file):
            return _fail(problem)
    try:
        found = [record for source in args.sources or () for record in records.load(source)]
    except ValueError as problem:
        return _fail(problem)
    if not args.sources:
        from flashlab.bench.report.measure import measure

        found = [{**r, "file": kept.name} for r in measure(args.quick, say)]
        keep(found, kept)
        say(t("report.measure.kept", file=kept))
    say(t("report.measure.checking"))
    html, text = build(found)
    args.out.write_text(html, encoding="utf-8")
    say(t("report.measure.written", file=args.out))
    if args.markdown:
        args.markdown.write_text(text, encoding="utf-8")
        say(t("report.measure.written", file=args.markdown))
    return 0


def build(found):
    """(HTML, Markdown) of a report about the learner's own records `found`, in the chosen language."""
    from flashlab.bench.provenance import provenance
    from flashlab.bench.report import content, gather, markdown, page

    origin = provenance() | {"command": "flashlab report"}
    whole = content.page(gather.facts(found, origin), origin)
    return page.write(whole), markdown.write(whole)


def keep(found, file):
    """Write records to a JSON file that `flashlab report --from` and `records.load` read."""
    plain = [{k: v for k, v in record.items() if k != "file"} for record in found]
    file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def _fail(problem):
    return fail(f"flashlab report: {problem}", 2)
