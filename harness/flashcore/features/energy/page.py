"""The table of energy on the page *Roofline*."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashcore.model.record import Facts, Subject
from flashcore.model.text import significant
from flashcore.report.cells import Cell, missing, number_cell
from flashcore.report.view import ROOFLINE, Book, Page


def page(book: Book) -> Page[dict[str, Any]] | None:
    """The energy of each case; ``None`` if none was measured."""
    facts = book.record.facts
    columns = ("energy", "energy_above_idle", "power", "flop_per_joule")
    rows = [
        [Cell(str(energy.subject.case)), *(_cell(facts, name, energy.subject) for name in columns)]
        for energy in facts.named("energy")
    ]
    template = str(Path(__file__).with_name("energy.html.j2"))
    return Page("energy", "Energy", template, {"rows": rows}, below=ROOFLINE) if rows else None


def _cell(facts: Facts, name: str, subject: Subject) -> Cell:
    fact = facts.get(name, subject)
    if fact is None or fact.number is None:
        return missing(fact.note if fact else "")
    low, high = (facts.number(name + end, subject) for end in ("_low", "_high"))
    interval = f"[{significant(low, 4)}, {significant(high, 4)}]" if low is not None and high is not None else ""
    return number_cell(fact.number, 4, detail=interval)
