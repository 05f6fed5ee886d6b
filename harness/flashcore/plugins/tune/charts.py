"""A study's pictures in plain SVG: without scripts, for light and dark themes and for print."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from flashcore.model.text import significant
from flashcore.plugins.tune.summary import Summary
from flashcore.report.drawings import Drawing, svg

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 352, 10, 196
_HEIGHT = 236
#: Where the least and the largest value are drawn.
_INSET = (_BOTTOM - _TOP) / 22
_ACROSS, _UP = (_LEFT + 6, _RIGHT - 6), (_BOTTOM - _INSET, _TOP + _INSET)
#: A floor more than this many times below the best is stated, not drawn: it would leave no room for the candidates.
_NEAR = 3


def _scale(
    values: Iterable[float], start: float, end: float, transform: Callable[[float], float] = float
) -> Callable[[float], float]:
    """A scale from the least value, drawn at ``start``, to the largest, drawn at ``end``."""
    transformed = [*map(transform, values)]
    low, span = min(transformed), max(transformed) - min(transformed)
    return lambda value: round(start + (end - start) * (transform(value) - low) / (span or 1), 1)


def _grid(y: Callable[[float], float], ticks: Iterable[float]) -> list[str]:
    lines = [f'<path class="grid" d="M{_LEFT} {y(value)}H{_RIGHT}"/>' for value in ticks]
    return lines + [_text(_LEFT - 5, y(value) + 4, "end", significant(value)) for value in ticks]


def history(study: Summary) -> Drawing:
    """Each candidate's time over the evaluations, the best so far as steps, and the floor if it is near."""
    times, floor = [one.us for one in study.timed], study.header.floor
    best, last = study.improvements, study.timed[-1].evaluation
    near = [floor] if floor and floor > best[-1].us / _NEAR else []
    x = _scale([1, last], *_ACROSS)
    y = _scale([*times, *near], *_UP, math.log)
    rounded = [t for e in range(-6, 12) for m in (1, 2, 5) if _TOP <= y(t := m * 10.0**e) <= _BOTTOM]
    parts = _grid(y, rounded or [min(times), max(times)])
    parts += [_text(x(n), _BOTTOM + 15, "middle", n) for n in sorted({1, last // 2, last} - {0})]
    label = "evaluations on the GPU"
    if near:
        parts.append(f'<path class="floor" d="M{_LEFT} {y(near[0])}H{_RIGHT}"/>')
        parts.append(_text(_RIGHT, y(near[0]) - 4, "end", f"floor {significant(near[0])}"))
    elif floor:
        label += f"; the floor, {significant(floor)} µs, is far below"
    table: list[list[Any]] = [["evaluation", "µs", "best so far, µs", "point"]]
    for one, least in zip(study.timed, itertools.accumulate(times, min), strict=True):
        table.append([one.evaluation, one.us, least, one.index])
        title = f"point {one.index}: {significant(one.us)} µs; {study.grid.text(one.index)}"
        parts.append(_dot(x(one.evaluation), y(one.us), title))
    steps = "".join(f"H{x(b.evaluation)}V{y(b.us)}" for b in best[1:])
    parts.append(f'<path class="best" d="M{x(best[0].evaluation)} {y(best[0].us)}{steps}H{x(last)}"/>')
    parts.append(_text(_RIGHT, _HEIGHT - 6, "end", label))
    return Drawing(svg(f"Best time at {study.shape} against evaluations", _HEIGHT, parts), table)


def front(study: Summary, names: Sequence[str]) -> Drawing:
    """The first two objectives; a line joins the candidates on the Pareto front."""
    points = [(number, *values[:2]) for number, values in study.objectives.items()]
    _, xs, ys = zip(*points, strict=True)
    x, y = _scale(xs, *_ACROSS), _scale(ys, *_UP)
    parts = _grid(y, sorted({min(ys), max(ys)}))
    for value, side in ((min(xs), "begin"), (max(xs), "end")):
        parts.append(_text(x(value), _BOTTOM + 15, side, significant(value)))
    dots: dict[str, list[str]] = {"": [], "top": []}
    for number, a, b in points:
        kind = "top" if number in study.front else ""
        dots[kind].append(_dot(x(a), y(b), f"point {number}: {significant(a)}, {significant(b)}", kind))
    line = " L".join(f"{x(a)} {y(b)}" for a, b in sorted(study.objectives[number][:2] for number in study.front))
    parts += [*dots[""], f'<path class="best" d="M{line}"/>', *dots["top"]]
    parts.append(_text(_LEFT, _HEIGHT - 6, "", f"{names[1]} (up) over {names[0]} (right)"))
    table: list[list[Any]] = [["point", *names, "on the front"], *([n, a, b, n in study.front] for n, a, b in points)]
    return Drawing(svg(f"Pareto front of {names[0]} and {names[1]}", _HEIGHT, parts), table)


def _text(x: float, y: float, kind: str, text: object) -> str:
    return f'<text x="{x}" y="{y}"{_class(kind)}>{escape(str(text))}</text>'


def _dot(x: float, y: float, title: str, kind: str = "") -> str:
    return f'<circle{_class(kind)} cx="{x}" cy="{y}" r="2.5"><title>{escape(title)}</title></circle>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
