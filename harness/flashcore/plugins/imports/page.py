"""The overview of imported kernels, which replaces that of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashcore.explain.advice import advice
from flashcore.model.suite import ImportedKernel
from flashcore.plugins.imports import kernels
from flashcore.report.view import INDEX, Book, Page

TEMPLATE = Path(__file__).with_name("overview.html.j2")


def page(book: Book) -> Page[dict[str, Any]] | None:
    """The page ``index``; ``None`` unless all kernels were imported, and of a capture, which measures a few launches of
    each kernel: their times do not add up to the command's."""
    suite = book.record.suite
    if suite.notes or not all(isinstance(variant.kind, ImportedKernel) for variant in suite.variants.values()):
        return None
    rows = kernels.rows(book.readings)
    steps = advice(book.readings, rows[0].variant, rows[0].shape)
    view = {"rows": rows, "ranges": kernels.ranges(book.record), "steps": steps}
    return Page(INDEX, "Overview", str(TEMPLATE), view)
