"""How a file writes its numbers: with a decimal point (``27,595.5``) or a decimal comma (``27.595,5``).

The file decides, not the value: ``117.344`` is 117 nanoseconds in one and 117,344 in another. What only one convention
can have written is evidence; numbers that both can have, without evidence, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMERIC = re.compile(r"[-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?")
#: Six decimals without groups, as C writes a double: by itself in either convention.
_SIX = re.compile(r"[-+]?\d+[.,]\d{6}")
_EVIDENCE = {
    ".": re.compile(
        r"\d{1,3}(,\d{3})+\.\d+|\d{1,3}(,\d{3}){2,}|0\.\d+|\d{4,}\.\d+|\d+\.(\d{1,2}|\d{4,})|\d+\.\d+[eE].*"
    ),
    ",": re.compile(r"\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}|0,\d+|\d{4,},\d+|\d+,(\d{1,2}|\d{4,})|\d+,\d+[eE].*"),
}
_EITHER = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")
_PLAIN = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Undecided(ValueError):
    """The file does not show which convention it has; says why."""


def decimal_mark(cells: Iterable[str]) -> str:
    """``.`` or ``,``, by all the numbers of a file.

    Raises:
        Undecided: there is evidence of both, or of neither where the two differ.
    """
    found: dict[str, str] = {}
    open_ = ""
    for cell in cells:
        text = cell.strip().lstrip("-+")
        if not _NUMERIC.fullmatch(text) or _SIX.fullmatch(text):
            continue
        for mark, form in _EVIDENCE.items():
            if form.fullmatch(text):
                found.setdefault(mark, text)
        if _EITHER.fullmatch(text):
            open_ = open_ or text
    if len(found) == 2:
        raise Undecided(f"a decimal point in {found['.']} and a decimal comma in {found[',']}")
    if open_ and not found:
        raise Undecided(f"{open_}, which may be a thousand times as much, and no number that tells")
    return next(iter(found), ".")


def number(text: str, mark: str) -> float | int | None:
    """The number that a file of that convention wrote; ``None`` if it is none. A word such as ``nan`` is NaN."""
    text = text.strip()
    if text.lower() in ("nan", "-nan", "inf", "+inf", "-inf"):
        return float("nan")
    if not _NUMERIC.fullmatch(text):
        return None
    if _SIX.fullmatch(text):
        return float(text.replace(",", "."))
    group = "," if mark == "." else "."
    if group in text and not re.fullmatch(rf"[-+]?\d{{1,3}}(\{group}\d{{3}})+(\{mark}.*)?", text):
        return None
    text = text.replace(group, "").replace(mark, ".")
    if not _PLAIN.fullmatch(text):
        return None
    return float(text) if re.search("[.eE]", text) else int(text)
