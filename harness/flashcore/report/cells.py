"""The cells of a page's tables: values rounded for reading, to six digits on hover, never blank.

An unmeasured value is the word ``unmeasured`` with its reason, and sorts last.
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
        text: what is read; ``unit`` follows it in small type.
        title: what hovering shows: more digits, source, subject, note.
        sort: the value a column sorts by; ``None`` sorts last, whatever the direction.
        kind: ``wrap`` is a long text, ``missing`` is unmeasured, ``none`` does not apply here.
        mark: a status word that the style sheet knows (``pass``, ``fail``, …).
        href: the target of its link.
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
    """A share as a bar, the parent's as a tick on it, %. ``text`` stands behind it."""

    name: str
    cell: Cell
    percent: float | None
    parent: float | None = None
    text: str = ""


def origin(fact: Fact) -> str:
    """Where a fact was read and what it is about, in a line or three."""
    spec = FACTS.get(fact.name)
    metric = f" ({spec.ncu})" if spec and spec.ncu and fact.source == "ncu" else ""
    lines = [f"{fact.name}, from {fact.source}{metric}", f"about {fact.subject}"]
    return "\n".join([*lines, fact.note] if fact.note else lines)


def number_cell(value: float, digits: int = 3, title: str = "", *, detail: str = "") -> Cell:
    """The cell of a derived number, to that many significant digits."""
    return Cell(significant(value, digits), title=title, sort=value, kind="number", detail=detail)


def missing(reason: str, name: str = "") -> Cell:
    """The cell of an unmeasured value."""
    why = reason or "no reason was recorded"
    return Cell(UNMEASURED, title=f"{name} is unmeasured: {why}" if name else why, kind="missing")


def not_applicable(reason: str) -> Cell:
    """The cell of a value that does not apply here."""
    return Cell(NOT_APPLICABLE, title=reason, kind="none")


def fact_cell(fact: Fact, *, with_unit: bool = True, brief: bool = False) -> Cell:
    """The cell of one fact. Without ``with_unit`` the column's heading must carry it; a ``brief`` one has no hover
    text."""
    if fact.value is None:
        return missing(fact.note or f"{fact.source} gave no value", f"{fact.name} of {fact.subject}")
    text, unit = quantity(fact.value, fact.unit)
    title = "" if brief else f"{written(fact.value, fact.unit)}\n{origin(fact)}"
    value = fact.number
    scaled = unit and unit[0] in "TGM" and fact.unit in ("1", "B")
    kept = unit if with_unit or scaled else ""
    return Cell(text, kept, title, value if value is not None else text, "text" if value is None else "number")


def unbroken(text: str) -> str:
    """The text with no line break between a number and its ``×``."""
    return text.replace(" ×", "\u00a0×")


def words(name: str) -> str:
    """A name as words: ``back to back``."""
    return name.replace("_", " ")


def six_digits(value: float) -> float | int:
    """A value for a chart: whole numbers exactly, others to six significant digits, more than is shown."""
    short = float(f"{value:.6g}")
    return int(value) if float(value).is_integer() else short
