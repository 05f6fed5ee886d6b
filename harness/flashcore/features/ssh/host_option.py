"""``--host`` of the commands that record a run."""

from __future__ import annotations

import argparse

from flashcore.cli import options
from flashcore.features.ssh import HELP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_executor(parser, "host", HELP)


def run(_: argparse.Namespace) -> None:
    """Does nothing: the command's settings include the option."""
