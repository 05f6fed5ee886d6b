"""The chart of trends and the table of changes: a part of the report's page *History*, and the page of the command."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import FlashcoreError
from flashcore.explain import roofline
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Record
from flashcore.model.text import significant
from flashcore.records import lookup, store
from flashcore.records.index import Index
from flashcore.report import write_standalone
from flashcore.report.cells import Cell, Table
from flashcore.report.view import CHARTS, Book, Page, variant_cell
from flashcore_trends.series import COUNTERS, Finding, Series, Trends, trends
from flashcore_trends.wording import BLAMES, commits, remarks

HERE = Path(__file__).parent
_MARKS = {"kernel": "fail", "undecided": "stale", "machine": "open"}
#: Lines of the first view; views of one case each.
MOST_LINES, MOST_CASES = 12, 40
_COLORS = ("#3b78b4", "#c8592b", "#22703f", "#7a4fa3", "#b3741a", "#74808e")


def write(result: Trends, folder: Path, index: Index, places: Sequence[Path], *, each: bool = False) -> Path:
    """Writes ``trends.html`` into ``folder``.

    Args:
        each: also draw the cases that kept their level.

    Raises:
        WriteError: it cannot be written.
    """
    view = Drawn(lambda: (result, index), places, each=each)
    return write_standalone(
        HERE / "command.html.j2",
        folder / "trends.html",
        *(CHARTS if view.figure else ()),
        anchor="trends",
        level=1,
        view=view,
        part=str(HERE / "trends.html.j2"),
    )


def page(book: Book) -> Page[Drawn] | None:
    """The trends of the suite on the record's GPU model; ``None`` without a GPU."""
    if book.record.gpu is None:
        return None

    def found() -> tuple[Trends, Index]:
        index = Index(book.places)
        return trends(index, about=(book.record.suite.name, book.record.gpu)), index

    view = Drawn(found, book.places, linked=book.record.suite.variants)
    return Page("trends", "Trends", str(HERE / "trends.html.j2"), view, scripts=CHARTS, below="history")


class View(NamedTuple):
    """A view of the chart."""

    label: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]


class Drawn:
    """The template's variables.

    Args:
        found: the trends and what they were found in; called once, by the process that renders the page.
        places: where the runs are.
        each: also draw the cases that kept their level.
        linked: the variants with a page.
    """

    def __init__(
        self,
        found: Callable[[], tuple[Trends, Index]],
        places: Sequence[Path],
        *,
        each: bool = False,
        linked: Collection[str] = (),
    ) -> None:
        self._found, self._places, self._each, self._linked = found, places, each, linked

    @functools.cached_property
    def _both(self) -> tuple[Trends, Index]:
        return self._found()

    @property
    def result(self) -> Trends:
        return self._both[0]

    @property
    def remarks(self) -> list[str]:
        """What the table does not show."""
        return [text for _, text in remarks(self.result)]

    @property
    def counts(self) -> str:
        kept = sum(s.judged and not s.findings for s in self.result.series)
        few = sum(not s.judged for s in self.result.series)
        return f"{kept:,} cases kept their level" + f"; {few:,} have too few runs to be judged" * bool(few)

    @functools.cached_property
    def changes(self) -> Table:
        """A row for each change, the most severe first."""
        findings = ((s, f) for s in self.result.series for f in s.findings)
        return [self._row(s, f) for s, f in sorted(findings, key=lambda x: _severity(x[1]), reverse=True)]

    def _row(self, series: Series, f: Finding) -> list[Cell]:
        p, detail = f.after, "reference" if f.after.reference else ""
        case = Cell(series.case, title=p.params, detail=detail)
        if p.variant in self._linked:
            case = replace(variant_cell(p.variant, p.params, detail, p.shape), text=series.case)
        return [
            case,
            Cell("new" if f.is_new else "known"),
            Cell(f"{f.percent:+.1f} ± {2 * f.error:.1f}", sort=f.percent, kind="number"),
            Cell(BLAMES[f.change.blame], mark=_MARKS[f.change.blame] if f.percent > 0 else "pass"),
            Cell(p.run, title=f"run {f.before.run} is the last before it", kind="mono"),
            Cell(commits(f), kind="mono"),
            Cell("; ".join(f.reasons) or "nothing recorded", kind="wrap small"),
            Cell(p.gpu or ""),
        ]

    @functools.cached_property
    def figure(self) -> dict[str, Any] | None:
        """The chart, with a menu of its views; ``None`` without a case that several runs timed."""
        changed = sorted((s for s in self.result.series if s.findings), key=_worst, reverse=True)
        cases = [*changed, *(s for s in self.result.series if self._each and not s.findings)]
        views = [*_several(self.result, changed), *map(self._case, cases[:MOST_CASES])]
        traces = [(at, trace) for at, view in enumerate(views) for trace in view.data]
        buttons = [
            {"label": view.label, "args": [{"visible": [of == at for of, _ in traces]}, view.layout]}
            for at, view in enumerate(views)
        ]
        active = int(self._each and len(views) > 1)
        menu = {"active": active, "buttons": buttons}
        layout = {"margin": {"l": 60, "r": 12, "t": 20, "b": 60}, "updatemenus": [menu]}
        return {"data": [trace for _, trace in traces], "layout": layout} if views else None

    def _case(self, series: Series) -> View:
        """A case's lines one below the other. The time has its level between its changes, with a band of its noise; a
        line at each change is dashed unless the kernel changed."""
        table = self._lines(series)
        ends = [0, *(f.change.at for f in series.findings), len(series.points)]
        levels = [
            (first - 0.5, last - 0.5, *_band(part))
            for first, last in itertools.pairwise(ends)
            if (part := series.levels[first:last])
        ]
        rows = len(table) + 2  # the first is three high
        domains = [(1 - (i + 3) / rows, 1 - (i + 2.5 * bool(i)) / rows) for i in range(len(table))]
        names = ["", *map(str, range(2, len(table) + 1))]  # of the axes
        axes = {
            f"yaxis{name}": {"domain": domain, "nticks": 2 if name else 5, "tickformat": ".4~s", "showgrid": False}
            for name, domain in zip(names, domains, strict=True)
        }
        texts = [f"run {p.run}, {(p.commit or 'unknown')[:12]}" for p in series.points]
        data = [
            {**_trace(range(len(values)), values, name, texts), "yaxis": f"y{axis}"}
            for axis, (name, values) in zip(names, table.items(), strict=True)
        ]
        data[0]["mode"] = "markers"
        runs = [p.commit or p.run for p in series.points]
        marked = sorted({0, len(runs) - 1, *ends[1:-1]})
        layout = {
            **axes,
            "xaxis": {**_axis(runs, marked), "anchor": "free", "position": 0},
            "showlegend": False,
            "height": 100 + 52 * rows,
            "shapes": [
                *(_shape("rect", x0, x1, low, high) for x0, x1, low, _, high in levels),
                *(_shape("line", x0, x1, level, level) for x0, x1, _, level, _ in levels),
                *(
                    {**_shape("line", at, at, 0, 1, "solid" if f.change.blame == "kernel" else "dash"), "yref": "paper"}
                    for f in series.findings
                    if (at := f.change.at - 0.5)
                ),
            ],
            "annotations": [
                {
                    "text": name if values[-1] is None else f"{name}: {significant(values[-1])} in the newest run",
                    "xref": "paper",
                    "yref": "paper",
                    "x": 0,
                    "xanchor": "left",
                    "yanchor": "bottom",
                    "y": top,
                    "showarrow": False,
                }
                for (name, values), (_, top) in zip(table.items(), domains, strict=True)
            ],
        }
        return View(series.case, data, layout)

    def _lines(self, series: Series) -> dict[str, list[float | None]]:
        """The values over the runs of a case: time, floor, clock, counters, changed static facts."""
        facts = [self._both[1].values(p.run, p.variant, p.shape) for p in series.points]
        names = {name for values in facts for name in values if name in FACTS and FACTS[name].group == "static"}
        changed = sorted(n for n in names if len({values.get(n) for values in facts}) > 1)
        floor = _floor(series, tuple(self._places))
        table: dict[str, list[float | None]] = {"time, µs": [*series.levels], "floor, µs": [floor] * len(facts)}
        every = ("bench_sm_clock", *COUNTERS, *changed)
        return table | {name: [values.get(name) for values in facts] for name in every}


def _severity(f: Finding) -> tuple[Any, ...]:
    """Larger for new changes, among them for those of variants, then of kernels, then for slowdowns."""
    return f.is_new, not f.after.reference, -[*BLAMES].index(f.change.blame), f.percent


def _worst(series: Series) -> tuple[Any, ...]:
    return max(map(_severity, series.findings))


def _several(result: Trends, changed: Sequence[Series]) -> list[View]:
    """The changed cases, then the fastest variant on each shape, relative to their newest times."""
    several = [s for s in result.series if len(s.points) > 1]
    ours = sorted((s for s in several if not s.points[-1].reference), key=lambda s: -s.points[-1].value)
    fastest = {s.points[-1].shape: s for s in ours}.values()
    shown = list({s.case: s for s in (*changed, *fastest) if len(s.points) > 1}.values())[:MOST_LINES]
    names = {p.run: p.commit or p.run for s in shown for p in s.points}
    runs = sorted(names)
    data = [
        {
            **_trace(
                [runs.index(p.run) for p in s.points],
                [round(100 * (level / s.levels[-1] - 1), 3) for level in s.levels],
                s.case,
                [f"run {p.run}: {significant(p.value)} µs" for p in s.points],
                _COLORS[i % len(_COLORS)],
            ),
            "line": {"dash": "solid" if i < len(_COLORS) else "dot"},
        }
        for i, s in enumerate(shown)
    ]
    layout = {
        "xaxis": _axis([names[run] for run in runs], range(0, len(runs), 1 + len(runs) // 7)),
        "yaxis": {"title": {"text": "time over the newest, %"}},
        "showlegend": True,
        "legend": {},
        "height": 420,
    }
    return [View("changed cases and the fastest on each shape", data, layout)] if shown else []


def _axis(names: Sequence[str], marked: Sequence[int]) -> dict[str, Any]:
    return {"tickvals": [*marked], "ticktext": [names[i][:8] for i in marked], "tickangle": 0, "showgrid": False}


def _trace(
    x: Sequence[int], y: Sequence[float | None], name: str, text: Sequence[str], color: str = _COLORS[0]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [*x],
        "y": [*y],
        "name": name,
        "text": [*text],
        "marker": {"size": 5, "color": color},
        "hovertemplate": "%{y:,.4~r}, %{text}<extra>%{fullData.name}</extra>",
    }


def _shape(kind: str, x0: float, x1: float, y0: float, y1: float, dash: str = "solid") -> dict[str, Any]:
    line = {"width": float(kind == "line"), "color": "#77818c", "dash": dash}
    return {"type": kind, "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line, "fillcolor": "rgba(119,129,140,.15)"}


def _floor(series: Series, places: tuple[Path, ...]) -> float | None:
    """The floor of a case (us) in its newest run."""
    try:
        bounds = roofline.case_bounds(_record(places, series.points[-1].run))
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
