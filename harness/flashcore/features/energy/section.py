"""The table of energy on the page *Roofline*."""

from __future__ import annotations

from markupsafe import Markup

from flashcore.model.record import Facts, Subject
from flashcore.model.text import UNMEASURED, significant
from flashcore.report.view import Book

_COLUMNS = {"energy": "mJ per call", "energy_above_idle": "above idle, mJ", "power": "W", "flop_per_joule": "GFLOP/J"}


def section(book: Book) -> Markup:
    """The energy of each case; empty if none was measured."""
    facts = book.record.facts
    rows = Markup().join(
        Markup("<tr><th scope=row>{}</th>{}</tr>").format(
            str(energy.subject.case),
            Markup().join(_cell(facts, name, energy.subject) for name in _COLUMNS),
        )
        for energy in facts.named("energy")
    )
    heads = Markup().join(Markup("<th scope=col>{}</th>").format(name) for name in ("case", *_COLUMNS.values()))
    return rows and Markup(
        '<h2>Energy</h2><div class="scroll" tabindex="0" role="region" aria-label="Energy"><table>'
        "<caption>Back-to-back calls, by NVML's energy counter, with 95 % intervals</caption>"
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(heads, rows)


def _cell(facts: Facts, name: str, subject: Subject) -> Markup:
    fact = facts.get(name, subject)
    if fact is None or fact.number is None:
        return Markup('<td class="missing" title="{}">{}</td>').format(fact.note if fact else "", UNMEASURED)
    low, high = (facts.number(name + end, subject) for end in ("_low", "_high"))
    interval = f" [{significant(low, 4)}, {significant(high, 4)}]" if low is not None and high is not None else ""
    return Markup('<td class="number">{}{}</td>').format(significant(fact.number, 4), interval)
