"""The page of a study: one HTML file, readable without scripts but for its chart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from flashcore.model.text import significant
from flashcore.report import write_standalone
from flashcore.report.cells import Bar, Cell, missing, number_cell
from flashcore.report.view import CHARTS
from flashcore_tune import finalists
from flashcore_tune.finalists import Final
from flashcore_tune.samplers import METHOD, importance
from flashcore_tune.study import Result
from flashcore_tune.summary import Summary, Table

#: Rows of the table of all candidates; results.jsonl has the others.
MOST = 2000
#: A floor more than this many times below the best is not drawn: it would leave no room for the candidates.
_NEAR = 3


def write(study: Summary, file: Path, finals: Sequence[Final] = ()) -> Path:
    """Writes a study's page.

    Raises:
        WriteError: it cannot be written.
    """
    return write_standalone(
        Path(__file__).with_name("study.html.j2"),
        file,
        *(CHARTS if study.timed else ()),
        "report.js",
        study=study,
        header=study.header,
        answer=_answer(study),
        pareto=_view(study.pareto()) if study.front else None,
        finals=_view(finalists.table(finals, study.grid)) if finals else None,
        candidates=_view(study.candidates(_ordered(study)[:MOST])),
        **(_timed(study) if study.timed else {}),
        anchor="study",
    )


def _answer(study: Summary) -> str:
    if not study.timed:
        count = f"{len(study.launchable):,} of {len(study.results):,}"
        return f"{count} candidates compile and may be launched; none was timed."
    best, floor = study.improvements[-1], study.header.floor
    ratio = f", {significant(best.us / floor, 3)} × the floor" if floor else ""
    return (
        f"{significant(best.us)} µs at {study.shape}{ratio}: {study.grid.text(best.index)}. "
        f"Found at evaluation {best.evaluation} of {study.evaluations:,}."
    )


def _timed(study: Summary) -> dict[str, Any]:
    """The parts of the page that need times: improvements, faster candidates that failed a budget, genealogy."""
    faster, kept = study.within_budgets()
    return {
        "axes": _axes(study),
        "history": {"figure": _history(study), "table": _view(study.improved())},
        "losers": {
            "table": _view(study.candidates(one.result for one in faster)),
            "kept": kept and (significant(kept.us), study.grid.text(kept.index)),
        },
        "way": _view(_genealogy(study)),
    }


def _history(study: Summary) -> dict[str, Any]:
    """Each candidate's time over the evaluations, the best so far as steps, and the floor if it is near."""
    timed, best, floor = study.timed, study.improvements, study.header.floor
    last = timed[-1].evaluation
    best_so_far = itertools.accumulate((one.us for one in timed), min)
    dots = {
        "mode": "markers",
        "name": "candidates",
        "x": [one.evaluation for one in timed],
        "y": [one.us for one in timed],
        "marker": {"color": "#77818c", "size": 5},
        "text": [
            f"point {one.index}: {significant(one.us)} µs<br>{escape(study.grid.text(one.index))}" for one in timed
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "customdata": [[one.evaluation, one.us, us, one.index] for one, us in zip(timed, best_so_far, strict=True)],
    }
    steps = {
        "mode": "lines",
        "name": "best so far",
        "x": [*(b.evaluation for b in best), last],
        "y": [*(b.us for b in best), best[-1].us],
        "line": {"shape": "hv", "color": "#3b78b4"},
        "hoverinfo": "skip",
    }
    near = {
        "mode": "lines",
        "name": f"floor {significant(floor or 0)} µs",
        "x": [1, last],
        "y": [floor, floor],
        "line": {"dash": "dash", "color": "#2f9563"},
        "hoverinfo": "skip",
    }
    return {
        "data": [dots, steps, *([near] if floor and floor > best[-1].us / _NEAR else [])],
        "layout": {
            "xaxis": {"title": {"text": "evaluations on the GPU"}},
            "yaxis": {"title": {"text": "µs"}, "type": "log", "exponentformat": "none"},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
            "margin": {"l": 56, "r": 12, "t": 40, "b": 44},
            "meta": {"columns": ["evaluation", "µs", "best so far, µs", "point"]},
        },
    }


def _genealogy(study: Summary) -> Table:
    path = study.genealogy(study.improvements[-1].index)
    first = path[0]
    table = Table(("point", "evaluation", f"time at {study.shape}, µs", "faster, ×", "what changed"), [])
    table.rows.append([first.index, first.evaluation, first.us, "–", f"begins: {study.grid.text(first.index)}"])
    for before, one in itertools.pairwise(path):
        change = study.change(before.index, one.index)
        table.rows.append([one.index, one.evaluation, one.us, round(before.us / one.us, 3), change])
    return table


def _axes(study: Summary) -> dict[str, Any]:
    result = importance(study.grid, [one.result for one in study.timed], study.shape)
    shares = [
        Bar(axis, Cell(f"{100 * share:.0f} %", title=f"{METHOD}: {share:.4f}", sort=share), round(100 * share, 1))
        for axis, share in result.shares.items()
    ]
    facts = {"method": METHOD, "top": result.top, "reason": result.reason}
    return {**facts, "shares": shares, "table": _view(study.axes())}


def _ordered(study: Summary) -> list[Result]:
    """All candidates: the timed ones fastest first, then those that were built, then the rejected ones."""
    results = study.results.values()
    return sorted(results, key=lambda r: (r.times.get(study.shape, float("inf")), bool(r.fell), r.index))


def _view(table: Table) -> dict[str, Any]:
    """A table's headings, left-aligned over text, and its cells."""
    heads = [head.rpartition(", ") if ", " in head else (head, "", "") for head in table.heads]
    first = table.rows[0] if table.rows else [0] * len(heads)
    return {
        "heads": [
            (name, unit, "", "left" if isinstance(value, str) else "")
            for (name, _, unit), value in zip(heads, first, strict=True)
        ],
        "rows": [list(map(_cell, table.heads, row)) for row in table.rows],
    }


def _cell(head: str, value: int | float | str | None) -> Cell:
    if value is None:
        return missing("the row's text says why")
    if isinstance(value, str):  # a config breaks only between axes
        return Cell(value.replace(" ", "\u00a0").replace(",\u00a0", ", ") if head == "config" else value)
    if float(value).is_integer():
        return Cell(f"{value:,.0f}", sort=value, kind="number")
    return number_cell(value, 4, str(value))
