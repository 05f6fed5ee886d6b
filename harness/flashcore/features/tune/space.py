"""``[space.<name>]`` of a manifest: the configs of one variant's source to search, and the conditions between axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter

from flashcore.model.suite import Suite
from flashcore.model.text import misspelled
from flashcore.suites.expressions import parse
from flashcore.suites.schema import Name, TableForm, Text

MOST_POINTS = 100_000
Objective = Literal["time", "error", "smem", "energy"]
OBJECTIVES = get_args(Objective)


@dataclass(frozen=True, slots=True)
class Space:
    """The configs of one variant's source to search.

    Args:
        variant: provides everything except the axes: source, other macros, tolerance, archs.
        axes: macro of its config → its values, in order.
        conditions: on the axes and the variant's other macros; see :mod:`flashcore.suites.expressions`.
        shapes: the shapes to time; the first one ranks.
        objectives: the quantities to minimize: ``time`` at each shape, ``error``, ``smem``, ``energy`` of a call
            at the first shape.
        hard: static budgets that reject a candidate; the others are soft, and the candidate may still win.
        against: the variant that finalists are to beat; empty: the fastest in the space.
    """

    name: str
    variant: str
    axes: Mapping[str, tuple[int | str, ...]]
    conditions: tuple[str, ...]
    shapes: tuple[str, ...]
    objectives: tuple[str, ...] = ("time",)
    hard: tuple[str, ...] = ()
    against: str = ""


def spaces_of(suite: Suite) -> dict[str, Space]:
    """The spaces that a suite declares, by name."""
    tables = suite.tables.get("space", {})
    spaces = [{"name": name, **table, "against": table["against"] or ""} for name, table in tables.items()]
    return {space.name: space for space in TypeAdapter(list[Space]).validate_python(spaces)}


class SpaceForm(TableForm):
    """``[space.<name>]``"""

    variant: Text
    """Variant whose `config` is searched."""
    axes: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], Annotated[list[int | str], Field(min_length=1)]] = (
        Field(min_length=1)
    )
    """Key of its `config` → values to try."""
    conditions: list[Text] = Field(default=[])
    """Expressions of axes that a point must fulfil."""
    shapes: list[Name] = Field(min_length=1)
    """Shapes that points are timed on; the first ranks them."""
    objectives: list[Objective] = Field(default=["time"], min_length=1)
    """What is minimized."""
    hard: list[Name] = Field(default=[])
    """Static budgets that a point must meet to be timed."""
    against: Text | None = None
    """Variant that finalists are timed against; default: the fastest."""

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
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
            yield "against", "a variant of the same problem", misspelled(str(self.against), variants)
