"""``space.toml`` of a suite: for each space, the configs of one variant's source to search, and conditions on them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError, with_config

from flashcore.errors import ManifestError, UsageError
from flashcore.model.suite import Suite
from flashcore.model.text import misspelled
from flashcore.suites.expressions import parse

FILE = "space.toml"  # in the suite's folder
MOST_POINTS = 100_000
Objective = Literal["time", "error", "smem", "energy"]
OBJECTIVES = get_args(Objective)
_Values = Annotated[tuple[StrictInt | StrictStr, ...], Field(min_length=1)]


@with_config(ConfigDict(extra="forbid"))
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

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]
    variant: str
    axes: Annotated[Mapping[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], _Values], Field(min_length=1)]
    shapes: Annotated[tuple[str, ...], Field(min_length=1)]
    conditions: tuple[str, ...] = ()
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)] = ("time",)
    hard: tuple[str, ...] = ()
    against: str = ""


def spaces_of(suite: Suite) -> dict[str, Space]:
    """The spaces that a suite declares, by name.

    Raises:
        UsageError: the suite has no ``space.toml``.
        ManifestError: it is wrong; lists every mistake.
    """
    file = Path(suite.root) / FILE
    if not file.is_file():
        raise UsageError(f"{file}: expected a file with the suite's spaces, found none")
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        spaces = TypeAdapter(list[Space]).validate_python([{"name": n, **dict(t)} for n, t in tables.items()])
    except ValidationError as error:
        names = list(tables)
        lines = (
            (".".join(map(str, (names[int(e["loc"][0])], *e["loc"][1:]))), e["msg"], e["input"]) for e in error.errors()
        )
        raise ManifestError(str(file), [f"{key}: {text}, found {found!r}" for key, text, found in lines]) from error
    except (ValueError, TypeError) as error:
        raise ManifestError(str(file), [str(error)]) from error
    wrong = [f"{s.name}.{key}: expected {e}, found {f}" for s in spaces for key, e, f in mistakes(s, suite)]
    if wrong:
        raise ManifestError(str(file), wrong)
    return {space.name: space for space in spaces}


def mistakes(space: Space, suite: Suite) -> Iterator[tuple[str, str, str]]:
    """Each reference of a space that leads nowhere: the key, the expected and the actual value."""
    variants = suite.variants
    base = variants.get(space.variant)
    if base is None or not base.kind.compiler:
        compiled = [n for n, v in variants.items() if v.kind.compiler]
        expected = 'a variant with a source, or with cubins = "triton"'
        yield "variant", expected, misspelled(space.variant, compiled)
    for axis, values in space.axes.items():
        if len(set(values)) < len(values):
            yield f"axes.{axis}", "each value once", repr(values)
    if (size := math.prod(map(len, space.axes.values()))) > MOST_POINTS:
        yield "axes", f"at most {MOST_POINTS:,} points", f"{size:,}"
    for i, condition in enumerate(space.conditions):
        try:
            parse(condition, [*space.axes, *(base.config if base else ())])
        except ValueError as error:
            yield f"conditions[{i}]", str(error), repr(condition)
    for name in space.shapes:
        if (shape := suite.shapes.get(name)) is None or (base is not None and not base.runs_on(shape)):
            yield "shapes", f"shapes that {space.variant} runs on", misspelled(name, suite.shapes)
    static = [budget.name for budget in suite.budgets if budget.tier == "static"]
    for budget in space.hard:
        if budget not in static:
            yield "hard", "the name of a static budget", misspelled(budget, static)
    rival = variants.get(space.against or space.variant)
    if rival is None or rival.is_reference or (base is not None and rival.problem != base.problem):
        yield "against", "a variant of the same problem", misspelled(space.against or space.variant, variants)
