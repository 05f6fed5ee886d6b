"""``flashcore list``: what a suite declares, the catalogue of facts, and the form of manifests."""

from __future__ import annotations

import argparse

from flashcore.cli import options, output, text_tables
from flashcore.cli.output import picked
from flashcore.errors import Exit
from flashcore.model.catalogue import FACTS
from flashcore.model.suite import Suite, Variant, manifest_keys
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_suite(parser)
    parser.add_argument("--facts", action="store_true", help="list every fact's name, unit and meaning instead")
    output.add_format(parser)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of manifests instead")


def run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        from flashcore.suites.schema import schema_text  # imports pydantic

        print(schema_text(), end="")
        return Exit.OK
    json = arguments.format == "json"
    if arguments.facts:
        names = ("name", "unit", "tier", "better", "ncu", "why")
        print(output.document(facts=[picked(f, *names) for f in FACTS.values()]) if json else text_tables.facts())
        return Exit.OK
    suite = load(suite_folder(arguments.suite))
    print(as_json(suite) if json else text_tables.suite(suite))
    return Exit.OK


def as_json(suite: Suite) -> str:
    """``suite``, ``variants``, ``shapes`` and ``budgets``, each with its entries in the manifest; limits are in
    ``unit``, and ``null`` where there is none. With ``--facts`` it is only ``facts``."""
    limits = ("name", "fact", "minimum", "maximum", "unit", "tier", "severity", "source", "device")
    ways = ("name", "problem", "parent", "technique", "roof", "tolerance")
    return output.document(
        suite=picked(suite, "name", "title", "root", "nvcc", "archs", "baseline"),
        variants=[picked(v, *ways) | _kind(v) | picked(v.where, "archs", "shapes") for v in suite.variants.values()],
        shapes=[picked(s, "name", "problem", "params", "stages") for s in suite.shapes.values()],
        budgets=[picked(b, *limits) | picked(b, "variants", "archs", "shapes", "kernels") for b in suite.budgets],
    )


def _kind(variant: Variant) -> dict[str, object]:
    keys = manifest_keys(variant.kind)
    return {"source": keys.get("source"), "callable": keys.get("callable"), "is_peer": variant.is_reference}
