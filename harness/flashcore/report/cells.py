"""Table cells: rounded values, six digits on hover, never blank.

An unmeasured value is shown as ``unmeasured``, with its reason on hover, and sorts last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flashcore.model.catalogue import FACTS
from flashcore.model.record import Fact
from flashcore.model.text import UNMEASURED, quantity, significant
from flashcore.model.text import number as written

NOT_APPLICABLE = "n/a"

Kind = Literal["number", "text", "mono", "small", "wrap", "wrap small", "missing", "none"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One table cell.

    Args:
        text: the visible text; ``unit`` follows it in small type.
        title: the hover text: more digits, source, subject, note.
        sort: the sort key; ``None`` sorts last in either direction.
        kind: ``wrap`` is long text, ``missing`` is unmeasured, ``none`` does not apply.
        mark: a status word of the style sheet (``pass``, ``fail``, …).
        href: the link's target.
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


@dataclass(frozen=True, slots=True)
class Bar:
    """A share in % as a bar, with the parent's share as a tick and ``text`` after it."""

    name: str
    cell: Cell
    percent: float | None
    parent: float | None = None
    text: str = ""


def origin(fact: Fact) -> str:
    """A fact's source, subject and note, in up to three lines."""
    spec = FACTS.get(fact.name)
    metric = f" ({spec.ncu})" if spec and spec.ncu and fact.source == "ncu" else ""
    lines = [f"{fact.name}, from {fact.source}{metric}", f"about {fact.subject}"]
    return "\n".join([*lines, fact.note] if fact.note else lines)


def number_cell(value: float, digits: int = 3, title: str = "", *, detail: str = "") -> Cell:
    """The cell of a derived number, rounded to ``digits`` significant digits."""
    return Cell(significant(value, digits), title=title, sort=value, kind="number", detail=detail)


def missing(reason: str, name: str = "") -> Cell:
    """The cell of an unmeasured value."""
    why = reason or "no reason was recorded"
    return Cell(UNMEASURED, title=f"{name} is unmeasured: {why}" if name else why, kind="missing")


def not_applicable(reason: str) -> Cell:
    """The cell of a value that does not apply here."""
    return Cell(NOT_APPLICABLE, title=reason, kind="none")


def fact_cell(fact: Fact, *, with_unit: bool = True, brief: bool = False) -> Cell:
    """The cell of one fact. Without ``with_unit`` the column's heading must contain the unit; a ``brief`` cell has no
    hover text."""
    if fact.value is None:
        return missing(fact.note or f"{fact.source} gave no value", f"{fact.name} of {fact.subject}")
    text, unit = quantity(fact.value, fact.unit)
    title = "" if brief else f"{written(fact.value, fact.unit)}\n{origin(fact)}"
    value = fact.number
    scaled = unit and unit[0] in "TGM" and fact.unit in ("1", "B")
    kept = unit if with_unit or scaled else ""
    return Cell(text, kept, title, value if value is not None else text, "text" if value is None else "number")


def unbroken(text: str) -> str:
    """The text with no-break spaces before ``×``."""
    return text.replace(" ×", "\u00a0×")


def words(name: str) -> str:
    """A name as words: ``back to back``."""
    return name.replace("_", " ")


def six_digits(value: float) -> float | int:
    """A value for a chart: integers exactly, others to six significant digits."""
    short = float(f"{value:.6g}")
    return int(value) if float(value).is_integer() else short
