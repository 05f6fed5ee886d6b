"""The page of a study: one HTML file, readable without scripts. Each picture has a table of its figures."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashcore.model.text import UNMEASURED, quantity, significant
from flashcore.plugins.tune import charts
from flashcore.plugins.tune.finalists import Final
from flashcore.plugins.tune.samplers import METHOD, importance
from flashcore.plugins.tune.study import Result
from flashcore.plugins.tune.summary import TIME, Summary, broken, first_line
from flashcore.report import write_standalone
from flashcore.report.cells import Bar, Cell, missing, number_cell

#: Rows of the table of all candidates; results.jsonl has the others.
MOST = 2000
#: Fact, unit and heading.
_FACTS = (
    ("registers", "1", "registers"),
    ("smem", "B", "smem"),
    ("spill_store_bytes", "B", "spilled"),
    ("theoretical_occupancy", "pct", "occupancy"),
)


def write(study: Summary, file: Path, finals: Sequence[Final] = ()) -> Path:
    """Writes a study's page.

    Raises:
        WriteError: it cannot be written.
    """
    return write_standalone(
        Path(__file__).with_name("study.html.j2"),
        file,
        *("charts.js", "report.js"),
        study=study,
        header=study.header,
        answer=_answer(study),
        steps=[["step", "left", "rejected"], *([s.name, s.left, s.rejected] for s in study.funnel)],
        budgets=_budgets(study),
        pareto=_front(study),
        finals=_finals(study, finals),
        candidates=_candidates(study),
        static_heads=[(heading, "", fact) for fact, _, heading in _FACTS],
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


def _budgets(study: Summary) -> str:
    """The number of launchable candidates that fail each soft budget."""
    counts = Counter(name for r in study.launchable for name in r.broken).most_common()
    text = ", ".join(f"{name} by {count:,}" for name, count in counts) or "none"
    return f"Soft budgets broken, of {len(study.launchable):,} candidates that may be launched: {text}."


def _timed(study: Summary) -> dict[str, Any]:
    """The parts of the page that need times: improvements, faster candidates that failed a budget, genealogy."""
    improvements = [
        _configured(study, one.index, one.evaluation, round(one.result.seconds), one.us, one.index)
        for one in study.improvements
    ]
    faster, kept = study.within_budgets()
    losers = []
    for one in faster:
        gain = (
            missing("no candidate keeps every soft budget")
            if kept is None
            else Cell(f"{100 * (kept.us / one.us - 1):.1f} %", sort=kept.us / one.us, kind="number")
        )
        losers.append(_configured(study, one.index, one.index, one.us, gain, broken(one.result), *_static(one.result)))
    path = study.genealogy(study.improvements[-1].index)
    steps = list(itertools.pairwise(path))
    changes = [f"begins: {study.grid.text(path[0].index)}", *(study.change(a.index, b.index) for a, b in steps)]
    gains = ["–", *(f"{significant(a.us / b.us, 3)} ×" for a, b in steps)]
    return {
        "axes": _axes(study),
        "history": {"drawing": charts.history(study), "rows": improvements},
        "losers": {"rows": losers, "kept": kept and (significant(kept.us), study.grid.text(kept.index))},
        "way": [
            _row(one.index, one.evaluation, one.us, Cell(gain, kind="number"), change)
            for one, gain, change in zip(path, gains, changes, strict=True)
        ],
    }


def _axes(study: Summary) -> dict[str, Any]:
    result = importance(study.grid, [one.result for one in study.timed], study.shape)
    shares = [
        Bar(axis, Cell(f"{100 * share:.0f} %", title=f"{METHOD}: {share:.4f}", sort=share), round(100 * share, 1))
        for axis, share in result.shares.items()
    ]
    rows = []
    for axis, fastest in study.fastest_by_value().items():
        least = min(us for us, _ in fastest.values())
        for value, (us, count) in fastest.items():
            text = "fastest" if us == least else f"+{100 * (us / least - 1):.1f} %"
            loss = Cell(text, sort=us / least, kind="number")
            rows.append(_row(axis, Cell(str(value), kind="number"), us, loss, count))
    return {"method": METHOD, "top": result.top, "reason": result.reason, "shares": shares, "rows": rows}


def _front(study: Summary) -> dict[str, Any] | None:
    if not study.front:
        return None
    heads = [f"{name.removeprefix(TIME)}, µs" if name.startswith(TIME) else name for name in study.objective_names]
    return {
        "drawing": charts.front(study, heads[:2]),
        "heads": [(head,) for head in heads],
        "rows": [
            _configured(study, i, i, *(number_cell(value, 4) for value in study.objectives[i])) for i in study.front
        ],
    }


def _finals(study: Summary, finals: Sequence[Final]) -> dict[str, Any] | None:
    rows = []
    for f in finals:
        unknown = missing(f.reason)
        times = [unknown if us is None else us for us in (f.before_us, f.after_us)]
        changes = [Cell(text, kind="number") if text else unknown for text in (f.change, f.threshold)]
        rows.append(_configured(study, f.index, f.index, f.shape, *times, *changes, f.verdict))
    return {"rows": rows, "reference": finals[0].reference} if finals else None


def _candidates(study: Summary) -> list[dict[str, Any]]:
    """All of them: the timed ones fastest first, then those that were built, then the rejected ones."""
    results = study.results.values()
    order = sorted(results, key=lambda r: (r.times.get(study.shape, float("inf")), bool(r.fell), r.index))
    return [
        {
            "cells": _configured(
                study,
                r.index,
                r.index,
                *(r.times.get(shape) or missing(r.reason or "it was not timed") for shape in study.header.space.shapes),
                f"rejected: {r.fell}" if r.fell else "timed" if r.times else "built",
                *_static(r),
                broken(r) if r.facts else UNMEASURED,
            ),
            "why": first_line(r.reason) if r.fell else "",
        }
        for r in order[:MOST]
    ]


def _static(result: Result) -> list[Cell]:
    cells = []
    for name, unit, _ in _FACTS:
        value = result.facts.get(name)
        if value is None:
            cells.append(missing("it was not built" if result.fell == "build" else "it has no such fact", name))
        else:
            text, shown = quantity(int(value) if value.is_integer() else value, unit)
            cells.append(Cell(text, shown, sort=value, kind="number"))
    return cells


def _configured(study: Summary, index: int, *values: Cell | int | float | str) -> list[Cell]:
    """A row of a candidate, with its config at the end, which breaks only between axes."""
    return _row(*values, study.grid.text(index).replace(" ", "\u00a0").replace(",\u00a0", ", "))


def _row(*values: Cell | int | float | str) -> list[Cell]:
    """Cells of whole numbers, times in us and text."""
    return [_cell(value) for value in values]


def _cell(value: Cell | int | float | str) -> Cell:
    if isinstance(value, str):
        return Cell(value)
    if isinstance(value, int):
        return Cell(f"{value:,}", sort=value, kind="number")
    return number_cell(value, 4, f"{value} µs") if isinstance(value, float) else value
