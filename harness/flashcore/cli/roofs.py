"""``flashcore roofs``: measures and prints this machine's ceilings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from flashcore.cli import check, options, progress
from flashcore.cli.grid import grid
from flashcore.errors import worst
from flashcore.explain.measured_roofs import MeasuredRoof
from flashcore.model.text import fixed, unit_text
from flashcore.pipeline import run as pipeline
from flashcore.pipeline.measure_roofs import measure_roofs
from flashcore.pipeline.opening import each_gpu

EXAMPLES = (
    ("flashcore roofs", "bandwidths and peak rates of this GPU"),
    ("flashcore roofs --fresh", "measure them again"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_places(parser)
    options.add_gpus(parser)
    options.add_quiet(parser)
    text = "the suite that measures roofs (default: flashcore's)"
    parser.add_argument("--roofs", default=options.default("roofs"), metavar="DIR", help=text)
    parser.add_argument("--fresh", action="store_true", help="measure again even if this machine's roofs are recorded")


def run(arguments: argparse.Namespace) -> int:
    settings = options.settings(arguments, suite=arguments.roofs)
    with progress.shown(arguments.quiet) as say:
        each = [
            measure_roofs(one, say, lambda context: pipeline.run(context).record, fresh=arguments.fresh)
            for one in each_gpu(settings)
        ]
    for record, roofs in each:
        which = "".join(f", {gpu.uuid}" for gpu in record.gpus)
        print(f"run {record.id}, {record.gpu}{which}, driver {record.environment.driver}")
        print(table(roofs))
    return worst(check.failed(record) for record, _ in each)


def table(measured: Sequence[MeasuredRoof]) -> str:
    """Every measured ceiling: value, value per clock cycle, clock, spread, datasheet value."""
    rows = [
        [
            str(one.subject.case),
            one.resource + (" (library)" if one.library else ""),
            f"{one.value:,.4g}",
            unit_text(one.unit),
            fixed(one.per_clock, 1, "-"),
            fixed(one.clock_mhz, 0, "-"),
            fixed(one.spread, 4, "-"),
            fixed(one.temperature, 0, "-"),
            "-" if one.datasheet is None else f"{one.datasheet:,.4g}",
            fixed(None if one.ratio is None else 100 * one.ratio, 1, "-"),
        ]
        for one in sorted(measured, key=lambda m: (m.resource, m.unit == "us", -m.value))
    ]
    return grid(
        ("case", "roof of", "measured", "unit", "per clock", "MHz", "std/p50", "C", "datasheet", "% of it"), rows
    )
