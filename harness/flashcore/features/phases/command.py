"""``flashcore phases``: what each warp of a marked kernel does over time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from flashcore.cli import options, output, progress
from flashcore.cli.grid import grid
from flashcore.errors import Exit, UsageError
from flashcore.features.phases.record import record

EXAMPLES = (
    ("flashcore phases warp --suite examples/row_softmax", "its phases at the first shape that is timed"),
    ("flashcore phases wide --shape small --trace wide.json", "a trace for Perfetto too"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_quiet(parser)
    add = parser.add_argument
    add(
        "variants",
        nargs=1,
        metavar="VARIANT",
        help="a variant whose kernel has markers: #include <flashcore/phases.cuh>",
    )
    options.add_suite(parser)
    options.add_places(parser)
    add("--shape", dest="shapes", nargs=1, default=(), metavar="NAME", help="default: the first that is timed")
    add("--events", type=int, default=1024, metavar="N", help="phases to keep of each warp (default: %(default)s)")
    add("-o", "--output", metavar="FILE", help="the page (default: reports/phases-VARIANT-SHAPE.html)")
    add("--trace", metavar="FILE", help="also a Chrome trace (JSON), which Perfetto and chrome://tracing open")


def run(arguments: argparse.Namespace) -> int:
    from flashcore.features.phases import shown  # reports a missing jinja2 before anything is built

    if not 0 < arguments.events <= 4096:
        raise UsageError(f"--events {arguments.events}: expected 1 to 4096")
    settings = options.settings(arguments, upto="bench", gpus="1")
    with progress.shown(arguments.quiet) as say:
        recording = record(settings, arguments.events, say)
    file = arguments.output or f"reports/phases-{recording.case.replace('/', '-')}.html"
    shown.write(recording, Path(file))
    if arguments.trace:
        output.write(json.dumps(shown.trace(recording)), arguments.trace)
    print(grid(shown.HEADINGS, shown.table(recording.line.spans)), *shown.notes(recording), f"page: {file}", sep="\n")
    return Exit.OK
