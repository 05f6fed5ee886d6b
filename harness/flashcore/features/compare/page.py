"""The page *Compare*: a summary and a table of two runs, and any variant beside those that it is compared with.

:mod:`flashcore.explain.compare_records` draws every conclusion. The page holds them for each pair that can be chosen;
a script draws the chosen one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.explain import compare_records
from flashcore.explain.comparison import REGRESSIONS, UNCHANGED, Change, Comparison
from flashcore.explain.comparison import Difference as Compared
from flashcore.explain.limiter import phase_shares, time_parts
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, GROUP_STAGE, STALL_REASONS
from flashcore.model.record import CaseSubject, Record, SourcePlace, Subject
from flashcore.model.suite import TIMING_MODES, Shape, Variant
from flashcore.model.text import as_words, faster, quantity, significant, six_digits
from flashcore.report.cells import Cell, missing, number_cell, unbroken
from flashcore.report.view import Book, Page

HERE = Path(__file__).parent
#: The shown times: the timing modes, and one launch under ncu.
TIMES = (*(f"{mode}_p50" for mode in TIMING_MODES), "ncu_duration")
#: Lines of a variant's source that are compared.
MOST_LINES = 1_500
#: The compared counters: ncu's, without the stalls per instruction, since their shares show the same.
COUNTERS = tuple(
    n
    for n, s in FACTS.items()
    if s.tier == "counters"
    and s.group not in GROUP_STAGE
    and n.removeprefix("stall_") not in STALL_REASONS
    and n not in compare_records.DURATIONS
)


class PageSide(NamedTuple):
    """A variant that the reader can select.

    Args:
        current: whether it is from this run, not from the other record.
        fixed: the shape at which it is shown, if the records have no common shape.
    """

    variant: Variant
    readings: Readings
    current: bool
    fixed: str = ""

    @property
    def record(self) -> Record:
        return self.readings.record

    @property
    def label(self) -> str:
        if self.current:
            return self.variant.name
        return f"{self.variant.name} ({', '.join(filter(None, (self.record.id.rpartition('-')[2], self.fixed)))})"

    def at(self, shape: Shape) -> CaseSubject:
        return CaseSubject(Case(self.variant.name, self.fixed or shape.name))


@dataclass(frozen=True)
class View:
    """The page's variables."""

    book: Book

    @cached_property
    def compared(self) -> Comparison | None:
        """The other record compared with this one."""
        return compare_records.compare(self.book.other, self.book.record) if self.book.other is not None else None

    @cached_property
    def pairs(self) -> _Pairs:
        book, other = self.book, self.book.other
        sides = [PageSide(v, book.readings, True) for v in book.record.suite.variants.values()]
        if other is not None:
            readings = Readings(other)
            shared = any(compare_records.same_shape(other, book.record, name) for name in other.suite.shapes)
            of_other = other.suite.variants.values()
            sides += [PageSide(v, readings, False, "" if shared else _shape(other, v)) for v in of_other]
        return _Pairs(book, sides)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The script's data."""
        return self.pairs.data()

    @property
    def sentence(self) -> str:
        """The answer of the first pair."""
        shape = next(iter(self.data["shapes"].values()))
        focus, against = (self.pairs.sides[int(i)].label for i in shape["first"].split())
        between, behind = shape["pairs"][shape["first"]]["answer"]
        return f"{focus} {between} {against}{behind}."

    @property
    def shapes(self) -> list[Shape]:
        """The first of each row's identical shapes."""
        return [row.shape for row in self.book.rows if row.shape.name in self.data["shapes"]]

    @property
    def rows(self) -> Iterator[tuple[bool, list[Cell]]]:
        """The cases that changed between the two runs: whether each got worse, and its cells."""
        for row in self.compared.rows if self.compared else ():
            if row.outcome not in UNCHANGED:
                yield row.outcome in REGRESSIONS, _cells(row)


def page(book: Book) -> Page[View] | None:
    """The page ``compare``; ``None`` without a pair, and for an import's kernels, which have nothing in common."""
    view = View(book)
    if not any(map(view.pairs.chosen, view.pairs.rows)) or (book.imported and book.other is None):
        return None
    return Page("compare", "Compare", str(HERE / "compare.html.j2"), view, scripts=(str(HERE / "compare.js"),))


def _cells(row: Compared) -> list[Cell]:
    """A case or kernel: what changed, before, after, the ratio, its interval and the verdict."""
    lead, name = row.lead, row.subject.variant
    at = row.subject.shape
    first = Cell(row.name, href=f"compare?focus={name}&shape={at}") if at else Cell(row.name)
    if lead is None:
        empty = [missing(row.reason) for _ in range(4)]
        return [first, Cell(row.reason, kind="wrap"), *empty, Cell(row.verdict)]
    values = [
        missing("it has none there") if v is None else Cell(*quantity(v, lead.unit), kind="number")
        for v in (lead.before, lead.after)
    ]
    ratio, interval = missing("not a time"), missing(lead.no_interval or "not a time")
    if lead.ratio is not None:
        ratio = number_cell(lead.ratio, 3)
    if lead.low is not None:
        interval = Cell(_interval(lead), sort=lead.low)
    counters = [f"{c.fact} {c.text} {c.outcome}" for c in row.changes[1:] if c.speedup is None]
    others = "; ".join(counters if row.is_case else row.facts[1:])
    return [first, Cell(as_words(lead.mode), detail=others, kind="wrap"), *values, ratio, interval, Cell(row.verdict)]


def _interval(change: Change) -> str:
    return (
        ""
        if change.low is None or change.high is None
        else f"[{significant(change.low, 3)}, {significant(change.high, 3)}]"
    )


def _shape(record: Record, variant: Variant) -> str:
    """The first shape that a variant has a time at, else the first it runs on; empty without one."""
    names = [s.name for s in record.suite.shapes.values() if variant.runs_on(s)]
    timed = (n for n in names for time in TIMES if record.facts.number(time, CaseSubject(Case(variant.name, n))))
    return next(timed, next(iter(names), ""))


class _Pairs:
    """The figures of every case, and the conclusions about every pair, for the script, which names a side by its place
    in ``sides``."""

    def __init__(self, book: Book, sides: Sequence[PageSide]) -> None:
        self.book, self.sides = book, sides
        self.places = {(s.variant.name, s.current): i for i, s in enumerate(sides)}
        records = {id(side.record): side.record for side in sides}.values()
        self.counters = [n for n in COUNTERS if any(record.facts.named(n) for record in records)]
        self.incomparable = compare_records.comparable(book.other, book.record) if book.other is not None else ""

    def data(self) -> dict[str, Any]:
        shapes = {row.shape.name: self._of_row(row, *of) for row in self.rows if (of := self.chosen(row))}
        lines: dict[SourcePlace, int] = {}
        sources = {str(i): places for i, side in enumerate(self.sides) if (places := _source(side, lines))}
        return {
            "sides": [[s.label, s.variant.name, s.current] for s in self.sides],
            "runs": list(dict.fromkeys(s.record.id for s in self.sides)),
            "facts": [[n, FACTS[n].why] for n in self.counters],
            "modes": [as_words(name.removesuffix("_p50")) for name in TIMES],
            "shapes": shapes,
            "sources": sources,
            "lines": list(lines),
            "moved": compare_records.MOVED,
        }

    @property
    def rows(self) -> list[Row]:
        shown = {s.name for s in self.book.shown_shapes}
        return [row for row in self.book.rows if row.shape.name in shown]

    def chosen(self, row: Row) -> tuple[dict[int, Shape], dict[str, tuple[int, int]], str] | None:
        """The shape of each side, the pairs, and the first timed one; ``None`` without one."""
        shapes = {i: shape for i, side in enumerate(self.sides) if (shape := self._at(side, row))}
        timed = [i for i, shape in shapes.items() if self._time(i, shape, row)]
        best = self.book.ladder(*row.shapes).best
        winner = self.places[best.variant.name, True] if best else None
        pairs = {
            f"{i} {j}": (i, j)
            for i in sorted(shapes, key=lambda i: i != winner)
            if self.sides[i].current
            for j in self._partners(i, row, timed, winner)
        }
        first = next((key for key, (i, j) in pairs.items() if i in timed and j in timed), None)
        return (shapes, pairs, first) if first else None

    def _of_row(
        self, row: Row, shapes: Mapping[int, Shape], pairs: Mapping[str, tuple[int, int]], first: str
    ) -> dict[str, Any]:
        return {
            "first": first,
            "cases": {str(i): self._case(self.sides[i], shape) for i, shape in shapes.items()},
            "pairs": {key: self._pair(row, i, j, shapes) for key, (i, j) in pairs.items()},
        }

    def _at(self, side: PageSide, row: Row) -> Shape | None:
        """The shape on which a side is shown: of identical ones one that was profiled, else the fastest."""
        if side.fixed:
            return row.shape
        shared = [
            s for s in row.shapes if side.current or compare_records.same_shape(side.record, self.book.record, s.name)
        ]
        runs = [s for s in shared if side.variant.runs_on(s)]
        counted = (s for s in runs if side.record.facts.get("ncu_duration", side.at(s)))
        usual = row.cases.get(side.variant.name) if side.current else None
        fastest = (s for s in runs if usual and s.name == usual.shape)
        return next(counted, next(fastest, next(iter(runs), None)))

    def _time(self, i: int, shape: Shape, row: Row) -> float:
        facts, subject = self.sides[i].record.facts, self.sides[i].at(shape)
        return next((us for name in (row.shape.time, *TIMES) if (us := facts.number(name, subject))), 0.0)

    def _partners(self, i: int, row: Row, timed: Sequence[int], winner: int | None) -> list[int]:
        """What a variant is compared with, by default the first: its twin in the other record, or that one's fastest;
        of this run its parent, the baseline, the best reference and the winner. The winner is compared with the best
        reference first, and with the others."""
        variant, suite = self.sides[i].variant, self.book.record.suite
        names = [variant.parent, suite.baseline, row.reference]
        if i == winner:
            names = [row.reference, *names, *row.references]
        others = [j for j in timed if not self.sides[j].current]
        rivals = sorted(others, key=lambda j: (self.sides[j].variant.is_reference, self._time(j, row.shape, row)))
        twin = self.places.get((variant.name, False))
        choices = [
            twin if twin in others else next(iter(rivals), None),
            *(self.places.get((n or "", True)) for n in names),
        ]
        return list(dict.fromkeys(j for j in (*choices, winner) if j is not None and j != i and j in timed))

    def _case(self, side: PageSide, shape: Shape) -> dict[str, Any]:
        """Counters in the order of ``counters``, shares of phases, what limits it."""
        subject = side.at(shape)
        facts = [side.record.facts.get(name, subject) for name in self.counters]
        phases = phase_shares(side.record, subject)
        limits = time_parts(side.readings, subject.case)
        return {
            "c": [
                None if f is None or f.number is None else " ".join(quantity(f.number, f.unit)).strip() for f in facts
            ],
            "p": {phase: six_digits(f.number) for phase, f in phases.items() if f.number is not None},
            "limiter": f"limited by {limits.text}" if limits.text else "the limiter is unmeasured",
        }

    def _pair(self, row: Row, i: int, j: int, shapes: Mapping[int, Shape]) -> dict[str, Any]:
        """The sentence, the times, what contradicts, and the counters that differ, the largest difference first."""
        focus, against = self.sides[i], self.sides[j]
        after, before = focus.at(shapes[i]), against.at(shapes[j])
        if focus.current and against.current and (pair := row.pair(focus.variant.name, against.variant.name)):
            after, before = map(CaseSubject, pair)
        across = not against.current
        incomparable = self.incomparable if across else ""
        of = compare_records.case(against.record, before, focus.record, after, with_counters=False)
        times = {c.fact: c for c in of.changes if c.speedup} if of and not incomparable else {}
        lead = times.get(row.shape.time) or next(iter(times.values()), None)
        return {
            "answer": _answer(lead, across, incomparable),
            "same": bool(of and of.same_code),
            "contradiction": _contradiction(of),
            "times": [
                [
                    self._shown(against, name, before),
                    self._shown(focus, name, after),
                    *self._judged(times.get(name), incomparable),
                ]
                for name in TIMES
            ],
            "moved": list(self._moved(focus.at(shapes[i]), against, against.at(shapes[j]))),
        }

    def _shown(self, side: PageSide, name: str, subject: CaseSubject) -> str | dict[str, str]:
        """A time, or why it is missing."""
        fact = side.record.facts.get(name, subject)
        if fact is not None and fact.number:
            return quantity(fact.number, fact.unit)[0]
        return {"missing": self.book.why(name, subject) if side.current else "not in that record"}

    def _judged(self, change: Change | None, incomparable: str) -> list[str | dict[str, str]]:
        """How many times faster, the interval, and the verdict."""
        if change is None or change.ratio is None:
            why = {"missing": incomparable or "one of the times is missing"}
            return [why, why, "–"]
        interval = _interval(change) or {"missing": change.no_interval}
        return [f"{significant(change.ratio, 3)} ×", interval, change.outcome if change.evidence else "not judged"]

    def _moved(self, after: Subject, against: PageSide, before: Subject) -> Iterator[list[Any]]:
        """The place of each counter that differs, the size of the difference (negative: better, or less), and the
        outcome."""
        for c in compare_records.moved(against.record, self.book.record, after, before, most=None):
            if c.fact in self.counters and isinstance(c.before, (int, float)) and isinstance(c.after, (int, float)):
                outcome = "changed" if against.fixed else c.outcome  # of two shapes, less is not better
                less = outcome == "better" or (outcome != "worse" and c.after < c.before)
                yield [self.counters.index(c.fact), round(-c.size if less else c.size, 2), outcome]


def _source(side: PageSide, places: dict[SourcePlace, int]) -> list[int]:
    """The source lines of the machine code, as indices into ``places``: the variant's file first, then headers."""
    listings = [x for x in side.record.listings if x.subject.variant == side.variant.name]
    kernels = [x for x in listings if x.subject.shape == listings[0].subject.shape]
    lines = {(i.file, i.line): i.source for x in kernels for i in x.instructions if i.line and i.source}
    ordered = sorted(lines, key=lambda place: (place[0] != side.variant.kind.file, place))[:MOST_LINES]
    return [places.setdefault((f.rpartition("/")[2], n, lines[f, n]), len(places)) for f, n in ordered]


def _answer(lead: Change | None, across: bool, incomparable: str) -> tuple[str, str]:
    """The words between the two names, and after them."""
    if incomparable:
        return "and", f": their times are not compared ({incomparable})"
    if lead is None or lead.ratio is None:
        return "and", ": no timing mode has a time of both"
    phrase = f"has {significant(lead.ratio, 3)} × the speed of"
    if lead.outcome == "faster":
        phrase = f"is {faster(lead.ratio)} than"
    elif lead.evidence and lead.outcome == "no difference":
        phrase = "is, as far as can be seen, as fast as"
    interval = f"95\u00a0% {_interval(lead)}" if lead.evidence else "no interval"
    tail = "; times of two runs are not judged" if across else ""
    return unbroken(phrase), f", {as_words(lead.mode)}, {interval}{tail}"


def _contradiction(row: Compared | None) -> str:
    if row is None or row.contradiction is None:
        return ""
    modes = [f"{unbroken(faster(c.ratio or 1))} {as_words(c.mode)} {_interval(c)}" for c in row.contradiction]
    return f"The modes contradict each other: {modes[0]}, but {modes[1]}."
