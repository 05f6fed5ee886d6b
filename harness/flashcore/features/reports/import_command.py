"""``flashcore import``: Nsight Compute reports, traces and JSON of benchmarks as a run record."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flashcore.cli import options, output
from flashcore.errors import Exit
from flashcore.explain.readings import Readings
from flashcore.features.reports import kernels
from flashcore.features.reports.assemble import PROBLEM, by_gpu, record_of
from flashcore.features.reports.read import read_report
from flashcore.records import slugs, store

EXAMPLES = (
    ("flashcore import step.ncu-rep", "the kernels of a report"),
    ("flashcore import step.ncu-rep --name step --format json", "its kernels as JSON"),
    ("flashcore import before.json", "the times of nvbench or Google Benchmark"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "ncu reports, traces (torch.profiler, nsys) or JSON of benchmarks; a run, or one for each GPU model"
    parser.add_argument("files", nargs="+", metavar="FILE", help=text)
    text = "the suite's name: records of one name are compared (default: %(default)s)"
    parser.add_argument("--name", default=PROBLEM, metavar="NAME", help=text)
    parser.add_argument("--no-sources", action="store_true", help="leave out source texts and machine code")
    output.add_format(parser)
    options.add_profiles(parser)


def run(arguments: argparse.Namespace) -> int:
    name = slugs.checked(arguments.name)
    reports = [read_report(Path(file)) for file in arguments.files]
    command = options.recorded_command(["flashcore", *sys.argv[1:]])
    sources = not arguments.no_sources
    records = [record_of(store.new_id(), part, name=name, command=command, sources=sources) for part in by_gpu(reports)]
    for record in records:
        folder = store.begin(Path(arguments.profiles), record.id)
        store.write(record, folder)
        folder = store.complete(folder)
        readings = Readings(store.read(folder))
        if arguments.format == "json":
            print(kernels.as_json(readings, str(folder)))
        else:
            print(folder)
            of_gpu = f"{record.gpu or 'unknown GPU'}\n" if len(records) > 1 else ""
            print(of_gpu + kernels.text(readings), file=sys.stderr)  # standard output is for scripts
    for report in reports:
        for note in report.notes:
            print(f"note: {report.name}: {note}", file=sys.stderr)
    return Exit.OK
