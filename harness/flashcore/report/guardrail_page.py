"""The guardrail page: every verdict, what was waived and why, and how far the goals are."""

from __future__ import annotations

from typing import Any

from flashcore.gate.judge import Verdict
from flashcore.gate.wording import summary
from flashcore.model.record import Record
from flashcore.model.suite import TIERS
from flashcore.model.text import exact, number, quantity
from flashcore.report.cells import Cell, missing
from flashcore.report.view import GUARDRAILS, MAX_ROWS, Book, Page, variant_page

#: What a reader should see first.
RANK = {"fail": 0, "unmeasured": 1, "waived": 2, "open": 3, "pass": 4}


def page(book: Book) -> Page:
    """The page ``guardrails``."""
    judgement = book.judgement
    limits = sorted(judgement.limits, key=_rank)
    counts = judgement.counts()
    units = {b.name: b.unit for b in book.record.suite.budgets}
    context: dict[str, Any] = {
        "summary": summary(judgement),
        "exit_code": int(judgement.exit_code),
        "require": judgement.require,
        "counts": [(s, counts.get(s, 0)) for s in ("fail", "unmeasured", "waived", "pass")],
        "tiers": TIERS,
        "rows": [_row(book.record, v) for v in limits[:MAX_ROWS]],
        "total": len(limits),
        "left_out": _left_out(limits),
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


def _left_out(ordered: list[Verdict]) -> str:
    """What the cap leaves out, by status: those that matter most come first."""
    rest = ordered[MAX_ROWS:]
    counts: dict[str, int] = {}
    for v in rest:
        counts[v.status] = counts.get(v.status, 0) + 1
    return ", ".join(f"{n:,} {s}" for s, n in counts.items())


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


def _row(record: Record, v: Verdict) -> dict[str, Any]:
    s = v.subject
    known = s.variant in record.suite.variants
    text = {"open": "not yet"}.get(v.status, v.status)
    required = "required" if v.required and v.status == "unmeasured" else ""
    return {
        "status": v.status,
        "tier": v.tier,
        "variant": s.variant,
        "cells": [
            Cell(text, sort=float(RANK[v.status]), mark=v.status, detail=required),
            Cell(v.budget, title=f"on the fact {v.fact}\n{v.source}", sort=v.budget),
            Cell(s.variant, sort=s.variant, href=variant_page(s.variant) if known else ""),
            Cell(s.arch or record.gpu_arch or "no GPU", sort=s.arch or "",
                 title="" if s.arch else "the measured GPU's arch"),
            Cell(s.shape or "any", sort=s.shape or "", title="" if s.shape else "does not depend on the shape"),
            Cell(s.kernel or "whole case", sort=s.kernel or ""),
            value_cell(v),
            Cell(v.limit, title=v.source, sort=v.limit),
            Cell(v.tier, sort=float(TIERS.index(v.tier))),
            Cell(v.reason.strip().splitlines()[0] if v.reason.strip() else v.source, title=v.reason or v.source),
        ],
    }  # fmt: skip


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
                "rows": [goal_row(v) for v in ordered[:100]] if known else [],
                "more": max(0, len(ordered) - 100) if known else 0,
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
