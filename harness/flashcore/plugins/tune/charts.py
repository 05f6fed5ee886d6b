"""A study's pictures in plain SVG, like all small pictures of the reports: without scripts, for light and dark themes
and for print."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from flashcore.model.text import significant
from flashcore.plugins.tune.summary import Timed
from flashcore.report.drawings import Drawing, svg

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 352, 10, 196
_HEIGHT = 236
#: A floor that is more than so many times below the best is not drawn.
_NEAR = 3


def history(
    shape: str, found: Sequence[Timed], best: Sequence[Timed], floor: float | None, text: Sequence[str]
) -> Drawing:
    """Each candidate's time over the evaluations, the best so far as steps, and the floor where it is near.

    Args:
        floor: in us; one that is far below is stated, not drawn: it would leave no room for the candidates.
        text: each candidate's config, for hovering.
    """
    last = max(one.evaluation for one in found)
    times = [one.us for one in found]
    near = floor is not None and floor > best[-1].us / _NEAR
    y = _log_scale(min([*times, *([floor] if floor and near else [])]), max(times))
    x = _linear(1, last)
    parts = [*_grid_of(y), *_counts(x, last)]
    said = "evaluations on the GPU"
    if floor and near:
        parts.append(f'<path class="floor" d="M{_LEFT} {y.of(floor)}H{_RIGHT}"/>')
        parts.append(f'<text x="{_RIGHT}" y="{y.of(floor) - 4}" class="end">floor {significant(floor)}</text>')
    elif floor:
        said += f"; the floor, {significant(floor)} µs, is far below"
    table: list[list[Any]] = [["evaluation", "µs", "best so far, µs", "point"]]
    least = math.inf
    for one, config in zip(found, text, strict=True):
        least = min(least, one.us)
        table.append([one.evaluation, one.us, least, one.result.index])
        title = f"point {one.result.index}: {significant(one.us)} µs; {config}"
        parts.append(_dot(x(one.evaluation), y.of(one.us), title))
    steps = "".join(f"H{x(b.evaluation)}V{y.of(b.us)}" for b in best[1:])
    parts.append(f'<path class="best" d="M{x(best[0].evaluation)} {y.of(best[0].us)}{steps}H{x(last)}"/>')
    parts.append(f'<text x="{_RIGHT}" y="{_HEIGHT - 6}" class="end">{said}</text>')
    return Drawing(svg(f"Best time at {shape} against evaluations", _HEIGHT, parts), table)


def front(names: tuple[str, str], points: Sequence[tuple[int, float, float]], front: Sequence[int]) -> Drawing:
    """Two objectives, both to be small; candidates on the Pareto front are joined by a line.

    Args:
        points: number, first and second objective.
        front: the numbers of those on the front.
    """
    xs, ys = [x for _, x, _ in points], [y for _, _, y in points]
    x, y = _linear(min(xs), max(xs)), _Scale(min(ys), max(ys), log=False)
    parts = _grid_of(y)
    for value in (min(xs), max(xs)):
        side = "begin" if value == min(xs) else "end"
        parts.append(f'<text x="{x(value)}" y="{_BOTTOM + 15}" class="{side}">{significant(value)}</text>')
    kept = sorted((a, b, n) for n, a, b in points if n in front)
    table: list[list[Any]] = [["point", *names, "on the front"]]
    for number, a, b in points:
        table.append([number, a, b, number in front])
        if number not in front:
            parts.append(_dot(x(a), y.of(b), f"point {number}: {significant(a)}, {significant(b)}"))
    parts.append(f'<path class="best" d="M{" L".join(f"{x(a)} {y.of(b)}" for a, b, _ in kept)}"/>')
    parts += [_dot(x(a), y.of(b), f"point {n}: {significant(a)}, {significant(b)}", "top") for a, b, n in kept]
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{escape(names[1])} (up) over {escape(names[0])} (right)</text>')
    return Drawing(svg(f"Pareto front of {names[0]} and {names[1]}", _HEIGHT, parts), table)


def genealogy(way: Sequence[Timed], said: Sequence[str]) -> Drawing:
    """The winner's genealogy from its beginning, downwards: each candidate's time, and the change that led to it."""
    table: list[list[Any]] = [["point", "µs", "what changed"]]
    parts = [f'<path d="M14 44V{44 + 40 * (len(way) - 1)}"/>']
    for place, (one, change) in enumerate(zip(way, said, strict=True)):
        y = 44 + 40 * place
        last = place == len(way) - 1
        parts.append(_dot(14, y, f"point {one.result.index}", "top" if last else "node", 5))
        words = f"{significant(one.us)} µs, point {one.result.index}"
        parts.append(f'<text x="28" y="{y + 4}" class="strong">{escape(words)}</text>')
        for row, line in enumerate(textwrap.wrap(change, 54)[:2]):
            parts.append(f'<text x="28" y="{y - 22 + 13 * row}">{escape(line)}</text>')
        table.append([one.result.index, one.us, change])
    return Drawing(svg("Where the fastest comes from", 16 + 40 * len(way), parts), table)


class _Scale:
    """A vertical scale; ``ticks`` are round."""

    def __init__(self, low: float, high: float, *, log: bool) -> None:
        self._way: Callable[[float], float] = math.log if log else float
        room = 0.05 * (self._way(high) - self._way(low)) or 0.1
        self._low, self._high = self._way(low) - room, self._way(high) + room
        if log:
            steps = [m * 10.0**e for e in range(-6, 12) for m in (1, 2, 5)]
            self.ticks = [t for t in steps if self._low <= math.log(t) <= self._high] or [low, high]
        else:
            self.ticks = [low, high] if high > low else [low]

    def of(self, value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * (self._way(value) - self._low) / (self._high - self._low), 1)


def _log_scale(low: float, high: float) -> _Scale:
    return _Scale(low, high, log=True)


def _linear(low: float, high: float) -> Callable[[float], float]:
    span = (high - low) or 1
    return lambda value: round(_LEFT + 6 + (_RIGHT - _LEFT - 12) * (value - low) / span, 1)


def _grid_of(y: _Scale) -> list[str]:
    parts = []
    for value in y.ticks:
        parts.append(f'<path class="grid" d="M{_LEFT} {y.of(value)}H{_RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y.of(value) + 4}" class="end">{significant(value)}</text>')
    return parts


def _counts(x: Callable[[float], float], last: int) -> list[str]:
    return [
        f'<text x="{x(n)}" y="{_BOTTOM + 15}" class="middle">{n}</text>' for n in sorted({1, last // 2, last} - {0})
    ]


def _dot(x: float, y: float, title: str, kind: str = "", radius: float = 2.5) -> str:
    own = f' class="{kind}"' if kind else ""
    return f'<circle{own} cx="{x}" cy="{y}" r="{radius}"><title>{escape(title)}</title></circle>'
