"""``space.toml`` of a suite: for each space, the configs of one variant's source to search, and conditions on them."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError, with_config

from flashcore.errors import ManifestError, UsageError
from flashcore.model.suite import Suite, Variant
from flashcore.model.text import did_you_mean, misspelled
from flashcore.suites.expressions import evaluated, parse

FILE = "space.toml"  # in the suite's folder
MOST_POINTS = 100_000
_SHARED = ("kind", "problem", "tolerance")  # by all variants of a space
_Axis = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
_Values = Annotated[tuple[StrictInt | StrictStr, ...], Field(min_length=1)]
Point = dict[str, int | str]


@with_config(ConfigDict(extra="forbid"))
@dataclasses.dataclass(frozen=True)
class Space:
    """The configs of one variant's source to search. Points are numbered, the last axis running fastest.

    Args:
        variant: provides everything except the axes: source, other macros, tolerance, archs.
        axes: macro of its config → its values, in order.
        shapes: the shapes to time; the first one ranks.
        conditions: on the axes and the variant's other macros; see :mod:`flashcore.suites.expressions`.
        hard: static budgets that reject a candidate; the others are soft, and the candidate may still win.
        against: the variant that finalists are to beat; empty: the fastest in the space.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]
    variant: str
    axes: Annotated[Mapping[_Axis, _Values], Field(min_length=1)]
    shapes: Annotated[tuple[str, ...], Field(min_length=1)]
    conditions: tuple[str, ...] = ()
    hard: tuple[str, ...] = ()
    against: str = ""

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
        """Each wrong key: its name, the expected and the actual value."""
        variants = suite.variants
        base = variants.get(self.variant)
        if base is None or not base.kind.compiler:
            compiled = [n for n, v in variants.items() if v.kind.compiler]
            expected = 'a variant with a source, or with cubins = "triton"'
            yield "variant", expected, misspelled(self.variant, compiled)
        for axis, values in self.axes.items():
            if len(set(values)) < len(values):
                yield f"axes.{axis}", "each value once", repr(values)
        if (size := math.prod(map(len, self.axes.values()))) > MOST_POINTS:
            yield "axes", f"at most {MOST_POINTS:,} points", f"{size:,}"
        for i, condition in enumerate(self.conditions):
            try:
                parse(condition, [*self.axes, *(base.config if base else ())])
            except ValueError as error:
                yield f"conditions[{i}]", str(error), repr(condition)
        for name in self.shapes:
            if (shape := suite.shapes.get(name)) is None or (base is not None and not base.runs_on(shape)):
                yield "shapes", f"shapes that {self.variant} runs on", misspelled(name, suite.shapes)
        static = [budget.name for budget in suite.budgets if budget.tier == "static"]
        for budget in self.hard:
            if budget not in static:
                yield "hard", "the name of a static budget", misspelled(budget, static)
        rival = variants.get(self.against or self.variant)
        if rival is None or rival.is_reference or (base is not None and rival.problem != base.problem):
            yield "against", "a variant of the same problem", misspelled(self.against or self.variant, variants)


class Grid:
    """The points of a space, by their numbers.

    Args:
        constants: the variant's other macros, which conditions may name.
    """

    def __init__(self, space: Space, constants: Mapping[str, object] | None = None) -> None:
        self.space, self.constants = space, dict(constants or {})
        names = [*space.axes, *self.constants]
        self._conditions = {text: parse(text, names) for text in space.conditions}

    def __len__(self) -> int:
        return math.prod(map(len, self.space.axes.values()))

    def places(self, index: int) -> dict[str, int]:
        """The place of a point on each axis, counted from 0."""
        places = {}
        for axis, values in reversed([*self.space.axes.items()]):
            index, places[axis] = divmod(index, len(values))
        return dict(reversed(places.items()))

    def point(self, index: int) -> Point:
        """A point's value on each axis."""
        return {axis: self.space.axes[axis][place] for axis, place in self.places(index).items()}

    def index(self, point: Mapping[str, object]) -> int:
        """The number of a point.

        Raises:
            ValueError, KeyError: it is not in this space.
        """
        index = 0
        for axis, values in self.space.axes.items():
            index = index * len(values) + [*values].index(point[axis])  # type: ignore[arg-type]
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

    @cached_property
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
        """A candidate's name."""
        return f"{self.space.name}_{index:0{len(str(len(self) - 1))}d}"

    def text(self, index: int) -> str:
        """``ROWS 32, STAGES 2``."""
        return ", ".join(f"{axis} {value}" for axis, value in self.point(index).items())

    def candidate(self, suite: Suite, index: int) -> Variant:
        """A point as a variant."""
        base = suite.variants[self.space.variant]
        config = {**base.config, **self.point(index)}
        return dataclasses.replace(
            base, name=self.name(index), config=config, parent=None, predictions=(), technique=self.text(index)
        )

    def named(self, suite: Suite) -> dict[int, str]:
        """Point → name of the suite's variants in the space, at which a search begins."""
        base = suite.variants[self.space.variant]
        names: dict[int, str] = {}
        for variant in suite.variants.values():
            shared = all(getattr(variant, name) == getattr(base, name) for name in _SHARED)
            if shared and _constants(variant, self.space) == self.constants:
                try:
                    index = self.index(variant.config)
                except (KeyError, ValueError):
                    continue
                if not self.broken(index):
                    names.setdefault(index, variant.name)
        return names


def _constants(variant: Variant, space: Space) -> dict[str, object]:
    """The macros of a variant that are not axes."""
    return {macro: value for macro, value in variant.config.items() if macro not in space.axes}


def read(suite: Suite, name: str, shapes: tuple[str, ...] = ()) -> Grid:
    """The points of a space of the suite.

    Args:
        shapes: to time candidates on, instead of those that the space names.

    Raises:
        UsageError: the suite has no such space, or the space's variant does not run on a shape.
        ManifestError: ``space.toml`` is wrong; lists every mistake.
    """
    spaces = _spaces(suite)
    if name not in spaces:
        hint = did_you_mean(name, spaces)
        raise UsageError(f"{name}: expected a space of suite {suite.name} ({', '.join(spaces) or 'none'}){hint}")
    space = spaces[name]
    base = suite.variants[space.variant]
    runs_on = [s.name for s in suite.shapes.values() if base.runs_on(s)]
    for shape in set(shapes) - set(runs_on):
        raise UsageError(f"--shape {shape}: expected one that {base.name} runs on ({', '.join(runs_on)})")
    return Grid(dataclasses.replace(space, shapes=shapes or space.shapes), _constants(base, space))


def _spaces(suite: Suite) -> dict[str, Space]:
    file = Path(suite.root) / FILE
    if not file.is_file():
        raise UsageError(f"{file}: expected a file with the suite's spaces, found none")
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        spaces = TypeAdapter(list[Space]).validate_python([{"name": n, **dict(t)} for n, t in tables.items()])
    except ValidationError as error:
        names, lines = [*tables], []
        for one in error.errors():
            place, *keys = one["loc"]
            key = ".".join(map(str, (names[int(place)], *keys)))
            lines.append(f"{key}: {one['msg']}, found {one['input']!r}")
        raise ManifestError(str(file), lines) from error
    except (ValueError, TypeError) as error:
        raise ManifestError(str(file), [str(error)]) from error
    wrong = [f"{s.name}.{key}: expected {e}, found {f}" for s in spaces for key, e, f in s.mistakes(suite)]
    if wrong:
        raise ManifestError(str(file), wrong)
    return {space.name: space for space in spaces}
