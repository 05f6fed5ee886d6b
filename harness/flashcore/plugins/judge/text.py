"""Strings of candidates."""

from __future__ import annotations

from flashcore.model.text import visible

_MOST = 120


def untrusted(text: object, most: int = _MOST) -> str:
    """A candidate's text in our text: on one line, without control characters, shortened."""
    line = " ".join(visible(str(text)[: 4 * most]).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
