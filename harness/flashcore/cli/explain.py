"""``flashcore explain``: advice on what to change, with the evidence and the largest possible gain."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from flashcore.cli import options, output
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.explain.advice import Advice, advice, as_data, sentence
from flashcore.explain.predictions import Readings
from flashcore.explain.rows import Row
from flashcore.model.record import Record
from flashcore.suites.load import select

JSON_VERSION = 1

EXAMPLES = (
    ("flashcore explain", "every variant of the newest run"),
    ("flashcore explain 20260103 --format json", "a run, for programs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_profiles(parser)
    options.add_records(parser)
    text = "variants whose names match (default: the fastest on each shape; all, if none was timed)"
    parser.add_argument("--variant", metavar="GLOB", help=text)
    options.add_shapes(parser)
    text = "table, or json: rules, facts with values, bounds (default: %(default)s)"
    parser.add_argument("--format", choices=("table", "json"), default="table", help=text)


def run(arguments: argparse.Namespace) -> int:
    record = options.recorded(arguments)
    items = list(_advice(record, arguments.variant, arguments.shapes))
    if arguments.format == "json":
        data = {"version": JSON_VERSION, "run": record.id, "advice": [as_data(x) for x in items]}
        output.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", None)
        return Exit.OK
    rows = [[x.subject.case, f"{x.gain:.0f} %" if x.gain is not None else "", x.rule, sentence(x)] for x in items]
    print(grid(("case", "at most", "rule", "advice"), rows) if rows else "no rule applies to the recorded facts")
    return Exit.OK


def _advice(record: Record, glob: str | None, shapes: list[str]) -> Iterator[Advice]:
    readings, suite = Readings(record), record.suite
    variants = [variant.name for variant in select(suite, glob, tuple(shapes))[0]]
    for row in (Row(readings, same) for same in suite.rows(suite.shapes.values())):
        if shapes and not {s.name for s in row.shapes} & {*shapes}:
            continue
        timed = [name for name in row.times if not suite.variants[name].is_reference]
        names = [n for n in row.cases if n in variants] if glob else timed[:1] or list(row.cases)
        for name in names:
            yield from advice(readings, name, row.cases[name].name)
