"""Writes the report of recorded runs, including plugins' pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore import report
from flashcore.model.record import Record
from flashcore.pipeline import plugins
from flashcore.pipeline.judging import Judged
from flashcore.report.view import Book
from flashcore.suites.find import of_project


@dataclass(frozen=True, slots=True)
class ReportTarget:
    """A report's folder (``None``: ``reports/<run>``) and form: one HTML file or a folder of pages."""

    folder: str | None
    single_file: bool


def write(
    target: ReportTarget, judged: Judged, against: Record | None = None, *, places: Sequence[Path] = ()
) -> list[Path]:
    """Writes the pages of a run; returns their paths, the entry page first. See :func:`flashcore.report.render`."""
    folder = Path(target.folder or Path(of_project("reports")) / judged.record.id)
    return report.render(
        Book(judged.record, judged.judgement, against, places),
        folder,
        single_file=target.single_file,
        pages=[make for _, make in plugins.pages()],
    )
