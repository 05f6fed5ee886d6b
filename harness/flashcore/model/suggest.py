"""Suggests the nearest valid name for a misspelled one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`` (did you mean X?)`` with the closest name, else one that starts with ``name``; empty if there is none."""
    by_lower, text = {n.lower(): n for n in names}, name.strip("*?").lower()
    near = difflib.get_close_matches(text, by_lower, n=1) or [n for n in by_lower if text[2:] and n.startswith(text)]
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""


def misspelled(name: str, names: Iterable[str]) -> str:
    """The quoted name, with :func:`did_you_mean`."""
    return repr(name) + did_you_mean(name, names)
