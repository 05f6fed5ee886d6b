"""``flashcore bench``: times every case on this GPU."""

from __future__ import annotations

import argparse

from flashcore.cli import check, options, output, text_tables

EXAMPLES = (
    ("flashcore bench --shape small", "every variant on one shape"),
    ("flashcore bench --against HEAD", "interleaved with the sources of a git revision"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)
    options.add_measuring(parser, "check", "bench")
    options.add_quiet(parser)
    output.add_formats(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = options.settings(arguments, upto="bench")
    record = check.measured(arguments, settings).record
    check.show(arguments, text_tables.ladder, record)
    return check.failed(record)
