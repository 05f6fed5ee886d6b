"""What long work says of itself: lines of text, some of which know how far it is."""

from __future__ import annotations

from typing import Self


class Step(str):
    """A line of progress: ``done`` of ``total`` are over. Whoever shows plain lines takes it as one."""

    done: int
    total: int

    def __new__(cls, text: str, done: int, total: int) -> Self:
        step = super().__new__(cls, text)
        step.done, step.total = done, total
        return step


class Failure(str):
    """A line that says what went wrong: not progress, so it is shown to those as well who want to hear of none."""


def prefixed(start: str, text: str) -> str:
    """The line with something before it; a step or a failure stays one."""
    if isinstance(text, Step):
        return Step(start + text, text.done, text.total)
    return Failure(start + text) if isinstance(text, Failure) else start + text
