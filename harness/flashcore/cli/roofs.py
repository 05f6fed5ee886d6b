"""``flashcore roofs``: the ceilings of this machine."""

from __future__ import annotations

import argparse

from flashcore.cli import options
from flashcore.errors import worst


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_places(parser)
    options.add_gpus(parser)
    parser.add_argument("--roofs", default=options.default("roofs"), metavar="DIR",
                        help="the suite that measures (default: the one that comes with flashcore)")  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="measure again, even if this machine's roofs are recorded")


def run(arguments: argparse.Namespace) -> int:
    from flashcore.cli import check, progress, text_tables
    from flashcore.pipeline import run

    settings = options.settings(arguments, suite=arguments.roofs)
    with progress.shown(arguments.quiet) as say:
        each = [run.measure_roofs(one, say, fresh=arguments.fresh) for one in run.each_gpu(settings)]
    for record, found in each:
        which = "".join(f", {gpu.uuid}" for gpu in record.gpus)
        print(f"run {record.id}, {record.gpu}{which}, driver {record.environment.driver}")
        print(text_tables.roofs(found))
    return worst(check.failed(record) for record, _ in each)
