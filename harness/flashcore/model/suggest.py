"""The known name that a misspelt one may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to add to an error: `` (did you mean X?)`` with the nearest of the names; empty if none is near."""
    import difflib  # only ever needed once, at the end

    names = {n.lower(): n for n in known}
    near = difflib.get_close_matches(name.strip("*?").lower(), names, n=1)
    return f" (did you mean {names[near[0]]}?)" if near else ""
