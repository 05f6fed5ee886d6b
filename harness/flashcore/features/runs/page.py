"""The page *History*: the recorded runs of the suite, each with its fastest variant on every shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore.explain.rows import Row
from flashcore.records.index import Index, RunSummary, TimePoint, count
from flashcore.report.cells import Cell, Table, missing, number_cell, whole_cell
from flashcore.report.view import MAX_SHAPES, Book, Page, variant_cell

#: The newest runs that are shown, and of them those that are not folded.
MOST_RUNS, UNFOLDED = 100, 10


@dataclass(frozen=True)
class History:
    """The page's content."""

    book: Book
    runs: Sequence[RunSummary]
    points: Sequence[TimePoint]
    unfolded = UNFOLDED

    @property
    def tables(self) -> list[tuple[Row | None, Table]]:
        """The runs, newest first, for each row of identical shapes that any of them timed; if none did, once."""
        timed = [(row, fastest) for row in self.book.rows[:MAX_SHAPES] if (fastest := self._fastest(row))]
        return [(row, list(self._rows(fastest))) for row, fastest in timed] or [(None, list(self._rows({})))]

    def _fastest(self, row: Row) -> dict[str, TimePoint]:
        """Run → its fastest case."""
        names, same = {s.name for s in row.shapes}, (json.dumps(row.shape.params, sort_keys=True), row.shape.rank_by)
        ours = (p for p in self.points if p.shape in names and (p.params, p.mode) == same and not p.reference)
        return {p.run: p for p in sorted(ours, key=lambda p: -p.value)}

    def _rows(self, fastest: dict[str, TimePoint]) -> Iterator[list[Cell]]:
        this = self.book.record
        now = fastest.get(this.id)
        for run in self.runs[:MOST_RUNS]:
            point = fastest.get(run.id)
            best = [missing("it timed no variant here")] * 3
            if point is not None:
                known = point.variant in this.suite.variants
                name = variant_cell(point.variant, shape=point.shape) if known else Cell(point.variant)
                ratio = missing("the runs are of different GPUs")
                if now is None:
                    ratio = missing("this run timed no variant here")
                elif now.gpu == point.gpu:
                    ratio = number_cell(point.value / now.value)
                best = [name, number_cell(point.value), ratio]
            yield [
                Cell(run.id, title=run.command, kind="mono", detail="this run" if run.id == this.id else ""),
                Cell(f"{(run.commit or 'unknown')[:12]}{'+' * bool(run.dirty)}", kind="mono"),
                Cell(run.gpu or "none"),
                *best,
                *map(whole_cell, (run.variants, run.checked, run.timed, run.profiled)),
            ]


def page(book: Book) -> Page[History] | None:
    """The page ``history``; ``None`` if no other run of the suite is recorded."""
    if count(book.places) < 2:  # then no index is made
        return None
    index, suite = Index(book.places), book.record.suite.name
    runs = [run for run in index.runs() if run.suite == suite]
    if all(run.id == book.record.id for run in runs):
        return None
    view = History(book, runs, [p for p in index.points("time") if p.suite == suite])
    return Page("history", "History", str(Path(__file__).with_name("history.html.j2")), view)
