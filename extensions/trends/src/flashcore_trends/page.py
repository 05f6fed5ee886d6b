"""The page of trends: changed cases by severity, each with its times over the runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.explain import roofline
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Record
from flashcore.model.text import UNMEASURED, significant
from flashcore.records import lookup, store
from flashcore.report import write_standalone
from flashcore.report.cells import Cell, number_cell
from flashcore.report.view import CHARTS
from flashcore_trends.nights import Nights
from flashcore_trends.series import COUNTERS, Finding, Series, Trends
from flashcore_trends.wording import BLAMES, commits, lines

_MARKS = {"kernel": "fail", "undecided": "stale", "machine": "open"}


def write(result: Trends, folder: Path, index: Nights, places: Sequence[Path], *, each: bool = False) -> Path:
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
        *(CHARTS if drawn else ()),
        "report.js",
        news=[text for _, text in lines(result)],
        groups=[
            ("Kernels", [_row(s) for s in kernels]),
            ("References", [_row(s) for s in changed if s.points[-1].reference]),
        ],
        cases=[
            (s, _figure(s, table), _newest(table), [[Cell(f.after.run), *_change(f)] for f in s.findings])
            for s in drawn
            for table in [_lines(s, index, _floor(s, places))]
        ],
        unchanged=[f"{s.case}" for s in result.series if s.judged and not s.findings],
        unjudged=[s.case for s in result.series if not s.judged],
    )


def _severity(f: Finding) -> tuple[Any, ...]:
    return f.is_new, -[*BLAMES].index(f.change.blame), f.percent


def _worst(series: Series) -> Finding:
    """The change that its row shows: new ones first, then the kernel's, then the largest."""
    return max(series.findings, key=_severity)


def _row(series: Series) -> list[Cell]:
    worst, last = _worst(series), series.points[-1]
    return [
        Cell(series.case, href="", title=last.params),
        Cell("new" if worst.is_new else ""),
        number_cell(last.value, 4, f"{last.value} µs in run {last.run}"),
        *_change(worst),
        Cell(last.gpu or ""),
    ]


def _change(f: Finding) -> list[Cell]:
    return [
        Cell(f"{f.percent:+.1f} ± {2 * f.error:.1f}", sort=f.percent, kind="number"),
        Cell(BLAMES[f.change.blame], mark=_MARKS[f.change.blame] if f.percent > 0 else "pass"),
        Cell(commits(f), kind="mono", title=f"runs {f.before.run} and {f.after.run}"),
        Cell("; ".join(f.reasons) or "nothing recorded", kind="wrap small"),
    ]


def _lines(series: Series, index: Nights, floor: float | None) -> dict[str, list[float | None]]:
    """The values over the runs of a case: time, floor, clock, counters, changed static facts."""
    facts = [index.values(p.run, p.variant, p.shape) for p in series.points]
    names = {name for values in facts for name in values if name in FACTS and FACTS[name].group == "static"}
    changed = sorted(n for n in names if len({values.get(n) for values in facts}) > 1)
    table: dict[str, list[float | None]] = {"time, µs": [*series.levels], "floor, µs": [floor] * len(facts)}
    return table | {name: [values.get(name) for values in facts] for name in ("bench_sm_clock", *COUNTERS, *changed)}


def _figure(series: Series, table: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """The lines one below the other. The time has its level between its changes, with a band of its noise; a line at
    each change is dashed unless the kernel changed."""
    ends = [0, *(f.change.at for f in series.findings), len(series.points)]
    marked = sorted({0, len(series.points) - 1, *ends[1:-1]})
    runs = [f"run {p.run}, {(p.commit or 'unknown')[:12]}" for p in series.points]
    levels = [
        (first - 0.5, last - 0.5, *_band(part))
        for first, last in itertools.pairwise(ends)
        if (part := [v for v in series.levels[first:last] if v is not None])
    ]
    axes = {
        f"yaxis{i or ''}": {"domain": [1 - (i + 3.5) / (len(table) + 3), 1 - (i + 2.7 * bool(i)) / (len(table) + 3)]}
        for i in range(len(table))
    }
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers" if i == 0 else "lines+markers",
                "x": [*range(len(values))],
                "y": values,
                "yaxis": f"y{i or ''}",
                "marker": {"size": 5, "color": "#3b78b4"},
                "name": name,
                "text": runs,
                "hovertemplate": "%{y:,.4~r}, %{text}<extra>%{fullData.name}</extra>",
            }
            for i, (name, values) in enumerate(table.items())
        ],
        "layout": {
            **{name: {**axis, "nticks": 3, "showgrid": False} for name, axis in axes.items()},
            "xaxis": {
                "tickvals": marked,
                "ticktext": [(series.points[i].commit or series.points[i].run)[:12] for i in marked],
                "showgrid": False,
            },
            "showlegend": False,
            "height": 160 + 46 * len(table),
            "margin": {"l": 60, "r": 12, "t": 20, "b": 40},
            "shapes": [
                *(_shape("rect", x0, x1, low, high) for x0, x1, low, _, high in levels),
                *(_shape("line", x0, x1, level, level) for x0, x1, _, level, _ in levels),
                *(
                    {**_shape("line", at, at, 0, 1, "solid" if f.change.blame == "kernel" else "dash"), "yref": "paper"}
                    for f in series.findings
                    if (at := f.change.at - 0.5)
                ),
            ],
            "annotations": [_label(name, axis["domain"][1]) for name, axis in zip(table, axes.values(), strict=True)],
        },
    }


def _label(name: str, y: float) -> dict[str, Any]:
    at = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "paper", "y": y, "yanchor": "bottom"}
    return {"text": name, "showarrow": False, **at}


def _shape(kind: str, x0: float, x1: float, y0: float, y1: float, dash: str = "solid") -> dict[str, Any]:
    line = {"width": float(kind == "line"), "color": "#77818c", "dash": dash}
    return {"type": kind, "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line, "fillcolor": "rgba(119,129,140,.15)"}


def _newest(table: Mapping[str, Sequence[float | None]]) -> list[tuple[str, str]]:
    """Each line's newest value."""
    last = ((name, values[-1]) for name, values in table.items())
    return [(name, UNMEASURED if value is None else significant(value)) for name, value in last]


def _floor(series: Series, places: Sequence[Path]) -> float | None:
    """The floor of a case (us) in its newest run."""
    try:
        bounds = roofline.case_bounds(_record(tuple(places), series.points[-1].run))
    except FlashcoreError:
        return None
    return next((b.floor.us for b in bounds if b.floor and str(b.subject.case) == series.case), None)


@functools.cache
def _record(places: tuple[Path, ...], run: str) -> Record:
    return store.read(lookup.find(places, run))


def _band(levels: Sequence[float]) -> tuple[float, float, float]:
    """The range of the middle 80 % of the times, and their median."""
    ordered, last = sorted(levels), len(levels) - 1
    return ordered[last // 10], ordered[len(ordered) // 2], ordered[last - last // 10]
