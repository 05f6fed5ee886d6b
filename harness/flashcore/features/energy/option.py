"""``flashcore bench --energy``."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--energy",
        dest="measurements",
        action="append_const",
        const="energy",
        default=argparse.SUPPRESS,
        help="also measure each case's energy, 3 s a case",
    )


def run(_: argparse.Namespace) -> None:
    """Does nothing: the command's settings include the option."""
