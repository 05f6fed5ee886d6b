"""``flashcore diff`` of git revisions, which are built here."""

from __future__ import annotations

import argparse

from flashcore.cli import diff
from flashcore.plugins.against import checkout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds none: a revision is another name for what the command compares."""


def run(arguments: argparse.Namespace) -> int:
    return diff.compare(arguments, checkout.record)
