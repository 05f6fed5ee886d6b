"""Times a map's points as the shapes of an ordinary run: workers, GPUs, journal and resuming are those of bench."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from flashcore.measure.context import Context, Say
from flashcore.measure.machine import python_process
from flashcore.measure.settings import Settings
from flashcore.measure.workers import journal
from flashcore.model.progress import Step
from flashcore.model.record import Record
from flashcore.model.suite import Suite
from flashcore.model.text import matches_any
from flashcore.pipeline import resume, run
from flashcore.pipeline.opening import each_kind, open_recordable
from flashcore.plugins.map.table import Points

CHILD = python_process.child("flashcore.plugins.map.child")


class _TimeUp(Exception):
    """The command's seconds are over."""


def measured(
    settings: Settings, name: str, points: Points, seconds: float | None, resumed: bool, say: Say
) -> list[Record]:
    """Times the points and records a run for each GPU model.

    Args:
        seconds: measure no longer, and record the points timed so far.
        resumed: continue the newest unfinished run; its answers for other points are left out.

    Raises:
        FlashcoreError: see :func:`flashcore.pipeline.run.run`.
    """
    folder = resume.unfinished(settings, say).folder if resumed else None
    rank_by = next(iter(points.values()))[0].rank_by
    settings = replace(settings, bench=replace(settings.bench, modes=(rank_by,)))
    return [_record(one, name, points, seconds, folder, say) for one in each_kind(settings, say)]


def _record(
    settings: Settings, name: str, points: Points, seconds: float | None, folder: Path | None, say: Say
) -> Record:
    ends: list[float] = []

    def limited(text: str) -> None:
        say(text)
        if seconds is not None and isinstance(text, Step) and text.startswith("bench "):
            ends.append(time.monotonic() + seconds)
            if time.monotonic() >= ends[0]:
                raise _TimeUp

    try:
        return run.run(_context(settings, name, points, limited), folder).record
    except _TimeUp:
        folder = resume.unfinished(settings, limited).folder
        answered = {task.partition("~")[0] for task in journal.answers(folder / "bench")}
        rest = {point: points[point] for point in points if point in answered}
        say(f"map: {len(rest)} of {len(points)} points in {seconds:g} s; the others are left out")
        return run.run(_context(settings, name, rest, say), folder).record


def _context(settings: Settings, name: str, points: Points, say: Say) -> Context:
    opened = open_recordable(settings, say, needs_gpu=True)
    suite = mapped(opened.suite, name, points)
    shapes = tuple(suite.shapes.values())
    return replace(opened, suite=suite, variants=tuple(suite.variants.values()), shapes=shapes, resident=CHILD)


def mapped(suite: Suite, name: str, points: Points) -> Suite:
    """The suite of a map's variants and points. Budgets are left out: they are on the suite's shapes."""
    table = suite.tables["map"][name]
    variants = {
        n: replace(v, where=replace(v.where, shapes=("*",)), parent=None, predictions=())
        for n, v in suite.variants.items()
        if v.problem in table["problems"] and matches_any(n, table["variants"])
    }
    return replace(
        suite,
        shapes={point: shape for point, (shape, _) in points.items()},
        variants=variants,
        baseline=suite.baseline if suite.baseline in variants else next(iter(variants)),
        budgets=(),
        waivers=(),
        tables={"map": {name: {**table, "points": {point: weight for point, (_, weight) in points.items()}}}},
    )
