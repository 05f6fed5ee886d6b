"""``flashcore map``: times a family at the points of a distribution, and shows or fits what wins where."""

from __future__ import annotations

import argparse
from functools import partial

from flashcore.cli import options, progress
from flashcore.cli.grid import grid
from flashcore.errors import Exit, UsageError, worst
from flashcore.gate.wording import sentence
from flashcore.plugins.map.measure import measured
from flashcore.plugins.map.regions import Regions
from flashcore.plugins.map.table import mapped
from flashcore.plugins.map.tree import dispatcher
from flashcore.suites.find import of_project

EXAMPLES = (
    ("flashcore map --points 200", "time every variant at 200 points of the suite's distribution"),
    ("flashcore map --dispatch", "fit a dispatcher to the newest map"),
)
_CODES = {"pass": Exit.OK, "fail": Exit.FAILED, "unmeasured": Exit.UNMEASURED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_suite(parser)
    options.add_places(parser)
    options.add_records(parser)
    options.add_measuring(parser)
    add = parser.add_argument
    add("--map", dest="name", metavar="NAME", help="a [map.NAME] of the manifest (default: the first)")
    add("--points", type=int, metavar="N", help="time N points of the map")
    add("--seed", type=int, metavar="N", help="draw the points with this seed (default: the map's)")
    add("--dispatch", action="store_true", help="fit a dispatcher to the map, and print it as C++")
    parser.set_defaults(profiles=of_project("maps"), **{"bench.samples": 20, "bench.first": 1, "bench.seconds": 0.5})


def run(arguments: argparse.Namespace) -> int:
    name, count = arguments.name, arguments.points
    if count is None:
        if arguments.seed is not None or arguments.resume:
            raise UsageError("--seed, --resume: expected --points, found none\n  hint: --points N times N points")
        records = [options.recorded(arguments)]
    else:
        settings = options.settings(arguments, upto="bench", join=False)
        with progress.shown(arguments.quiet) as say:
            draw = partial(mapped, name=name, count=count, seed=arguments.seed)
            records = measured(settings, draw, arguments.resume, say)
    codes = [Exit.OK]
    for regions in map(Regions, records):
        if name not in (None, regions.name):
            raise UsageError(
                f"run {regions.record.id}: expected a record of map.{name}, found one of map.{regions.name}\n"
                "  hint: name the run: flashcore map RUN"
            )
        if arguments.dispatch:
            print(dispatcher(regions))
            continue
        print(f"map {regions.name} on {regions.record.gpu}: run {regions.record.id}")
        for title, heads, rows in regions.tables:
            print(f"\n{title}\n{grid(heads, rows)}")
        for verdict in regions.verdicts:
            print(f"\n{verdict.status}: {sentence(verdict)}")
            codes.append(_CODES[verdict.status])
        if not regions.spots:
            codes.append(Exit.UNMEASURED)
    return worst(codes)
