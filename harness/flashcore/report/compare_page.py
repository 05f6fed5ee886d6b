"""Two variants side by side, of this run or one of another: times in all regimes, counters, stalls, phases, source.

The page carries the figures of every case, and of every pair the interval of its ratio; a script draws the pair that is
chosen. The verdict on the first pair is in the page itself. What counts as changed, as the same and as a contradiction
is decided in :mod:`flashcore.explain`; the script gets the same limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashcore.explain import diff, limiter
from flashcore.explain.predictions import NOISE, Readings, still
from flashcore.model import intervals
from flashcore.model.catalogue import FACTS, OWN_STAGE, STALL_REASONS
from flashcore.model.intervals import Ratio
from flashcore.model.record import Record, Subject
from flashcore.model.suite import REGIMES, Shape, Variant
from flashcore.model.text import significant
from flashcore.report.cells import Cell, missing
from flashcore.report.view import COMPARE, Book, Page, variant_page

#: One launch under ncu: it has no samples, and so no interval.
NCU = "under_ncu"
TIMES = (*REGIMES, NCU)
#: Intervals that a page holds. If there are more pairs, a shape has those of related variants only: parents, the
#: baseline, peers, the winner.
MOST_PAIRS = 50_000
#: The unit of the ends of intervals, as a share of the ratio.
STEP = 1e-4
#: Lines of a variant's source that are compared.
MOST_LINES = 1_500
#: What is compared: what ncu counted, without the stalls per instruction, since their shares say the same.
COUNTERS = tuple(
    n
    for n, s in FACTS.items()
    if s.tier == "counters" and s.group not in OWN_STAGE and n.removeprefix("stall_") not in STALL_REASONS
)


@dataclass(frozen=True, slots=True)
class Side:
    """What can be chosen: a variant of the run, or of the one beside it; ``fixed`` names the shape at which it is
    always shown, where the two have none in common."""

    variant: Variant
    known: Readings
    own: bool
    fixed: str = ""

    @property
    def record(self) -> Record:
        return self.known.record

    @property
    def label(self) -> str:
        if self.own:
            return self.variant.name
        return f"{self.variant.name} ({', '.join(filter(None, (self.record.id.rpartition('-')[2], self.fixed)))})"

    def at(self, shape: Shape) -> Subject:
        return Subject(self.variant.name, shape=self.fixed or shape.name)


@dataclass(frozen=True)
class View:
    """The template's variables. ``data`` is the script's, ``verdict`` the first pair's."""

    data: dict[str, Any]
    verdict: dict[str, Any] | None
    other: Record | None
    notes: list[str]


def page(book: Book, other: Record | None = None) -> Page[View]:
    """The page ``compare``.

    Args:
        other: a second record, whose variants can be chosen for comparison.
    """
    sides = [Side(v, book.readings, True) for v in book.record.suite.variants.values()]
    if other is not None:
        known = Readings(other)
        shared = any(diff.same_shape(other, book.record, name) for name in other.suite.shapes)
        sides += [Side(v, known, False, "" if shared else _shape(other, v)) for v in other.suite.variants.values()]
    reason = diff.comparable(other, book.record) if other is not None else ""
    data = _data(book, sides, reason)
    first = next(iter(data["shapes"]), "")
    verdict = None
    if first and (pair := data["shapes"][first]["first"]) is not None:
        verdict = _verdict(data, first, *pair)
    notes = diff.remarks(other, book.record) if other is not None else []
    return Page(COMPARE, "Compare", "compare.html.j2", View(data, verdict, other, notes))


def _shape(record: Record, variant: Variant) -> str:
    """The first shape that a variant has a time at, else the first it runs on; empty without one."""
    there = [s.name for s in record.suite.shapes.values() if variant.runs_on(s)]
    timed = (n for n in there for fact in ("ncu_duration", *(f"{m}_p50" for m in REGIMES))
             if record.facts.number(fact, Subject(variant.name, shape=n)))  # fmt: skip
    return next(timed, next(iter(there), ""))


# --- the figures ------------------------------------------------------------------------------------


def _data(book: Book, sides: Sequence[Side], reason: str) -> dict[str, Any]:
    """All that the script needs: cases by shape and place in ``sides``; ``reason`` is why times are not compared."""
    names = [n for n in COUNTERS if any(r.facts.named(n) for r in {id(s.record): s.record for s in sides}.values())]
    partners = [_partners(sides, i) for i in range(len(sides))]
    shapes: dict[str, Any] = {}
    made = 0
    for shape in book.shown_shapes:
        there = [i for i, s in enumerate(sides) if _has(book, s, shape)]
        cases = {str(i): _case(book, sides[i], shape, names) for i in there}
        pairs = {m: _pairs(book, sides, cases, partners, shape, m, MOST_PAIRS - made) for m in REGIMES}
        made += sum(len(ids) for rows in pairs.values() for _, ids, *_ in rows)
        rival = _rival(sides, shape, cases)
        first = _first(book, shape, cases, partners, rival)
        shapes[shape.name] = {"rank": shape.rank_by, "first": first, "rival": rival, "cases": cases, "pairs": pairs}
    lines: dict[tuple[str, int, str], int] = {}
    sources = {str(i): own for i, s in enumerate(sides) if (own := _source(s, lines))}
    return {
        "sides": [[s.label, s.variant.name, s.own, partners[i]] for i, s in enumerate(sides)],
        "runs": list(dict.fromkeys(s.record.id for s in sides)),
        "facts": [[n, FACTS[n].unit, FACTS[n].better, FACTS[n].why] for n in names],
        "shapes": shapes,
        "sources": sources,
        "lines": list(lines),
        "moved": diff.MOVED,
        "noise": NOISE,
        "step": STEP,
        "apart": reason,
        "alike": not any(s.fixed for s in sides),
    }


def _partners(sides: Sequence[Side], i: int) -> tuple[int | None, int | None]:
    """What a side is compared with unless a reader chooses: itself in the other record, and its parent or the
    baseline."""
    side = sides[i]
    suite = side.record.suite
    twin = next(
        (j for j, s in enumerate(sides) if side.own and not s.own and s.variant.name == side.variant.name), None
    )
    own = {s.variant.name: j for j, s in enumerate(sides) if s.own == side.own}
    kin = (own.get(side.variant.parent or ""), own.get(suite.baseline or ""))
    return twin, next((j for j in kin if j is not None and j != i), None)


def _rival(sides: Sequence[Side], shape: Shape, cases: Mapping[str, Any]) -> int | None:
    """The variant of the other record to compare with, where it lacks the variant itself: its fastest in the regime
    that ranks, else the first that has a time."""
    timed = [i for i in map(int, cases) if not sides[i].own and cases[str(i)]["t"]]
    ranked = [
        (t, i) for i in timed if not sides[i].variant.is_reference and (t := cases[str(i)]["t"].get(shape.rank_by))
    ]
    return min(ranked)[1] if ranked else next(iter(timed), None)


def _has(book: Book, side: Side, shape: Shape) -> bool:
    if side.fixed:
        return True
    return side.variant.runs_on(shape) and (side.own or diff.same_shape(side.record, book.record, shape.name))


def _first(
    book: Book, shape: Shape, cases: Mapping[str, Any], partners: Sequence[tuple[int | None, int | None]],
    rival: int | None,
) -> tuple[int, int] | None:  # fmt: skip
    """The pair that is shown first: the winner, else any measured variant, against the other record's, else a related
    one."""
    best = book.ladder(shape).best
    names = list(book.record.suite.variants)
    known = [int(i) for i, c in cases.items() if c["t"] and int(i) < len(names)]
    if best is not None:
        known.insert(0, names.index(best.variant.name))
    if not known:
        return None
    twin, kin = partners[known[0]]
    others = [twin, rival, kin, *map(int, cases)]
    against = next((i for i in others if i != known[0] and cases.get(str(i), {}).get("t")), None)
    return None if against is None else (known[0], against)


def _case(book: Book, side: Side, shape: Shape, names: Sequence[str]) -> dict[str, Any]:
    """Times in us, why those that are missing are, counters in the order of ``names``, shares of phases, its code."""
    facts, subject = side.record.facts, side.at(shape)
    ncu = facts.number("ncu_duration", subject)
    times = {m: facts.number(f"{m}_p50", subject) for m in REGIMES} | {NCU: ncu and ncu / 1e3}
    why = {m: book.why("ncu_duration" if m == NCU else f"{m}_p50", subject) if side.own else "not in that record"
           for m, t in times.items() if not t}  # fmt: skip
    values = [facts.number(n, subject) for n in names]
    key = side.record.keys.get(subject.case)
    held = book.limiters(*_names(subject)) if side.own else limiter.held(side.known, *_names(subject))
    return {
        "t": {m: _short(t) for m, t in times.items() if t},
        "why": why,
        "c": [] if all(v is None for v in values) else [_short(v) for v in values],
        "p": {
            p: _short(f.number) for p, f in limiter.phase_shares(side.record, subject).items() if f.number is not None
        },
        "code": f"{key.code[:12]} {key.nvcc}" if key is not None and key.code and not key.peer else "",
        "held": held.text,
    }


def _names(subject: Subject) -> tuple[str, str]:
    return subject.variant, subject.shape or ""


def _short(value: float | None) -> float | int | None:
    """Rounded to six digits, which is more than is shown."""
    if value is None:
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short


def _pairs(
    book: Book, sides: Sequence[Side], cases: Mapping[str, Any], partners: Sequence[tuple[int | None, int | None]],
    shape: Shape, mode: str, left: int,
) -> list[tuple[int, list[int], list[int], dict[str, float]]]:  # fmt: skip
    """Rows of a side, the sides that are faster or slower than it, and of each how far the ends of the interval lie
    below and above the ratio, in steps of ``STEP``. The ratio is that of the times; it is named where it is
    another one, of the rounds that both saw. Those of one run were timed in the same rounds."""
    there = map(int, cases)
    series = {i: s for i in there if (s := sides[i].record.samples.get(f"{sides[i].at(shape).case}/{mode}"))}
    own = [i for i in series if sides[i].own]
    wanted = {j: [i for i in own if not sides[j].own or i < j] for j in series}
    if sum(map(len, wanted.values())) > left:
        best = book.ladder(shape).best
        special = {
            j
            for j in series
            if book.role(v := sides[j].variant) != "variant" or (best is not None and v.name == best.variant.name)
        }
        wanted = {j: [i for i in ids if j in special or i in special or j in partners[i] or i in partners[j]]
                  for j, ids in wanted.items()}  # fmt: skip
    rows = []
    for j, ids in wanted.items():
        found = intervals.ratios(series[j], [series[i] for i in ids], paired=sides[j].own)
        ends = [round(abs(x / r.value - 1) / STEP) for r in found for x in (r.low, r.high)]
        times = {i: cases[str(i)]["t"].get(mode) for i in (j, *ids)}
        other = {str(k): float(f"{r.value:.6g}") for k, (i, r) in enumerate(zip(ids, found, strict=True))
                 if not times[i] or not times[j] or abs(times[j] / times[i] / r.value - 1) > STEP}  # fmt: skip
        if ids:
            rows.append((j, ids, ends, other))
    return rows


def _source(side: Side, known: dict[tuple[str, int, str], int]) -> list[int]:
    """The lines that machine code was made of, as places in ``known``: of its own source, then of headers."""
    own = [x for x in side.record.listings if x.subject.variant == side.variant.name]
    if not own:
        return []
    kernels = [x for x in own if x.subject.shape == own[0].subject.shape]
    lines = {(i.file, i.line): i.source for x in kernels for i in x.instructions if i.line and i.source}
    ordered = sorted(lines, key=lambda place: (place[0] != side.variant.kind.file, place))[:MOST_LINES]
    return [known.setdefault((f.rpartition("/")[2], n, lines[f, n]), len(known)) for f, n in ordered]


# --- the verdict: of the first pair here, of any other in the script, in the same words -------------------


def _ratio(data: Mapping[str, Any], shape: str, mode: str, focus: int, against: int) -> Ratio | None:
    """How many times faster the focus is, with its interval."""
    own = data["shapes"][shape]
    for j, ids, ends, named in own["pairs"].get(mode, ()):
        for one, other in ((focus, against), (against, focus)):
            if j == other and one in ids:
                k = ids.index(one)
                times = [own["cases"][str(i)]["t"].get(mode) for i in (j, one)]
                value = named.get(str(k)) or times[0] / times[1]
                low, high = value * (1 - STEP * ends[2 * k]), value * (1 + STEP * ends[2 * k + 1])
                return Ratio(value, low, high) if one == focus else Ratio(1 / value, 1 / high, 1 / low)
    return None


def faster(ratio: float) -> str:
    return f"{significant(ratio, 3)}\u00a0× faster" if ratio >= 1 else f"{significant(ratio, 3)}\u00a0× the speed"


def interval(ratio: Ratio) -> str:
    return f"[{significant(ratio.low, 3)}, {significant(ratio.high, 3)}]"


def words(mode: str) -> str:
    return mode.replace("_", " ")


def _verdict(data: Mapping[str, Any], shape: str, focus: int, against: int) -> dict[str, Any]:
    """The sentence, the contradiction if there is one, and the times."""
    own = data["shapes"][shape]
    sides = [data["sides"][i] for i in (focus, against)]
    cases = [own["cases"].get(str(i)) for i in (focus, against)]
    across = sides[0][2] != sides[1][2]
    apart = data["apart"] if across else ""
    known: dict[str, Ratio] = {}
    plain: dict[str, float] = {}
    rows = []
    for mode in TIMES:
        now, was = (c["t"].get(mode) if c else None for c in cases)
        if now and was and not apart:
            if found := _ratio(data, shape, mode, focus, against):
                known[mode] = found
            plain[mode] = found.value if found else was / now
        judged = not across and mode in known
        rows.append(_row(mode, cases, plain.get(mode), known.get(mode), judged, apart))
    mode = own["rank"] if own["rank"] in plain else next(iter(plain), "")
    return {
        "sides": [{"label": label, "href": variant_page(name) if own else "", "held": (case or {}).get("held", "")}
                  for (label, name, own, _), case in zip(sides, cases, strict=True)],
        "shape": shape,
        "across": across,
        "answer": _answer(mode, plain.get(mode), known.get(mode), across, apart),
        "same": bool(cases[0] and cases[1] and cases[0]["code"] and cases[0]["code"] == cases[1]["code"]),
        "contradiction": "" if across else _contradiction(known),
        "rows": rows,
    }  # fmt: skip


def _answer(mode: str, ratio: float | None, known: Ratio | None, across: bool, apart: str) -> tuple[str, str]:
    """The words between the two names, and after them."""
    if apart:
        return "and", ": their times are not compared"
    if ratio is None:
        return "and", ": no regime has a time of both that can be compared"
    tail = f", {words(mode)}, 95\u00a0% {interval(known)}" if known else f", {words(mode)}, no interval"
    if across:
        return f"has {significant(ratio, 3)}\u00a0× the speed of", f"{tail}; times of two runs are not judged"
    if still(ratio, known.low if known else None, known.high if known else None):
        return "is, as far as can be seen, as fast as", tail
    return (f"is {faster(ratio)} than", tail) if ratio >= 1 else (f"has {faster(ratio)} of", tail)


def _contradiction(known: Mapping[str, Ratio]) -> str:
    found = diff.contradiction(known.items())
    if found is None:
        return ""
    best, worst = ((m, known[m]) for m in found)
    return (f"The regimes contradict each other: {faster(best[1].value)} {words(best[0])} {interval(best[1])}, but "
            f"{faster(worst[1].value)} {words(worst[0])} {interval(worst[1])}.")  # fmt: skip


def _row(
    mode: str, cases: Sequence[Mapping[str, Any] | None], ratio: float | None, known: Ratio | None, judged: bool,
    apart: str,
) -> list[Cell]:  # fmt: skip
    """A regime: the other's time, the focus's, how many times faster that is, the interval, the conclusion."""
    cells = [Cell(words(mode))]
    for case in reversed(cases):
        time = case["t"].get(mode) if case else None
        why = case["why"].get(mode, "") if case else "it does not run on this shape"
        cells.append(missing(why) if time is None else Cell(significant(time), sort=time, kind="number"))
    if ratio is None:
        return [*cells, missing(apart or "one of the times is missing"), missing(apart or "no ratio"), Cell("–")]
    same = known is not None and still(ratio, known.low, known.high)
    says = "not judged" if not judged else "no difference" if same else "faster" if ratio > 1 else "slower"
    why = "one launch each" if mode == NCU else "not made of this pair: too many pairs, or no samples of one"
    return [*cells, Cell(f"{significant(ratio, 3)} ×", sort=ratio, kind="number"),
            Cell(interval(known), sort=known.low) if known else missing(why), Cell(says)]  # fmt: skip
