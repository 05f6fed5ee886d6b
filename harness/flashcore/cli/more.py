"""``flashcore more``: the commands that ``flashcore --help`` does not show."""

from __future__ import annotations

import argparse

from flashcore.cli import main
from flashcore.errors import Exit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds none."""


def run(_: argparse.Namespace) -> int:
    print(main.listed(sorted(main.all_commands().keys() - {*main.SHOWN})))
    return Exit.OK
