"""Times a map's points as the shapes of an ordinary run: workers, GPUs, journal and resuming are those of bench."""

from __future__ import annotations

from dataclasses import replace

from flashcore.measure.context import Context, Say
from flashcore.measure.machine import python_process
from flashcore.measure.settings import Settings
from flashcore.model.record import Record
from flashcore.model.suite import Suite
from flashcore.model.text import matches_any
from flashcore.pipeline import run
from flashcore.plugins.map.table import Points

CHILD = python_process.child("flashcore.plugins.map.looks")


def measured(settings: Settings, points: Points, resumed: bool, say: Say) -> list[Record]:
    """Times the points and records a run for each GPU model.

    Args:
        resumed: continue the newest unfinished run, with its settings; its answers for other points are left out.

    Raises:
        FlashcoreError: see :func:`flashcore.pipeline.run.runs`.
    """

    def of_map(opened: Context) -> Context:
        suite = mapped(opened.suite, points)
        variants, shapes = tuple(suite.variants.values()), tuple(suite.shapes.values())
        arguments = suite.tables["map"][points.name]["dispatchers"]
        child = lambda *files: [*CHILD(*files), *arguments]  # noqa: E731
        return replace(opened, suite=suite, variants=variants, shapes=shapes, resident=child)

    shape, *_ = points.shapes.values()
    limits = replace(settings.bench.limits, batch=len(points.shapes))  # the first point of a process takes seconds
    settings = replace(settings, bench=replace(settings.bench, modes=(shape.rank_by,), limits=limits))
    return [one.record for one in run.runs(settings, say, resume=resumed, needed=True, changed=of_map)]


def mapped(suite: Suite, points: Points) -> Suite:
    """The suite of a map's variants and points. Budgets are left out: they are on the suite's shapes."""
    table = suite.tables["map"][points.name]
    variants = {
        n: replace(v, where=replace(v.where, shapes=("*",)), parent=None, predictions=())
        for n, v in suite.variants.items()
        if v.problem in table["problems"] and matches_any(n, table["variants"])
    }
    return replace(
        suite,
        problems={n: replace(p, file=table["file"] or p.file) for n, p in suite.problems.items()},
        shapes=points.shapes,
        variants=variants,
        baseline=suite.baseline if suite.baseline in variants else next(iter(variants)),
        budgets=(),
        waivers=(),
        tables={"map": {points.name: {**table, "points": points.weights}}},
    )
