"""``flashcore pack``: a recorded run as one file, for a machine that gates."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from flashcore.records.lookup import PACKED

    options.add_run(parser)
    parser.add_argument("--profiles", default=options.default("profiles"), metavar="DIR",
                        help="recorded runs (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help=f"file to write (default: <id>{PACKED})")


def run(arguments: argparse.Namespace) -> int:
    from flashcore.model.files import write_atomically, writing
    from flashcore.records import lookup, pack, store

    found = lookup.find(Path(arguments.profiles), arguments.recorded)
    if not isinstance(found, Path):
        raise UsageError(f"{arguments.recorded}: expected a run's id or folder, found a packed run")
    record = store.read(found)
    file = Path(arguments.output or f"{record.id}{lookup.PACKED}")
    if not file.name.endswith(lookup.PACKED):  # --records looks for such names in a folder
        raise UsageError(f"-o {file}: expected a name that ends in {lookup.PACKED}")
    data = pack.packed(found)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, data)
    print(f"{file}: run {record.id} of {record.suite.name}, {record.gpu or 'no GPU'}; {len(data) / 1e6:,.1f} MB")
    return Exit.OK
