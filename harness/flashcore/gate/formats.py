"""Renders a judgement as JSON or Markdown. Plugins add other formats; the terminal's table is in ``cli``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flashcore import __version__
from flashcore.errors import Exit
from flashcore.explain import comparison
from flashcore.explain.advice import as_data
from flashcore.explain.verdict import Verdict
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.gate.wording import budgets, causes, clean, subjects, summary, value_of
from flashcore.model.groups import picked
from flashcore.model.record import Record
from flashcore.model.text import number

VERSION = 1
#: Most rows of one table, since a job summary is limited to 1 MiB.
MOST_ROWS = 100
_OUTCOMES = {Exit.OK: "passed", Exit.FAILED: "failed", Exit.UNMEASURED: "unmeasured"}


def as_json(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as JSON, in the form of ``gate.schema.json``."""
    data = {
        "version": VERSION,
        "tool": f"flashcore {__version__}",
        "suite": record.suite.name,
        "nvcc": record.environment.nvcc,
        "gpu": record.gpu,
        "require": judgement.require,
        "outcome": _OUTCOMES.get(judgement.exit_code, "infrastructure"),
        "exit_code": int(judgement.exit_code),
        "counts": {**judgement.counts()},
        "verdicts": [],
        "loosened": [
            picked(use.waiver, "budget", "variants", "archs", "accepted", "reason", "expires")
            | picked(use, "state", "covers")
            for use in judgement.waivers
        ],
        "notes": list(judgement.notes),
        "changed": judgement.changed and comparison.as_data(judgement.changed),
    }
    return with_rows(data, "verdicts", [_verdict(v, places) for v in judgement.verdicts])


def with_rows(data: Mapping[str, Any], key: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """``data`` as JSON, with ``rows`` in place of its empty list ``key``, one row per line.

    Ten thousand cases have fifty thousand rows, and indenting these would take seconds.
    """
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    lines = list(map(json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode, rows))
    return text.replace(f'"{key}": []', f'"{key}": [\n' + ",\n".join(lines) + "\n]", 1) if lines else text


def _verdict(verdict: Verdict, places: Places) -> dict[str, Any]:
    subject = picked(verdict.subject, "variant", "arch", "shape", "kernel", "launch")
    figures = ("severity", "status", "required", "value", "unit", "limit", "source", "reason")
    place = places.of(verdict) if verdict.status not in ("pass", "open") else None
    data = picked(verdict, "budget", "fact") | {"subject": subject} | picked(verdict, "tier", *figures)
    data["place"] = place and picked(place, "file", "line")
    return data | ({"advice": as_data(verdict.advice)} if verdict.advice else {})


def as_markdown(judgement: Judgement, record: Record, places: Places) -> str:
    """The judgement as Markdown for a CI job's summary: counts, failures with their lines, waivers."""
    mark = {Exit.OK: "✅", Exit.FAILED: "❌"}.get(judgement.exit_code, "⚠️")
    lines = [f"## {mark} flashcore gate: {escaped(record.suite.title)}", "", escaped(summary(judgement)), ""]
    lines += _section("Failed", judgement.failed, places)
    lines += _section("Required but unmeasured", judgement.unexplained_gaps, places)
    lines += _section("Waived", judgement.waived, places)
    if judgement.waivers:
        head = ("Budget", "Variants", "State", "Accepted", "Reason", "Expires")
        rows = (
            (w.budget, ", ".join(w.variants), use.state, number(w.accepted), w.reason, w.expires or "never")
            for use in judgement.waivers
            for w in (use.waiver,)
        )
        lines += ["### Loosened in the manifest", "", *table(escaped, head, *rows), ""]
    lines += [f"- {escaped(note)}" for note in judgement.notes]
    if (changed := judgement.changed) and changed.rows:
        lines += [
            "",
            f"### {escaped(changed.heading)}",
            "",
            *(f"- {escaped(row.line)}" for row in changed.rows[:MOST_ROWS]),
        ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(title: str, verdicts: Sequence[Verdict], places: Places) -> list[str]:
    if not verdicts:
        return []
    rows = []
    groups = causes(verdicts, places.of)
    for group in groups[:MOST_ROWS]:
        v, place = group[0], places.of(group[0])
        where = f"`{place.file}:{place.line}`" if place else ""
        rows.append((budgets(group), subjects(group), value_of(v), v.limit, where, v.reason or v.source))
    head = ("Budget", "Subject", "Measured", "Limit", "Where", "Why")
    hidden = sum(map(len, groups[MOST_ROWS:]))
    more = [f"… and {hidden} more", ""] if hidden else []
    return [f"### {title} ({len(verdicts)})", "", *table(escaped, head, *rows), "", *more]


def table(escape: Callable[[str], str], *rows: Sequence[str]) -> list[str]:
    """The lines of a Markdown table of escaped cells; the first row is its heading."""
    lines = [f"| {' | '.join(map(escape, row))} |" for row in rows]
    return [lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]


def escaped(text: str) -> str:
    """The first line, with Markdown and HTML syntax escaped."""
    line = clean(text).splitlines()[0] if text.strip() else ""
    if re.fullmatch("`[^`|]*`", line):
        return line
    line = line[:297] + "…" if len(line) > 300 else line
    return re.sub(r"([\\|*_<>\[\]])", r"\\\1", line)


Renderer = Callable[[Judgement, Record, Places], str]
#: Format → its renderer.
FORMATS: Mapping[str, Renderer] = {"json": as_json, "markdown": as_markdown}
