"""A report for a pull request: the verdict, the fastest variants with bars of text, the winner at each shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from html import escape

from flashcore.gate.baseline import Baseline
from flashcore.gate.wording import sentence, summary
from flashcore.model.record import Record
from flashcore.model.suite import Tier
from flashcore.report import overview_page
from flashcore.report.cells import Cell
from flashcore.report.view import Book

#: Variants in the table and failures in words; a code host cuts a comment at 65,536 characters.
MOST, MOST_FAILED, BAR = 20, 10, 16


def render(
    record: Record, *, require: Tier = "static", today: date | None = None, baseline: Baseline | None = None
) -> str:
    """The record as Markdown; what is judged is as in :func:`flashcore.report.render`."""
    book = Book(record, require, today, baseline)
    failed = book.judgement.failed
    parts = [f"## {_safe(record.suite.title)}", "", _safe(summary(book.judgement)), ""]
    parts += [f"- ✗ {_safe(sentence(v))}" for v in failed[:MOST_FAILED]]
    if len(failed) > MOST_FAILED:
        parts.append(f"- and {len(failed) - MOST_FAILED} more")
    sections = overview_page.page(book).context["sections"]
    first = next((s for s in sections if s["answer"]), None)
    if first is not None:
        parts += ["", *_variants(first["shape"].name, first["params"], first["rows"])]
    parts += ["", "### Winners", "", *_table(("shape", "winner", "µs", "regime", "peer", "floor", "limited by"))]
    for s in sections:
        a = s["answer"]
        said = (
            (f"`{a['name']}`", a["time"], a["regime"], a["peer"], a["floor"], a["held"]) if a else ("unmeasured",) * 6
        )
        parts.append(_line([s["shape"].name, *said]))
    parts += ["", f"Run `{record.id}`, {_safe(record.gpu or 'no GPU')}. Times are p50.", ""]
    return "\n".join(parts)


def _variants(shape: str, params: str, rows: Sequence[overview_page.Row]) -> list[str]:
    """The fastest variants and the baseline; each bar is its time on a log scale, from the fastest to the slowest."""
    keys = [key for key, *_ in overview_page.COLUMNS[: overview_page.USUAL]]
    at = keys.index("time")
    timed = [r for r in rows if isinstance(r.cells[at].sort, (int, float))]
    shown = [r for i, r in enumerate(timed) if i < MOST or r.role == "baseline"]
    times = [float(r.cells[at].sort or 0) for r in shown]
    heads = [f"{name} {unit}".strip() for _, name, unit, _ in overview_page.COLUMNS[: overview_page.USUAL]]
    left = len(rows) - len(shown)
    found = [f"### {shape}: {params}", "", *_table(("", *heads))]
    found += [_line([bar(t, min(times), max(times)), *map(_text, r.cells[: len(keys)])])
              for t, r in zip(times, shown, strict=True)]  # fmt: skip
    return [*found, *(["", f"{left} slower or without a time are left out."] if left else [])]


def bar(value: float, low: float, high: float) -> str:
    """``value`` on a log scale as blocks: one for ``low``, all for ``high``."""
    share = math.log(value / low) / math.log(high / low) if high > low > 0 else 0.0
    return "█" * (1 + round(share * (BAR - 1)))


def _text(cell: Cell) -> str:
    return " ".join(filter(None, (cell.text, cell.unit, cell.detail)))


def _table(heads: Sequence[str]) -> list[str]:
    return [_line(heads), "|" + " --- |" * len(heads)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_safe(c) for c in cells) + " |"


def _safe(text: str) -> str:
    return escape(" ".join(text.split()), quote=False).replace("|", "\\|")
