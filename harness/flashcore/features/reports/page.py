"""The overview of imported kernels, which replaces a suite's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashcore.explain.advice import advice
from flashcore.explain.limiter import time_parts
from flashcore.features.reports import kernels, traces
from flashcore.model.case import Case
from flashcore.model.suite import ImportedKernel
from flashcore.model.text import fixed
from flashcore.report.cells import Cell, missing, number_cell, whole_cell
from flashcore.report.overview_page import MOST_STEPS
from flashcore.report.view import INDEX, Book, Page

TEMPLATE = Path(__file__).with_name("overview.html.j2")


def page(book: Book) -> Page[dict[str, Any]] | None:
    """The page ``index``; ``None`` unless all are imported kernels. Also ``None`` for benchmarks, and for a capture
    without a recorded survey: the few measured launches of each kernel do not add up to the command's."""
    suite, surveyed = book.record.suite, bool(book.record.facts.named(traces.COUNT))
    imported = all(isinstance(variant.kind, ImportedKernel) for variant in suite.variants.values())
    rows = kernels.rows(book.readings) if imported and (surveyed or not suite.notes) else ()
    if not rows:
        return None
    case = (book.readings, Case(rows[0].variant, rows[0].shape))
    steps, time = (advice(*case), time_parts(*case)) if rows[0].variant else ((), None)
    kernel = suite.variants.get(rows[0].variant)
    alone = kernel and sum(map(kernel.runs_on, suite.shapes.values())) == 1  # its gain is that of all its launches
    view = {
        "rows": rows,
        "figures": lambda row: [*_figures(row), _limiter(row)],
        "ranges": [[Cell("\u2003" * row.depth + row.name), *_figures(row)] for row in kernels.ranges(book.record)],
        "steps": steps[:MOST_STEPS],
        "share": rows[0].percent if alone else None,
        "whole_time": time if time and time.timed else None,
        "surveyed": surveyed,
    }
    return Page(INDEX, "Overview", str(TEMPLATE), view, tables=kernels.tables(book.readings))


def _figures(row: kernels.KernelRow) -> list[Cell]:
    """The number of launches, their time, its share."""
    why = row.us_reason or ""
    return [
        whole_cell(row.launches),
        missing(why) if row.us is None else number_cell(row.us, 4),
        missing(why) if row.percent is None else Cell(fixed(row.percent), sort=row.percent, kind="number"),
    ]


def _limiter(row: kernels.KernelRow) -> Cell:
    if row.limited_by is None:
        return missing(row.limited_by_reason or "")
    return Cell(row.limited_by, title=f"at {row.shape}", kind="small")
