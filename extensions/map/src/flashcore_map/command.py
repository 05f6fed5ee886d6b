"""``flashcore map``: times a family at the points of a distribution, and shows or fits what wins where.

Points are timed as the shapes of an ordinary run: workers, GPUs, journal and resuming are those of bench.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from flashcore.cli import options, progress
from flashcore.cli.grid import grid
from flashcore.errors import Exit, UsageError
from flashcore.gate.wording import sentence
from flashcore.machine import python_process
from flashcore.pipeline import run as pipeline
from flashcore.pipeline.opening import open_recordable
from flashcore.pipeline.resume import unfinished
from flashcore.suites.find import of_project
from flashcore.suites.load import load
from flashcore_map.regions import Regions
from flashcore_map.table import mapped, maps_of
from flashcore_map.tree import dispatcher

EXAMPLES = (
    ("flashcore map --points 200", "time every variant at 200 points of the suite's map"),
    ("flashcore map --dispatch", "fit a dispatcher to the newest map"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_quiet(parser)
    options.add_run(parser)
    options.add_suite(parser)
    options.add_places(parser)
    options.add_records(parser)
    options.add_measuring(parser, "check", "bench")
    add = parser.add_argument
    add("--map", dest="name", metavar="NAME", help="time [map.NAME] of the suite's map.toml (default: the first)")
    add("--points", type=int, metavar="N", help="time N points of the map")
    add("--seed", type=int, metavar="N", help="draw the points with this seed (default: the map's)")
    add("--dispatch", action="store_true", help="fit a dispatcher to the map, and print it as C++")
    parser.set_defaults(profiles=of_project("maps"), **{"bench.samples": 20, "bench.first": 1, "bench.seconds": 0.5})


def run(arguments: argparse.Namespace) -> int:
    """Shows recorded points, or times them, and records a run. To resume continues the newest unfinished
    run, with its settings; its answers for other points are left out."""
    if arguments.points is not None:
        settings = options.settings(arguments, upto="bench", join=False)
        suite = load(settings.suite)
        suite = mapped(suite, maps_of(suite), arguments.name, arguments.points, arguments.seed)
        (table,) = suite.tables["map"].values()
        limits = replace(settings.bench.limits, batch=arguments.points)  # the first point of a process takes seconds
        settings = replace(settings, bench=replace(settings.bench, modes=(table["rank_by"],), limits=limits))
        folder = None
        with progress.shown(arguments.quiet) as say:
            if arguments.resume:
                folder, settings = unfinished(settings, say)
            of_map = replace(
                open_recordable(settings, say, needs_gpu=True),
                suite=suite,
                variants=tuple(suite.variants.values()),
                shapes=tuple(suite.shapes.values()),
                resident=python_process.child("flashcore_map.looks", *table["dispatchers"]),
            )
            record = pipeline.run(of_map, folder).record
    elif arguments.name or arguments.resume or arguments.seed is not None:
        raise UsageError("--map, --seed, --resume: expected --points, found none\n  hint: --points N times N points")
    else:
        record = options.recorded(arguments)
    regions = Regions(record)
    if arguments.dispatch:
        print(dispatcher(regions))
        return Exit.OK
    print(f"map {regions.name} on {record.gpu}: run {record.id}")
    for title, heads, rows in regions.tables:
        print(f"\n{title}\n{grid(heads, rows)}")
    statuses = {verdict.status for verdict in regions.verdicts}
    for verdict in regions.verdicts:
        print(f"\n{verdict.status}: {sentence(verdict)}")
    if "fail" in statuses:
        return Exit.FAILED
    return Exit.UNMEASURED if "unmeasured" in statuses or not regions.spots else Exit.OK
