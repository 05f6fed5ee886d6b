"""The shapes of a sealed candidate, drawn from the system's randomness."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge.text import untrusted
from flashcore.suites.schema import TableForm, Text

_DRAWN = 2  # shapes of a problem


class DrawForm(TableForm):
    """``[judge.<problem>]``: the ranges of parameters that shapes are drawn from, ``R = [least, most, multiple]``."""

    draw: dict[Text, list[int]]

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
        for name, numbers in self.draw.items():
            if len(numbers) not in (2, 3) or not 0 < numbers[0] <= numbers[1] or numbers[-1] < 1:
                yield f"draw.{name}", "[least, most] or [least, most, multiple]", str(numbers)


def shapes(suite: Suite, problem: str, only: list[str]) -> list[tuple[Shape, bool]]:
    """The problem's shapes in a drawn order, then some that the suite does not list; and whether each was drawn.

    Args:
        only: names of shapes; none: all, and drawn ones.

    Raises:
        UsageError: there is no such problem or shape.
    """
    listed = [s for s in suite.shapes.values() if s.problem == problem and (not only or s.name in only)]
    made = [(listed.pop(secrets.randbelow(len(listed))), False) for _ in range(len(listed))]
    if not made:
        raise UsageError(f"expected a problem of {suite.name} and some of its shapes, found {untrusted(problem)}")
    ranges: Mapping[str, Any] = suite.tables.get("judge", {}).get(problem, {}).get("draw", {})
    if ranges and not only:
        for number in range(_DRAWN):
            params = {**made[number % len(made)][0].params, **{name: _drawn(*r) for name, r in ranges.items()}}
            made.append((replace(made[0][0], name=f"drawn_{number}", params=params, stages=("check",)), True))
    return made


def _drawn(least: int, most: int, multiple: int = 1) -> int:
    first, last = -(-least // multiple), most // multiple
    return multiple * (first + secrets.randbelow(max(last - first, 0) + 1))
