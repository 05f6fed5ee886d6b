"""``flashcore runs``: lists the recorded runs, from their index; packs one, or removes old ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore import frames
from flashcore.cli import options, output
from flashcore.cli.grid import grid
from flashcore.errors import Exit, UsageError
from flashcore.features.runs import prune
from flashcore.model.files import make_folder, write_atomically
from flashcore.records import lookup, store
from flashcore.records.index import Index, RunSummary, TimePoint, rows
from flashcore.records.lookup import PACKED
from flashcore.records.packed import packed

if TYPE_CHECKING:
    from pandas import DataFrame

EXAMPLES = (
    ("flashcore runs", "those in profiles/"),
    ("flashcore runs pack 20260103 -o gpu.run.zip", "a run as one file, for --records elsewhere"),
    ("flashcore runs prune --runs --keep 5", "list all runs but the newest five; --yes removes them"),
)


def runs(profiles: Path | str = "profiles") -> DataFrame:
    """The recorded runs, a row each, newest first: see :class:`~flashcore.records.index.RunSummary`.

    Raises:
        CapabilityError: pandas is missing.
    """
    return frames.pandas().DataFrame(Index([Path(profiles)]).runs(), columns=RunSummary._fields)


def history(case: str, fact: str = "time", profiles: Path | str = "profiles") -> DataFrame:
    """A fact of a case (``variant/shape``) over the recorded runs, oldest first: see
    :class:`~flashcore.records.index.TimePoint`. ``time`` is the median that its shape is ranked by.

    Raises:
        UsageError: no run measured it.
        CapabilityError: pandas is missing.
    """
    return frames.pandas().DataFrame(list(rows([Path(profiles)], case, fact)), columns=TimePoint._fields)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_profiles(parser)
    options.add_records(parser)
    output.add_format(parser)
    actions = parser.add_subparsers(dest="action", metavar="[pack|prune]", help="`flashcore runs pack --help` has more")
    packing = actions.add_parser("pack", description="write a recorded run as one file, for --records elsewhere")
    options.add_run(packing)
    packing.add_argument("-o", "--output", metavar="FILE", help=f"file to write (default: <id>{PACKED})")
    pruning = actions.add_parser("prune", description="remove old runs and builds; without --yes only list them")
    prune.add_arguments(pruning)
    for action in (packing, pruning):  # a default would replace the value that stands before the action
        action.add_argument("--profiles", default=argparse.SUPPRESS, metavar="DIR", help="recorded runs")
        action.add_argument("-q", "--quiet", default=argparse.SUPPRESS, action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action is None:
        return _list(arguments)
    if arguments.records or arguments.format != "table":
        raise UsageError(f"runs {arguments.action}: expected no --records and --format, which only the list has")
    return prune.run(arguments) if arguments.action == "prune" else _pack(arguments)


def _pack(arguments: argparse.Namespace) -> int:
    folder = lookup.find(Path(arguments.profiles), arguments.recorded)
    record = store.read(folder)
    file = Path(arguments.output or f"{record.id}{PACKED}")
    if not file.name.endswith(PACKED):  # --records looks for such names in a folder
        raise UsageError(f"-o {file}: expected a name that ends in {PACKED}")
    data = packed(folder) if isinstance(folder, Path) else Path(folder.root.filename).read_bytes()  # type: ignore[attr-defined]
    make_folder(file.parent)
    write_atomically(file, data)
    print(f"{file}: run {record.id} of {record.suite.name}, {record.gpu or 'no GPU'}; {len(data) / 1e6:,.1f} MB")
    return Exit.OK


def _list(arguments: argparse.Namespace) -> int:
    places = options.places(arguments)
    if not any(map(Path.exists, places)) and arguments.profiles != options.default("profiles"):
        raise UsageError(f"{arguments.profiles}: expected a folder of runs, found none\n  hint: correct its name")
    recorded = Index(places).runs()
    if arguments.format == "json":
        print(output.document(runs=[run._asdict() for run in recorded]))
    elif recorded:
        head = ("run", "suite", "GPU", "variants", "checked", "timed", "profiled")
        print(grid(head, [[r.id, r.suite, r.gpu or "none", *map(str, r[6:10])] for r in recorded]))
    else:
        print(f"{arguments.profiles}: no recorded run; `flashcore profile` records one, `flashcore import` reads one")
    return Exit.OK
