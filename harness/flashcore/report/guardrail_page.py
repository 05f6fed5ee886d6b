"""The guardrails page: a matrix of variants and facts, all verdicts, waivers with their reasons, progress of goals.

The page contains all verdicts as data, of which a script shows the rows in view. Only verdicts that make the gate fail
are also HTML.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flashcore.gate.expand import headroom
from flashcore.gate.judge import Status, Verdict, WaiverUse
from flashcore.model.groups import grouped
from flashcore.model.suite import TIERS
from flashcore.model.text import UNMEASURED, exact, number, quantity, recorded_unit
from flashcore.report.cells import Cell, missing
from flashcore.report.view import GUARDRAILS, Book, Page, variant_cell

#: States in order of importance. A limit at risk passes.
RANK = {"fail": 0, "at_risk": 1, "waived": 2, "unmeasured": 3, "open": 4, "pass": 5}
WAIVER_MARKS = {"holds": "waived", "exceeded": "fail", "expired": "fail", "not needed": "open"}
#: A passing limit with less relative headroom is at risk. Without a defined headroom, a limit is never at risk.
AT_RISK = 0.05
#: Variants in the matrix; the data contain all of them.
MOST_VARIANTS = 150


@dataclass(frozen=True, slots=True)
class Matrix:
    """Variant × limited fact → the worst verdict, with the least headroom among equals; worst first.

    Args:
        quiet: facts and variants that pass everywhere without risk, unless all do.
    """

    facts: list[str]
    rows: list[tuple[Cell, dict[str, Cell]]]
    left_out: int
    quiet: frozenset[str]


@dataclass(frozen=True)
class Guardrails:
    """The page's content."""

    book: Book
    tiers = TIERS

    @property
    def matrix(self) -> Matrix:
        by_variant = grouped((v.subject.variant, (v.fact, v)) for v in self.book.judgement.limits)
        cells = {
            name: {fact: self._worst(same) for fact, same in grouped(verdicts).items()}
            for name, verdicts in by_variant.items()
        }
        facts = dict.fromkeys(v.fact for v in self.book.judgement.limits)
        worst = {name: min(cell.sort or 0 for cell in row.values()) for name, row in cells.items()}
        worst |= {f: min(row[f].sort or 0 for row in cells.values() if f in row) for f in facts}
        quiet = frozenset(name for name, rank in worst.items() if rank == RANK["pass"])
        shown = sorted(cells, key=lambda name: sorted(cell.sort or 0 for cell in cells[name].values()))[:MOST_VARIANTS]
        rows = [(self._variant(name), cells[name]) for name in shown]
        ordered = sorted(facts, key=lambda fact: worst[fact])
        return Matrix(ordered, rows, len(cells) - len(rows), quiet if quiet < worst.keys() else frozenset())

    def _worst(self, verdicts: Sequence[Verdict]) -> Cell:
        left = {v: math.inf if (h := self._headroom(v)) is None else h for v in verdicts}
        v = min(verdicts, key=lambda v: (RANK[self.state(v)], left[v]))
        states = Counter(map(self.state, verdicts))
        counts = ", ".join(f"{states[s]} {s.replace('_', ' ')}" for s in RANK if states[s])
        title = f"{v.budget} {v.limit}: {counts}; worst {number(v.value, v.unit)} ({v.subject})"
        text = percent(left[v]) if left[v] < math.inf and v.status != "unmeasured" else ""
        return Cell(text, title=title, sort=RANK[self.state(v)], mark=self.state(v))

    def state(self, v: Verdict) -> str:
        """The verdict's status, or ``at_risk``."""
        risky = v.status == "pass" and v.severity == "limit" and at_risk(self._headroom(v))
        return "at_risk" if risky else v.status

    @property
    def counts(self) -> Counter[str]:
        """Limits by state."""
        return Counter(map(self.state, self.book.judgement.limits))

    def _headroom(self, v: Verdict) -> float | None:
        return headroom(self.book.budgets.get(v.budget), v.value)

    def _percent(self, v: Verdict) -> str | None:
        left = self._headroom(v)
        return None if left is None else percent(left)

    def _variant(self, name: str) -> Cell:
        return variant_cell(name) if name in self.book.record.suite.variants else Cell(name)

    @cached_property
    def blocking(self) -> list[Verdict]:
        """The verdicts that make the gate fail, worst first."""
        return sorted((*self.book.judgement.failed, *self.book.judgement.gaps), key=self._order)

    def row(self, v: Verdict) -> list[Cell]:
        """A verdict's row for readers without scripts."""
        s, reason = v.subject, v.reason or v.source
        return [
            Cell(self.state(v).replace("_", " "), mark=self.state(v)),
            Cell(v.budget, title=f"on the fact {v.fact}\n{v.source}"),
            self._variant(s.variant),
            *(Cell(text or "–") for text in (s.arch, s.shape, s.kernel)),
            value_cell(v),
            Cell(v.limit, title=f"{v.source}\ntier {v.tier}"),
            Cell(self._percent(v) or "–", kind="number"),
            Cell(reason.strip().splitlines()[0], title=reason),
        ]

    @cached_property
    def data(self) -> dict[str, Any]:
        """All verdicts, limits first, as packed columns; data shared by a budget's verdicts are stored once."""
        every = sorted(self.book.judgement.verdicts, key=self._order)
        columns: dict[str, Iterable[Any]] = {
            "status": map(self.state, every),
            "required": (v.required for v in every),
            "budget": ([v.budget, v.fact, v.limit, v.source, v.tier, v.severity, recorded_unit(v.unit)] for v in every),
            **{n: [getattr(v.subject, n) for v in every] for n in ("variant", "arch", "shape", "kernel", "launch")},
            "value": (v.value for v in every),
            "headroom": map(self._percent, every),
            "from": (v.fact_source for v in every),
            "reason": (v.reason.strip() for v in every),
        }
        variants = list(self.book.record.suite.variants)
        return {"count": len(every), "linked": variants, "rank": RANK, **{k: packed(v) for k, v in columns.items()}}

    def _order(self, v: Verdict) -> tuple[bool, int, bool, float]:
        """Sort key: limits first; gate failures before other states; then by headroom."""
        state, room = self.state(v), self._headroom(v)
        rank = RANK["fail"] if state == "unmeasured" and v.required else RANK[state]
        return v.severity != "limit", rank, state != "fail", math.inf if room is None else room

    def waiver(self, use: WaiverUse) -> list[Cell]:
        waiver, budgets = use.waiver, self.book.budgets
        unit = budgets[waiver.budget].unit if waiver.budget in budgets else ""
        where = [", ".join(globs) for globs in (waiver.archs, waiver.shapes, waiver.kernels) if globs != ("*",)]
        return [
            Cell(use.state, mark=WAIVER_MARKS.get(use.state, UNMEASURED)),
            Cell(waiver.budget),
            Cell(", ".join(waiver.variants), kind="wrap"),
            Cell("; ".join(where) or "everywhere"),
            *(
                Cell(n, kind="number")
                for n in (number(waiver.accepted, unit), number(use.worst, unit), str(use.covers))
            ),
            Cell(str(waiver.expires or "never")),
            Cell(waiver.reason, kind="wrap"),
        ]

    @property
    def goals(self) -> list[list[Verdict]]:
        """Goals by name, each with its farthest subject first."""
        by_name = grouped((v.budget, v) for v in self.book.judgement.goals)
        return [sorted(same, key=lambda v: (v.progress is None, v.progress or 0.0)) for same in by_name.values()]


def page(book: Book) -> Page[Guardrails]:
    """The page ``guardrails``."""
    return Page(GUARDRAILS, "Guardrails", "guardrails.html.j2", Guardrails(book), scripts=("guardrails.js",))


def value_cell(v: Verdict) -> Cell:
    """The value that a verdict checked."""
    if v.value is None:
        return missing(v.reason, v.fact)
    source = f"from {v.fact_source}" if v.fact_source else "from the run"
    text, unit = quantity(v.value, v.unit)
    sort = float(v.value) if isinstance(v.value, (int, float)) else text
    title = f"{exact(v.value, v.unit)}\n{v.fact}, {source}\nabout {v.subject}"
    return Cell(text, unit, title, sort, "number")


def at_risk(room: float | None) -> bool:
    """Whether a passing limit with this headroom is at risk."""
    return room is not None and room < AT_RISK


def by_room(book: Book, status: Status) -> list[tuple[float | None, Verdict]]:
    """The limits of a status with their headroom, ascending; undefined headroom first."""
    rooms = ((headroom(book.budgets.get(v.budget), v.value), v) for v in book.judgement.limits if v.status == status)
    return sorted(rooms, key=lambda pair: -math.inf if pair[0] is None else pair[0])


def percent(share: float) -> str:
    """A share as a percentage, ``6 %``; never rounded to 0."""
    size = abs(100 * share)
    text = "0" if size == 0 else "<1" if size < 1 else f"{math.floor(size):,}"
    return f"{'−' if share < 0 else ''}{text} %"


def packed(values: Iterable[Any]) -> list[list[Any]]:
    """A column in run-length encoding: distinct values, the index of each run's value, each run's length.

    If most rows differ: the values, and two empty lists.
    """
    column = list(values)
    index: dict[str, int] = {}
    distinct: list[Any] = []
    which: list[int] = []
    long: list[int] = []
    for value in column:
        at = index.setdefault(repr(value), len(distinct))
        if at == len(distinct):
            distinct.append(value)
        if which and which[-1] == at:
            long[-1] += 1
        else:
            which.append(at)
            long.append(1)
    return [column, [], []] if len(distinct) > len(column) / 2 else [distinct, which, long]
