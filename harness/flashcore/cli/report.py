"""``flashcore report``: renders recorded runs."""

from __future__ import annotations

import argparse
from dataclasses import replace

from flashcore.cli import options, output
from flashcore.errors import Exit, UsageError
from flashcore.pipeline import pages, plugins
from flashcore.pipeline.judging import today
from flashcore.records import lookup, narrow, store
from flashcore.report import markdown
from flashcore.report.view import INDEX
from flashcore.suites import load

EXAMPLES = (
    ("flashcore report", "the newest run, as pages in reports/"),
    ("flashcore report 20260103 --format md", "a run as Markdown"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, of_chips=True)
    options.add_places(parser)
    options.add_records(parser)
    options.add_selection(parser)
    options.add_reporting(parser)
    options.add_gating(parser)
    text = "another run, by id or folder, to compare this one with on the page Compare"
    parser.add_argument("--against", metavar="OTHER", help=text)
    text = "md: a pull-request summary, to standard output or the file of -o"
    parser.add_argument("--format", choices=("html", "md"), default="html", help=text)


def run(arguments: argparse.Namespace) -> int:
    records = options.all_recorded(arguments)
    if any(chosen := options.selected(arguments).values()):
        suites = [load.narrowed(record.suite, *chosen, compared=True) for record in records]
        records = [replace(narrow.narrowed(r, s), suite=s) for r, s in zip(records, suites, strict=True)]
    if arguments.against and len(records) > 1:
        hint = "" if arguments.recorded else f"\n  hint: name one of them: {', '.join(r.id for r in records)}"
        raise UsageError(f"--against: expected one run to compare, found several, one per chip{hint}")
    if arguments.format == "md":
        overviews = [make for page, make in plugins.objects("pages") if page == INDEX]
        parts = [markdown.render(r, require=arguments.require, today=today(), overviews=overviews) for r in records]
        output.write("\n".join(parts), arguments.output)
    else:
        other = None
        if arguments.against:
            plugins.find("pages", "compare")
            other = store.read(lookup.find(options.places(arguments), arguments.against))
        target = pages.Target(arguments.output, arguments.single_file)
        print(pages.write(target, records, require=arguments.require, against=other)[0])
    return Exit.OK
