"""``flashcore profile``: all of it in one go, and the four answers for the variants that the user names."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.cli import baseline, check, gate, inner_loop, options, progress, report, text_tables
from flashcore.errors import worst
from flashcore.pipeline import run as pipeline
from flashcore.records import lookup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)
    options.add_measuring(parser)
    text = "ncu's clock control (default: %(default)s; none leaves the clocks alone)"
    choices = ("none", "base")
    parser.add_argument("--clock-control", choices=choices, default=options.default("clock_control"), help=text)
    text = "do not measure this machine's roofs"
    roofs = options.default("roofs")
    parser.add_argument("--no-roofs", dest="roofs", action="store_const", const=None, default=roofs, help=text)
    parser.add_argument("--sanitize", action="store_true", help="also run every variant under compute-sanitizer")
    parser.add_argument("--keep-report", action="store_true", help="keep ncu's own report (.ncu-rep) in the run")
    options.add_reporting(parser)
    options.add_gating(parser)


def run(arguments: argparse.Namespace) -> int:
    import jinja2  # noqa: F401  what is missing is said before anything is built and measured

    with progress.shown(arguments.quiet) as say:
        done = pipeline.runs(options.settings(arguments, upto="profile"), say, resume=arguments.resume)
        records = [one.record for one in done]
        variants = gate.chosen(done[0].settings.variant, *records)
        baseline_file = baseline.baseline_path(records[0])
        pages = report.pages(arguments, *records, baseline_file=baseline_file)
        say(f"report: {len(pages)} pages in {pages[0].parent}")
    for record in records:
        print(text_tables.of_chip(text_tables.ladder(record), record, records))
    request = gate.Request(require=arguments.require, variants=variants, baseline=baseline_file)
    verdict = gate.judged(request, *records)
    for record in records if variants else ():
        before = lookup.measured_runs(Path(arguments.profiles), record.suite.name, before=record.id)
        previous = next((r for r in before if r.gpu == record.gpu), None)
        for name in variants or ():
            print("\n".join(inner_loop.answers(record, previous, name)))
    folders = "\n        ".join(str(one.folder) for one in done)
    print(f"run:    {folders}\nreport: {pages[0]}")
    return worst([*map(check.failed, records), verdict])
