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


def prefixed(start: str, text: str) -> str:
    """The line with something before it; a step stays one."""
    return Step(start + text, text.done, text.total) if isinstance(text, Step) else start + text
