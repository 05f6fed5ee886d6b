"""How names, values and tables are written as text, and how names are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from flashcore.model.record import Value

#: Stands wherever a fact has no value: never an empty cell, never 0.
UNMEASURED = "unmeasured"


def matches(name: str, globs: Sequence[str]) -> bool:
    """Whether one of the globs matches."""
    return any(glob == "*" or glob == name or fnmatchcase(name, glob) for glob in globs)


def same(one: str, other: str) -> bool:
    """Whether two archs name the same hardware: sm_90 and sm_90a do."""
    return one.rstrip("af") == other.rstrip("af")


_UNITS = {"1": "", "text": "", "pct": " %", "us": " µs"}


def number(value: Value | None, unit: str = "") -> str:
    """A value with its unit for reading: whole numbers exactly, others to six digits."""
    if value is None:
        return "unmeasured"
    if isinstance(value, (bool, str)):
        return str(value).lower() if isinstance(value, bool) else value
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
    text = f"{int(value):,}" if whole else f"{value:,.6g}"
    return text + _UNITS.get(unit, f" {unit}" if unit else "")


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns: text to the left, numbers to the right."""
    body = [list(r) for r in rows]
    widths = [max(len(str(r[i])) for r in [header, *body]) for i in range(len(header))]
    right = [bool(body) and all(_is_number(r[i]) for r in body) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *map(line, body)])


def _is_number(text: str) -> bool:
    return text in ("", "-", UNMEASURED) or text[:1].isdigit() or text[:1] in "+-."
