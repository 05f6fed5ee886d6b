"""``flashcore trends``: what got slower over the recorded runs. Without news it prints nothing and exits 0."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flashcore.cli import options, output
from flashcore.errors import UsageError
from flashcore.model.text import misspelled, visible
from flashcore.records.index import Index
from flashcore_trends import page
from flashcore_trends.series import Trends, trends
from flashcore_trends.wording import commits, lines

EXAMPLES = (
    ("flashcore trends --since 20260105 -o reports", "news since that day, and the page reports/trends.html"),
    ("flashcore trends --format github --format markdown=trends.md", "for a nightly job: the newest run's news"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", nargs="?", metavar="VARIANT/SHAPE", help="only this case (default: all)")
    text = "a run's id or its beginning, such as a date: report what changed after it (default: the newest run's news)"
    parser.add_argument("--since", metavar="RUN", help=text)
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for trends.html (default: no page)")
    options.add_profiles(parser)
    options.add_records(parser)
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        metavar="FORMAT[=FILE]",
        help=f"{', '.join(FORMATS)}, on standard output or into FILE; repeatable (default: table)",
    )


def run(arguments: argparse.Namespace) -> int:
    formats = output.parse(arguments.format, FORMATS)
    places = options.places(arguments)
    result = trends(index := Index(places), arguments.since)
    if arguments.case:
        cases = dict.fromkeys(s.case for s in result.series)
        if arguments.case not in cases:
            raise UsageError(f"expected a case that a run timed, found {misspelled(arguments.case, cases)}")
        result = replace(result, series=tuple(s for s in result.series if s.case == arguments.case))
    if arguments.output:
        page.write(result, Path(arguments.output), index, places, each=bool(arguments.case))
    for form, file in formats:
        text = FORMATS[form](result)
        if text or file:
            output.write(text, file)
    return result.exit_code


def as_table(result: Trends) -> str:
    """A line per change."""
    return "".join(f"{sentence}\n" for _, sentence in lines(result))


def as_markdown(result: Trends) -> str:
    """A list of the changes."""
    marks = {"error": "**slower** ", "warning": "", "notice": ""}
    listed = [f"- {marks[level]}{visible(text)}\n" for level, text in lines(result)]
    return "".join(["### Trends\n\n", *listed]) if listed else ""


def as_github(result: Trends) -> str:
    """Workflow commands, which GitHub shows as annotations."""
    escaped = ((level, text.replace("%", "%25").replace("\n", "%0A")) for level, text in lines(result))
    return "".join(f"::{level} title=flashcore trends::{text}\n" for level, text in escaped)


def as_json(result: Trends) -> str:
    """All changes, with ``new``; times in us, shares in percent. ``unjudged``: cases with too few runs."""
    changes = [
        {
            "case": s.case,
            "suite": f.after.suite,
            "gpu": f.after.gpu,
            "reference": bool(f.after.reference),
            "blame": f.change.blame,
            "new": f.is_new,
            "percent": round(f.percent, 3),
            "standard_error": round(f.error, 3),
            "run_before": f.before.run,
            "run": f.after.run,
            "commits": commits(f),
            "reasons": f.reasons,
        }
        for s in result.series
        for f in s.findings
    ]
    unjudged = [s.case for s in result.series if not s.judged]
    text = output.document(
        exit_code=result.exit_code, cases=len(result.series), changes=changes, missing=result.missing, unjudged=unjudged
    )
    return f"{text}\n"


FORMATS: dict[str, Callable[[Trends], str]] = {
    "table": as_table,
    "json": as_json,
    "markdown": as_markdown,
    "github": as_github,
}
