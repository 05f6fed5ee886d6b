"""The guardrail page: variant × fact at a glance, every verdict, waivers with their reasons, progress of the goals.

The page holds all verdicts as columns of data, and a script shows the rows in view. Those that make the gate fail are
rows of the page itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashcore.gate.expand import excess
from flashcore.gate.judge import Judgement, Status, Verdict, WaiverUse
from flashcore.gate.wording import sentence, summary
from flashcore.model.groups import grouped
from flashcore.model.suite import TIERS, Budget
from flashcore.model.text import UNMEASURED, exact, number, quantity, recorded_unit
from flashcore.report.cells import Cell, missing
from flashcore.report.view import GUARDRAILS, Book, Page, variant_page

#: The order of statuses: what a reader should see first.
RANK = {"fail": 0, "unmeasured": 1, "waived": 2, "open": 3, "pass": 4}
SIGNS: dict[Status, str] = {"fail": "✗", "unmeasured": "?", "waived": "!", "pass": "✓"}
WAIVER_MARKS = {"holds": "waived", "exceeded": "fail", "expired": "fail", "not needed": "open"}
#: Rows without a script, variants in the matrix, goals of each budget, failures in words: the data have all of them.
MOST_PLAIN, MOST_VARIANTS, MOST_GOALS, MOST_SENTENCES = 100, 150, 10, 4
COLUMNS = (
    "verdict",
    "limit on",
    "variant",
    "arch",
    "shape",
    "kernel",
    "value",
    "promised",
    "headroom",
    "reason or source",
)


@dataclass(frozen=True, slots=True)
class Matrix:
    """For each variant and limited fact: the worst verdict, and the least headroom among equals."""

    facts: list[str]
    rows: list[tuple[Cell, list[Cell | None]]]
    left_out: int


@dataclass(frozen=True, slots=True)
class GoalRow:
    """One goal on one subject, with its progress as a whole percentage (never rounded up to 100)."""

    verdict: Verdict
    value: Cell
    percent: int | None


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal on all its subjects, the farthest first; ``rows`` is empty if none was measured."""

    verdict: Verdict
    reached: int
    measured: int
    total: int
    rows: list[GoalRow]


@dataclass(frozen=True)
class View:
    """The template's variables; ``holding`` is the number of verdicts that make the gate fail."""

    judgement: Judgement
    summary: str
    failed: list[str]
    counts: list[tuple[Status, int]]
    matrix: Matrix
    rows: list[list[Cell]]
    holding: int
    data: dict[str, Any]
    waivers: list[list[Cell]]
    goals: list[Goal]
    facts: list[str]
    columns: Sequence[str] = COLUMNS
    tiers: Sequence[str] = TIERS
    signs: dict[Status, str] = field(default_factory=lambda: SIGNS)


def page(book: Book) -> Page[View]:
    """The page ``guardrails``."""
    judgement = book.judgement
    counts = judgement.counts()
    unreached = judgement.counts("goal")["open"]
    holding = sorted((*judgement.failed, *judgement.gaps), key=_rank)
    view = View(
        judgement,
        summary(judgement),
        failed=[sentence(v) for v in judgement.failed[:MOST_SENTENCES]],
        counts=[(s, counts[s]) for s in SIGNS] + ([("open", unreached)] if unreached else []),
        matrix=_matrix(book),
        rows=[_row(book, v) for v in holding[:MOST_PLAIN]],
        holding=len(holding),
        data=_data(book),
        waivers=[_waiver(book, use) for use in judgement.waivers],
        goals=_goals(judgement),
        facts=sorted({v.fact for v in judgement.verdicts}),
    )
    return Page(GUARDRAILS, "Guardrails", "guardrails.html.j2", view)


def _rank(v: Verdict) -> tuple[int, bool]:
    return RANK[v.status], not v.required


def _waiver(book: Book, use: WaiverUse) -> list[Cell]:
    waiver = use.waiver
    unit = book.budgets[waiver.budget].unit if waiver.budget in book.budgets else ""
    where = [", ".join(globs) for globs in (waiver.archs, waiver.shapes, waiver.kernels) if globs != ("*",)]
    return [
        Cell(use.state, mark=WAIVER_MARKS.get(use.state, UNMEASURED)),
        Cell(waiver.budget),
        Cell(", ".join(waiver.variants), kind="wrap"),
        Cell("; ".join(where) or "everywhere"),
        Cell(number(waiver.accepted, unit), kind="number"),
        Cell(number(use.worst, unit), kind="number"),
        Cell(str(use.covers), kind="number"),
        Cell(str(waiver.expires or "never")),
        Cell(waiver.reason, kind="wrap"),
    ]


def value_cell(v: Verdict) -> Cell:
    """The value that a verdict checked."""
    if v.value is None:
        return missing(v.reason, v.fact)
    source = f"from {v.fact_source}" if v.fact_source else "from the run itself"
    text, unit = quantity(v.value, v.unit)
    sort = float(v.value) if isinstance(v.value, (int, float)) else text
    title = f"{exact(v.value, v.unit)}\n{v.fact}, {source}\nabout {v.subject}"
    return Cell(text, unit, title, sort, "number")


def _variant(book: Book, name: str) -> Cell:
    return Cell(name, href=variant_page(name) if name in book.record.suite.variants else "")


def _row(book: Book, v: Verdict) -> list[Cell]:
    """A verdict as it is shown without scripts."""
    s = v.subject
    left = _headroom(book, v)
    reason = v.reason or v.source
    return [
        Cell(v.status, mark=v.status),
        Cell(v.budget, title=f"on the fact {v.fact}\n{v.source}"),
        _variant(book, s.variant),
        *(Cell(text or "–") for text in (s.arch, s.shape, s.kernel)),
        value_cell(v),
        Cell(v.limit, title=f"{v.source}\ntier {v.tier}"),
        Cell("–" if left is None else percent(left), kind="number"),
        Cell(reason.strip().splitlines()[0], title=reason),
    ]


# --- variant × fact ---------------------------------------------------------------------------------


def headroom(budget: Budget | None, value: object) -> float | None:
    """The distance of a value inside its limit, as a share of the limit; below 0 it is beyond.

    ``None``: undefined, as for a limit of 0 that is kept.
    """
    if budget is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    over = excess(budget, float(value))
    limit = budget.maximum if budget.maximum is not None and over == value - budget.maximum else budget.minimum
    return -over / abs(limit) if limit else None


def _headroom(book: Book, v: Verdict) -> float | None:
    return headroom(book.budgets.get(v.budget), v.value)


def percent(share: float) -> str:
    """``6 %``, never rounded from or to 0."""
    size = abs(100 * share)
    text = "0" if size == 0 else "<1" if size < 1 else f"{math.floor(size):,}"
    return f"{'−' if share < 0 else ''}{text} %"


def _matrix(book: Book) -> Matrix:
    groups = grouped(((v.subject.variant, v.fact), v) for v in book.judgement.limits)
    facts = list(dict.fromkeys(fact for _, fact in groups))
    cells = {key: _cell(book, verdicts) for key, verdicts in groups.items()}
    names = list(dict.fromkeys(variant for variant, _ in cells))
    worst = sorted(names, key=lambda n: min(cells[n, f].sort or 0 for f in facts if (n, f) in cells))
    shown = set(worst[:MOST_VARIANTS])
    rows = [(_variant(book, n), [cells.get((n, f)) for f in facts]) for n in names if n in shown]
    return Matrix(facts, rows, len(names) - len(rows))


def _cell(book: Book, verdicts: Sequence[Verdict]) -> Cell:
    keyed = []
    for v in verdicts:
        left = _headroom(book, v)
        keyed.append((RANK[v.status], math.inf if left is None else left, v))
    rank, left, v = min(keyed, key=lambda x: x[:2])
    counts = ", ".join(f"{n} {s}" for s in RANK if (n := sum(x.status == s for x in verdicts)))
    title = f"{v.budget} {v.limit}: {counts}; worst {number(v.value, v.unit)} ({v.subject})"
    text = percent(left) if left < math.inf and v.status != "unmeasured" else ""
    return Cell(text, title=title, sort=rank, mark=v.status)


# --- all verdicts as data ---------------------------------------------------------------------------


def _data(book: Book) -> dict[str, Any]:
    """Limits, then goals: a column each, packed; what all verdicts of a budget share is stored once."""
    every = sorted(book.judgement.verdicts, key=lambda v: (v.severity != "limit", _rank(v)))
    columns: dict[str, Iterable[Any]] = {
        "status": (v.status for v in every),
        "required": (v.required for v in every),
        "budget": ([v.budget, v.fact, v.limit, v.source, v.tier, v.severity, recorded_unit(v.unit)] for v in every),
        "variant": (v.subject.variant for v in every),
        "arch": (v.subject.arch for v in every),
        "shape": (v.subject.shape for v in every),
        "kernel": (v.subject.kernel for v in every),
        "launch": (v.subject.launch for v in every),
        "value": (v.value for v in every),
        "headroom": (None if (left := _headroom(book, v)) is None else percent(left) for v in every),
        "from": (v.fact_source for v in every),
        "reason": (v.reason.strip() for v in every),
    }
    return {
        "count": len(every),
        "known": list(book.record.suite.variants),
        "rank": RANK,
        **{k: packed(v) for k, v in columns.items()},
    }


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


def _goals(judgement: Judgement) -> list[Goal]:
    """Goals by name; within one, the farthest first."""
    goals = []
    for verdicts in grouped((v.budget, v) for v in judgement.goals).values():
        ordered = sorted(verdicts, key=lambda v: (v.progress is None, v.progress or 0.0))
        measured = [v for v in verdicts if v.progress is not None]
        reached = sum(v.status == "pass" for v in measured)
        rows = [goal_row(v) for v in ordered[:MOST_GOALS]] if measured else []
        goals.append(Goal(verdicts[0], reached, len(measured), len(verdicts), rows))
    return goals


def goal_row(v: Verdict) -> GoalRow:
    """The row of one goal on one subject."""
    progress = None if v.progress is None else 100 if v.status == "pass" else min(99, int(100 * v.progress))
    return GoalRow(v, value_cell(v), progress)
