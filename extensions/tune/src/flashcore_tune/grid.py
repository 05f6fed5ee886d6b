"""The points of a space. Each has a number, so its name does not depend on the sampler."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

from flashcore.errors import UsageError
from flashcore.model.suite import Suite, Variant
from flashcore.model.text import did_you_mean
from flashcore.suites.expressions import evaluated, parse
from flashcore_tune.space import Objective, Space, spaces_of

Point = dict[str, int | str]
_SHARED = ("kind", "problem", "tolerance")  # shared by all variants of a space


class Grid:
    """All points of a space, numbered with the last axis running fastest.

    Args:
        constants: the variant's other macros, which conditions may name.
    """

    def __init__(self, space: Space, constants: Mapping[str, object] | None = None) -> None:
        self.space = space
        self.constants = dict(constants or {})
        names = [*space.axes, *self.constants]
        self._conditions = {text: parse(text, names) for text in space.conditions}

    def __len__(self) -> int:
        return math.prod(map(len, self.space.axes.values()))

    def point(self, index: int) -> Point:
        """The point of that number."""
        return {axis: self.space.axes[axis][place] for axis, place in self.places(index).items()}

    def places(self, index: int) -> dict[str, int]:
        """The place of a point on each axis, counted from 0."""
        places = {}
        for axis, values in reversed([*self.space.axes.items()]):
            index, places[axis] = divmod(index, len(values))
        return dict(reversed(places.items()))

    def index(self, point: Mapping[str, int | str]) -> int:
        """The number of a point.

        Raises:
            ValueError, KeyError: it is not in this space.
        """
        index = 0
        for axis, values in self.space.axes.items():
            index = index * len(values) + values.index(point[axis])
        return index

    def broken(self, index: int) -> str:
        """The first condition that a point does not meet; empty if it meets all.

        Raises:
            UsageError: a condition cannot be evaluated.
        """
        values = {**self.constants, **self.point(index)}
        for text, condition in self._conditions.items():
            try:
                if not evaluated(condition, values):
                    return text
            except ValueError as error:
                raise UsageError(f"{self.space.name}.conditions: {text!r}: {error} at {values}") from error
        return ""

    @functools.cached_property
    def feasible(self) -> list[int]:
        """The numbers of the points that meet all conditions.

        Raises:
            UsageError: no point meets them.
        """
        indices = [i for i in range(len(self)) if not self.broken(i)]
        if not indices:
            raise UsageError(f"{self.space.name}: expected points that meet its conditions, found none")
        return indices

    def name(self, index: int) -> str:
        """A candidate's name. All have the same length, so that code that contains names can be compared."""
        return f"{self.space.name}_{index:0{len(str(len(self) - 1))}d}"

    def text(self, index: int) -> str:
        """``ROWS 32, STAGES 2``."""
        return ", ".join(f"{axis} {value}" for axis, value in self.point(index).items())


def of_suite(suite: Suite, name: str, shapes: tuple[str, ...] = (), objectives: Sequence[Objective] = ()) -> Grid:
    """The points of a suite's space.

    Args:
        shapes: to time candidates on, instead of those that the space names.
        objectives: minimized besides those that the space names.

    Raises:
        UsageError: the suite has no such space, or the space's variant does not run on a shape.
    """
    spaces = spaces_of(suite)
    space = spaces.get(name)
    if space is None:
        names = ", ".join(spaces) or "none"
        raise UsageError(f"{name}: expected a space of suite {suite.name} ({names}){did_you_mean(name, spaces)}")
    base = suite.variants[space.variant]
    runs_on = [s.name for s in suite.shapes.values() if base.runs_on(s)]
    for shape in set(shapes) - set(runs_on):
        raise UsageError(f"--shape {shape}: expected one that {base.name} runs on ({', '.join(runs_on)})")
    objectives = tuple(dict.fromkeys((*space.objectives, *objectives)))
    space = dataclasses.replace(space, shapes=shapes or space.shapes, objectives=objectives)
    return Grid(space, _constants(base, space))


def _constants(variant: Variant, space: Space) -> dict[str, object]:
    """The macros of a variant that are not axes."""
    return {macro: value for macro, value in variant.config.items() if macro not in space.axes}


def candidate(suite: Suite, grid: Grid, index: int) -> Variant:
    """A point as a variant."""
    base = suite.variants[grid.space.variant]
    config = {**base.config, **grid.point(index)}
    return dataclasses.replace(
        base, name=grid.name(index), config=config, parent=None, predictions=(), technique=grid.text(index)
    )


def named_points(suite: Suite, grid: Grid) -> dict[int, str]:
    """Point → name of the suite's variants in the space, at which a search begins."""
    base = suite.variants[grid.space.variant]
    names: dict[int, str] = {}
    for variant in suite.variants.values():
        shared = all(getattr(variant, name) == getattr(base, name) for name in _SHARED)
        if shared and _constants(variant, grid.space) == _constants(base, grid.space):
            try:
                index = grid.index(variant.config)  # type: ignore[arg-type]
            except (KeyError, ValueError):
                continue
            if not grid.broken(index):
                names.setdefault(index, variant.name)
    return names
