"""``flashcore diff``: what changed."""

from __future__ import annotations

import argparse

from flashcore.cli import options
from flashcore.errors import Exit

HELP = "what changed between two runs or git revisions (built here, without a GPU)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a run's id or folder, a git revision, or . for the working tree")
    parser.add_argument("b", metavar="B", nargs="?", default=".", help="likewise (default: %(default)s)")
    options.add_cases(parser)


def run(arguments: argparse.Namespace) -> int:
    from flashcore.cli import progress, text_tables
    from flashcore.revisions import checkout

    settings = options.settings(arguments, upto=None)
    with progress.shown(arguments.quiet) as say:
        a, b = (checkout.record(name, settings, say) for name in (arguments.a, arguments.b))
    print(text_tables.difference(a, b))
    return Exit.OK
