"""A study's figures, for the terminal's tables and the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from flashcore.model.groups import grouped
from flashcore_tune.grid import Grid
from flashcore_tune.space import Space
from flashcore_tune.study import FUNNEL, STATIC, Fell, Header, Result

TIME = "time:"
#: Static fact → its column.
FACTS = {
    "registers": "registers",
    "smem": "smem, B",
    "spill_store_bytes": "spilled, B",
    "theoretical_occupancy": "occupancy, %",
}
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
#: Misses of at least so many times the limit (or of a limit of 0) are shown without a share.
_NO_SHARE = 10
_PASSED: Mapping[Fell, str] = {
    "build": "compile",
    "static": "may be launched, and keep the hard budgets",
    "check": "are right",
    "bench": "are timed",
}


class Table(NamedTuple):
    """A table of the terminal and the page. A column's unit follows its name after a comma; ``None`` is unmeasured."""

    heads: tuple[str, ...]
    rows: list[list[Any]]


class Step(NamedTuple):
    """A step of the funnel.

    Args:
        left: the number of candidates that pass; ``None`` if no candidate reached the step.
        rejections: the number of rejected candidates and the reason, most frequent first.
    """

    name: str
    left: int | None
    rejections: tuple[tuple[int, str], ...] = ()

    @property
    def rejected(self) -> int:
        return sum(count for count, _ in self.rejections)


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate timed at the first shape: its time (us), and the number of candidates measured up to it."""

    evaluation: int
    us: float
    result: Result

    @property
    def index(self) -> int:
        return self.result.index


class Summary:
    """A study's figures. ``timed`` holds the candidates with a time at the first shape, in the study's order."""

    def __init__(self, header: Header, results: Mapping[int, Result]) -> None:
        self.header, self.results = header, results
        self.grid = Grid(header.space, header.constants)
        self.shape = header.space.shapes[0]
        self.objective_names = objective_names(header.space)
        self.evaluations = 0
        self.timed: list[Timed] = []
        for r in results.values():
            self.evaluations += r.measured
            if self.shape in r.times:
                self.timed.append(Timed(self.evaluations, r.times[self.shape], r))
        self.launchable = [r for r in results.values() if r.fell not in STATIC]
        self.twins = sum(r.twin >= 0 for r in results.values())

    @cached_property
    def improvements(self) -> list[Timed]:
        """The candidates that were faster than all before them."""
        best: list[Timed] = []
        for one in self.timed:
            if not best or one.us < best[-1].us:
                best.append(one)
        return best

    @cached_property
    def ranked(self) -> list[Timed]:
        """The timed candidates, fastest first."""
        return sorted(self.timed, key=lambda one: (one.us, one.evaluation))

    @cached_property
    def funnel(self) -> list[Step]:
        """From all points to the timed ones: the rejections at each step."""
        broken = Counter(text for i in range(len(self.grid)) if (text := self.grid.broken(i)))
        left, measured = len(self.results), any(r.times or r.fell in ("check", "bench") for r in self.results.values())
        steps = [
            Step("all points", len(self.grid)),
            Step(
                "meet the conditions",
                len(self.grid.feasible),
                tuple((count, f"not so: {text}") for text, count in broken.most_common()),
            ),
            Step("looked at", left),
        ]
        for stage in FUNNEL:
            reasons = _counted(first_line(r.reason) for r in self.results.values() if r.fell == stage)
            left -= sum(count for count, _ in reasons)
            steps.append(Step(_PASSED[stage], left if measured or stage in STATIC else None, reasons))
        return steps

    def improved(self) -> Table:
        """The candidates that were faster than all before them."""
        rows = [
            [one.evaluation, round(one.result.seconds), one.us, one.index, self.grid.text(one.index)]
            for one in self.improvements
        ]
        return Table(("evaluation", "after, s", f"time at {self.shape}, µs", "point", "config"), rows)

    def candidates(self, results: Iterable[Result]) -> Table:
        """Candidates with their times, static facts and outcomes."""
        shapes = self.header.space.shapes
        times = (f"time at {shape}, µs" for shape in shapes)
        heads = ("point", *times, *FACTS.values(), "soft budgets broken", "config", "outcome")
        rows = [
            [
                *(r.index, *map(r.times.get, shapes), *map(r.facts.get, FACTS), broken(r) if r.facts else None),
                self.grid.text(r.index),
                f"{r.fell}: {first_line(r.reason)}" if r.fell else "timed" if r.times else "built",
            ]
            for r in results
        ]
        return Table(heads, rows)

    def axes(self) -> Table:
        """The fastest time with each value of an axis, and the number of candidates timed with it."""
        rows: list[list[Any]] = []
        for axis, values in self.grid.space.axes.items():
            times = grouped((self.grid.point(one.index)[axis], one.us) for one in self.timed)
            for value in filter(times.__contains__, values):
                us = min(times[value])
                rows.append([axis, value, us, round(100 * (us / self.ranked[0].us - 1), 1), len(times[value])])
        return Table(("axis", "value", "fastest, µs", "slower, %", "timed"), rows)

    def pareto(self) -> Table:
        """The candidates on the Pareto front, with their objectives."""
        names = [
            f"time at {name.removeprefix(TIME)}, µs" if name.startswith(TIME) else FACTS.get(name, name)
            for name in self.objective_names
        ]
        return Table(("point", *names, "config"), [[i, *self.objectives[i], self.grid.text(i)] for i in self.front])

    def within_budgets(self) -> tuple[list[Timed], Timed | None]:
        """The candidates faster than the fastest one without failed soft budgets, and that one."""
        place = next((i for i, one in enumerate(self.ranked) if not one.result.broken), None)
        return self.ranked[:place], None if place is None else self.ranked[place]

    @cached_property
    def objectives(self) -> dict[int, list[float]]:
        """The objectives of the candidates that have all of them, by number."""
        return {one.index: v for one in self.timed if (v := objective_values(one.result, self.objective_names))}

    @cached_property
    def front(self) -> list[int]:
        """The numbers of the candidates on the Pareto front; none with a single objective."""
        return front(self.objectives) if len(self.objective_names) > 1 else []

    def genealogy(self, winner: int) -> list[Timed]:
        """The path from a first candidate to the winner, each step faster than the one before.

        Samplers record no parents. A candidate's parent is assumed to be the nearest slower candidate timed earlier:
        with the fewest different axes, then the fewest values between, then the least time.
        """
        places = {one.index: i for i, one in enumerate(self.timed)}
        path = [self.timed[places[winner]]]
        while slower := [one for one in self.timed[: places[path[-1].index]] if one.us > path[-1].us]:
            child = path[-1].index
            path.append(min(slower, key=lambda one: (*self._distance(one.index, child), one.us)))
        return path[::-1]

    def _distance(self, a: int, b: int) -> tuple[int, int]:
        before, after = self.grid.places(a), self.grid.places(b)
        steps = [abs(before[axis] - after[axis]) for axis in before]
        return sum(map(bool, steps)), sum(steps)

    def change(self, before: int, after: int) -> str:
        """``ROWS 32 to 64, STAGES 1 to 2``."""
        a, b = self.grid.point(before), self.grid.point(after)
        return ", ".join(f"{axis} {a[axis]} to {b[axis]}" for axis in a if a[axis] != b[axis])


def first_line(reason: str) -> str:
    """The most useful line of a reason: the first error of a compiler's output, not the warning above it."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()] or ["no reason was recorded"]
    errors = (re.fullmatch(r"(.*?): error: (.*)", line) for line in lines)
    return next((f"{error[2]}, at {error[1]}" for error in errors if error), lines[0])


def _counted(reasons: Iterable[str]) -> tuple[tuple[int, str], ...]:
    """How often each reason was given, most frequent first. Of reasons that differ only in numbers the first stands."""
    alike = grouped((_NUMBER.sub("", text), text) for text in reasons)
    return tuple(sorted(((len(texts), texts[0]) for texts in alike.values()), key=lambda pair: -pair[0]))


def broken(result: Result) -> str:
    """The soft budgets that a candidate failed, and by how much, or ``none``."""
    shares = (name + (f" by {100 * share:.0f} %" if share < _NO_SHARE else "") for name, share in result.broken.items())
    return ", ".join(shares) or "none"


# --- objectives ------------------------------------------------------------------------------------


def objective_names(space: Space) -> list[str]:
    """The space's objectives, with one for the time of each shape: ``time:mission``."""
    times = [f"{TIME}{shape}" for shape in space.shapes]
    return [name for objective in space.objectives for name in (times if objective == "time" else [objective])]


def objective_values(result: Result, names: Sequence[str]) -> list[float] | None:
    """A timed candidate's objectives, times in us; ``None`` if it was rejected or one is missing."""
    if result.fell:
        return None
    measured = {**result.facts, "error": result.error, **{f"{TIME}{s}": us for s, us in result.times.items()}}
    values = [value for name in names if (value := measured.get(name)) is not None]
    return values if len(values) == len(names) else None


def front(candidates: Mapping[int, Sequence[float]]) -> list[int]:
    """The numbers of the candidates that no other candidate dominates, in the order of their objectives."""
    kept = [
        (values, index)
        for index, values in candidates.items()
        if not any(
            other != values and all(b <= a for a, b in zip(values, other, strict=True)) for other in candidates.values()
        )
    ]
    return [index for _, index in sorted(kept)]
