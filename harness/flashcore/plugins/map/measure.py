"""Times a map's points as the shapes of an ordinary run: workers, GPUs, journal and resuming are those of bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flashcore.errors import UsageError
from flashcore.measure.context import Context, Say
from flashcore.measure.machine import python_process
from flashcore.measure.settings import Settings
from flashcore.measure.workers import journal
from flashcore.model.progress import Step
from flashcore.model.suite import Suite
from flashcore.model.text import matches_any, misspelled
from flashcore.pipeline import resume, run
from flashcore.pipeline.opening import each_kind, open_recordable
from flashcore.pipeline.run import Run
from flashcore.plugins.map.table import Point

CHILD = python_process.child("flashcore.plugins.map.child")


class _TimeUp(Exception):
    """The command's seconds are over."""


def measured(
    settings: Settings, name: str, chosen: Sequence[Point], seconds: float | None, resumed: bool, say: Say
) -> list[Run]:
    """Times the points and records a run for each GPU model.

    Args:
        seconds: measure no longer, and record the points timed so far.
        resumed: continue the newest unfinished run; its answers for other points are left out.

    Raises:
        FlashcoreError: see :func:`flashcore.pipeline.run.run`.
    """
    folder = resume.unfinished(settings, say).folder if resumed else None
    return [_run(one, name, chosen, seconds, folder, say) for one in each_kind(settings, say)]


def _run(settings: Settings, name: str, chosen: Sequence[Point], seconds: float | None, folder: Any, say: Say) -> Run:
    began: list[float] = []

    def limited(text: str) -> None:
        say(text)
        if seconds is not None and isinstance(text, Step) and text.startswith("bench "):
            import time

            began.append(time.monotonic())
            if began[-1] - began[0] >= seconds:
                raise _TimeUp

    try:
        return run.run(context_of(open_recordable(settings, limited, needs_gpu=True), name, chosen), folder)
    except _TimeUp:
        folder = resume.unfinished(settings, lambda _: None).folder
        answered = {task.partition("~")[0] for task in journal.answers(folder / "bench")}
        rest = [p for p in chosen if p.name in answered]
        say(f"map: {len(rest)} of {len(chosen)} points in {seconds:g} s; the others are left out")
        return run.run(context_of(open_recordable(settings, say, needs_gpu=True), name, rest), folder)


def context_of(opened: Context, name: str, chosen: Sequence[Point]) -> Context:
    """The context of a run that times the points instead of the suite's shapes, by the map's variants."""
    suite = mapped(opened.suite, name, chosen)
    return replace(
        opened,
        suite=suite,
        variants=tuple(suite.variants[v.name] for v in opened.variants if v.name in suite.variants),
        shapes=tuple(suite.shapes.values()),
        resident=CHILD,
    )


def mapped(suite: Suite, name: str, chosen: Sequence[Point]) -> Suite:
    """The suite of a map's variants and points. Budgets are left out: they are on the suite's shapes."""
    table = suite.tables["map"][name]
    problems, globs = table["problems"] or suite.problems, (*table["variants"], *table["dispatchers"])
    variants = {n: v for n, v in suite.variants.items() if v.problem in problems and matches_any(n, globs)}
    return replace(
        suite,
        shapes={p.name: p.shape(table["rank_by"]) for p in chosen},
        variants={
            n: replace(
                v,
                where=replace(v.where, shapes=("*",)),
                parent=v.parent if v.parent in variants else None,
                predictions=(),
            )
            for n, v in variants.items()
        },
        baseline=suite.baseline if suite.baseline in variants else next(iter(variants)),
        budgets=(),
        waivers=(),
        tables={"map": {name: {**table, "points": {p.name: p.weight for p in chosen}}}},
    )


def chosen_map(suite: Suite, name: str | None) -> str:
    """The name of the map: the given one, or the suite's only one."""
    maps = suite.tables.get("map", {})
    chosen = name or ("" if len(maps) != 1 else next(iter(maps)))
    if chosen not in maps:
        hint = f"--map, one of {', '.join(maps)}" if maps else "the manifest a table [map.NAME]"
        raise UsageError(f"{suite.root}: expected a map, found {misspelled(chosen, maps)}\n  hint: give {hint}")
    return chosen
