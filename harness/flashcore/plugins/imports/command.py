"""``flashcore import``: Nsight Compute reports and traces as a run record."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flashcore.cli import options, output
from flashcore.errors import Exit
from flashcore.explain.predictions import Readings
from flashcore.plugins.imports import kernels, names
from flashcore.plugins.imports.api import read_report
from flashcore.plugins.imports.assemble import PROBLEM, record_of
from flashcore.records import store

EXAMPLES = (
    ("flashcore import step.ncu-rep", "the kernels of a report"),
    ("flashcore import step.ncu-rep --name step --format json", "its kernels as JSON"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "ncu reports, or traces (torch.profiler, nsys), of one kind of GPU; together they are a run"
    parser.add_argument("files", nargs="+", metavar="FILE", help=text)
    text = "the suite's name: records of one name are compared (default: %(default)s)"
    parser.add_argument("--name", default=PROBLEM, metavar="NAME", help=text)
    parser.add_argument("--no-sources", action="store_true", help="leave out source texts and machine code")
    output.add_format(parser)
    options.add_profiles(parser)


def run(arguments: argparse.Namespace) -> int:
    name = names.checked(arguments.name)
    reports = [read_report(Path(file)) for file in arguments.files]
    command = options.recorded_command(["flashcore", *sys.argv[1:]])
    run_id = store.new_id()
    record = record_of(run_id, reports, name=name, command=command, sources=not arguments.no_sources)
    folder = store.begin(Path(arguments.profiles), run_id)
    store.write(record, folder)
    folder = store.complete(folder)
    readings = Readings(store.read(folder))
    if arguments.format == "json":
        print(kernels.as_json(readings, str(folder)))
    else:
        print(folder)
        print(kernels.text(readings), file=sys.stderr)  # standard output is for scripts
    return Exit.OK
