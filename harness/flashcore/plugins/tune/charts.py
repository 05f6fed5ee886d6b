"""A study's picture in plain SVG: without scripts, for light and dark themes and for print."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
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
#: A floor more than this many times below the best is not drawn: it would leave no room for the candidates.
_NEAR = 3


def _scale(
    values: Iterable[float], start: float, end: float, transform: Callable[[float], float] = float
) -> Callable[[float], float]:
    """A scale from the least value, drawn at ``start``, to the largest, drawn at ``end``."""
    transformed = [*map(transform, values)]
    low, span = min(transformed), max(transformed) - min(transformed)
    return lambda value: round(start + (end - start) * (transform(value) - low) / (span or 1), 1)


def history(study: Summary) -> Drawing:
    """Each candidate's time over the evaluations, the best so far as steps, and the floor if it is near."""
    times, floor = [one.us for one in study.timed], study.header.floor
    best, last = study.improvements, study.timed[-1].evaluation
    near = [floor] if floor and floor > best[-1].us / _NEAR else []
    x = _scale([1, last], *_ACROSS)
    y = _scale([*times, *near], *_UP, math.log)
    parts = []
    for us in (min(times), max(times)):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(us)}H{_RIGHT}"/>')
        parts.append(_text(_LEFT - 5, y(us) + 4, "end", significant(us)))
    parts += [_text(x(n), _BOTTOM + 15, "middle", n) for n in sorted({1, last // 2, last} - {0})]
    for us in near:
        parts.append(f'<path class="floor" d="M{_LEFT} {y(us)}H{_RIGHT}"/>')
        parts.append(_text(_RIGHT, y(us) - 4, "end", f"floor {significant(us)}"))
    table: list[list[Any]] = [["evaluation", "µs", "best so far, µs", "point"]]
    for one, least in zip(study.timed, itertools.accumulate(times, min), strict=True):
        table.append([one.evaluation, one.us, least, one.index])
        title = f"point {one.index}: {significant(one.us)} µs; {study.grid.text(one.index)}"
        parts.append(
            f'<circle cx="{x(one.evaluation)}" cy="{y(one.us)}" r="2.5"><title>{escape(title)}</title></circle>'
        )
    steps = "".join(f"H{x(b.evaluation)}V{y(b.us)}" for b in best[1:])
    parts.append(f'<path class="best" d="M{x(best[0].evaluation)} {y(best[0].us)}{steps}H{x(last)}"/>')
    parts.append(_text(_RIGHT, _HEIGHT - 6, "end", "evaluations on the GPU"))
    return Drawing(svg(f"Best time at {study.shape} against evaluations", _HEIGHT, parts), table)


def _text(x: float, y: float, kind: str, text: object) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(str(text))}</text>'
