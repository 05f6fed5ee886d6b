"""The kernels of an imported record by total time, and the NVTX ranges that they ran in. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import NamedTuple

from flashcore.cli.grid import grid
from flashcore.explain import limiter
from flashcore.explain.predictions import Readings
from flashcore.model.groups import grouped
from flashcore.model.record import Record
from flashcore.model.text import UNMEASURED, fixed, number
from flashcore.plugins.imports import traces


class Row(NamedTuple):
    """A kernel, or a range, with all its launches.

    Args:
        us: of all of them; ``None``: the time of one is unmeasured.
        percent: of the time of all kernels; ``None`` unless all are measured.
        shape: the launch configuration that took the most time, which ``limited_by`` is of.
        depth: of a range within others.
    """

    name: str
    launches: int
    us: float | None
    percent: float | None
    variant: str = ""
    shape: str = ""
    limited_by: str = ""
    depth: int = 0


def rows(readings: Readings) -> list[Row]:
    """Every kernel, that of the most time first; unmeasured ones last."""
    cases, results = _cases(readings.record), []
    total = _sum(us for _, us in cases.values())
    for variant, shapes in grouped((case[0], case[1]) for case in cases).items():
        shape = max(shapes, key=lambda s: cases[variant, s][1] or 0)
        launches, us = zip(*(cases[variant, s] for s in shapes), strict=True)
        name = readings.record.suite.variants[variant].technique
        limited_by = limiter.limiters(readings, variant, shape).short
        results.append(Row(name, sum(launches), _sum(us), _percent(_sum(us), total), variant, shape, limited_by))
    return sorted(results, key=lambda row: -(row.us or 0))


def ranges(record: Record) -> list[Row]:
    """The NVTX ranges as a tree: each before those within it, in each range that of the most time first."""
    times: dict[tuple[str, ...], list[float | None]] = {}
    for fact in record.facts.named("nvtx__ranges"):
        path, ns = str(fact.value).split(" / "), record.facts.number("ncu_duration", fact.subject)
        for depth in range(1, len(path) + 1):
            times.setdefault(tuple(path[:depth]), []).append(None if ns is None else ns / 1e3)
    sums, total = {path: _sum(us) for path, us in times.items()}, _sum(us for _, us in _cases(record).values())
    ordered = sorted(sums, key=lambda path: [(-(sums[path[:i]] or 0), path[i - 1]) for i in range(1, len(path) + 1)])
    return [
        Row(path[-1], len(times[path]), sums[path], _percent(sums[path], total), depth=len(path) - 1)
        for path in ordered
    ]


def text(readings: Readings) -> str:
    """Both as tables for a terminal, names cut to 80 letters."""
    columns, tables = ("kernel", "launches", "µs", "%", "limited by"), []
    for heading, each in ((columns, rows(readings)), (("range", *columns[1:4]), ranges(readings.record))):
        cells = [
            ("  " * row.depth + row.name[:80], number(row.launches), fixed(row.us), fixed(row.percent))
            + ((row.limited_by or UNMEASURED,) if row.variant else ())
            for row in each
        ]
        tables += [grid(heading, cells)] if cells else []
    return "\n\n".join(tables)


def _cases(record: Record) -> dict[tuple[str, str], tuple[int, float | None]]:
    """(Variant, shape) → its launches, and the time of all of them in µs."""
    named = record.facts.named(traces.TIME) or record.facts.named("ncu_duration")
    times = grouped(((f.subject.variant, f.subject.shape or ""), f.number) for f in named if f.subject.kernel)
    counts = {(f.subject.variant, f.subject.shape): f.number for f in record.facts.named("profiled_launches")}
    results = {}
    for case, ns in times.items():
        launches, total = int(counts.get(case) or len(ns)), _sum(ns)
        # One time stands for several launches where it is their average.
        results[case] = launches, None if total is None else total / 1e3 * launches / len(ns)
    return results


def _sum(times: Iterable[float | None]) -> float | None:
    each = [*times]
    numbers = [time for time in each if time is not None]
    return fsum(numbers) if len(numbers) == len(each) else None


def _percent(us: float | None, total: float | None) -> float | None:
    return 100 * us / total if us is not None and total else None
