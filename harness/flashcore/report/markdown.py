"""A Markdown report for pull requests: the gate's result, the fastest variants with text bars, each shape's winner."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from flashcore.gate.formats import table
from flashcore.gate.judge import Judgement
from flashcore.gate.wording import sentence, summary
from flashcore.model.record import Record
from flashcore.model.text import UNMEASURED
from flashcore.report import overview_page
from flashcore.report.cells import Cell
from flashcore.report.view import Book, Page

#: Most variants and failures listed (GitHub limits a comment to 65,536 characters), and blocks of the longest bar.
MOST, MOST_FAILED, BAR = 20, 10, 16
_COLUMNS = overview_page.COLUMNS[: overview_page.USUAL]


def render(
    record: Record,
    judgement: Judgement,
    *,
    overviews: Iterable[Callable[[Book], Page[Any] | None]] = (),
) -> str:
    """The record as Markdown; arguments as in :func:`flashcore.report.render`.

    Args:
        overviews: plugins' functions that make a page to replace the overview, or ``None``.
    """
    book = Book(record, judgement)
    replaced = next((page.tables for make in overviews if (page := make(book))), ())
    failed = book.judgement.failed
    parts = [f"## {_safe(record.suite.title)}", "", _safe(summary(book.judgement)), ""]
    parts += [f"- ✗ {_safe(sentence(v))}" for v in failed[:MOST_FAILED]]
    if len(failed) > MOST_FAILED:
        parts.append(f"- and {len(failed) - MOST_FAILED} more")
    for each in replaced:
        parts += ["", *table(_safe, *each)]
    sections = () if replaced else overview_page.Overview(book).sections
    first = next((s for s in sections if s.answer), None)
    if first is not None:
        parts += ["", *_variants(first)]
    winners = []
    for s in sections:
        cells = [UNMEASURED] * 6
        if a := s.answer:
            cells = [
                f"`{a.case.variant.name}`",
                a.time,
                a.mode,
                " ".join(filter(None, (a.speedup, a.interval, f"({a.pair})" * bool(a.pair)))),
                a.floor,
                a.case.parts.text or UNMEASURED,
            ]
        winners.append([s.row.name, *cells])
    heads = ("shape", "winner", "µs", "mode", "reference", "floor", "limited by")
    parts += ["", "### Winners", "", *table(_safe, heads, *winners)] if winners else []
    parts += ["", f"Run `{record.id}`, {_safe(record.gpu or 'no GPU')}.{' Times are p50.' if winners else ''}", ""]
    return "\n".join(parts)


def _variants(section: overview_page.ShapeSection) -> list[str]:
    """The fastest variants and the baseline, with bars of their time on a log scale from the fastest to the slowest."""
    keys = [key for key, *_ in section.columns]  # a page has empty columns last
    places = [keys.index(key) for key, *_ in _COLUMNS]
    timed = [(t, r) for r in section.rows if isinstance(t := r.cells[keys.index("time")].sort, (int, float))]
    shown = [(t, r) for i, (t, r) in enumerate(timed) if i < MOST or r.role == "baseline"]
    low, high = min(t for t, _ in shown), max(t for t, _ in shown)
    heads = [f"{name} {unit}".strip() for _, name, unit, _ in _COLUMNS]
    rows = [(bar(t, low, high), *(_text(r.cells[i]) for i in places)) for t, r in shown]
    lines = [f"### {section.row.name}: {section.shape.params_text}", "", *table(_safe, ("", *heads), *rows)]
    left = len(section.rows) - len(shown)
    return [*lines, *(["", f"{left} slower or untimed variants are not shown."] if left else [])]


def bar(value: float, low: float, high: float) -> str:
    """``value`` as a bar on a log scale: one block for ``low``, all blocks for ``high``."""
    share = math.log(value / low) / math.log(high / low) if high > low > 0 else 0.0
    return "█" * (1 + round(share * (BAR - 1)))


def _text(cell: Cell) -> str:
    return " ".join(filter(None, (cell.text, cell.unit, cell.detail)))


def _safe(text: str) -> str:
    return escape(" ".join(text.split()), quote=False).replace("|", "\\|")
