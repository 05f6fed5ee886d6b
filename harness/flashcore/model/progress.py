"""Progress messages of long work: lines of text, some with the number of steps done."""

from __future__ import annotations

from typing import Self


class Step(str):
    """A line of progress: ``done`` of ``total`` steps have ended. As a ``str`` it can be shown like any other line."""

    done: int
    total: int

    def __new__(cls, text: str, done: int, total: int) -> Self:
        step = super().__new__(cls, text)
        step.done, step.total = done, total
        return step


class Failure(str):
    """A line that says what went wrong. It is shown even where progress is not (``-q``)."""


def prefixed(start: str, text: str) -> str:
    """The line with ``start`` before it; a step or a failure keeps its type."""
    if isinstance(text, Step):
        return Step(start + text, text.done, text.total)
    return Failure(start + text) if isinstance(text, Failure) else start + text
