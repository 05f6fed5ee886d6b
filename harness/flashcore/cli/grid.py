"""Plain text tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from flashcore.model.record import Fact
from flashcore.model.text import UNMEASURED, fixed


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns under a header: text left, numbers right."""
    body = [list(r) for r in rows]
    right = {i for i in range(len(header)) if body and all(_is_number(r[i]) for r in body)}
    rule = ["-" * max(map(len, column)) for column in zip(header, *body, strict=True)]
    return "\n".join(aligned([header, rule, *body], right))


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.rjust if i in right else str.ljust for i in range(len(widths))]
    return ["  ".join(side(c, w) for side, c, w in zip(sides, row, widths, strict=True)).rstrip() for row in rows]


def _is_number(text: str) -> bool:
    return text in ("", "-", UNMEASURED) or text[:1].isdigit() or text[:1] in "+-."


def cell(fact: Fact | None, digits: int = 1) -> str:
    return fixed(None if fact is None else fact.value, digits)
