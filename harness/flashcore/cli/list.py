"""``flashcore list``: a suite's variants, shapes and budgets, the catalogue of facts, or the schema of manifests."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from flashcore.build.nvcc_command import compile_flags
from flashcore.cli import options, output
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.groups import grouped, picked
from flashcore.model.suite import Cuda, Suite, Variant, manifest_keys
from flashcore.model.text import count
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load, narrowed

EXAMPLES = (
    ("flashcore list", "the suite of this folder, or of kernels/"),
    ("flashcore list --facts", "every fact that budgets can name"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_suite(parser)
    options.add_selection(parser)
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
        print(output.document(facts=[picked(f, *names) for f in FACTS.values()]) if json else facts_table())
        return Exit.OK
    suite = load(suite_folder(arguments.suite))
    suite = narrowed(suite, **options.selected(arguments))
    print(as_json(suite) if json else suite_table(suite))
    return Exit.OK


def as_json(suite: Suite) -> str:
    """``suite``, ``variants``, ``shapes`` and ``budgets``, with the manifest's entries. Limits are in ``unit``, or
    ``null``. With ``--facts`` only ``facts``."""
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
    return {
        "source": keys.get("source"),
        **picked(variant, "flags", "libraries", "packages"),
        "callable": keys.get("callable"),
        "is_reference": variant.is_reference,
    }


def suite_table(declared: Suite) -> str:
    """A suite's variants, shapes and budgets."""
    variants = [
        (
            v.name,
            v.parent or "-",
            v.origin,
            ", ".join(v.where.archs),
            v.technique,
        )
        for v in declared.variants.values()
    ]
    shapes = [(s.name, s.params_text, ", ".join(s.stages)) for s in declared.shapes.values()]
    budgets = []
    for b in declared.budgets:
        limits = ("-" if limit is None else f"{limit:g}" for limit in (b.minimum, b.maximum))
        budgets.append((b.name, b.fact, *limits, b.unit, b.tier, b.severity, b.source))
    return "\n\n".join(
        [
            f"{declared.name}: {declared.title}",
            grid(("variant", "parent", "source", "archs", "technique"), variants),
            grid(("shape", "parameters", "stages"), shapes),
            *_commands(declared),
            grid(("budget", "fact", "min", "max", "unit", "tier", "severity", "source"), budgets),
        ]
    )


def _commands(declared: Suite) -> Iterator[str]:
    """nvcc's command for the first of the variants that have the same flags, libraries and packages."""
    compiled = [v for v in declared.variants.values() if isinstance(v.kind, Cuda)]
    for first, *more in grouped(((v.flags, v.libraries, v.packages), v) for v in compiled).values():
        archs = [arch for arch in declared.archs if arch in first.where.archs] or [*first.where.archs]
        words = ["nvcc", *compile_flags(declared, first, archs[-1], debug=False), "-cubin", first.kind.file]
        others = f"; {count(len(more), 'variant')} more, with other names, sources and macros" if more else ""
        yield f"# {', '.join(archs)}{others}\n{shlex.join(words)}"


def facts_table() -> str:
    """Every fact's name, unit, tier and meaning."""
    rows = [(s.name, s.unit, s.tier or "-", s.ncu or "-", s.why) for s in FACTS.values()]
    rows.append((f"{PHASE_SHARE}<phase>", "pct", "counters", "-", "share of warp samples in a marked phase"))
    return grid(("fact", "unit", "tier", "ncu metric", "meaning"), rows)
