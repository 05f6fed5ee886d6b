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


def measured(settings: Settings, name: str, points: Points, resumed: bool, say: Say) -> list[Record]:
    """Times the points and records a run for each GPU model.

    Args:
        resumed: continue the newest unfinished run, with its settings; its answers for other points are left out.

    Raises:
        FlashcoreError: see :func:`flashcore.pipeline.run.runs`.
    """
    (shape, _), *_ = points.values()
    limits = replace(settings.bench.limits, batch=len(points))  # the first point of a process takes seconds
    settings = replace(settings, bench=replace(settings.bench, modes=(shape.rank_by,), limits=limits))

    def of_map(opened: Context) -> Context:
        suite = mapped(opened.suite, name, points)
        variants, shapes = tuple(suite.variants.values()), tuple(suite.shapes.values())
        arguments = suite.tables["map"][name]["dispatchers"]
        child = lambda *files: [*CHILD(*files), *arguments]  # noqa: E731
        return replace(opened, suite=suite, variants=variants, shapes=shapes, resident=child)

    return [one.record for one in run.runs(settings, say, resume=resumed, needed=True, changed=of_map)]


def mapped(suite: Suite, name: str, points: Points) -> Suite:
    """The suite of a map's variants and points. Budgets are left out: they are on the suite's shapes."""
    table = suite.tables["map"][name]
    variants = {
        n: replace(v, where=replace(v.where, shapes=("*",)), parent=None, predictions=())
        for n, v in suite.variants.items()
        if v.problem in table["problems"] and matches_any(n, table["variants"])
    }
    problems = [suite.problems[n] for n in table["problems"]]
    return replace(
        suite,
        problems={p.name: replace(p, file=table["file"] or p.file) for p in problems},
        shapes={point: shape for point, (shape, _) in points.items()},
        variants=variants,
        baseline=suite.baseline if suite.baseline in variants else next(iter(variants)),
        budgets=(),
        waivers=(),
        tables={"map": {name: {**table, "points": {point: weight for point, (_, weight) in points.items()}}}},
    )
