"""A comparison as text and as JSON, for every command that makes one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flashcore.cli import output
from flashcore.cli.grid import grid
from flashcore.explain.comparison import REGRESSIONS, UNCHANGED, Comparison, Difference, as_data
from flashcore.model.groups import grouped
from flashcore.model.text import abbreviated, as_words, bracketed, fixed, number, percentage

_COLUMNS = ("case", "mode", "before", "after", "× faster", "interval or noise", "verdict")
_MOST_NAMES = 6


def as_text(comparison: Comparison, top: int = 0, *, every: bool = False, only_worse: bool = False) -> str:
    """The sides, how many cases and kernels changed how, and the first ``top`` of both (0: all).

    Args:
        every: whether cases without a difference are listed too.
        only_worse: whether only regressions are listed.
    """
    lines = [comparison.heading]
    lines += [f"note: {note}" for note in comparison.notes]
    rows = [row for row in comparison.rows if not only_worse or row.outcome in REGRESSIONS]
    cases, code = ([row for row in rows if row.is_case is which] for which in (True, False))
    shown = [row for row in cases if row.lead and (every or row.outcome not in UNCHANGED)]
    lines += _first(top, [[line, *_counters(row)] for line, row in _table(shown)], head=2)
    whys = dict.fromkeys(row.lead.no_interval for row in shown if row.lead and row.lead.no_interval)
    lines += [f"not judged: {why}" for why in whys]
    rest = grouped((row.verdict.partition("\n")[0], row.name) for row in cases if not row.lead)
    lines += ["", *(f"{verdict}: {abbreviated(names, _MOST_NAMES)}" for verdict, names in rest.items())] if rest else []
    lines += _first(top, [[row.line] for row in code])
    return "\n".join(lines)


def _table(rows: Sequence[Difference]) -> Iterator[tuple[str, Difference | None]]:
    """The lines of the table, each with its row; the heading has none."""
    if rows:
        lines = grid(_COLUMNS, map(_cells, rows)).splitlines()
        yield from zip(lines, [None, None, *rows], strict=True)


def _cells(row: Difference) -> tuple[str, ...]:
    lead = row.lead
    assert lead is not None
    times = [_time(value, lead.unit) for value in (lead.before, lead.after)]
    noise = "" if lead.noise is None else f"±{percentage(100 * lead.noise, 2)}"
    interval = "" if lead.low is None or lead.high is None else bracketed(lead.low, lead.high)
    remark = ""
    if row.contradiction:
        remark = "; " + ", ".join(f"{c.ratio:.3f} × {c.mode.replace('_', ' ')}" for c in row.contradiction if c.ratio)
    return (
        row.name,
        as_words(lead.mode),
        *times,
        fixed(lead.ratio, 3, "-"),
        interval or noise or "-",
        f"{row.verdict}{remark}",
    )


def _time(value: Any, unit: str) -> str:
    return "-" if value is None else number(round(value, 3), unit)


def _counters(row: Difference | None) -> list[str]:
    """What changed together with the time."""
    others = [c for c in row.changes if c.speedup is None and c is not row.lead] if row else []
    return [f"  with it: {c.fact}  {c.text}  {c.outcome}" for c in others]


def _first(top: int, entries: Sequence[Sequence[str]], head: int = 0) -> list[str]:
    """The first entries after an empty line, below as many lines of a heading, and how many are left."""
    shown = entries[: head + top if top else None]
    lines = ["", *(line for entry in shown for line in entry)] if entries else []
    left = len(entries) - len(shown)
    return [*lines, f"… {left:,} more (--top 0 prints all)"] if left else lines


def as_json(comparison: Comparison, **more: Any) -> str:
    """The JSON document of a comparison, which ``docs/reference/comparison.md`` describes; ``more`` are a command's
    own keys."""
    return output.document(**as_data(comparison), **more)
