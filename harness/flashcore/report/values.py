"""How a value is written on a page: rounded for reading, exact on hover, never blank.

Rounding keeps significant digits, so that a small value does not become 0. What was not measured is
the word ``unmeasured`` with its reason, and sorts last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from flashcore.model.catalogue import FACTS
from flashcore.model.record import Fact, Value
from flashcore.model.text import UNMEASURED

NOT_APPLICABLE = "n/a"

Kind = Literal["number", "text", "missing", "none"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One table cell.

    Args:
        text: what is read; ``unit`` follows it in small type.
        title: what hovering tells: exact value, source, subject, note.
        sort: the value a column sorts by; ``None`` sorts last, whatever the direction.
        kind: ``missing`` is unmeasured, ``none`` does not apply here.
        mark: a status word that the style sheet knows (``pass``, ``fail``, …).
        href: where it leads.
        detail: a second, smaller line or suffix.
    """

    text: str
    unit: str = ""
    title: str = ""
    sort: float | str | None = None
    kind: Kind = "text"
    mark: str = ""
    href: str = ""
    detail: str = ""


def significant(value: float, digits: int = 4) -> str:
    """``value`` to that many significant digits, with thousands separators; whole numbers keep all theirs."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -3:
        return f"{value:.{max(digits - 2, 1)}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def _scaled(value: float, unit: str, steps: tuple[tuple[float, str], ...]) -> tuple[str, str]:
    for step, prefix in steps:
        if abs(value) >= step:
            return significant(value / step), f"{prefix}{unit}"
    return (f"{value:,.0f}" if float(value).is_integer() else significant(value)), unit


_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def quantity(value: Value, unit: str) -> tuple[str, str]:
    """A value and its unit as a person reads them: ``("8.81", "µs")``, ``("1,970", "MHz")``."""
    if isinstance(value, bool):
        return ("yes" if value else "no"), ""
    if isinstance(value, str):
        return value, ""
    if unit == "ns":
        return significant(value / 1e3), "µs"
    if unit == "us":
        return significant(value), "µs"
    if unit == "pct":
        return (f"{value:,.1f}" if value == 0 or abs(value) >= 0.05 else significant(value, 2)), "%"
    if unit == "Hz":
        return f"{value / 1e6:,.0f}", "MHz"
    if unit == "MHz":
        return f"{value:,.0f}", "MHz"
    if unit == "C":
        return f"{value:,.0f}", "°C"
    if unit == "TFLOP/s":
        return significant(value, 3), unit
    return _scaled(float(value), "" if unit == "1" else unit, _SI)


#: The unit that a column of such a fact carries in its heading.
UNIT_TEXT = {"us": "µs", "pct": "%", "1": "", "text": "", "C": "°C", "ns": "µs", "Hz": "MHz"}


def unit_text(unit: str) -> str:
    """The unit as a heading shows it."""
    return UNIT_TEXT.get(unit, unit)


def exact(value: Value, unit: str) -> str:
    """The value as it was recorded."""
    shown = f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return shown + ("" if unit in ("1", "text", "") else f" {unit}")


def origin(fact: Fact) -> str:
    """Where a fact was read and what it is about, in a line or three."""
    spec = FACTS.get(fact.name)
    metric = f" ({spec.ncu})" if spec and spec.ncu and fact.source == "ncu" else ""
    lines = [f"{fact.name}, from {fact.source}{metric}", f"about {fact.subject}"]
    return "\n".join([*lines, fact.note] if fact.note else lines)


def missing(reason: str, name: str = "") -> Cell:
    """The cell of what was not measured."""
    why = reason or "no reason was recorded"
    return Cell(UNMEASURED, title=f"{name} is unmeasured: {why}" if name else why, kind="missing")


def not_applicable(reason: str) -> Cell:
    """The cell of what makes no sense here."""
    return Cell(NOT_APPLICABLE, title=reason, kind="none")


def fact_cell(fact: Fact, *, with_unit: bool = True) -> Cell:
    """The cell of one fact. Without ``with_unit`` the column's heading must carry it."""
    if fact.value is None:
        return missing(fact.note or f"{fact.source} gave no value", f"{fact.name} of {fact.subject}")
    text, unit = quantity(fact.value, fact.unit)
    title = f"{exact(fact.value, fact.unit)}\n{origin(fact)}"
    number = fact.number
    scaled = unit and unit[0] in "TGM" and fact.unit in ("1", "B")
    kept = unit if with_unit or scaled else ""
    return Cell(text, kept, title, number if number is not None else text, "text" if number is None else "number")


def plain(value: float | None, unit: str, title: str, *, with_unit: bool = True, reason: str = "") -> Cell:
    """The cell of a value that analysis computed."""
    if value is None:
        return missing(reason or title)
    text, shown = quantity(value, unit)
    return Cell(text, shown if with_unit else "", f"{exact(value, unit)}\n{title}", value, "number")
