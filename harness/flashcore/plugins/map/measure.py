"""Times a map's points as the shapes of an ordinary run: workers, GPUs, journal and resuming are those of bench."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flashcore.measure.context import Context, Say
from flashcore.measure.machine import python_process
from flashcore.measure.settings import Settings
from flashcore.model.record import Record
from flashcore.model.suite import Suite
from flashcore.pipeline import run
from flashcore.suites.load import load

CHILD = python_process.child("flashcore.plugins.map.looks")


def measured(settings: Settings, mapped: Callable[[Suite], Suite], resumed: bool, say: Say) -> list[Record]:
    """Times the points and records a run for each GPU model.

    Args:
        mapped: makes of a suite that of the map's variants and points.
        resumed: continue the newest unfinished run, with its settings; its answers for other points are left out.

    Raises:
        FlashcoreError: see :func:`flashcore.pipeline.run.runs`.
    """
    points = mapped(load(settings.suite))
    (table,) = points.tables["map"].values()

    def of_map(opened: Context) -> Context:
        suite = mapped(opened.suite)
        variants, shapes = tuple(suite.variants.values()), tuple(suite.shapes.values())
        child = lambda *files: [*CHILD(*files), *table["dispatchers"]]  # noqa: E731
        return replace(opened, suite=suite, variants=variants, shapes=shapes, resident=child)

    limits = replace(settings.bench.limits, batch=len(points.shapes))  # the first point of a process takes seconds
    settings = replace(settings, bench=replace(settings.bench, modes=(table["rank_by"],), limits=limits))
    return [one.record for one in run.runs(settings, say, resume=resumed, needed=True, changed=of_map)]
