"""``flashcore list``: what a suite declares, the catalogue of facts, and the form of manifests."""

from __future__ import annotations

import argparse

from flashcore.cli import options
from flashcore.errors import Exit

HELP = "list a suite's variants, shapes and budgets"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_suite(parser)
    parser.add_argument("--facts", action="store_true", help="list every fact's name, unit and meaning instead")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of manifests instead")


def run(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables
    from flashcore.manifest.find import suite_folder
    from flashcore.manifest.load import load

    if arguments.schema:
        from flashcore.manifest.schema import schema_text

        print(schema_text(), end="")
        return Exit.OK
    print(text_tables.facts() if arguments.facts else text_tables.suite(load(suite_folder(arguments.suite))))
    return Exit.OK
