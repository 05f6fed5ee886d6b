"""Renders a judgement as Markdown for a CI job's summary: outcome, counts, failures with their lines, waivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from flashcore.errors import Exit
from flashcore.gate.judge import Judgement, Verdict
from flashcore.gate.locate import Places
from flashcore.gate.wording import clean, summary, value_of
from flashcore.model.record import Record
from flashcore.model.text import number

#: Most rows of one table, since a job summary is limited to 1 MiB.
MOST_ROWS = 100


def render(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as Markdown."""
    mark = {Exit.OK: "✅", Exit.FAILED: "❌"}.get(judgement.exit_code, "⚠️")
    lines = [f"## {mark} flashcore gate: {_cell(record.suite.title)}", "", _cell(summary(judgement)), ""]
    lines += _section("Failed", judgement.failed, places)
    lines += _section("Required but unmeasured", judgement.unexplained_gaps, places)
    lines += _section("Waived", judgement.waived, places)
    rows = [
        (w.budget, ", ".join(w.variants), use.state, number(w.accepted), w.reason, w.expires or "never")
        for use in judgement.waivers
        for w in (use.waiver,)
    ]
    if rows:
        head = ("Budget", "Variants", "State", "Accepted", "Reason", "Expires")
        lines += ["### Loosened in the manifest", "", *_table(head, rows), ""]
    lines += [f"- {_cell(note)}" for note in judgement.notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(title: str, verdicts: Sequence[Verdict], places: Places) -> list[str]:
    if not verdicts:
        return []
    rows = []
    for v in verdicts[:MOST_ROWS]:
        place = places.of(v)
        where = f"`{place.file}:{place.line}`" if place else ""
        rows.append((v.budget, str(v.subject), value_of(v), v.limit, where, v.reason or v.source))
    head = ("Budget", "Subject", "Measured", "Limit", "Where", "Why")
    more = [f"… and {len(verdicts) - MOST_ROWS} more", ""] if len(verdicts) > MOST_ROWS else []
    return [f"### {title} ({len(verdicts)})", "", *_table(head, rows), "", *more]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [" | ".join(map(_cell, row)) for row in (head, *rows)]
    return [f"| {cells[0]} |", f"|{' --- |' * len(head)}", *(f"| {c} |" for c in cells[1:])]


def _cell(text: str) -> str:
    """The first line, with Markdown and HTML syntax escaped."""
    line = clean(text).splitlines()[0] if text.strip() else ""
    if re.fullmatch("`[^`|]*`", line):
        return line
    line = line[:297] + "…" if len(line) > 300 else line
    return re.sub(r"([\\|*_<>\[\]])", r"\\\1", line)
