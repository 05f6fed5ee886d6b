"""The kernels of an imported record by total time, and the NVTX ranges that they ran in; or its benchmarks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from flashcore.cli import output
from flashcore.cli.grid import grid
from flashcore.explain.limiter import time_parts
from flashcore.explain.readings import Readings
from flashcore.features.reports import traces
from flashcore.model.case import Case
from flashcore.model.groups import grouped, picked
from flashcore.model.record import Record
from flashcore.model.text import UNMEASURED, fixed, number
from flashcore.readers.kernel_names import canonical


class KernelRow(NamedTuple):
    """A kernel, or a range, with all its launches.

    Args:
        us: total time; ``None`` if one launch's time is unmeasured.
        percent: share of all kernels' measured time.
        variant: empty for a kernel that a capture did not measure.
        shape: the measured launch configuration with the most time; ``limited_by`` is its limiter.
        depth: the number of ranges around a range.
    """

    name: str
    launches: int
    us: float | None
    percent: float | None
    variant: str = ""
    shape: str = ""
    limited_by: str | None = None
    depth: int = 0

    @property
    def us_reason(self) -> str | None:
        """Why its time is unmeasured."""
        return "the time of at least one launch is unmeasured" if self.us is None else None

    @property
    def limited_by_reason(self) -> str | None:
        """Why its limiter is unmeasured."""
        why = f"no counter shows it at {self.shape}" if self.shape else "not measured under ncu: --top"
        return None if self.limited_by else why


def rows(readings: Readings) -> list[KernelRow]:
    """Every kernel, by falling time; unmeasured ones last."""
    times, results = _times(readings.record), []
    total = _measured(times)
    for (variant, name), shapes in grouped(((variant, name), shape) for variant, shape, name in times).items():
        shape = max(shapes, key=lambda s: (s > "", times[variant, s, name][1] or 0))
        launches, us = zip(*(times[variant, s, name] for s in shapes), strict=True)
        limited_by = time_parts(readings, Case(variant, shape)).short or None
        results.append(KernelRow(name, sum(launches), *_share(us, total), variant, shape, limited_by))
    return sorted(results, key=lambda row: -(row.us or 0))


def ranges(record: Record) -> list[KernelRow]:
    """The NVTX ranges as a tree: each before the ranges within it, by falling time. A capture has none, since it
    measures few launches of a range."""
    times: dict[tuple[str, ...], list[float | None]] = {}
    for fact in record.facts.named("nvtx__ranges") if not record.facts.named(traces.COUNT) else ():
        path, ns = str(fact.value).split(" / "), record.facts.number("ncu_duration", fact.subject)
        for depth in range(1, len(path) + 1):
            times.setdefault(tuple(path[:depth]), []).append(ns and ns / 1e3)
    total = _measured(_times(record))
    shares = {path: _share(us, total) for path, us in times.items()}
    ordered = sorted(
        shares, key=lambda path: [(-(shares[path[:i]][0] or 0), path[:i]) for i in range(1, len(path) + 1)]
    )
    return [KernelRow(path[-1], len(times[path]), *shares[path], depth=len(path) - 1) for path in ordered]


def timings(record: Record) -> list[dict[str, Any]]:
    """The median times of benchmarks, in their order."""
    facts = [fact for fact in record.facts if fact.name.endswith("_p50")]
    return [
        {
            **picked(fact.subject, "variant", "shape"),
            "mode": (mode := fact.name.removesuffix("_p50")),
            "us": fact.value,
            "samples": record.facts.number(f"{mode}_samples", fact.subject),
            "note": fact.note,
        }
        for fact in facts
    ]


def tables(readings: Readings) -> list[list[tuple[str, ...]]]:
    """The kernels, and the ranges if there are any, or the benchmarks; each as a heading and its rows."""
    if timed := timings(readings.record):
        digits = {"us": 4, "samples": 0}
        cells = [[fixed(value, digits.get(name, 0), "") for name, value in t.items()] for t in timed]
        return [[("benchmark", "arguments", "mode", "µs", "samples", "note"), *map(tuple, cells)]]
    columns = ("kernel", "launches", "µs", "%", "limited by")
    nested = [("· " * row.depth + row.name, *_figures(row)) for row in ranges(readings.record)]
    listed = [(row.name, *_figures(row), row.limited_by or UNMEASURED) for row in rows(readings)]
    return [[columns, *listed], *([[("range", *columns[1:4]), *nested]] if nested else [])]


def _figures(row: KernelRow) -> tuple[str, ...]:
    return number(row.launches), fixed(row.us), fixed(row.percent)


def text(readings: Readings) -> str:
    """Both as tables for a terminal, names cut to 80 letters."""
    cut = ([(row[0][:80], *row[1:]) for row in table] for table in tables(readings))
    return "\n\n".join(grid(head, body) for head, *body in cut)


def as_json(readings: Readings, folder: str) -> str:
    """Returns both as JSON, a document for each run. Its keys:

    - ``run``: the run's folder; ``gpu``: its GPU model;
    - ``kernels``: ``name``, ``variant`` and ``shape`` of its facts, ``launches``, ``us`` of all of them, ``percent`` of
      the time of all kernels, ``limited_by``; ``us_reason`` and ``limited_by_reason`` where one is ``null``;
    - ``ranges``: a tree in its order, with the ``depth`` of each;
    - ``benchmarks``: ``variant``, ``shape``, ``mode``, ``us``, ``samples``, ``note``.
    """
    figures = ("name", "launches", "us", "us_reason", "percent")
    facts = (*figures, "variant", "shape", "limited_by", "limited_by_reason")
    return output.document(
        run=folder,
        gpu=readings.record.gpu,
        kernels=[output.picked(row, *facts) for row in rows(readings)],
        ranges=[output.picked(row, *figures, "depth") for row in ranges(readings.record)],
        benchmarks=timings(readings.record),
    )


def _times(record: Record) -> dict[tuple[str, str, str], tuple[int, float | None]]:
    """(Variant, shape, kernel) → the number of launches, and their total time in µs. Variant and shape are empty for a
    survey's kernels that were not measured."""
    named = [(f.subject, f) for f in record.facts.named(traces.TIME) or record.facts.named("ncu_duration")]
    times = grouped(((s.variant, s.shape or "", canonical(s.kernel)), f.number) for s, f in named if s.kernel)
    counted = [f for name in ("profiled_launches", traces.COUNT) for f in record.facts.named(name)]
    counts = {(f.subject.variant, f.subject.shape): f.number for f in counted}
    results = {}
    for case, ns in times.items():
        launches = int(counts.get(case[:2]) or len(ns))
        # One time stands for several launches where it is their average.
        results[case] = launches, None if None in ns else fsum(filter(None, ns)) / 1e3 * launches / len(ns)
    return results


def _measured(times: Mapping[tuple[str, str, str], tuple[int, float | None]]) -> float:
    return fsum(us or 0 for _, us in times.values())


def _share(times: Sequence[float | None], total: float) -> tuple[float | None, float | None]:
    """Their sum, and that in percent of ``total``; neither if one is unmeasured."""
    us = fsum(filter(None, times))
    return (None, None) if None in times else (us, 100 * us / total if total else None)
