"""The budgets page: limits by budget and value, a matrix of variants and facts, all verdicts, waivers with their
reasons, progress of goals.

The page contains all verdicts as data, of which a script shows the rows in view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flashcore.explain.verdict import Verdict
from flashcore.gate.judge import WaiverUse
from flashcore.model.groups import grouped
from flashcore.model.record import Subject, subject_of
from flashcore.model.suite import TIERS
from flashcore.model.text import UNMEASURED, abbreviated, as_words, count, exact, number, quantity, recorded_unit, share
from flashcore.report.cells import Cell, Table, missing
from flashcore.report.view import BUDGETS, Book, Page, variant_cell

#: States in order of importance. A limit at risk passes.
RANK = {"fail": 0, "at_risk": 1, "waived": 2, "unmeasured": 3, "open": 4, "pass": 5}
WAIVER_MARKS = {"holds": "waived", "exceeded": "fail", "expired": "fail", "not needed": "open"}
#: Rows of limits by budget and value; the data contain all of them.
MOST_GROUPS = 100
#: Variants in the matrix; the data contain all of them.
MOST_VARIANTS = 150


@dataclass(frozen=True, slots=True)
class Matrix:
    """Variant × limited fact → the worst verdict, with the least headroom among equals; worst first.

    Args:
        quiet: facts and variants that pass everywhere without risk or are unmeasured everywhere, unless all are.
    """

    facts: list[str]
    rows: list[tuple[Cell, dict[str, Cell]]]
    left_out: int
    quiet: frozenset[str]


@dataclass(frozen=True)
class Budgets:
    """The page's content."""

    book: Book
    tiers = TIERS
    most_groups = MOST_GROUPS

    @property
    def matrix(self) -> Matrix:
        by_variant = grouped((v.subject.variant, (v.fact, v)) for v in self.book.judgement.limits)
        cells = {
            name: {fact: self._worst(same) for fact, same in grouped(verdicts).items()}
            for name, verdicts in by_variant.items()
        }
        facts = dict.fromkeys(v.fact for v in self.book.judgement.limits)
        best = {f: max(row[f].sort or 0 for row in cells.values() if f in row) for f in facts}
        worst = {f: min(row[f].sort or 0 for row in cells.values() if f in row) for f in facts}
        required = {v.fact for v in self.book.judgement.gaps}
        worst |= {f: RANK["pass"] for f in facts if best[f] == worst[f] == RANK[UNMEASURED] and f not in required}
        worst |= {name: min(max(row[f].sort or 0, worst[f]) for f in row) for name, row in cells.items()}
        quiet = frozenset(name for name, rank in worst.items() if rank == RANK["pass"])
        shown = sorted(cells, key=lambda name: sorted(cell.sort or 0 for cell in cells[name].values()))[:MOST_VARIANTS]
        linked = self.book.record.suite.variants
        rows = [(variant_cell(name) if name in linked else Cell(name), cells[name]) for name in shown]
        ordered = sorted(facts, key=lambda fact: worst[fact])
        return Matrix(ordered, rows, len(cells) - len(rows), quiet if quiet < worst.keys() else frozenset())

    def _worst(self, verdicts: Sequence[Verdict]) -> Cell:
        v = min(verdicts, key=lambda v: (RANK[self.state(v)], v.room))
        states = Counter(map(self.state, verdicts))
        counts = ", ".join(f"{states[s]} {s.replace('_', ' ')}" for s in RANK if states[s])
        title = f"{v.budget} {v.limit}: {counts}; worst {number(v.value, v.unit)} ({v.subject})"
        text = _room(v) or ""
        return Cell(text, title=title, sort=RANK[self.state(v)], mark=self.state(v))

    def state(self, v: Verdict) -> str:
        """The verdict's status, or ``at_risk``."""
        return "at_risk" if v.at_risk else v.status

    @property
    def counts(self) -> Counter[str]:
        """Limits by state."""
        return Counter(map(self.state, self.book.judgement.limits))

    @cached_property
    def groups(self) -> list[list[Verdict]]:
        """The limits of one state, budget and value; the gate's failures first. Those without a number are told apart
        by their reason."""
        ordered = sorted(self.book.judgement.limits, key=self._order)
        same = grouped(
            ((self.state(v), v.required, v.budget, v.value if _is_number(v) else v.reason), v) for v in ordered
        )
        return list(same.values())

    @property
    def rows(self) -> Table:
        """The displayed groups as rows."""
        return [self._row(same) for same in self.groups[:MOST_GROUPS]]

    def _row(self, same: Sequence[Verdict]) -> list[Cell]:
        """The row of limits with one budget and value: ``68 cases``, ``137,600 of 166,912 B``."""
        v, names = same[0], list(dict.fromkeys(v.subject.variant for v in same))
        places = list(dict.fromkeys(str(self._at(v.subject)) for v in same))
        reason = v.reason or v.source
        state = as_words(self.state(v)) + " required" * (v.status == "unmeasured" and v.required)
        return [
            Cell(state, mark=self.state(v)),
            Cell(v.budget, title=f"on the fact {v.fact}\n{v.source}"),
            Cell(count(len(places), "case"), title="\n".join(places[:20]), sort=len(places), kind="number"),
            replace(value_cell(v), text=self._used(v), unit="") if v.value is not None else value_cell(v),
            Cell(_room(v) or "–", kind="number"),
            Cell(abbreviated(names), title="\n".join(names), kind="wrap"),
            Cell(reason.strip().splitlines()[0], title=reason, kind="wrap"),
        ]

    def _at(self, subject: Subject) -> Subject:
        """The subject under all names of its shape: identical shapes are one case."""
        names = self.book.names.get(subject.shape or "", subject.shape)
        return subject_of(subject.variant, names, subject.kernel, subject.launch, subject.arch)

    def _used(self, v: Verdict) -> str:
        """``137,600 of 166,912 B``; a limit that is no largest value follows as text."""
        budget = self.book.budgets.get(v.budget)
        if budget and budget.maximum is not None and budget.minimum is None and _is_number(v):
            return f"{number(v.value)} of {number(budget.maximum, v.unit)}"
        return f"{number(v.value, v.unit)}, expected: {v.limit}"

    @cached_property
    def data(self) -> dict[str, Any]:
        """All verdicts, limits first, as packed columns; data shared by a budget's verdicts are stored once."""
        every = sorted(self.book.judgement.verdicts, key=self._order)
        rooms = {_room(v): v.headroom or 0.0 for v in every}
        columns: dict[str, Iterable[Any]] = {
            "required": (v.required for v in every),
            "budget": ([v.budget, v.fact, v.source, v.tier, v.severity, recorded_unit(v.unit)] for v in every),
            **{n: [getattr(v.subject, n) for v in every] for n in ("variant", "arch", "shape", "kernel", "launch")},
            "value": (v.value for v in every),
            "shown": (
                quantity(v.value, "")[0] if isinstance(v.value, bool) else number(v.value, v.unit) for v in every
            ),
            "limit": (v.limit for v in every),
            "from": (v.fact_source for v in every),
            "reason": (v.reason.strip() or None for v in every),
        }
        ranked = {"status": packed(map(self.state, every), RANK.get), "headroom": packed(map(_room, every), rooms.get)}
        return {
            "count": len(every),
            "linked": [*self.book.record.suite.variants],
            "columns": ranked | {name: packed(values) for name, values in columns.items()},
        }

    def _order(self, v: Verdict) -> tuple[bool, int, bool, float]:
        """Sort key: limits first; gate failures before other states; then by headroom."""
        state = self.state(v)
        rank = RANK["fail"] if state == "unmeasured" and v.required else RANK[state]
        return v.severity != "limit", rank, state != "fail", v.room

    @property
    def waivers(self) -> Table:
        return [self._waiver(use) for use in self.book.judgement.waivers]

    def _waiver(self, use: WaiverUse) -> list[Cell]:
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

    def progress(self, goals: Sequence[Verdict]) -> Table:
        """Rows of goals."""
        return [[Cell(str(v.subject)), value_cell(v), Cell(v.limit), _progress(v)] for v in goals]


def page(book: Book) -> Page[Budgets]:
    """The page ``budgets``."""
    return Page(BUDGETS, "Budgets", "budgets.html.j2", Budgets(book), scripts=("budgets.js",))


def value_cell(v: Verdict) -> Cell:
    """The value that a verdict checked."""
    if v.value is None:
        return missing(v.reason, v.fact)
    source = f"from {v.fact_source}" if v.fact_source else "from the run"
    text, unit = quantity(v.value, v.unit)
    sort = float(v.value) if isinstance(v.value, (int, float)) else text
    title = f"{exact(v.value, v.unit)}\n{v.fact}, {source}\nabout {v.subject}"
    return Cell(text, unit, title, sort, "number")


def _progress(v: Verdict) -> Cell:
    """A goal's progress: a whole percentage, never rounded up to 100."""
    if v.progress is None:
        return missing(v.reason)
    percent = 100 if v.status == "pass" else min(99, int(100 * v.progress))
    return Cell(f"{percent} %", sort=percent, share=percent)


def _room(v: Verdict) -> str | None:
    """The headroom as a percentage; ``None`` without one."""
    return None if v.headroom is None else share(v.headroom)


def _is_number(v: Verdict) -> bool:
    return isinstance(v.value, (int, float)) and not isinstance(v.value, bool)


def packed(values: Iterable[Any], place: Callable[[Any], Any] | None = None) -> list[list[Any]]:
    """A column as its distinct values, sorted by ``place``, ``None`` last, and the index of each row's."""
    keys, distinct = [], {}
    for value in values:
        keys.append(key := repr(value))
        distinct[key] = value
    ordered = sorted(distinct, key=lambda key: (distinct[key] is None, (place or _order)(distinct[key])))
    index = {key: i for i, key in enumerate(ordered)}
    return [[distinct[key] for key in ordered], [index[key] for key in keys]]


def _order(value: Any) -> tuple[bool, Any]:
    """Sort key: numbers before words."""
    number = isinstance(value, (int, float))
    return not number, value if number else str(value).casefold()
