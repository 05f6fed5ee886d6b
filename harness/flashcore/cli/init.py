"""``flashcore init``: a new suite."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.errors import Exit
from flashcore.suites import template


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR")


def run(arguments: argparse.Namespace) -> int:
    for path in template.write(Path(arguments.folder)):
        print(path)
    print(f"next: flashcore build --suite {arguments.folder}")
    return Exit.OK
