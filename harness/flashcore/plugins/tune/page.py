"""The page of a study: one HTML file, whole in itself. Everything on it reads without scripts; each picture's figures
stand in a table beside it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from flashcore.model.files import write_atomically, writing
from flashcore.model.text import UNMEASURED, quantity, significant
from flashcore.plugins.tune import charts, summary
from flashcore.plugins.tune.finalists import Final
from flashcore.plugins.tune.grid import Grid
from flashcore.plugins.tune.importance import METHOD, importance
from flashcore.plugins.tune.pareto import front
from flashcore.plugins.tune.samplers import objectives, plain_values
from flashcore.plugins.tune.study import Header, Result
from flashcore.plugins.tune.summary import Timed
from flashcore.report import environment, policy, static
from flashcore.report.cells import Bar, Cell, missing

#: Rows of the table of all candidates; who wants more has the study's own file.
MOST = 2000
_SCRIPTS = ("charts.js", "report.js")
_STATIC = (("registers", "1", "registers"), ("smem", "B", "smem"), ("spill_store_bytes", "B", "spilled"),
           ("theoretical_occupancy", "pct", "occupancy"))  # fmt: skip


def write(header: Header, results: Mapping[int, Result], file: Path, finals: Sequence[Final] = ()) -> Path:
    """Writes a study's page.

    Raises:
        WriteError: it cannot be written.
    """
    scripts = [static(name) for name in _SCRIPTS]
    text = environment(single_file=False).get_template(str(Path(__file__).with_name("study.html.j2"))).render(
        **_context(header, results, finals),
        style=static("style.css"),
        scripts=[Markup(script) for script in scripts],
        policy=policy(*scripts),
        up="",
        anchor="study",
    )  # fmt: skip
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text.encode())
    return file


def _context(header: Header, results: Mapping[int, Result], finals: Sequence[Final]) -> dict[str, Any]:
    grid = Grid(header.space, header.constants)
    shape = header.space.shapes[0]
    found = summary.timed(results, shape)
    best = summary.improvements(found)
    return {
        "header": header,
        "shape": shape,
        "answer": _answer(header, grid, results, best),
        "given": _given(header),
        "funnel": _funnel(grid, results),
        "history": _history(header, grid, found, best),
        "axes": _axes(grid, found, shape),
        "budgets": _budgets(results),
        "losers": _losers(grid, found, best),
        "pareto": _front(header, grid, found),
        "way": _way(grid, found, best),
        "finals": _finals(grid, finals),
        "candidates": _candidates(header, grid, results),
        "fell": any(r.fell for r in results.values()),
        "left_out": max(0, len(results) - MOST),
        "static_heads": [(short, "", name) for name, _, short in _STATIC],
    }


def _answer(header: Header, grid: Grid, results: Mapping[int, Result], best: Sequence[Timed]) -> str:
    if not best:
        built = sum(r.fell not in ("build", "static") for r in results.values())
        return f"{built:,} of {len(results):,} candidates compile and may be launched; none was timed."
    top = best[-1]
    floor = f", {significant(top.us / header.floor, 3)} × the floor" if header.floor else ""
    count = sum(r.measured for r in results.values())
    return (
        f"{significant(top.us)} µs at {header.space.shapes[0]}{floor}: {grid.text(top.result.index)}. "
        f"Found at evaluation {top.evaluation} of {count:,}."
    )


def _given(header: Header) -> list[tuple[str, str]]:
    space = header.space
    return [
        ("variant", f"{space.variant} of suite {header.suite}"),
        *((axis, ", ".join(map(str, values))) for axis, values in space.axes.items()),
        ("conditions", "; ".join(space.conditions) or "none"),
        ("shapes", ", ".join(space.shapes)),
        ("objectives", ", ".join(space.objectives)),
        ("hard budgets", ", ".join(space.hard) or "none"),
        ("sampler", f"{header.sampler}, seed {header.seed}"),
        ("machine", f"{header.gpu or 'no GPU'}, {header.arch}, {header.made_by}"),
        ("command", header.command or "unknown"),
    ]


def _funnel(grid: Grid, results: Mapping[int, Result]) -> dict[str, Any]:
    steps = summary.funnel(grid, results)
    most = len(grid)
    rows = [
        {
            "name": s.name,
            "left": None if s.left is None else f"{s.left:,}",
            "percent": 0.0 if s.left is None else round(100 * s.left / most, 1),
            "fell": sum(count for count, _ in s.reasons),
        }
        for s in steps
    ]
    table = [["step", "left", "rejected"], *([s.name, s.left, sum(n for n, _ in s.reasons)] for s in steps)]
    why = [(s.name, count, text) for s in steps for count, text in s.reasons]
    return {"steps": rows, "table": table, "why": why, "twins": sum(r.twin >= 0 for r in results.values())}


def _history(header: Header, grid: Grid, found: Sequence[Timed], best: Sequence[Timed]) -> dict[str, Any] | None:
    if not found:
        return None
    text = [grid.text(one.result.index) for one in found]
    rows = [
        [_count(b.evaluation), _count(round(b.result.seconds)), _us(b.us), _count(b.result.index),
         _config(grid, b.result.index)]
        for b in best
    ]  # fmt: skip
    return {"drawing": charts.history(header.space.shapes[0], found, best, header.floor, text), "rows": rows}


def _axes(grid: Grid, found: Sequence[Timed], shape: str) -> dict[str, Any] | None:
    if not found:
        return None
    known = importance(grid, [one.result for one in found], shape)
    shares = [
        Bar(axis, Cell(f"{100 * share:.0f} %", title=f"{METHOD}: {share:.4f}", sort=share), round(100 * share, 1))
        for axis, share in known.shares.items()
    ]
    rows = []
    for axis, of in summary.fastest_with(grid, found).items():
        low = min(us for us, _ in of.values())
        for value, (us, count) in of.items():
            loss = "fastest" if us == low else f"+{100 * (us / low - 1):.1f} %"
            rows.append([Cell(axis), Cell(str(value), kind="number"), _us(us), Cell(loss, sort=us / low, kind="number"),
                         _count(count)])  # fmt: skip
    return {"method": METHOD, "top": known.top, "reason": known.reason, "shares": shares, "rows": rows}


def _budgets(results: Mapping[int, Result]) -> str:
    """How many break which soft budget, of those that may be launched."""
    launched = [r for r in results.values() if r.fell not in ("build", "static")]
    counts = Counter(name for r in launched for name in r.broken).most_common()
    said = ", ".join(f"{name} by {count:,}" for name, count in counts) or "none"
    return f"Soft budgets broken, of {len(launched):,} candidates that may be launched: {said}."


def _losers(grid: Grid, found: Sequence[Timed], best: Sequence[Timed]) -> dict[str, Any] | None:
    """Who was faster than the fastest that keeps every soft budget, and what each broke."""
    if not found:
        return None
    faster, kept = summary.faster_than_kept(found)
    rows = []
    for one in faster:
        gain = missing("no candidate keeps every soft budget") if kept is None else Cell(
            f"{100 * (kept.us / one.us - 1):.1f} %", sort=kept.us / one.us, kind="number"
        )  # fmt: skip
        r = one.result
        rows.append([_count(r.index), _us(one.us), gain, Cell(summary.broken(r)), *_static(r), _config(grid, r.index)])
    return {"rows": rows, "kept": None if kept is None else (significant(kept.us), grid.text(kept.result.index))}


def _front(header: Header, grid: Grid, found: Sequence[Timed]) -> dict[str, Any] | None:
    wanted = objectives(header.space.shapes, header.space.objectives)
    known = [(one.result, v) for one in found if (v := plain_values(one.result, wanted)) is not None]
    if len(wanted) < 2 or not known:
        return None
    kept = front(known)
    values = {r.index: v for r, v in known}
    rows = [
        [
            _count(r.index),
            *(Cell(significant(v), sort=v, kind="number") for v in values[r.index]),
            _config(grid, r.index),
        ]
        for r in kept
    ]
    points = [(r.index, v[0], v[1]) for r, v in known]
    names = [f"{n.removeprefix('time:')}, µs" if n.startswith("time:") else n for n in wanted]
    drawn = charts.front((names[0], names[1]), points, [r.index for r in kept])
    return {"drawing": drawn, "heads": [(name,) for name in names], "rows": rows}


def _way(grid: Grid, found: Sequence[Timed], best: Sequence[Timed]) -> dict[str, Any] | None:
    if not found:
        return None
    way = summary.genealogy(grid, found, best[-1].result.index)
    said = [f"begins: {grid.text(way[0].result.index)}"] + [
        summary.changed(grid, a.result.index, b.result.index) for a, b in itertools.pairwise(way)
    ]
    rows = []
    for place, (one, change) in enumerate(zip(way, said, strict=True)):
        gain = "–" if not place else f"{significant(way[place - 1].us / one.us, 3)} ×"
        rows.append([_count(one.result.index), _count(one.evaluation), _us(one.us), Cell(gain, kind="number"),
                     Cell(change)])  # fmt: skip
    return {"drawing": charts.genealogy(way, said), "rows": rows}


def _finals(grid: Grid, finals: Sequence[Final]) -> dict[str, Any] | None:
    if not finals:
        return None
    rows = []
    for f in finals:
        d = f.decision
        change = missing(f.reason) if d is None or d.change is None else Cell(f"{100 * d.change:+.2f} %", kind="number")
        least = (
            missing(f.reason) if d is None or d.critical is None else Cell(f"{100 * d.critical:.2f} %", kind="number")
        )
        fate = f"not timed: {f.reason}" if d is None else d.outcome + (f": {d.reason}" if d.reason else "")
        times = [missing(f.reason) if us is None else _us(us) for us in (f.before_us, f.after_us)]
        rows.append([_count(f.index), Cell(f.shape), *times, change, least, Cell(fate), _config(grid, f.index)])
    return {"rows": rows, "reference": finals[0].reference}


def _candidates(header: Header, grid: Grid, results: Mapping[int, Result]) -> list[dict[str, Any]]:
    """All of them, the fastest first, then those that were built, then who fell."""
    shape = header.space.shapes[0]
    order = sorted(results.values(), key=lambda r: (r.times.get(shape, float("inf")), bool(r.fell), r.index))
    return [
        {
            "cells": [
                _count(r.index),
                *(
                    _us(r.times[s]) if s in r.times else missing(r.reason or "it was not timed")
                    for s in header.space.shapes
                ),
                Cell(f"rejected: {r.fell}" if r.fell else "timed" if r.times else "built"),
                *_static(r),
                Cell(summary.broken(r) if r.facts else UNMEASURED),
                _config(grid, r.index),
            ],
            "why": summary.first_line(r.reason) if r.fell else "",
        }
        for r in order[:MOST]
    ]


def _static(result: Result) -> list[Cell]:
    cells = []
    for name, unit, _ in _STATIC:
        value = result.facts.get(name)
        if value is None:
            cells.append(missing("it was not built" if result.fell == "build" else "it has no such fact", name))
        else:
            text, shown = quantity(int(value) if value.is_integer() else value, unit)
            cells.append(Cell(text, shown, sort=value, kind="number"))
    return cells


def _config(grid: Grid, index: int) -> Cell:
    """A line breaks only between axes."""
    return Cell(grid.text(index).replace(" ", "\u00a0").replace(",\u00a0", ", "))


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", sort=value, kind="number")


def _number(value: float, unit: str = "") -> Cell:
    return Cell(significant(value), title=f"{value} {unit}".strip(), sort=value, kind="number")


def _us(value: float) -> Cell:
    return _number(value, "µs")
