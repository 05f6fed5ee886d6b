"""``flashcore profile --sanitize``."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sanitize", action="store_true", help="also run every variant under compute-sanitizer")


def run(_: argparse.Namespace) -> None:
    """Does nothing: the command's settings include the option."""
