"""Records with their judgement, as the commands give both to pages and answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from flashcore import report
from flashcore.gate.judge import judge
from flashcore.model.record import Record
from flashcore.pipeline.judging import Judged, Rules, judge_record
from flashcore.report import markdown
from flashcore.report.view import Book


def judged(record: Record) -> Judged:
    """As by ``flashcore gate RUN``."""
    return judge_record(Rules(compare=False), record)


def book_of(record: Record, other: Record | None = None) -> Book:
    return Book(record, judge(record), other)


def rendered(
    record: Record, folder: Path, *, today: date | None = None, against: Record | None = None, **options: Any
) -> list[Path]:
    """The pages of :func:`flashcore.report.render`."""
    return report.render(Book(record, judge(record, today=today), against), folder, **options)


def summarized(record: Record, *, today: date | None = None, overviews: Sequence[Any] = ()) -> str:
    return markdown.render(record, judge(record, today=today), overviews=overviews)
