"""The Python API's comparison of two runs, as data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flashcore import frames
from flashcore.api import recorded
from flashcore.explain import compare_records
from flashcore.explain.comparison import Change, Difference

if TYPE_CHECKING:
    from pandas import DataFrame

    from flashcore.api import Run


class ComparedRuns(NamedTuple):
    """What changed from one run to another.

    ``summary`` has the numbers of slower and faster cases and of changed kernels. ``cases`` has a row for each case,
    what changed most first; identical shapes are one case. Its time is that of ``mode``. Without an interval it is
    shown and not judged, since machines and days differ. ``changes`` has each time, the counters that changed with a
    time, and the facts of kernels, which are exact. ``notes`` say why the comparison may mislead.
    """

    summary: str
    cases: DataFrame
    changes: DataFrame
    notes: tuple[str, ...]


def compare(a: Run, b: Run) -> ComparedRuns:
    """Returns what changed from ``a`` to ``b``.

    Raises:
        UsageError: one of them is no run.
    """
    comparison = compare_records.compare(recorded(a), recorded(b))
    return ComparedRuns(
        comparison.summary,
        frames.frame(Difference, comparison.cases),
        frames.frame(Change, [change for row in comparison.rows for change in row.changes]),
        tuple(comparison.notes),
    )
