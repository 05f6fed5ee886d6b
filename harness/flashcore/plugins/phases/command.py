"""``flashcore phases``: what each warp of a marked kernel does over time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from flashcore.cli import options, output, progress
from flashcore.cli.grid import grid
from flashcore.errors import Exit, UsageError
from flashcore.plugins.phases.record import record
from flashcore.plugins.phases.timeline import trace

EXAMPLES = (
    ("flashcore phases warp --suite examples/row_softmax", "its phases at the first shape that is timed"),
    ("flashcore phases wide --shape small --trace wide.json", "a trace for Perfetto too"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("variant", metavar="VARIANT", help="a variant whose kernel has markers: #include <flashcore/phases.cuh>")
    options.add_suite(parser)
    options.add_places(parser)
    add("--shape", metavar="NAME", help="the shape (default: the variant's first that is timed)")
    add(
        "--blocks",
        type=int,
        default=4,
        metavar="N",
        help="blocks to record, evenly over the grid (default: %(default)s)",
    )
    add("--events", type=int, default=1024, metavar="N", help="phases to keep of each warp (default: %(default)s)")
    add("-o", "--output", metavar="FILE", help="the page (default: reports/phases-VARIANT-SHAPE.html)")
    add("--trace", metavar="FILE", help="also a Chrome trace (JSON), which Perfetto and chrome://tracing open")


def run(arguments: argparse.Namespace) -> int:
    from flashcore.plugins.phases import page  # reports a missing jinja2 before anything is built

    for name in ("blocks", "events"):
        if not 0 < (number := getattr(arguments, name)) <= 4096:
            raise UsageError(f"--{name} {number}: expected 1 to 4096")
    shapes = (arguments.shape,) if arguments.shape else ()
    settings = options.settings(arguments, upto=None, shapes=shapes, gpus="1")
    with progress.shown(arguments.quiet) as say:
        recording = record(settings, arguments.blocks, arguments.events, say)
    file = arguments.output or f"reports/phases-{recording.case.replace('/', '-')}.html"
    page.write(recording, Path(file))
    if arguments.trace:
        about = output.picked(recording, "case", "gpu", "call_us", "marked_us", "plain_us")
        events = trace(recording.line, {**about, "notes": page.notes(recording)})
        output.write(json.dumps(events), arguments.trace)
    print(grid(page.HEADINGS, page.table(recording)))
    print("\n".join([*page.notes(recording), f"page: {file}"]))
    return Exit.OK
