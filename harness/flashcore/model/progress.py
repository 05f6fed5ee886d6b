"""Progress messages: lines of text, some with a count of finished steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Drops a message."""


class ProgressLine(str):
    """A progress line: ``done`` of ``total`` steps have finished."""

    done: int
    total: int

    def __new__(cls, text: str, done: int, total: int) -> Self:
        step = super().__new__(cls, text)
        step.done, step.total = done, total
        return step


class FailureLine(str):
    """An error line. It is shown even if progress is not (``-q``)."""


def prefixed(say: Say, start: str) -> Say:
    """``say`` of lines that begin with ``start``; a :class:`ProgressLine` or :class:`FailureLine` keeps its type."""

    def said(text: str) -> None:
        line = start + text
        if isinstance(text, ProgressLine):
            line = ProgressLine(line, text.done, text.total)
        say(FailureLine(line) if isinstance(text, FailureLine) else line)

    return said
