"""The shapes of a sealed candidate, drawn from the system's randomness."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt

from flashcore.errors import UsageError
from flashcore.model.suite import Shape, Suite
from flashcore.model.text import misspelled
from flashcore.suites.schema import TableForm, Text

_DRAWN = 2  # shapes of a problem
_DICE = random.SystemRandom()


class DrawForm(TableForm):
    """``[judge.<problem>]``: the ranges of parameters that shapes are drawn from, ``R = [least, most, multiple]``."""

    named_by: ClassVar[str] = "problems"
    draw: dict[Text, Annotated[list[PositiveInt], Field(min_length=2, max_length=3)]]
    """Parameter → `[least, most]` or `[least, most, multiple]`."""

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
        params = {name for shape in suite.shapes.values() for name in shape.params}
        for name, numbers in self.draw.items():
            if name not in params:
                yield f"draw.{name}", "a parameter of the suite's shapes", misspelled(name, params)
            if not _values(*numbers):
                yield f"draw.{name}", "[least, most] or [least, most, multiple]", str(numbers)


def shapes(suite: Suite, problem: str, only: list[str], *, fixed: bool) -> list[Shape]:
    """The problem's shapes in a drawn order, and some that the suite does not list.

    Args:
        only: names of shapes; none: all. Of all, some are drawn, too.
        fixed: whether launches are given by shape, so that none can be drawn.

    Raises:
        UsageError: there is no such problem or shape.
    """
    every = [s for s in suite.shapes.values() if s.problem == problem]
    listed = [s for s in every if not only or s.name in only]
    if not listed:
        raise UsageError(f"expected a problem of {suite.name} and some of its shapes, found {problem}")
    _DICE.shuffle(listed)
    ranges = suite.tables.get("judge", {}).get(problem, {}).get("draw", {})
    drawn = []
    for number in range(_DRAWN if ranges and len(listed) == len(every) and not fixed else 0):
        values = {name: _DICE.choice(_values(*numbers)) for name, numbers in ranges.items()}
        params = {**listed[number % len(listed)].params, **values}
        drawn.append(replace(listed[0], name=f"drawn_{number}", params=params, stages=("check",)))
    return listed + drawn


def _values(least: int, most: int, multiple: int = 1) -> range:
    return range(-(-least // multiple) * multiple, most + 1, multiple)
