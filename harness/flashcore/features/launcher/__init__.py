"""``--launcher``: kernels are launched from their cubins and a plan, without their host code."""

from __future__ import annotations

import argparse

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="launcher", options=dict.fromkeys(("check", "bench", "profile"), __name__))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--launcher",
        action="store_const",
        const="flashcore.features.launcher.program:target",
        default="",
        help="launch kernels of languages from their cubins and recorded plans, not from their host code",
    )


def run(_: argparse.Namespace) -> None:
    """Leaves the run to the command, whose settings have the option."""
