"""``flashcore import``: Nsight Compute reports and traces as a run record."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.cli import options, output
from flashcore.errors import Exit
from flashcore.explain.predictions import Readings
from flashcore.model import plugin
from flashcore.plugins.imports import kernels, names
from flashcore.plugins.imports.api import keep, read_report
from flashcore.records import store

if TYPE_CHECKING:
    from flashcore.readers.ncu.results import Report

EXAMPLES = (
    ("flashcore import step.ncu-rep", "the kernels of a report"),
    ("flashcore import step.ncu-rep --name step --format json", "its kernels as JSON"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "ncu reports, or traces (torch.profiler, nsys), of one kind of GPU; together they are a run"
    parser.add_argument("files", nargs="+", metavar="FILE", help=text)
    parser.add_argument(
        "--name",
        default="imported",
        metavar="NAME",
        help="the suite's name: records of one name are compared (default: %(default)s)",
    )
    parser.add_argument("--no-sources", action="store_true", help="leave out source texts and machine code")
    output.add_format(parser)
    options.add_profiles(parser)


def run(arguments: argparse.Namespace) -> int:
    name = names.checked(arguments.name)
    reports = [_read(Path(name)) for name in arguments.files]
    command = options.recorded_command(["flashcore", *sys.argv[1:]])
    folder = keep(reports, Path(arguments.profiles), name=name, command=command, sources=not arguments.no_sources)
    readings = Readings(store.read(folder))
    if arguments.format == "json":
        print(kernels.as_json(readings, str(folder)))
    else:
        print(folder)
        print(kernels.text(readings), file=sys.stderr)  # standard output is for scripts
    return Exit.OK


def _read(path: Path) -> Report:
    """The report, read by the plugin that reads files with its suffix, if any."""
    reader = plugin.entry("readers", path.suffix)
    report: Report = plugin.resolve(reader)(path) if reader else read_report(path)
    return report
