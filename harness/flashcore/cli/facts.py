"""``flashcore facts``: every fact of a recorded run as CSV or JSON, exactly as it was recorded."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore import __version__
from flashcore.cli import options
from flashcore.errors import Exit
from flashcore.model.files import write_atomically

if TYPE_CHECKING:
    from flashcore.model.record import Record

HELP = "write every fact of a recorded run (default: the newest) as CSV or JSON"
JSON_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recorded", nargs="?", metavar="RUN", help="a run's id or folder")
    parser.add_argument("--profiles", default=options.default("profiles"), metavar="DIR",
                        help="recorded runs (default: %(default)s)")  # fmt: skip
    parser.add_argument("--format", choices=tuple(FORMATS), default="csv", help="csv or json (default: %(default)s)")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


def run(arguments: argparse.Namespace) -> int:
    from flashcore.runs import store

    record = store.read(store.find(Path(arguments.profiles), arguments.recorded))
    text = FORMATS[arguments.format](record)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_atomically(Path(arguments.output), text.encode())
    return Exit.OK


def as_csv(record: Record) -> str:
    """A header, then a line per fact. Nothing stands for ``None``; ``type`` tells ``1`` from ``1.0`` and from text."""
    import csv
    from types import SimpleNamespace

    from flashcore import frames

    lines: list[str] = []
    # With its own line end the writer quotes a carriage return in a note; Unix tools want the newline alone.
    writer = csv.writer(SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n")))
    writer.writerow(frames.EXPORT)
    writer.writerows(frames.export_rows(record))
    return "".join(lines)


def as_json(record: Record) -> str:
    """An object with ``version``, ``tool``, ``run``, ``suite`` and ``facts``: one a line, ``null`` where unmeasured."""
    from flashcore import frames

    head = {"version": JSON_VERSION, "tool": f"flashcore {__version__}", "run": record.id, "suite": record.suite.name}
    rows = (dict(zip(frames.EXPORT, row, strict=True)) for row in frames.export_rows(record))
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    return json.dumps(head, ensure_ascii=False)[:-1] + ', "facts": [\n' + ",\n".join(lines) + "\n]}\n"


FORMATS: Mapping[str, Callable[[Record], str]] = {"csv": as_csv, "json": as_json}
