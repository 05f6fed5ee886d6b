"""Writes the report of recorded runs, including plugins' pages and sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore import report
from flashcore.gate.baseline import Baseline
from flashcore.model.record import Record
from flashcore.model.suite import Tier
from flashcore.pipeline import plugins
from flashcore.pipeline.judging import today
from flashcore.suites.find import of_project


@dataclass(frozen=True, slots=True)
class Target:
    """A report's folder (``None``: ``reports/<run>``) and form: one HTML file or a folder of pages."""

    folder: str | None
    single_file: bool


def write(
    target: Target,
    records: Sequence[Record],
    *,
    require: Tier,
    baseline: Baseline | None = None,
    against: Record | None = None,
) -> list[Path]:
    """Writes the pages of a run, or of runs on several chips; returns their paths, the entry page first. See
    :func:`flashcore.report.render`."""
    first, *others = records
    name = "+".join([first.id, *(r.id.rpartition("-")[2] for r in others)])
    folder = Path(target.folder or Path(of_project("reports")) / name)
    return report.render(
        first,
        folder,
        single_file=target.single_file,
        require=require,
        today=today(),
        baseline=baseline,
        against=against,
        others=others,
        pages=[make for _, make in plugins.objects("pages")],
        sections=plugins.objects("sections"),
    )
