"""What the benchmarks share: what one measured goes into a file, and its figures are made of that file alone.

``python -m benchmarks.NAME --json FILE`` measures, writes and prints; ``--from FILE`` measures nothing and prints
the same figures out of the file. `benchmarks/results/README.md` says which figure comes from which.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import Exit, FlashcoreError, UsageError

Found = Mapping[str, Any]
ROOT = Path(__file__).parent.parent


def main(
    module: str,
    doc: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    table: Callable[[Found], list[str]],
    argv: Sequence[str] | None = None,
    verdict: Callable[[Found], int] = lambda _: Exit.OK,
) -> int:
    """Measures (or reads what was measured), writes it where it is to go, and prints its table; the exit code.

    Args:
        measure: gives what can be written as JSON, raw: samples, not their medians.
        table: the figures, of what was measured and nothing else.
        verdict: the exit code of what was measured.
    """
    name = Path(module).stem
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").split("\n", 1)[0])
    add_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="write what was measured, raw")
    parser.add_argument("--from", dest="source", metavar="FILE", help="measure nothing: print the figures of FILE")
    options = parser.parse_args(argv)
    try:
        if options.source:
            found = read(Path(options.source), name)
        else:
            found = measure(options)
            if options.json:
                write(Path(options.json), name, options, found)
        print("\n".join(table(found)))
    except FlashcoreError as error:
        print(f"benchmarks.{name}: {error}", file=sys.stderr)
        return int(error.exit_code)
    return int(verdict(found))


def write(path: Path, name: str, options: argparse.Namespace, found: Found) -> None:
    """Writes what was measured, with what it was asked for, of which sources and when."""
    asked = {k: v for k, v in vars(options).items() if k not in ("json", "source") and v is not None}
    whole = {"benchmark": name, "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "sources": _sources(),
             "arguments": asked, "found": found}  # fmt: skip
    data = (json.dumps(whole, indent=1) + "\n").encode()
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)


def opened(path: Path) -> dict[str, Any]:
    """A results file, which xz compresses if its name ends in ``.xz``, with its benchmark's name and sources."""
    data = path.read_bytes()
    return dict(json.loads(lzma.decompress(data) if path.suffix == ".xz" else data))


def read(path: Path, name: str) -> dict[str, Any]:
    """What a benchmark of that name measured.

    Raises:
        UsageError: the file is not what it wrote.
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
    """The commit, and whether the tree differs from it; empty where there is no git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine(*more: str) -> str:
    """Processors, their load and Python, and what else is named; no name of the host."""
    own = f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}"
    return ", ".join([*more, own])
