"""Code shared by the benchmarks: each writes its measurements to a file and computes its figures from that file only.

``python -m benchmarks.NAME --json FILE`` measures, writes and prints; ``--from FILE`` only prints the
file's figures. `benchmarks/results/README.md` lists the figures and their files.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import Exit, FlashcoreError, UsageError

Results = Mapping[str, Any]
ROOT = Path(__file__).parent.parent
#: The committed results of a folder: ``tar -rf raw.tar FILE`` adds one, and the last of a name counts.
ARCHIVE = "raw.tar"


def main(
    module: str,
    doc: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    table: Callable[[Results], list[str]],
    argv: Sequence[str] | None = None,
    verdict: Callable[[Results], int] = lambda _: Exit.OK,
) -> int:
    """Measures or reads results, writes them if a file is given, and prints their table. Returns the exit code.

    Args:
        measure: returns raw results that JSON can express: samples, not their medians.
        table: the figures as lines of text, from the results only.
        verdict: the exit code for the results.
    """
    name = Path(module).stem
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").split("\n", 1)[0])
    add_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="write the raw results")
    parser.add_argument("--from", dest="source", metavar="FILE", help="do not measure: print the figures of FILE")
    options = parser.parse_args(argv)
    try:
        if options.source:
            results = read(Path(options.source), name)
        else:
            results = measure(options)
            if options.json:
                write(Path(options.json), name, options, results)
        print("\n".join(table(results)))
    except FlashcoreError as error:
        print(f"benchmarks.{name}: {error}", file=sys.stderr)
        return int(error.exit_code)
    return int(verdict(results))


def write(path: Path, name: str, options: argparse.Namespace, results: Results) -> None:
    """Writes the results with the arguments, the commit and the time."""
    requested = {k: v for k, v in vars(options).items() if k not in ("json", "source") and v is not None}
    whole = {"benchmark": name, "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "sources": _sources(),
             "arguments": requested, "found": results}  # fmt: skip
    data = (json.dumps(whole, indent=1) + "\n").encode()
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)


def recorded(folder: Path) -> list[Path]:
    """The results files of a folder, also those in its archive, by name."""
    with tarfile.open(folder / ARCHIVE) as archive:
        packed = {folder / name for name in archive.getnames()}
    return sorted(packed | {*folder.glob("*.json*")})


def opened(path: Path) -> dict[str, Any]:
    """Reads a results file, compressed if its name ends in ``.xz``, with its benchmark's name and sources. One that
    is not there is read from the archive beside it."""
    if path.is_file() or not path.with_name(ARCHIVE).is_file():
        data = path.read_bytes()
    else:
        with tarfile.open(path.with_name(ARCHIVE)) as archive:
            file = archive.extractfile(path.name)
            assert file is not None, "the archive has files only"
            data = file.read()
    return dict(json.loads(lzma.decompress(data) if path.suffix == ".xz" else data))


def read(path: Path, name: str) -> dict[str, Any]:
    """Reads the results of a benchmark of that name.

    Raises:
        UsageError: that benchmark did not write the file.
    """
    try:
        whole = opened(path)
        if whole["benchmark"] == name:
            return dict(whole["found"])
        other = f"one of {whole['benchmark']}"
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError, RecursionError) as error:
        other = f"{type(error).__name__}: {error}"
    raise UsageError(f"{path}: expected raw data of benchmarks.{name}, found {other}")


def _sources() -> str:
    """The commit, marked if the tree differs from it; empty without git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine(*more: str) -> str:
    """Describes the machine: ``more``, processors, load and Python, without the host's name."""
    processors = f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}"
    return ", ".join([*more, processors])
