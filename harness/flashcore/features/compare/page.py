"""The page *Compare*: two variants of this run or another one, with times, counters, stalls, phases and source.

The page holds the figures of every case and the interval of every pair's ratio; a script draws the selected pair. The
first pair's verdict is HTML. :mod:`flashcore.explain` draws the conclusions about times, which the script looks up by
their codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.explain import compare_records
from flashcore.explain.limiter import phase_shares, time_parts
from flashcore.explain.readings import Readings
from flashcore.explain.times import Speedup, no_interval, speedups
from flashcore.model.catalogue import FACTS, GROUP_STAGE, STALL_REASONS
from flashcore.model.cause import cause_text
from flashcore.model.causes import OTHER_GPUS, OTHER_RUNS
from flashcore.model.record import Record, Subject
from flashcore.model.suite import REGIMES, Shape, Variant
from flashcore.model.text import faster, significant
from flashcore.report.cells import Cell, missing, number_cell, six_digits, unbroken, words
from flashcore.report.view import Book, Page, variant_page

HERE = Path(__file__).parent
#: One launch under ncu: it has no samples, and so no interval.
NCU = "under_ncu"
TIMES = (*REGIMES, NCU)
_TIMES = ("ncu_duration", *(f"{m}_p50" for m in REGIMES))  # their facts
#: The most intervals of a page. With more pairs, a shape has only those of related variants: parents, the baseline,
#: references, the winner.
MOST_PAIRS = 50_000
#: The unit of the intervals' ends, as a share of the ratio.
STEP = 1e-4
#: The code of a conclusion about a pair → its word, the words between the names in a sentence, and for a regime.
PHRASES = {
    "+": ("faster", unbroken(f"is {faster(1, shown='{}')} than"), unbroken(faster(1, shown="{}"))),
    "-": ("slower", unbroken(f"has {faster(0, shown='{}')} of"), unbroken(faster(0, shown="{}"))),
    "=": ("no difference", "is, as far as can be seen, as fast as", ""),
    "?": ("not judged", unbroken(f"has {faster(0, shown='{}')} of"), ""),
}
UNJUDGED = "?"
OTHER_ROUNDS = "no interval: not timed in the same rounds, too many pairs, or no samples of one"
OPPOSITE = {"+": "-", "-": "+"}
CODES = {word: code for code, (word, *_) in PHRASES.items()}
#: Lines of a variant's source that are compared.
MOST_LINES = 1_500
#: The compared counters: ncu's, without the stalls per instruction, since their shares show the same.
COUNTERS = tuple(
    n
    for n, s in FACTS.items()
    if s.tier == "counters" and s.group not in GROUP_STAGE and n.removeprefix("stall_") not in STALL_REASONS
)


class Side(NamedTuple):
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

    def at(self, shape: Shape) -> Subject:
        return Subject(self.variant.name, shape=self.fixed or shape.name)


class Comparison:
    """The page's variables; the book's other record's variants can be selected too."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self.other = book.other
        self.notes = list(compare_records.compare(book.other, book.record).notes) if book.other is not None else []

    @cached_property
    def data(self) -> dict[str, Any]:
        """The script's data."""
        book, other = self._book, self.other
        sides = [Side(v, book.readings, True) for v in book.record.suite.variants.values()]
        if other is not None:
            readings = Readings(other)
            shared = any(compare_records.same_shape(other, book.record, name) for name in other.suite.shapes)
            of_other = other.suite.variants.values()
            sides += [Side(v, readings, False, "" if shared else _shape(other, v)) for v in of_other]
        return _Figures(book, sides).data(compare_records.comparable(other, book.record) if other is not None else "")

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The first pair's; ``None`` if there is no pair."""
        first = next(iter(self.data["shapes"]), "")
        pair = self.data["shapes"][first]["first"] if first else None
        return None if pair is None else _verdict(self.data, first, *pair)


def page(book: Book) -> Page[Comparison] | None:
    """The page ``compare``; ``None`` without a pair, and for an import's kernels, which have nothing in common."""
    view = Comparison(book)
    if view.verdict is None or (book.imported and book.other is None):
        return None
    scripts = (str(HERE / "compare.js"),) if any(map(book.record.facts.named, _TIMES)) else ()
    return Page("compare", "Compare", str(HERE / "compare.html.j2"), view, scripts=scripts)


def _shape(record: Record, variant: Variant) -> str:
    """The first shape that a variant has a time at, else the first it runs on; empty without one."""
    names = [s.name for s in record.suite.shapes.values() if variant.runs_on(s)]
    timed = (n for n in names for time in _TIMES if record.facts.number(time, Subject(variant.name, shape=n)))
    return next(timed, next(iter(names), ""))


# --- the figures ------------------------------------------------------------------------------------

#: A side's place, as text (a JSON key) → the script's data of the case.
Cases = Mapping[str, Mapping[str, Any]]


class _Figures:
    """All figures of the page, for its script, which names a side by its place in ``sides``."""

    def __init__(self, book: Book, sides: Sequence[Side]) -> None:
        self.book = book
        self.sides = sides
        self.partners = [self._partners(i) for i in range(len(sides))]
        self.places: dict[tuple[str, str], int] = {}  # the run and the GPU that took a time
        records = {id(side.record): side.record for side in sides}.values()
        self.counters = [n for n in COUNTERS if any(record.facts.named(n) for record in records)]

    def data(self, incomparable: str) -> dict[str, Any]:
        """The script's data; ``incomparable`` is the reason why times of two records are not compared."""
        shapes: dict[str, Any] = {}
        intervals_made = 0
        for shape in self.book.shown_shapes:
            cases = {str(i): self._case(side, shape) for i, side in enumerate(self.sides) if self._has(side, shape)}
            ratios: dict[tuple[int, int], dict[str, Speedup]] = {}  # of a pair of this run, by regime
            left = MOST_PAIRS - intervals_made
            pairs = {mode: self._pairs(cases, shape, mode, left, ratios) for mode in REGIMES}
            intervals_made += sum(len(ids) for rows in pairs.values() for _, ids, *_ in rows)
            rival = self._rival(shape, cases)
            shapes[shape.name] = {
                "rank": shape.rank_by,
                "first": self._first(shape, cases, rival),
                "rival": rival,
                "cases": cases,
                "pairs": pairs,
                "contradictions": {
                    f"{focus} {against}": regimes
                    for (focus, against), by_regime in ratios.items()
                    if (regimes := _contradicting(by_regime.items()))
                },
            }
        lines: dict[tuple[str, int, str], int] = {}
        sources = {str(i): places for i, side in enumerate(self.sides) if (places := _source(side, lines))}
        return {
            "sides": [[s.label, s.variant.name, s.current, self.partners[i]] for i, s in enumerate(self.sides)],
            "runs": list(dict.fromkeys(s.record.id for s in self.sides)),
            "facts": [[n, FACTS[n].unit, FACTS[n].better, FACTS[n].why] for n in self.counters],
            "shapes": shapes,
            "places": list(self.places),
            "no_interval": {
                "runs": cause_text(OTHER_RUNS()),
                "gpus": cause_text(OTHER_GPUS()),
                "rounds": OTHER_ROUNDS,
            },
            "sources": sources,
            "lines": list(lines),
            "moved": compare_records.MOVED,
            "phrases": PHRASES,
            "step": STEP,
            "apart": incomparable,
            "alike": not any(s.fixed for s in self.sides),
        }

    def _partners(self, i: int) -> tuple[int | None, int | None]:
        """A side's default partners: its namesake in the other record, and its parent or the baseline."""
        side = self.sides[i]
        others = enumerate(self.sides)
        twin = next((j for j, s in others if side.current > s.current and s.variant.name == side.variant.name), None)
        same_run = {s.variant.name: j for j, s in enumerate(self.sides) if s.current == side.current}
        kin = (same_run.get(side.variant.parent or ""), same_run.get(side.record.suite.baseline or ""))
        return twin, next((j for j in kin if j is not None and j != i), None)

    def _has(self, side: Side, shape: Shape) -> bool:
        if side.fixed:
            return True
        shared = side.current or compare_records.same_shape(side.record, self.book.record, shape.name)
        return side.variant.runs_on(shape) and shared

    def _rival(self, shape: Shape, cases: Cases) -> int | None:
        """The other record's partner for a variant that it lacks: its fastest in the mode that ranks, else its first
        timed one."""
        timed = [i for i in map(int, cases) if not self.sides[i].current and cases[str(i)]["t"]]
        times = [(cases[str(i)]["t"].get(shape.rank_by), i) for i in timed if not self.sides[i].variant.is_reference]
        ranked = [(time, i) for time, i in times if time]
        return min(ranked)[1] if ranked else next(iter(timed), None)

    def _first(self, shape: Shape, cases: Cases, rival: int | None) -> tuple[int, int] | None:
        """The first pair shown: the winner, else any measured variant, against the other record's, else a related
        variant."""
        best = self.book.ladder(shape).best
        timed = [int(i) for i, case in cases.items() if case["t"]]
        names = list(self.book.record.suite.variants)
        focus = names.index(best.variant.name) if best else next((i for i in timed if i < len(names)), None)
        if focus is None:
            return None
        twin, kin = self.partners[focus]
        against = next((i for i in (twin, rival, kin, *timed) if i != focus and i in timed), None)
        return None if against is None else (focus, against)

    def _case(self, side: Side, shape: Shape) -> dict[str, Any]:
        """Times in µs, why others are missing, counters in the order of ``counters``, shares of phases, its code."""
        facts, subject = side.record.facts, side.at(shape)
        name, at = subject.variant, subject.shape or ""
        ncu = facts.number("ncu_duration", subject)
        times = {m: facts.number(f"{m}_p50", subject) for m in REGIMES} | {NCU: ncu and ncu / 1e3}
        untimed = {m: "ncu_duration" if m == NCU else f"{m}_p50" for m, time in times.items() if not time}
        values = [facts.number(n, subject) for n in self.counters]
        phases = phase_shares(side.record, subject)
        key, taken = side.record.keys.get(subject.case), side.record.time(subject, shape.rank_by)
        return {
            "t": {m: six_digits(time) for m, time in times.items() if time},
            "why": {m: self.book.why(n, subject) if side.current else "not in that record" for m, n in untimed.items()},
            "c": [] if all(v is None for v in values) else [None if v is None else six_digits(v) for v in values],
            "p": {phase: six_digits(f.number) for phase, f in phases.items() if f.number is not None},
            "code": f"{key.code[:12]} {key.nvcc}" if key is not None and key.code and not key.peer else "",
            "held": time_parts(side.readings, name, at).text,
            "at": self.places.setdefault((taken.run, taken.gpu), len(self.places)),
        }

    def _pairs(
        self, cases: Cases, shape: Shape, mode: str, left: int, collected: dict[tuple[int, int], dict[str, Speedup]]
    ) -> list[tuple[int, list[int], list[int], dict[str, float], str]]:
        """Rows of a side, the sides compared with it, and for each the distances of the interval's ends from the ratio,
        in steps of ``STEP``, and the code of the conclusion.

        Only pairs that were timed alternately are listed. The ratio is that of the times; it is listed if it differs,
        because it is from the rounds of both.

        Args:
            left: with more pairs than this, only related variants have intervals.
            collected: where the ratios of pairs of this run are added.
        """
        taken = {i: self.sides[i].record.time(self.sides[i].at(shape), mode) for i in map(int, cases)}
        current = [i for i in taken if self.sides[i].current]
        others = {j: [i for i in current if not self.sides[j].current or i < j] for j in taken}
        others = {j: [i for i in ids if no_interval(taken[j], taken[i]) is None] for j, ids in others.items()}
        if sum(map(len, others.values())) > left:
            others = {j: [i for i in ids if self._related(i, j, shape)] for j, ids in others.items()}
        rows = []
        for j, ids in others.items():
            ratios = [r for r in speedups(taken[j], [taken[i] for i in ids]) if r]
            ends = [round(abs(end / r.value - 1) / STEP) for r in ratios for end in r.ends or ()]
            times = {i: cases[str(i)]["t"].get(mode) for i in (j, *ids)}
            named = {}
            for k, (i, r) in enumerate(zip(ids, ratios, strict=True)):
                if not times[i] or not times[j] or abs(times[j] / times[i] / r.value - 1) > STEP:
                    named[str(k)] = float(f"{r.value:.6g}")
                if self.sides[j].current:
                    collected.setdefault((i, j), {})[mode] = r
            if ids:
                rows.append((j, ids, ends, named, "".join(CODES[r.conclusion] for r in ratios)))
        return rows

    def _related(self, i: int, j: int, shape: Shape) -> bool:
        """Whether one is the other's partner, or a reference, the baseline or the winner."""
        best = self.book.ladder(shape).best
        variants = [self.sides[i].variant, self.sides[j].variant]
        special = any(self.book.role(v) != "variant" or (best and v.name == best.variant.name) for v in variants)
        return special or j in self.partners[i] or i in self.partners[j]


def _contradicting(ratios: Iterable[tuple[str, Speedup]]) -> tuple[str, str] | None:
    """The regimes in which a pair is fastest and slowest, if these contradict each other beyond noise."""
    decided = [(r.value, mode) for mode, r in ratios if mode in REGIMES and not r.unchanged]
    best, worst = max(decided, default=(1.0, "")), min(decided, default=(1.0, ""))
    return (best[1], worst[1]) if best[0] > 1 > worst[0] else None


def _source(side: Side, places: dict[tuple[str, int, str], int]) -> list[int]:
    """The source lines of the machine code, as indices into ``places``: the variant's file first, then headers."""
    listings = [x for x in side.record.listings if x.subject.variant == side.variant.name]
    kernels = [x for x in listings if x.subject.shape == listings[0].subject.shape]
    lines = {(i.file, i.line): i.source for x in kernels for i in x.instructions if i.line and i.source}
    ordered = sorted(lines, key=lambda place: (place[0] != side.variant.kind.file, place))[:MOST_LINES]
    return [places.setdefault((f.rpartition("/")[2], n, lines[f, n]), len(places)) for f, n in ordered]


# --- the first pair's verdict; the script makes the others, with the same conclusions and phrases -------


@dataclass(frozen=True, slots=True)
class Pair:
    """The focus's speedup, with its interval and the code of the conclusion."""

    value: float
    low: float
    high: float
    code: str

    @property
    def interval(self) -> str:
        return f"[{significant(self.low, 3)}, {significant(self.high, 3)}]"


def _pair(data: Mapping[str, Any], shape: str, mode: str, focus: int, against: int) -> Pair | None:
    cases = data["shapes"][shape]["cases"]
    across = data["sides"][focus][2] != data["sides"][against][2]
    for j, ids, ends, named, codes in data["shapes"][shape]["pairs"].get(mode, ()):
        for one, other in ((focus, against), (against, focus)):
            if j == other and one in ids:
                k = ids.index(one)
                value = named.get(str(k)) or cases[str(j)]["t"][mode] / cases[str(one)]["t"][mode]
                low, high = value * (1 - STEP * ends[2 * k]), value * (1 + STEP * ends[2 * k + 1])
                code = UNJUDGED if across else codes[k]
                if one == focus:
                    return Pair(value, low, high, code)
                return Pair(1 / value, 1 / high, 1 / low, OPPOSITE.get(code, code))
    return None


def _verdict(data: Mapping[str, Any], shape: str, focus: int, against: int) -> dict[str, Any]:
    """The sentence, the contradiction if there is one, and the times."""
    figures = data["shapes"][shape]
    sides = [data["sides"][i] for i in (focus, against)]
    cases = [figures["cases"].get(str(i)) for i in (focus, against)]
    across = sides[0][2] != sides[1][2]
    incomparable = data["apart"] if across else ""
    pairs: dict[str, Pair] = {}
    ratios: dict[str, float] = {}
    rows = []
    for mode in TIMES:
        now, was = (case["t"].get(mode) if case else None for case in cases)
        if now and was and not incomparable:
            if pair := _pair(data, shape, mode, focus, against):
                pairs[mode] = pair
            ratios[mode] = pair.value if pair else was / now
        why = _no_interval(data, mode, cases)
        rows.append(_row(mode, cases, ratios.get(mode), pairs.get(mode) or why, incomparable))
    mode = figures["rank"] if figures["rank"] in ratios else next(iter(ratios), "")
    contradictions = figures["contradictions"]
    contradicting = contradictions.get(f"{focus} {against}") or contradictions.get(f"{against} {focus}", ())[::-1]
    return {
        "sides": [
            {"label": label, "href": variant_page(name) if current else "", "held": (case or {}).get("held", "")}
            for (label, name, current, _), case in zip(sides, cases, strict=True)
        ],
        "shape": shape,
        "across": across,
        "answer": _answer(mode, ratios.get(mode), pairs.get(mode), across, incomparable),
        "same": bool(cases[0] and cases[1] and cases[0]["code"] and cases[0]["code"] == cases[1]["code"]),
        "contradiction": _contradiction([(m, pairs[m]) for m in contradicting]),
        "rows": rows,
    }


def _answer(mode: str, ratio: float | None, pair: Pair | None, across: bool, incomparable: str) -> tuple[str, str]:
    """The words between the two names, and after them."""
    if incomparable:
        return "and", ": their times are not compared"
    if ratio is None:
        return "and", ": no regime has a time of both that can be compared"
    tail = f", {words(mode)}, 95\u00a0% {pair.interval}" if pair else f", {words(mode)}, no interval"
    phrase = PHRASES[pair.code if pair else UNJUDGED][1].replace("{}", significant(ratio, 3))
    return phrase, f"{tail}; times of two runs are not judged" if across else tail


def _no_interval(data: Mapping[str, Any], mode: str, cases: Sequence[Mapping[str, Any] | None]) -> str:
    """Why a pair's ratio has no interval, if it has none."""
    if mode == NCU:
        return "one launch each"
    (run, gpu), (other_run, other_gpu) = (data["places"][case["at"]] if case else ("", "") for case in cases)
    if run != other_run:
        return str(data["no_interval"]["runs"])
    return str(data["no_interval"]["gpus"]) if gpu and other_gpu and gpu != other_gpu else OTHER_ROUNDS


def _contradiction(regimes: Sequence[tuple[str, Pair]]) -> str:
    if not regimes:
        return ""
    ratios = [f"{unbroken(faster(pair.value))} {words(mode)} {pair.interval}" for mode, pair in regimes]
    return f"The regimes contradict each other: {ratios[0]}, but {ratios[1]}."


def _row(
    mode: str, cases: Sequence[Mapping[str, Any] | None], ratio: float | None, pair: Pair | str, incomparable: str
) -> list[Cell]:
    """A regime's row: the other's time, the focus's, the speedup, its interval or why there is none, the conclusion."""
    cells = [Cell(words(mode))]
    for case in reversed(cases):
        time = case["t"].get(mode) if case else None
        why = case["why"].get(mode, "") if case else "it does not run on this shape"
        cells.append(missing(why) if time is None else number_cell(time, 4))
    if ratio is None:
        whys = (incomparable or "one of the times is missing", incomparable or "no ratio")
        return [*cells, *map(missing, whys), Cell("–")]
    return [
        *cells,
        Cell(f"{significant(ratio, 3)} ×", sort=ratio, kind="number"),
        missing(pair) if isinstance(pair, str) else Cell(pair.interval, sort=pair.low),
        Cell(PHRASES[UNJUDGED if isinstance(pair, str) else pair.code][0]),
    ]
