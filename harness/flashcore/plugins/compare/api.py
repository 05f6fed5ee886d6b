"""The public API: two runs compared, as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flashcore import frames
from flashcore.api import recorded
from flashcore.explain import diff
from flashcore.plugins.compare import differences

if TYPE_CHECKING:
    from pandas import DataFrame

    from flashcore.api import Run


class ComparedRuns(NamedTuple):
    """What changed from one run to another.

    ``static`` has a row per :class:`~flashcore.explain.diff.Change`, and is exact. ``times`` has a row per
    :class:`~flashcore.explain.diff.TimeChange`, shown and not judged, since machines and days differ; none where the
    runs are not of one suite and GPU. ``remarks`` say why the comparison may mislead.
    """

    static: DataFrame
    times: DataFrame
    remarks: tuple[str, ...]


def compare(a: Run, b: Run) -> ComparedRuns:
    """What changed from ``a`` to ``b``.

    Raises:
        UsageError: one of them is no run.
    """
    before, after = recorded(a), recorded(b)
    static = frames.frame(diff.Change, diff.changes(before, after))
    times = [] if diff.comparable(before, after) else differences.timing(before, after)
    return ComparedRuns(static, frames.frame(diff.TimeChange, times), tuple(differences.remarks(before, after)))
