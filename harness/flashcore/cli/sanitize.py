"""``flashcore sanitize``: looks for memory errors and races."""

from __future__ import annotations

import argparse

from flashcore.cli import check, options, output, text_tables
from flashcore.cli.grid import grid
from flashcore.errors import UsageError
from flashcore.model.catalogue import FACTS
from flashcore.model.record import CaseSubject, Record
from flashcore.model.settings import Sanitize
from flashcore.model.text import as_words, fixed
from flashcore.stages.sanitize.sanitize import find_sanitizer
from flashcore.suites.load import load

EXAMPLES = (
    ("flashcore sanitize", "every variant at every shape"),
    ("flashcore sanitize --variant wide", "one variant"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)
    options.add_measuring(parser)
    options.add_quiet(parser)
    output.add_formats(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = options.settings(arguments, upto=None, sanitize=Sanitize())
    if not settings.shapes and not any("sanitize" in s.stages for s in load(settings.suite).shapes.values()):
        raise UsageError(
            f"{settings.suite}: expected a shape with `sanitize` among its stages, found none\n"
            '  hint: give a small shape stages = ["check", "sanitize"], or name one with --shape'
        )
    find_sanitizer()
    done = check.measured(arguments, settings)
    if check.show(arguments, as_table, done.record):
        print(f"run: {done.folder}")
    return check.failed(done.record)


def as_table(record: Record) -> str:
    """What compute-sanitizer found in each case, failures first."""
    names = [n for n, s in FACTS.items() if s.group == "sanitizer"]
    rows = []
    for o in text_tables.outcomes(record, "sanitize"):
        values = (record.facts.number(n, CaseSubject(o.case)) for n in names)
        rows.append([str(o.case), o.status, *(fixed(x, 0, "-") for x in values), o.reason])
    header = [as_words(n.removeprefix("sanitizer_")) for n in names]
    return grid(["case", "status", *header, "reason"], rows)
