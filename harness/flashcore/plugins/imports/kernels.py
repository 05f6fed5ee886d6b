"""The kernels of an imported record by total time, and the NVTX ranges that they ran in. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        percent: of the measured time of all kernels.
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
    times, results = _times(readings.record), []
    total = _measured(times)
    for variant, shapes in grouped((variant, shape) for variant, shape in times).items():
        shape = max(shapes, key=lambda s: times[variant, s][1] or 0)
        launches, us = zip(*(times[variant, s] for s in shapes), strict=True)
        name = readings.record.suite.variants[variant].technique
        limited_by = limiter.limiters(readings, variant, shape).short
        results.append(Row(name, sum(launches), *_share(us, total), variant, shape, limited_by))
    return sorted(results, key=lambda row: -(row.us or 0))


def ranges(record: Record) -> list[Row]:
    """The NVTX ranges as a tree: each before those within it, in each range that of the most time first."""
    times: dict[tuple[str, ...], list[float | None]] = {}
    for fact in record.facts.named("nvtx__ranges"):
        path, ns = str(fact.value).split(" / "), record.facts.number("ncu_duration", fact.subject)
        for depth in range(1, len(path) + 1):
            times.setdefault(tuple(path[:depth]), []).append(ns and ns / 1e3)
    total = _measured(_times(record))
    shares = {path: _share(us, total) for path, us in times.items()}
    ordered = sorted(
        shares, key=lambda path: [(-(shares[path[:i]][0] or 0), path[:i]) for i in range(1, len(path) + 1)]
    )
    return [Row(path[-1], len(times[path]), *shares[path], depth=len(path) - 1) for path in ordered]


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


def _times(record: Record) -> dict[tuple[str, str], tuple[int, float | None]]:
    """(Variant, shape) → its launches, and the time of all of them in µs."""
    named = record.facts.named(traces.TIME) or record.facts.named("ncu_duration")
    times = grouped(((f.subject.variant, f.subject.shape or ""), f.number) for f in named if f.subject.kernel)
    counts = {(f.subject.variant, f.subject.shape): f.number for f in record.facts.named("profiled_launches")}
    results = {}
    for case, ns in times.items():
        launches = int(counts.get(case) or len(ns))
        # One time stands for several launches where it is their average.
        results[case] = launches, None if None in ns else fsum(filter(None, ns)) / 1e3 * launches / len(ns)
    return results


def _measured(times: Mapping[tuple[str, str], tuple[int, float | None]]) -> float:
    return fsum(us or 0 for _, us in times.values())


def _share(times: Sequence[float | None], total: float) -> tuple[float | None, float | None]:
    """Their sum, and that in percent of ``total``; neither if one is unmeasured."""
    us = fsum(filter(None, times))
    return (None, None) if None in times else (us, 100 * us / total if total else None)
