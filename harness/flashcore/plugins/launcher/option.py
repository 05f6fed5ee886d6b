"""``--launcher``: kernels whose plan is known are launched from it, without their host code."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--launcher",
        action="store_const",
        const="flashcore.plugins.launcher.planned:target",
        default="",
        help="launch kernels of languages from their cubins and recorded plans, not from their host code",
    )


def run(_: argparse.Namespace) -> None:
    """Leaves the run to the command, whose settings have the option."""
