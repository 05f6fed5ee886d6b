"""``flashcore runs``: lists the recorded runs."""

from __future__ import annotations

import argparse
import json

from flashcore import __version__
from flashcore.cli import options
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.plugins.runs.summary import Summary, summaries

_COLUMNS = ("run", "suite", "GPU", "variants", "checked", "timed", "profiled")

EXAMPLES = (
    ("flashcore runs", "those in profiles/"),
    ("flashcore runs --format json", "the same for programs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_profiles(parser)
    options.add_records(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    found = list(summaries(options.places(arguments)))
    if arguments.format == "json":
        head = {"version": 1, "tool": f"flashcore {__version__}"}
        print(json.dumps({**head, "runs": [x._asdict() for x in found]}, indent=1))
    elif found:
        print(table(found))
    else:
        print(f"{arguments.profiles}: no recorded run; `flashcore profile` records one, `flashcore import` reads one")
    return Exit.OK


def table(runs: list[Summary]) -> str:
    """A line per run; counts are of cases."""
    counts = ((x.variants, x.checked, x.timed, x.profiled) for x in runs)
    return grid(_COLUMNS, [[x.id, x.suite, x.gpu or "none", *map(str, n)] for x, n in zip(runs, counts, strict=True)])
