"""``flashcore metrics``: lists a chip's metrics."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from flashcore.chips.metric_tables import lookup
from flashcore.chips.metric_tables.lookup import Table
from flashcore.errors import Exit, UsageError
from flashcore.measure.machine.gpu import Gpu
from flashcore.model.catalogue import CHIPS
from flashcore.plugins.metrics import metric_lists

EXAMPLES = (
    ("flashcore metrics --chip gh100", "what an H100 or H200 can count"),
    ("flashcore metrics --chip gh100 dram_read_bytes", "one fact"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="facts that must exist there (default: list all)")
    parser.add_argument("--chip", metavar="CHIP", help="as ncu names it: gh100, ad104, ga102 (default: this GPU's)")
    text = "ask ncu, or nvidia-cuda-cupti, for the chip's table, and write it into --table FILE"
    parser.add_argument("--learn", action="store_true", help=text)
    parser.add_argument("--table", metavar="FILE", help="read or, with --learn, write this table")


def run(arguments: argparse.Namespace) -> int:
    file = Path(arguments.table) if arguments.table else None
    if arguments.learn and file is None:
        raise UsageError(
            "--learn: expected together with --table FILE, the table to write, found it alone\n"
            "  hint: `flashcore metrics --chip CHIP --table FILE` then reads it"
        )
    gpu = None if arguments.chip else Gpu.find()
    chip = arguments.chip or (CHIPS.get(gpu.capability) if gpu else None)
    if chip is None:
        raise UsageError(f"no GPU here: expected --chip, one of {', '.join(lookup.chips())}")
    if arguments.learn and file is not None:
        print(metric_lists.learn(chip, file))
        return Exit.OK
    table = lookup.table(chip, file)
    lookup.require(table, arguments.names)
    print(as_text(table, arguments.names))
    return Exit.OK


def as_text(table: Table, names: Collection[str] = ()) -> str:
    """The plan as text: the facts that the chip lacks, then every name."""
    rows = [row for row in lookup.plan(table) if not names or row.spec.name in names]
    lost = [row for row in rows if row.state == "lost"]
    width = max((len(row.spec.name) for row in rows), default=0)
    counted = {s: sum(r.state == s for r in rows) for s in ("exists", "software", "derived", "lost")}
    lines = [f"missing on {table.chip} ({len(lost)})"] if lost else []
    lines += [f"  {row.spec.name:{width}}  {row.reason}: {row.spec.why}" for row in lost]
    lines += ["", f"{table.chip} ({len(rows) - len(lost)})"]
    remarks = {"exists": "", "software": "  (by ncu itself)", "derived": ""}
    lines += [
        f"  {row.spec.name:{width}}  {row.ncu or 'made of others'}{remarks[row.state]}"
        for row in rows
        if row.state != "lost"
    ]
    total = ", ".join(f"{n} {s}" for s, n in counted.items() if n)
    return "\n".join([*lines, "", f"{table.chip}: {total}", f"by {table.source}"]).lstrip("\n")
