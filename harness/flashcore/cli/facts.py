"""``flashcore facts``: every fact of a recorded run as CSV or JSON, exactly as recorded."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from flashcore import __version__, frames
from flashcore.cli import options
from flashcore.errors import Exit
from flashcore.model.files import write_atomically
from flashcore.model.record import Record
from flashcore.model.text import Value
from flashcore.records import narrow
from flashcore.suites import load

JSON_VERSION = 1

EXAMPLES = (
    ("flashcore facts -o facts.csv", "the newest run, for a spreadsheet"),
    ("flashcore facts --variant fast --variant slow", "two variants of the newest run that has them"),
    ("flashcore facts 20260103 --format json", "a run, for programs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, default="the newest that has what is selected")
    options.add_profiles(parser)
    options.add_records(parser)
    options.add_selection(parser)
    parser.add_argument("--format", choices=("csv", "json"), default="csv", help="csv or json (default: %(default)s)")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


def run(arguments: argparse.Namespace) -> int:
    record = options.recorded(arguments)
    if any(chosen := options.selected(arguments).values()):
        record = narrow.narrowed(record, load.narrowed(record.suite, *chosen))
    text = as_json(record) if arguments.format == "json" else as_csv(record)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_atomically(Path(arguments.output), text.encode())
    return Exit.OK


def as_csv(record: Record) -> str:
    """A header, then a line per fact. An empty field is ``None``; ``type`` distinguishes ``1`` from ``1.0`` and from
    text. Text that a spreadsheet would take for a formula, or that begins with an apostrophe, is prefixed with one."""
    lines: list[str] = []
    # With its default line end the writer quotes carriage returns in notes; Unix tools want only the newline.
    writer = csv.writer(SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n")))
    writer.writerows((frames.EXPORT, *(map(_inert, row) for row in frames.export_rows(record))))
    return "".join(lines)


def _inert(value: Value | None) -> Value | None:
    """The value of a cell, with an apostrophe before text that a spreadsheet would evaluate."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple("=+-@\t\r'")) else value


def as_json(record: Record) -> str:
    """The run's id and suite, and an object per fact; ``null`` is ``None``."""
    facts = [dict(zip(frames.EXPORT, row, strict=True)) for row in frames.export_rows(record)]
    head = {"version": JSON_VERSION, "tool": f"flashcore {__version__}", "run": record.id, "suite": record.suite.name}
    return json.dumps({**head, "facts": facts}, ensure_ascii=False, allow_nan=False) + "\n"
