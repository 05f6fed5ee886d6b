"""``flashcore pack``: a recorded run as one file, for a machine that gates."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit, UsageError
from flashcore.model.files import write_atomically, writing
from flashcore.plugins.pack import pack
from flashcore.records import lookup, store
from flashcore.records.lookup import PACKED

EXAMPLES = (
    ("flashcore pack", "the newest run"),
    ("flashcore pack 20260103 -o gpu.run.zip", "a run, under this name"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_profiles(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help=f"file to write (default: <id>{PACKED})")


def run(arguments: argparse.Namespace) -> int:
    folder = lookup.find(Path(arguments.profiles), arguments.recorded)
    if not isinstance(folder, Path):
        raise UsageError(f"{arguments.recorded or folder.name}: expected a run's id or folder, found a packed run")
    record = store.read(folder)
    file = Path(arguments.output or f"{record.id}{PACKED}")
    if not file.name.endswith(PACKED):  # --records looks for such names in a folder
        raise UsageError(f"-o {file}: expected a name that ends in {PACKED}")
    data = pack.packed(folder)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, data)
    print(f"{file}: run {record.id} of {record.suite.name}, {record.gpu or 'no GPU'}; {len(data) / 1e6:,.1f} MB")
    return Exit.OK
