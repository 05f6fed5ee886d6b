"""The overview page of binaries: spills, the largest kernels, and code size by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.features.audit.kernels import Group, groups
from flashcore.model.groups import grouped
from flashcore.model.suite import Binary
from flashcore.report.cells import Cell, missing, whole_cell
from flashcore.report.view import INDEX, Book, Page, variant_cell

TEMPLATE = Path(__file__).with_name("overview.html.j2")
COLUMNS = {
    "registers": "registers",
    "spill_store_bytes": "spill stores",
    "spill_load_bytes": "spill loads",
    "stack_bytes": "stack",
    "static_smem": "shared memory",
    "code_bytes": "code",
}
HEADS = [
    *("kernel", "file", "arch", "kernels"),
    *((title, "" if name == "registers" else "B") for name, title in COLUMNS.items()),
    ("all code", "B"),
]
_ROWS = 20
_TILES = 24  # per file and arch; the rest is one tile


def page(book: Book) -> Page[dict[str, Any]] | None:
    """The page ``index`` of a record whose variants are all compiled files; else ``None``."""
    paths = {name: v.kind.name for name, v in book.record.suite.variants.items() if isinstance(v.kind, Binary)}
    if len(paths) < len(book.record.suite.variants):
        return None
    failed = book.judgement.failed
    every = groups(book.record)
    spills = [spilled for group in every for spilled in group.spills]
    largest = sorted(every, key=lambda group: -group.code_bytes)
    places = grouped(((group.worst.variant, group.worst.arch or ""), group) for group in largest)
    tree = [(*place, _tiles(of)) for place, of in places.items()]
    view = {
        "kernels": len(spills),
        "spilling": sum(bool(spilled) for spilled in spills),
        "unmeasured": spills.count(None),
        "worst": [group for group in every if any(spilled != 0 for spilled in group.spills)][:_ROWS],
        "largest": largest[:_ROWS],
        "tree": tree,
        "most_code": max((sum(size for *_, size in tiles) for *_, tiles in tree), default=0.0) or 1.0,
        "paths": paths,
        "failures": len(failed),
        "failed": failed[:3],
        "heads": HEADS,
        "rows": lambda groups: [_row(group, paths) for group in groups],
    }
    return Page(INDEX, "Overview", str(TEMPLATE), view)


def _row(group: Group, paths: Mapping[str, str]) -> list[Cell]:
    """A template's kernels: the worst one's facts, and the code of all."""
    variant, facts = group.worst.variant, [group.facts[name] for name in COLUMNS]
    return [
        Cell(group.name),
        replace(variant_cell(variant), text=paths[variant]),
        Cell(group.worst.arch or ""),
        whole_cell(len(group.spills)),
        *(missing(f.note) if f.number is None else whole_cell(f.number) for f in facts),
        whole_cell(group.code_bytes),
    ]


def _tiles(of: Sequence[Group]) -> list[tuple[str, int, float]]:
    """Name, number of kernels and bytes of the largest templates, and of the others together."""
    tiles = [(group.name, len(group.spills), group.code_bytes) for group in of[:_TILES]]
    rest = of[_TILES:]
    others = (f"{len(rest)} others", sum(len(g.spills) for g in rest), sum(g.code_bytes for g in rest))
    return [*tiles, others] if rest else tiles
