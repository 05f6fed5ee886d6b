"""``--launcher``: kernels are launched from their cubins and a plan, without their host code."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--launcher",
        action="store_const",
        const="flashcore_judge.launcher.program:target",
        default="",
        help="launch kernels of languages from their cubins and recorded plans, not from their host code",
    )


def run(_: argparse.Namespace) -> None:
    """Leaves the run to the command, whose settings have the option."""
