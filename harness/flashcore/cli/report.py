"""``flashcore report``: renders a recorded run."""

from __future__ import annotations

import argparse
from dataclasses import replace

from flashcore.cli import options, output
from flashcore.errors import Exit
from flashcore.pipeline import pages, plugins
from flashcore.pipeline.judging import Rules, judge_record
from flashcore.records import narrow
from flashcore.report import markdown
from flashcore.report.view import INDEX
from flashcore.suites import load

EXAMPLES = (
    ("flashcore report", "the newest run, as pages in reports/"),
    ("flashcore report 20260103 --format md", "a run as Markdown"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_profiles(parser)
    options.add_records(parser)
    options.add_selection(parser)
    options.add_reporting(parser)
    options.add_gating(parser)
    text = "md: a pull-request summary, to standard output or the file of -o"
    parser.add_argument("--format", choices=("html", "md"), default="html", help=text)


def run(arguments: argparse.Namespace) -> int:
    record = options.recorded(arguments)
    if any(chosen := options.selected(arguments).values()):
        suite = load.narrowed(record.suite, *chosen, compared=True)
        record = replace(narrow.narrowed(record, suite), suite=suite)
    judged = judge_record(Rules(require=arguments.require, compare=False), record)
    if arguments.format == "md":
        overviews = [make for page, make in plugins.pages() if page == INDEX]
        text = markdown.render(record, judged.judgement, overviews=overviews)
        output.write(text, arguments.output)
    else:
        target = pages.ReportTarget(arguments.output, arguments.single_file)
        print(pages.write(target, judged, places=options.places(arguments))[0])
    return Exit.OK
