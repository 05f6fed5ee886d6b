"""The page of trends: changed cases by severity, each with its times over the runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from flashcore.errors import FlashcoreError
from flashcore.explain import roofline
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Record
from flashcore.model.text import UNMEASURED, significant
from flashcore.plugins.runs.index import Index
from flashcore.plugins.trends.series import COUNTERS, Finding, Series, Trends
from flashcore.plugins.trends.wording import BLAMES, commits, lines
from flashcore.records import lookup, store
from flashcore.report import write_standalone
from flashcore.report.cells import Cell, number_cell

#: Sizes of the drawings in CSS pixels: in the table, below it, and of other facts.
SMALL, LARGE, STRIP = (160, 36), (720, 160), (720, 32)
_MARKS = {"kernel": "fail", "undecided": "stale", "machine": "open"}


def write(result: Trends, folder: Path, index: Index, places: Sequence[Path], *, each: bool = False) -> Path:
    """Writes ``trends.html`` into ``folder``.

    Args:
        each: also draw the cases that kept their level.

    Raises:
        WriteError: it cannot be written.
    """
    changed = [s for s in result.series if s.findings]
    changed.sort(key=lambda s: _severity(_worst(s)), reverse=True)
    drawn = [*changed, *(s for s in result.series if each and not s.findings)]
    kernels = [s for s in changed if not s.points[-1].reference]
    return write_standalone(
        Path(__file__).with_name("trends.html.j2"),
        folder / "trends.html",
        "report.js",
        news=[text for _, text in lines(result)],
        groups=[
            ("Kernels", [_row(s) for s in kernels]),
            ("References", [_row(s) for s in changed if s.points[-1].reference]),
        ],
        cases=[
            (s, [*_rows(s, index, _floor(s, places))], [[Cell(f.after.run), *_change(f)] for f in s.findings])
            for s in drawn
        ],
        unchanged=[f"{s.case}" for s in result.series if s.judged and not s.findings],
        unjudged=[s.case for s in result.series if not s.judged],
    )


def _severity(f: Finding) -> tuple[Any, ...]:
    return f.is_new, -[*BLAMES].index(f.change.blame), f.percent


def _worst(series: Series) -> Finding:
    """The change that its row shows: new ones first, then the kernel's, then the largest."""
    return max(series.findings, key=_severity)


def _row(series: Series) -> dict[str, Any]:
    worst, last = _worst(series), series.points[-1]
    cells = [
        Cell(series.case, href="", title=last.params),
        Cell("new" if worst.is_new else ""),
        number_cell(last.value, 4, f"{last.value} µs in run {last.run}"),
        *_change(worst),
        Cell(last.gpu or ""),
    ]
    return {"cells": cells, "drawing": drawing(series, SMALL)}


def _change(f: Finding) -> list[Cell]:
    return [
        Cell(f"{f.percent:+.1f} ± {2 * f.error:.1f}", sort=f.percent, kind="number"),
        Cell(BLAMES[f.change.blame], mark=_MARKS[f.change.blame] if f.percent > 0 else "pass"),
        Cell(commits(f), kind="mono", title=f"runs {f.before.run} and {f.after.run}"),
        Cell("; ".join(f.reasons) or "nothing recorded", kind="wrap small"),
    ]


def drawing(series: Series, size: tuple[int, int], values: Sequence[float | None] = ()) -> Markup:
    """Values over the runs (default: the times), over their own range: dots, the level between changes of the time with
    its noise band, and a line at each change."""
    values = values or series.levels
    measured = [v for v in values if v is not None]
    width, height = size
    low, high = min(measured, default=0.0), max(measured, default=0.0)
    span = (high - low) or 1.0
    x = functools.partial(_x, series, width)

    def y(value: float) -> float:
        return 4 + (height - 8) * (high - value) / span

    edges = [0, *(f.change.at for f in series.findings), len(values)]
    parts = []
    for first, last in itertools.pairwise(edges):
        if not (part := [v for v in values[first:last] if v is not None]):
            continue
        lower, level, upper = _band(part)
        left, right = x(first - 0.5 * (first > 0)), x(last - 0.5 - 0.5 * (last == len(values)))
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{y(upper):.1f}" width="{right - left:.1f}" '
            f'height="{max(1.0, y(lower) - y(upper)):.1f}" fill-opacity="0.12"/>'
            f'<path d="M{left:.1f} {y(level):.1f}H{right:.1f}" stroke="currentColor" fill="none"/>'
        )
    for f in series.findings:
        style = "" if f.change.blame == "kernel" else ' stroke-dasharray="2 2"'
        parts.append(f'<path d="M{x(f.change.at - 0.5):.1f} 0V{height}" stroke="currentColor"{style}/>')
    radius = 1.2 if size == SMALL else 2.5
    parts += [
        f'<circle cx="{x(i):.1f}" cy="{y(value):.1f}" r="{radius}"><title>{value:.4g}, run {p.run}</title></circle>'
        for i, (value, p) in enumerate(zip(values, series.points, strict=True))
        if value is not None
    ]
    return _svg(size, f"{series.case}: {low:.4g} to {high:.4g}", Markup("".join(parts)))


def _x(series: Series, width: int, night: float) -> float:
    return 4 + night * (width - 8) / max(1, len(series.points) - 1)


def _svg(size: tuple[int, int], label: str, content: Markup) -> Markup:
    return Markup('<svg width="{}" height="{}" role="img" aria-label="{}" fill="currentColor">{}</svg>').format(
        *size, label, content
    )


def _rows(series: Series, index: Index, floor: float | None) -> Iterator[tuple[str, Markup, str]]:
    """The lines over the runs of a case, each with its name and newest value: time, floor, clock, counters, changed
    static facts; at last the commits."""
    facts = [index.values(p.run, p.variant, p.shape) for p in series.points]
    names = {name for values in facts for name in values if name in FACTS and FACTS[name].group == "static"}
    changed = sorted(n for n in names if len({values.get(n) for values in facts}) > 1)
    table: dict[str, list[float | None]] = {"time, µs": [*series.levels], "floor, µs": [floor] * len(facts)}
    table |= {name: [values.get(name) for values in facts] for name in ("bench_sm_clock", *COUNTERS, *changed)}
    for name, values in table.items():
        size = LARGE if name == "time, µs" else STRIP
        yield name, drawing(series, size, values), UNMEASURED if values[-1] is None else significant(values[-1], 4)
    marked = sorted({0, len(facts) - 1, *(f.change.at for f in series.findings)})
    texts = (
        Markup('<text x="{:.0f}" y="{}" text-anchor="{}">{}</text>').format(
            _x(series, LARGE[0], i), 12 + 14 * (n % 2), "end" if 2 * i > len(facts) else "start",
            (series.points[i].commit or series.points[i].run)[:12],
        )
        for n, i in enumerate(marked)
    )  # fmt: skip
    yield "commit", _svg(STRIP, "commits of the first, the changed and the last runs", Markup().join(texts)), ""


def _floor(series: Series, places: Sequence[Path]) -> float | None:
    """The floor of a case (us) in its newest run."""
    try:
        bounds = roofline.case_bounds(_record(tuple(places), series.points[-1].run))
    except FlashcoreError:
        return None
    return next((b.floor.us for b in bounds if b.floor and b.subject.case == series.case), None)


@functools.cache
def _record(places: tuple[Path, ...], run: str) -> Record:
    return store.read(lookup.find(places, run))


def _band(levels: Sequence[float]) -> tuple[float, float, float]:
    """The range of the middle 80 % of the times, and their median."""
    ordered, last = sorted(levels), len(levels) - 1
    return ordered[last // 10], ordered[len(ordered) // 2], ordered[last - last // 10]
