"""``flashcore roofs``: the ceilings of this machine."""

from __future__ import annotations

import argparse

from flashcore.cli import check, options, progress, text_tables
from flashcore.errors import worst
from flashcore.pipeline import run as pipeline
from flashcore.pipeline.kinds import each_gpu


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_places(parser)
    options.add_gpus(parser)
    text = "the suite that measures (default: the one that comes with flashcore)"
    parser.add_argument("--roofs", default=options.default("roofs"), metavar="DIR", help=text)
    parser.add_argument("--fresh", action="store_true", help="measure again, even if this machine's roofs are recorded")


def run(arguments: argparse.Namespace) -> int:
    settings = options.settings(arguments, suite=arguments.roofs)
    with progress.shown(arguments.quiet) as say:
        each = [pipeline.measure_roofs(one, say, fresh=arguments.fresh) for one in each_gpu(settings)]
    for record, roofs in each:
        which = "".join(f", {gpu.uuid}" for gpu in record.gpus)
        print(f"run {record.id}, {record.gpu}{which}, driver {record.environment.driver}")
        print(text_tables.roofs(roofs))
    return worst(check.failed(record) for record, _ in each)
