"""The guardrail page: variant × fact at a glance, every verdict, what was waived and why, how far the goals are.

The verdicts lie in the page as columns of data, of which a script shows the rows in view; those that make the gate fail
are in the page itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from flashcore.gate.expand import excess
from flashcore.gate.judge import Verdict
from flashcore.gate.wording import sentence, summary
from flashcore.model.suite import TIERS, Budget
from flashcore.model.text import exact, number, quantity, unit_text
from flashcore.report.cells import Cell, missing
from flashcore.report.view import GUARDRAILS, Book, Page, variant_page

#: What a reader should see first.
RANK = {"fail": 0, "unmeasured": 1, "waived": 2, "open": 3, "pass": 4}
SIGNS = {"fail": "✗", "unmeasured": "?", "waived": "!", "pass": "✓"}
#: Rows without a script, variants in the matrix, goals of each budget, failures in words: the data have all of them.
MOST_PLAIN, MOST_VARIANTS, MOST_GOALS, MOST_SAID = 100, 150, 10, 4
COLUMNS = ("verdict", "limit on", "variant", "arch", "shape", "kernel", "value", "promised", "headroom",
           "reason or source")  # fmt: skip


def page(book: Book) -> Page:
    """The page ``guardrails``."""
    judgement = book.judgement
    counts = judgement.counts()
    units = {b.name: b.unit for b in book.record.suite.budgets}
    holding = sorted((*judgement.failed, *judgement.gaps), key=_rank)
    context: dict[str, Any] = {
        "summary": summary(judgement),
        "failed": [sentence(v) for v in judgement.failed[:MOST_SAID]],
        "exit_code": int(judgement.exit_code),
        "require": judgement.require,
        "counts": [(s, counts.get(s, 0)) for s in ("fail", "unmeasured", "waived", "pass")]
        + [("open", n) for n in [judgement.counts("goal").get("open", 0)] if n],
        "tiers": TIERS,
        "columns": COLUMNS,
        "facts": sorted({v.fact for v in judgement.verdicts}),
        "matrix": _matrix(book),
        "signs": SIGNS,
        "rows": [_row(book, v) for v in holding[:MOST_PLAIN]],
        "holding": len(holding),
        "total": len(judgement.verdicts),
        "data": _data(book),
        "waivers": [
            {
                "budget": u.waiver.budget,
                "variants": ", ".join(u.waiver.variants),
                "where": _where(u.waiver.archs, u.waiver.shapes, u.waiver.kernels),
                "accepted": number(u.waiver.accepted, units.get(u.waiver.budget, "")),
                "worst": number(u.worst, units.get(u.waiver.budget, "")) if u.worst is not None else "unmeasured",
                "state": u.state,
                "mark": {"holds": "waived", "exceeded": "fail", "expired": "fail", "not needed": "open"}.get(
                    u.state, "unmeasured"
                ),
                "covers": u.covers,
                "reason": u.waiver.reason,
                "expires": u.waiver.expires or "never",
            }
            for u in judgement.waivers
        ],
        "goals": _goals(book),
        "notes": (*judgement.trouble, *judgement.notes),
        "relaxed": judgement.relaxed,
        "unsupported": judgement.left_out,
        "suite_notes": book.record.suite.notes,
    }
    return Page(GUARDRAILS, "Guardrails", "guardrails.html.j2", context)


def _rank(v: Verdict) -> tuple[int, bool]:
    return RANK[v.status], not v.required


def _where(*globs: tuple[str, ...]) -> str:
    named = [", ".join(g) for g in globs if g != ("*",)]
    return "; ".join(named) or "everywhere"


def value_cell(v: Verdict) -> Cell:
    """The value that a verdict judged."""
    if v.value is None:
        return missing(v.reason, v.fact)
    source = f"from {v.fact_source}" if v.fact_source else "from the run itself"
    text, unit = quantity(v.value, v.unit)
    sort = float(v.value) if isinstance(v.value, (int, float)) else text
    title = f"{exact(v.value, v.unit)}\n{v.fact}, {source}\nabout {v.subject}"
    return Cell(text, unit, title, sort, "number")


def _row(book: Book, v: Verdict) -> list[Cell]:
    """A verdict as it is shown without scripts."""
    s = v.subject
    left = headroom(book.budgets.get(v.budget), v.value)
    known = s.variant in book.record.suite.variants
    return [
        Cell(v.status, mark=v.status),
        Cell(v.budget, title=f"on the fact {v.fact}\n{v.source}"),
        Cell(s.variant, href=variant_page(s.variant) if known else ""),
        *(Cell(text or "–") for text in (s.arch, s.shape, s.kernel)),
        value_cell(v),
        Cell(v.limit, title=f"{v.source}\ntier {v.tier}"),
        Cell("–" if left is None else percent(left), kind="number"),
        Cell((v.reason or v.source).strip().splitlines()[0], title=v.reason or v.source),
    ]


# --- variant × fact ---------------------------------------------------------------------------------


def headroom(budget: Budget | None, value: object) -> float | None:
    """How far inside its limit a value is, as a share of the limit; below 0 it is beyond. ``None``: undefined, as for a
    limit of 0 that is kept."""
    if budget is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    over = excess(budget, float(value))
    limit = budget.maximum if budget.maximum is not None and over == value - budget.maximum else budget.minimum
    return -over / abs(limit) if limit else None


def percent(share: float) -> str:
    """``6 %``, never rounded from or to 0."""
    size = abs(100 * share)
    text = "0" if size == 0 else "<1" if size < 1 else f"{math.floor(size):,}"
    return f"{'−' if share < 0 else ''}{text} %"


def _matrix(book: Book) -> dict[str, Any]:
    """For each variant and fact that is limited: the worst verdict, and the least headroom among equals."""
    cells: dict[tuple[str, str], list[Verdict]] = {}
    for v in book.judgement.limits:
        cells.setdefault((v.subject.variant, v.fact), []).append(v)
    facts = list(dict.fromkeys(fact for _, fact in cells))
    made = {key: _cell(book, own) for key, own in cells.items()}
    names = list(dict.fromkeys(variant for variant, _ in cells))
    if len(names) > MOST_VARIANTS:
        worst = sorted(names, key=lambda n: min(made[n, f].sort or 0 for f in facts if (n, f) in made))
        names = [n for n in names if n in set(worst[:MOST_VARIANTS])]
    known = book.record.suite.variants
    return {
        "facts": facts,
        "rows": [
            {
                "name": Cell(n, href=variant_page(n) if n in known else ""),
                "cells": [made.get((n, f)) for f in facts],
            }
            for n in names
        ],
        "left_out": len({variant for variant, _ in cells}) - len(names),
    }


def _cell(book: Book, own: Sequence[Verdict]) -> Cell:
    keyed = []
    for v in own:
        left = headroom(book.budgets.get(v.budget), v.value)
        keyed.append((RANK[v.status], math.inf if left is None else left, v))
    rank, left, v = min(keyed, key=lambda x: x[:2])
    counts = ", ".join(f"{n} {s}" for s in RANK if (n := sum(x.status == s for x in own)))
    found = number(v.value, v.unit) if v.value is not None else "unmeasured"
    said = f"{v.budget} {v.limit}: {counts}; worst {found} ({v.subject})"
    text = {"unmeasured": ""}.get(v.status, percent(left) if left < math.inf else "")
    return Cell(text, title=said, sort=rank, mark=v.status)


# --- all verdicts as data ---------------------------------------------------------------------------


def _data(book: Book) -> dict[str, Any]:
    """Limits, then goals: a column each, packed; what all verdicts of a budget share is stored once."""
    every = sorted(book.judgement.verdicts, key=lambda v: (v.severity != "limit", _rank(v)))
    columns: dict[str, Iterable[Any]] = {
        "status": (v.status for v in every),
        "required": (v.required for v in every),
        "budget": ([v.budget, v.fact, v.limit, v.source, v.tier, v.severity, unit_text(v.unit),
                    *_ends(book.budgets.get(v.budget))] for v in every),
        "variant": (v.subject.variant for v in every),
        "arch": (v.subject.arch for v in every),
        "shape": (v.subject.shape for v in every),
        "kernel": (v.subject.kernel for v in every),
        "launch": (v.subject.launch for v in every),
        "value": (v.value for v in every),
        "from": (v.fact_source for v in every),
        "reason": (v.reason.strip() for v in every),
    }  # fmt: skip
    return {
        "count": len(every),
        "known": list(book.record.suite.variants),
        **{k: packed(v) for k, v in columns.items()},
    }


def _ends(budget: Budget | None) -> tuple[float | None, float | None]:
    return (budget.minimum, budget.maximum) if budget is not None else (None, None)


def packed(values: Iterable[Any]) -> list[list[Any]]:
    """A column as its distinct values, which of them each run of equal ones is, and how long each run is.

    Without the last two, where most rows differ, the values themselves.
    """
    column = list(values)
    index: dict[str, int] = {}
    distinct: list[Any] = []
    which: list[int] = []
    long: list[int] = []
    for value in column:
        at = index.setdefault(json.dumps(value), len(distinct))
        if at == len(distinct):
            distinct.append(value)
        if which and which[-1] == at:
            long[-1] += 1
        else:
            which.append(at)
            long.append(1)
    return [column, [], []] if len(distinct) > len(column) / 2 else [distinct, which, long]


# --- goals ------------------------------------------------------------------------------------------


def _goals(book: Book) -> list[dict[str, Any]]:
    """Goals by name; within one, the farthest first."""
    groups: dict[str, list[Verdict]] = {}
    for v in book.judgement.goals:
        groups.setdefault(v.budget, []).append(v)
    found = []
    for name, own in groups.items():
        ordered = sorted(own, key=lambda v: (v.progress is None, v.progress or 0.0))
        known = [v for v in own if v.progress is not None]
        found.append(
            {
                "name": name,
                "fact": own[0].fact,
                "limit": own[0].limit,
                "source": own[0].source,
                "tier": own[0].tier,
                "reached": sum(v.status == "pass" for v in known),
                "measured": len(known),
                "total": len(own),
                "reason": "" if known else own[0].reason,
                "rows": [goal_row(v) for v in ordered[:MOST_GOALS]] if known else [],
                "more": max(0, len(ordered) - MOST_GOALS) if known else 0,
            }
        )
    return found


def goal_row(v: Verdict) -> dict[str, Any]:
    """One goal on one subject, with its progress as a whole percentage (never rounded up to 100)."""
    percent = None if v.progress is None else 100 if v.status == "pass" else min(99, int(100 * v.progress))
    return {
        "budget": v.budget,
        "subject": str(v.subject),
        "value": value_cell(v),
        "limit": v.limit,
        "percent": percent,
        "status": v.status,
        "reason": v.reason,
        "source": v.source,
    }
