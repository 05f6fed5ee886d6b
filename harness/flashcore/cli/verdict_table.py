"""Renders the gate's result as text for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from flashcore.cli.comparison import as_text
from flashcore.cli.grid import aligned
from flashcore.explain.verdict import Verdict
from flashcore.gate.judge import Judgement, WaiverUse
from flashcore.gate.wording import budgets, causes, subjects, summary, value_of
from flashcore.model.gate_policy import PREFIX
from flashcore.model.groups import grouped
from flashcore.model.suite import TIERS
from flashcore.model.text import number, percentage

_SHOWN = 48  # groups of verdicts, and changed kernels, to list; the rest are counted


def render(result: Judgement, *, quiet: bool = False) -> str:
    """The judgement as text: failures first, the summary last; ``quiet`` leaves out what needs no action."""
    gaps, tiers = result.unexplained_gaps, TIERS[: TIERS.index(result.require) + 1]
    default = " (the default)" if result.require == TIERS[0] else ""
    other = [v for v in result.limits if v.status == "unmeasured" and not v.required]
    parts = [
        _group("FAILED", result.failed),
        _gaps(f"UNMEASURED, required by --require {result.require}{default}", [v for v in gaps if v.tier in tiers]),
        _gaps("UNMEASURED, required by --budgets", [v for v in gaps if v.tier not in tiers]),
    ]
    more = [
        _waived(result),
        _waivers(result.waivers),
        _block(f"loosened in the manifest ({len(result.relaxed)})", (), result.relaxed),
        _gaps("unmeasured, not required", other),
        _goals(result.goals),
        _passes(result.limits),
        [f"note: {n}" for n in result.notes],
        as_text(result.changed, _SHOWN).splitlines()
        if result.changed and (result.changed.rows or result.changed.notes)
        else [],
    ]
    return "\n\n".join(["\n".join(p) for p in (*parts, *([] if quiet else more)) if p] + [summary(result)])


def _group(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """A row for each cause, so that one does not hide others; the title counts all verdicts."""
    groups = causes(verdicts)
    rows = [
        (budgets(group), subjects(group), value_of(v := group[0]), f"expected: {v.limit}", v.reason or v.source)
        for group in groups[:_SHOWN]
    ]
    hidden = sum(map(len, groups[_SHOWN:]))
    return _block(f"{title} ({len(verdicts)})", rows, [f"… and {hidden} more"] if hidden else [])


def _gaps(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """Unmeasured verdicts, grouped by budget and reason: one missing machine causes hundreds of equal ones."""
    groups = grouped(((v.budget, v.reason), v) for v in verdicts).values()
    rows = [(v.budget, f"{subjects([v])}{f' and {len(rest)} more' if rest else ''}", v.reason) for v, *rest in groups]
    return _block(f"{title} ({len(verdicts)})", rows)


def _waivers(uses: Sequence[WaiverUse]) -> list[str]:
    states = {"not needed": "no longer needed", "expired": "expired on {}"}
    return [
        f"waiver {states[use.state].format(w.expires)}: {w.budget} on {', '.join(w.variants)} ({w.reason})"
        for use in uses
        if use.state in states and (w := use.waiver)
    ]


def _waived(result: Judgement) -> list[str]:
    """A row per budget and reason: a waiver may accept hundreds of misses; then what was accepted without a waiver."""
    rows = []
    for first, *others in grouped(((use.waiver.budget, use.waiver.reason), use) for use in result.loosened).values():
        w, uses = first.waiver, (first, *others)
        until = min((day for use in uses if (day := use.waiver.expires)), default="")
        where = ", ".join(w.variants) if w.variants != ("*",) else "all variants"
        more = f" and {len(others)} more" if others else ""
        covered = sum(use.covers for use in uses)
        where = f"{where}: accepted {number(w.accepted)}{more}"
        rows.append(
            (w.budget, f"{covered} miss{'es' * (covered > 1)}", where, w.reason, f"until {until}" if until else "")
        )
    by_waiver = {use.waiver.budget for use in result.loosened}
    rows += [(v.budget, "", str(v.subject), v.reason, "") for v in result.waived if v.budget not in by_waiver]
    return _block(f"waived ({len(result.waived)})", rows)


def _goals(verdicts: Sequence[Verdict]) -> list[str]:
    """One line per goal: how many subjects reached it, and the farthest one."""
    rows = []
    for goal in grouped((v.budget, v) for v in verdicts).values():
        first = goal[0]
        if first.budget.startswith(PREFIX) and all(v.status == "pass" for v in goal):
            continue  # informational baseline facts matter only when they change
        measured = [(v.progress, v) for v in goal if v.progress is not None]
        reached = sum(v.status == "pass" for _, v in measured)
        text = f"reached by {reached} of {len(goal)}"
        if len(measured) < len(goal):
            text += f", {len(goal) - len(measured)} unmeasured"
        remark = "" if measured else first.reason
        if reached < len(measured):
            part, worst = min(measured, key=itemgetter(0))
            remark = (
                f"farthest: {worst.subject}, {number(worst.value, worst.unit)}, {percentage(100 * part)} of the way"
            )
        rows.append((first.budget, first.limit, text, remark))
    return _block(f"goals ({len(rows)})", rows)


def _passes(verdicts: Sequence[Verdict]) -> list[str]:
    """The number of passes per budget; a baseline's facts count as one budget."""
    names = [("baseline" if v.budget.startswith(PREFIX) else v.budget, v.status) for v in verdicts]
    total = Counter(name for name, _ in names)
    passed = Counter(name for name, status in names if status == "pass")
    return _block(f"passed ({passed.total()})", [(name, f"{n} of {total[name]}") for name, n in passed.items()])


def _block(title: str, rows: Sequence[Sequence[str]], more: Sequence[str] = ()) -> list[str]:
    """A title over aligned, indented rows, with the first line of each cell; empty without rows."""
    lines = [*(aligned([[c.splitlines()[0] if c else "" for c in row] for row in rows]) if rows else ()), *more]
    return [title, *(f"  {line}" for line in lines)] if lines else []
