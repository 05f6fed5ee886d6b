"""What a study found, as figures: the funnel, the best against evaluations, the fastest with each value of an axis,
which candidates were faster and what they broke, and the winner's genealogy. The terminal's tables and the page are
made from them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashcore.plugins.tune.grid import Grid
from flashcore.plugins.tune.study import FUNNEL, Fell, Result

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_ODD = 10  # a miss of so many times the limit is one of a limit of 0, where each unit counts as 1
_PASSED: Mapping[Fell, str] = {"build": "compile", "static": "may be launched, and keep the hard budgets",
                               "check": "are right", "bench": "are timed"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the funnel.

    Args:
        left: how many pass; ``None`` where no candidate reached the step.
        fell: the step's name in results; empty for steps before the build.
        reasons: how many were rejected for each reason, most first; reasons that differ only in numbers are one, with
            their range.
    """

    name: str
    left: int | None
    fell: Fell = ""
    reasons: tuple[tuple[int, str], ...] = ()


def funnel(grid: Grid, results: Mapping[int, Result]) -> list[Step]:
    """From all points to those that were timed: how many were rejected at each step, and why."""
    measured = any(r.times or r.fell in ("check", "bench") for r in results.values())
    broken = Counter(text for i in range(len(grid)) if (text := grid.broken(i)))
    conditions = tuple((count, f"not so: {text}") for text, count in broken.most_common())
    left = len(results)
    found = [
        Step("all points", len(grid)),
        Step("meet the conditions", len(grid.feasible), reasons=conditions),
        Step("looked at", left),
    ]
    for stage in FUNNEL:
        reasons = _grouped([first_line(r.reason) for r in results.values() if r.fell == stage])
        left -= sum(count for count, _ in reasons)
        known = measured or stage in ("build", "static")
        found.append(Step(_PASSED[stage], left if known else None, stage, reasons))
    return found


def first_line(reason: str) -> str:
    """The most useful line of a reason: of a compiler's output the first error, not the warning above it."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()] or ["no reason was recorded"]
    errors = (re.fullmatch(r"(.*?): error: (.*)", line) for line in lines)
    return next((f"{found[2]}, at {found[1]}" for found in errors if found), lines[0])


def _grouped(reasons: Sequence[str]) -> tuple[tuple[int, str], ...]:
    groups: dict[str, list[list[str]]] = defaultdict(list)
    for text in reasons:
        groups[_NUMBER.sub("\0", text)].append(_NUMBER.findall(text))
    found = []
    for pattern, numbers in groups.items():
        spans = [_span(column) for column in zip(*numbers, strict=True)]
        found.append((len(numbers), "".join(a + b for a, b in zip(pattern.split("\0"), [*spans, ""], strict=True))))
    return tuple(sorted(found, key=lambda pair: -pair[0]))


def _span(texts: Sequence[str]) -> str:
    """One number, or the least and the most of several."""
    ordered = sorted(set(texts), key=lambda text: float(text.replace(",", "")))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate that was timed at the first shape: how many had been measured on the GPU by then, and its time
    (us)."""

    evaluation: int
    us: float
    result: Result


def timed(results: Mapping[int, Result], shape: str) -> list[Timed]:
    """Those that were timed, in the order of the study."""
    found, evaluation = [], 0
    for r in results.values():
        evaluation += r.measured
        if shape in r.times:
            found.append(Timed(evaluation, r.times[shape], r))
    return found


def improvements(found: Sequence[Timed]) -> list[Timed]:
    """Each that was faster than all before it."""
    best: list[Timed] = []
    for one in found:
        if not best or one.us < best[-1].us:
            best.append(one)
    return best


def fastest_with(grid: Grid, found: Sequence[Timed]) -> dict[str, dict[int | str, tuple[float, int]]]:
    """Axis → value → the fastest time with it (us), and how many were timed with it."""
    points = [(grid.point(one.result.index), one.us) for one in found]
    table: dict[str, dict[int | str, tuple[float, int]]] = {}
    for axis, values in grid.space.axes.items():
        of = {v: [us for point, us in points if point[axis] == v] for v in values}
        table[axis] = {v: (min(times), len(times)) for v, times in of.items() if times}
    return table


def faster_than_kept(found: Sequence[Timed]) -> tuple[list[Timed], Timed | None]:
    """The fastest that keeps every soft budget, and before it those that were faster and broke one, fastest first."""
    ranked = sorted(found, key=lambda one: (one.us, one.evaluation))
    kept = next((place for place, one in enumerate(ranked) if not one.result.broken), None)
    return ranked[:kept], None if kept is None else ranked[kept]


def broken(result: Result) -> str:
    """The soft budgets that it breaks, and by how much, or ``none``. No share is given of a limit of 0."""
    said = (name + (f" by {100 * share:.0f} %" if share < _ODD else "") for name, share in result.broken.items())
    return ", ".join(said) or "none"


def genealogy(grid: Grid, found: Sequence[Timed], winner: int) -> list[Timed]:
    """From a beginning to the winner, each step faster than the one before.

    Samplers keep no parents. A step's is taken to be the nearest of the slower candidates that were timed before it: by
    how many axes differ, then by how many of their values lie between, then the fastest.
    """
    place = {one.result.index: i for i, one in enumerate(found)}
    axes = grid.space.axes

    def apart(a: int, b: int) -> tuple[int, int]:
        of, to = grid.point(a), grid.point(b)
        steps = [abs(values.index(of[axis]) - values.index(to[axis])) for axis, values in axes.items()]
        return sum(map(bool, steps)), sum(steps)

    way = [found[place[winner]]]
    while slower := [one for one in found[: place[way[-1].result.index]] if one.us > way[-1].us]:
        here = way[-1].result.index
        way.append(min(slower, key=lambda one: (*apart(one.result.index, here), one.us)))
    return way[::-1]


def changed(grid: Grid, before: int, after: int) -> str:
    """``ROWS 32 to 64, STAGES 1 to 2``."""
    a, b = grid.point(before), grid.point(after)
    return ", ".join(f"{axis} {a[axis]} to {b[axis]}" for axis in a if a[axis] != b[axis])
