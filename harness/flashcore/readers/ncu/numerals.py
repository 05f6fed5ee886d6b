"""Parses ncu's numbers and units, with a decimal point (``27,595.5``) or a decimal comma (``27.595,5``).

The convention is a property of the file: ``117.344`` is 117 nanoseconds in one and 117,344 in another. A number that is
valid in only one convention is evidence; without one, a number is that makes sense in only one: a count is whole, and
a percentage has no thousands. A file with ambiguous numbers and no evidence is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

_NUMERIC = re.compile(r"[-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?")
#: Six decimals without groups, as printf writes a double; valid in either convention, and no evidence.
_SIX = re.compile(r"[-+]?\d+[.,]\d{6}")
_EVIDENCE = {
    ".": re.compile(
        r"\d{1,3}(,\d{3})+\.\d+|\d{1,3}(,\d{3}){2,}|0\.\d+|\d{4,}\.\d+|\d+\.(\d{1,2}|\d{4,})|\d+\.\d+[eE].*"
    ),
    ",": re.compile(r"\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}|0,\d+|\d{4,},\d+|\d+,(\d{1,2}|\d{4,})|\d+,\d+[eE].*"),
}
_EITHER = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")
_MOST_DIGITS = 40  # ncu prints no longer integers, and Python refuses to convert thousands of digits
_PLAIN = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Undecided(ValueError):
    """The file's convention cannot be determined; the message says why."""


#: Metrics that count, if their unit does: no averages and no rates. What ncu derives may be of any size.
_COUNTS = re.compile(r"(?!launch__waves|derived__)\w+(?:\.(?:sum|max|min))?")


def decimal_mark(cells: Iterable[tuple[str, str, str]]) -> str:
    """The decimal mark of a file, ``.`` or ``,``, from all its numbers, each with its metric and unit.

    Raises:
        Undecided: there is evidence of both, or an ambiguous number and evidence of neither.
    """
    evidence: dict[str, str] = {}
    sense: dict[str, str] = {}
    ambiguous = ""
    for cell, metric, unit in cells:
        text = cell.strip().lstrip("-+")
        if not _NUMERIC.fullmatch(text) or _SIX.fullmatch(text):
            continue
        for mark, form in _EVIDENCE.items():
            if form.fullmatch(text):
                evidence.setdefault(mark, text)
        if _EITHER.fullmatch(text):
            named = f"{text} {unit} of {metric}"
            if unit == "%" and not metric.startswith("derived__"):
                sense.setdefault("," if "," in text else ".", named)
            elif convert(1, unit, "ns") == 1 or (_COUNTS.fullmatch(metric) and _WHOLE.fullmatch(unit)):
                sense.setdefault("." if "," in text else ",", named)
            else:
                readings = f"{number(text, '.'):,} or {number(text, ','):,}"
                ambiguous = ambiguous or f"{named}, which is {readings}, and no number that decides"
    expected = "expected numbers in one convention that can be told"
    decided = evidence or sense
    if len(decided) == 2:
        raise Undecided(f"{expected}, found a decimal point in {decided['.']} and a decimal comma in {decided[',']}")
    if ambiguous and not decided:
        raise Undecided(f"{expected}, found {ambiguous}")
    return next(iter(decided), ".")


def number(text: str, mark: str) -> float | int | None:
    """Parses a number with that decimal mark; ``None`` if it is none."""
    text = text.strip()
    if len(text) < 16 and text.isascii() and text.isdigit():  # fast path of most numbers
        return int(text)
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
    return float(text) if re.search("[.eE]", text) or len(text) > _MOST_DIGITS else int(text)


_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PARTS = {"": 1.0, "m": 1e3, "u": 1e6, "n": 1e9}  # per unit without prefix
_TIME = re.compile(r"(?P<prefix>[num]?)(?:s|sec|second)")
_BYTES = re.compile(r"(?P<prefix>[KMGT]?)(?:byte|B)(?:/block)?")
_FREQUENCY = re.compile(r"(?P<prefix>[kKMGT]?)(?:hz|Hz)|(?P<top>[KMGT]?)cycle/(?P<below>[num]?)(?:s|second)")
#: ncu's units of counts, also per thread, warp or block.
_COUNT = re.compile(
    r"|SM|branches|(?:inst|warp|block|thread|cycle|sector|request|wavefront|register|cluster|pass|sample|tag|ops?)s?"
    r"(?:/(?:thread|warp|block))?"
)
#: Units of what comes whole.
_WHOLE = re.compile(rf"(?:byte|B)(?:/block)?|{_COUNT.pattern}")

_SCALED = re.compile(r"(?P<prefix>[KMGT])(?P<base>(?:byte|hz|Hz|inst|cycle|sector|request|warp|thread|block|op)s?\b.*)")


@functools.cache
def base(unit: str) -> tuple[float, str]:
    """The factor and the base unit of a unit, as with ``--print-units base``."""
    if match := _SCALED.fullmatch(unit):
        return _SCALE[match["prefix"]], match["base"]
    if (match := _TIME.fullmatch(unit)) and match["prefix"] != "n":
        return 1e9 / _PARTS[match["prefix"]], "ns"
    return 1, unit


def convert(value: float, unit: str, wanted: str) -> float | None:
    """Converts ``value`` to ``wanted`` (``ns``, ``B``, ``pct``, ``Hz`` or ``1``); ``None`` if the units differ in kind.

    A count (``1``) accepts only ncu's units of counts (inst, warp, block, register/thread): an unknown unit may be a
    time, a rate or a multiple (``minute``, ``Kinst``).
    """
    unit = unit.strip()
    time, size, clock = _TIME.fullmatch(unit), _BYTES.fullmatch(unit), _FREQUENCY.fullmatch(unit)
    match wanted:
        case "ns" if time:
            return value * (1e9 / _PARTS[time["prefix"]])
        case "B" if size:
            return value * _SCALE[size["prefix"]]
        case "Hz" if clock:
            return value * _SCALE[clock["prefix"] or clock["top"] or ""] * _PARTS[clock["below"] or ""]
        case "pct" if unit == "%":
            return value
        case "1" if _COUNT.fullmatch(unit):
            return value
    return None
