"""The page of trends: changed cases by severity, each with its times over the runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from flashcore.plugins.trends.series import Finding, Series, Trends
from flashcore.plugins.trends.wording import BLAMES, commits, lines
from flashcore.report import write_standalone
from flashcore.report.cells import Cell, number_cell

#: Sizes of the drawings in CSS pixels: in the table and below it.
SMALL, LARGE = (160, 36), (720, 160)
_MARKS = {"kernel": "fail", "undecided": "stale", "machine": "open"}


def write(result: Trends, folder: Path) -> Path:
    """Writes ``trends.html`` into ``folder``.

    Raises:
        WriteError: it cannot be written.
    """
    changed = sorted((s for s in result.series if s.findings), key=_severity)
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
        cases=[(s, min(s.levels), max(s.levels), drawing(s, LARGE), [*_changes(s)]) for s in changed],
        unchanged=[f"{s.case}" for s in result.series if s.judged and not s.findings],
        unjudged=[s.case for s in result.series if not s.judged],
    )


def _severity(series: Series) -> tuple[Any, ...]:
    worst = _worst(series)
    order = ("kernel", "undecided", "machine").index(worst.change.blame)
    return not series.news, order, -worst.percent


def _worst(series: Series) -> Finding:
    """The change that its row shows: new ones first, then the kernel's, then the largest."""
    return max(series.findings, key=lambda f: (f.is_new, f.change.blame == "kernel", f.percent))


def _row(series: Series) -> dict[str, Any]:
    worst, last = _worst(series), series.points[-1]
    mark = _MARKS[worst.change.blame] if worst.percent > 0 else "pass"
    cells = [
        Cell(series.case, href="", title=last.params),
        Cell("new" if worst.is_new else ""),
        number_cell(last.value, 4, f"{last.value} µs in run {last.run}"),
        Cell(f"{worst.percent:+.1f}", sort=worst.percent, kind="number", title=f"± {2 * worst.error:.1f} %"),
        Cell(BLAMES[worst.change.blame], mark=mark),
        Cell(commits(worst), kind="mono", title=f"runs {worst.before.run} and {worst.after.run}"),
        Cell("; ".join(worst.reasons) or "nothing recorded", kind="wrap small"),
        Cell(last.gpu or ""),
    ]
    return {"cells": cells, "drawing": drawing(series, SMALL)}


def _changes(series: Series) -> Iterator[list[Cell]]:
    for f in series.findings:
        yield [
            Cell(f.after.run),
            Cell(commits(f), kind="mono"),
            Cell(f"{f.percent:+.1f} ± {2 * f.error:.1f}", sort=f.percent, kind="number"),
            Cell(BLAMES[f.change.blame], mark=_MARKS[f.change.blame] if f.percent > 0 else "pass"),
            Cell("; ".join(f.reasons) or "nothing recorded", kind="wrap small"),
        ]


def drawing(series: Series, size: tuple[int, int]) -> Markup:
    """The times over the runs, over their own range: dots, the level between changes with its noise band, and a line at
    each change."""
    width, height = size
    low, high = min(series.levels), max(series.levels)
    step, span = (width - 8) / max(1, len(series.levels) - 1), (high - low) or 1.0

    def x(night: float) -> float:
        return 4 + night * step

    def y(us: float) -> float:
        return 4 + (height - 8) * (high - us) / span

    edges = [0, *(f.change.at for f in series.findings), len(series.levels)]
    parts = []
    for first, last in itertools.pairwise(edges):
        low_us, level, high_us = _band(series.levels[first:last])
        left, right = x(first - 0.5 * (first > 0)), x(last - 0.5 - 0.5 * (last == len(series.levels)))
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{y(high_us):.1f}" width="{right - left:.1f}" '
            f'height="{max(1.0, y(low_us) - y(high_us)):.1f}" fill="currentColor" fill-opacity="0.12"/>'
            f'<path d="M{left:.1f} {y(level):.1f}H{right:.1f}" stroke="currentColor" fill="none"/>'
        )
    for f in series.findings:
        style = "" if f.change.blame == "kernel" else ' stroke-dasharray="2 2"'
        parts.append(f'<path d="M{x(f.change.at - 0.5):.1f} 0V{height}" stroke="currentColor"{style}/>')
    radius = 1.2 if size == SMALL else 2.5
    parts += [
        f'<circle cx="{x(i):.1f}" cy="{y(us):.1f}" r="{radius}"><title>{us:.4g} µs, run {p.run}</title></circle>'
        for i, (us, p) in enumerate(zip(series.levels, series.points, strict=True))
    ]
    label = Markup("{}: {:.4g} to {:.4g} µs").format(series.case, low, high)
    return Markup('<svg width="{}" height="{}" role="img" aria-label="{}">{}</svg>').format(
        width, height, label, Markup("".join(parts))
    )


def _band(levels: Sequence[float]) -> tuple[float, float, float]:
    """The range of the middle 80 % of the times, and their median."""
    ordered, last = sorted(levels), len(levels) - 1
    return ordered[last // 10], ordered[len(ordered) // 2], ordered[last - last // 10]
