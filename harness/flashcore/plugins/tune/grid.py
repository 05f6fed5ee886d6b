"""The points of a space: each has a number, and so a name that does not depend on the sampler."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

from flashcore.errors import UsageError
from flashcore.model.suggest import did_you_mean
from flashcore.model.suite import Suite, Variant
from flashcore.plugins.tune import conditions
from flashcore.plugins.tune import space as spaces
from flashcore.plugins.tune.space import Space

Point = dict[str, int | str]
_KERNEL = ("kind", "problem", "tolerance")  # what variants of one space have in common


class Grid:
    """All points of a space, numbered with the last axis running fastest, and which of them meet the conditions.

    Args:
        constants: the variant's other macros, which conditions may name.
    """

    def __init__(self, space: Space, constants: Mapping[str, object] | None = None) -> None:
        self.space = space
        self._constants = dict(constants or {})
        names = [*space.axes, *self._constants]
        self._conditions = [conditions.parse(text, names) for text in space.conditions]

    def __len__(self) -> int:
        return math.prod(map(len, self.space.axes.values()))

    def point(self, index: int) -> Point:
        """The point of that number."""
        found: Point = {}
        for axis, values in reversed(list(self.space.axes.items())):
            index, place = divmod(index, len(values))
            found[axis] = values[place]
        return {axis: found[axis] for axis in self.space.axes}

    def index(self, point: Mapping[str, int | str]) -> int:
        """The number of a point.

        Raises:
            ValueError, KeyError: it is none of this space.
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
        values = {**self._constants, **self.point(index)}
        for text, condition in zip(self.space.conditions, self._conditions, strict=True):
            try:
                if not conditions.holds(condition, values):
                    return text
            except ValueError as error:
                raise UsageError(f"space.{self.space.name}.conditions: {text!r}: {error} at {values}") from error
        return ""

    @functools.cached_property
    def feasible(self) -> list[int]:
        """The numbers of the points that meet all conditions.

        Raises:
            UsageError: there is none.
        """
        found = [i for i in range(len(self)) if not self.broken(i)]
        if not found:
            raise UsageError(f"space.{self.space.name}: expected points that meet its conditions, found none")
        return found

    def name(self, index: int) -> str:
        """A candidate's name. All have the same length, so that code which holds one can be compared."""
        return f"{self.space.name}_{index:0{len(str(len(self) - 1))}d}"

    def text(self, index: int) -> str:
        """``ROWS 32, STAGES 2``."""
        return ", ".join(f"{axis} {value}" for axis, value in self.point(index).items())


def of(suite: Suite, name: str, shapes: tuple[str, ...] = ()) -> Grid:
    """The points of a suite's space.

    Args:
        shapes: to time candidates on, instead of those that the space names.

    Raises:
        UsageError: it has no such space, or its variant does not run on a shape.
    """
    declared = spaces.of(suite)
    space = declared.get(name)
    if space is None:
        known = ", ".join(declared) or "none; declare one as [space.NAME] in the manifest"
        raise UsageError(f"{name}: expected a space of suite {suite.name} ({known}){did_you_mean(name, declared)}")
    base = suite.variants[space.variant]
    for shape in shapes:
        if shape not in suite.shapes or not base.runs_on(suite.shapes[shape]):
            known = ", ".join(s.name for s in suite.shapes.values() if base.runs_on(s))
            raise UsageError(f"--shape {shape}: expected one that {base.name} runs on ({known})")
    space = dataclasses.replace(space, shapes=shapes or space.shapes)
    return Grid(space, {k: v for k, v in base.config.items() if k not in space.axes})


def variant(suite: Suite, grid: Grid, index: int) -> Variant:
    """The variant that a point stands for."""
    base = suite.variants[grid.space.variant]
    config = {**base.config, **grid.point(index)}
    return dataclasses.replace(
        base, name=grid.name(index), config=config, parent=None, predictions=(), technique=grid.text(index)
    )


def ancestors(suite: Suite, grid: Grid) -> dict[int, str]:
    """The suite's variants that lie in the space, by their points' numbers: where a search begins."""
    base, axes = suite.variants[grid.space.variant], grid.space.axes
    found: dict[int, str] = {}
    for v in suite.variants.values():
        of_base, of_own = ({k: x for k, x in u.config.items() if k not in axes} for u in (base, v))
        same = all(getattr(v, what) == getattr(base, what) for what in _KERNEL)
        if same and of_base == of_own and all(v.config.get(axis) in values for axis, values in axes.items()):
            found.setdefault(grid.index({axis: v.config[axis] for axis in axes}), v.name)  # type: ignore[misc]
    return {i: name for i, name in found.items() if not grid.broken(i)}
