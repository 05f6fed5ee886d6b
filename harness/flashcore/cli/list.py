"""``flashcore list``: what a suite declares, the catalogue of facts, and the form of manifests."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flashcore.cli import documents, options
from flashcore.cli.documents import picked
from flashcore.errors import Exit

if TYPE_CHECKING:
    from flashcore.model.suite import Suite

HELP = "list a suite's variants, shapes and budgets"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_suite(parser)
    parser.add_argument("--facts", action="store_true", help="list every fact's name, unit and meaning instead")
    documents.add_format(parser)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of manifests instead")


def run(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables
    from flashcore.manifest.find import suite_folder
    from flashcore.manifest.load import load

    if arguments.schema:
        from flashcore.manifest.schema import schema_text

        print(schema_text(), end="")
        return Exit.OK
    json = arguments.format == "json"
    if arguments.facts:
        print(facts_as_json() if json else text_tables.facts())
        return Exit.OK
    suite = load(suite_folder(arguments.suite))
    print(as_json(suite) if json else text_tables.suite(suite))
    return Exit.OK


def as_json(suite: Suite) -> str:
    """``suite``, ``variants``, ``shapes`` and ``budgets``, each with what the manifest says of it; limits are in
    ``unit``, and ``null`` where there is none."""
    limits = ("name", "fact", "minimum", "maximum", "unit", "tier", "severity", "source", "device")
    ways = ("name", "problem", "parent", "source", "callable", "technique", "roof", "tolerance", "is_peer")
    return documents.document(
        suite=picked(suite, "name", "title", "root", "nvcc", "archs", "baseline"),
        variants=[picked(v, *ways) | picked(v.where, "archs", "shapes") for v in suite.variants.values()],
        shapes=[picked(s, "name", "problem", "params", "stages") for s in suite.shapes.values()],
        budgets=[picked(b, *limits) | picked(b, "variants", "archs", "shapes", "kernels") for b in suite.budgets],
    )


def facts_as_json() -> str:
    """``facts``: of each its ``name``, ``unit``, ``tier``, what is ``better``, ncu's name and why one looks at it."""
    from flashcore.model.catalogue import FACTS

    names = ("name", "unit", "tier", "better", "ncu", "why")
    return documents.document(facts=[picked(spec, *names) for spec in FACTS.values()])
