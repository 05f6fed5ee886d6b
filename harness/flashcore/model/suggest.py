"""The known name that a misspelt one may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to add to an error: `` (did you mean X?)`` with the nearest name, or one that begins so; else empty."""
    import difflib  # only ever needed once, at the end

    names, given = {n.lower(): n for n in known}, name.strip("*?").lower()
    near = difflib.get_close_matches(given, names, n=1) or [n for n in names if given[2:] and n.startswith(given)]
    return f" (did you mean {names[near[0]]}?)" if near else ""


def misspelt(name: str, known: Iterable[str]) -> str:
    """An unknown name in quotes, with the known one that it may mean."""
    return repr(name) + did_you_mean(name, known)
