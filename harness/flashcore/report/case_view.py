"""One case on its variant's page: the answer, its limiters, its warps, its bytes and its source lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flashcore.explain import heat, roofline
from flashcore.explain.diff import MODES, MOVED
from flashcore.explain.ladder import COUNTERS, Moved, Step
from flashcore.explain.limiter import Limiter, Limiters, phase_shares
from flashcore.explain.predictions import predicted_share
from flashcore.model.catalogue import FACTS, STALL_REASONS
from flashcore.model.record import Fact, Listing, Subject
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import faster, quantity, significant
from flashcore.report import drawings
from flashcore.report.cells import Bar, Cell, fact_cell, missing, not_applicable, unbroken
from flashcore.report.view import Book, variant_page

MOST_LINES = 20
MOST_INSTRUCTIONS = 12
MOST_LIMITERS = 6


@dataclass(frozen=True, slots=True)
class RankedLimiter:
    """A limiter with its share of the bar, %, and the steps that removed it: (link, text)."""

    limiter: Limiter
    share: float
    remedies: list[tuple[Cell, str]]


@dataclass(frozen=True, slots=True)
class HotLine:
    """A source line with its machine code, its share of the samples and the parent's, %."""

    line: heat.Line
    place: str
    share: float
    parent: float | None
    cells: list[Cell]
    sass: str


@dataclass(frozen=True, slots=True)
class HotKernel:
    """The hottest lines of a kernel; ``more`` others hold ``rest`` % of its samples.

    ``conflicts`` says whether passes through shared memory were counted by instruction.
    """

    kernel: str | None
    lines: list[HotLine]
    more: int
    rest: float
    conflicts: bool


@dataclass(frozen=True, slots=True)
class CaseView:
    """What the page shows of one case.

    Args:
        answer: its time, compared with parent, peer and floor, in parts of a sentence.
        why_not: why it has no limiters.
        finding: the finding of its step from its parent.
        moved: the counters that changed against the parent.
    """

    shape: Shape
    answer: list[str]
    limiters: Limiters
    ranked: list[RankedLimiter]
    why_not: str
    finding: str
    moved: list[list[Cell]]
    parent: str | None
    stalls: list[Bar]
    phases: list[Bar]
    samples: drawings.Drawing | None
    memory: drawings.Drawing | None
    heat: list[HotKernel]


def case_view(book: Book, variant: Variant, shape: Shape) -> CaseView:
    """The view of one case. Of a variant without profiled cases, the page shows its first case."""
    subject = Subject(variant.name, shape=shape.name)
    step = next((s for s in book.ladder(shape).steps if s.variant.name == variant.name), None)
    parent = variant.parent if variant.parent in book.record.suite.variants else None
    before = Subject(parent, shape=shape.name) if parent else None
    series = [(m, s) for m in MODES if (s := book.record.samples.get(f"{subject.case}/{m}"))]
    limiters = book.limiters(variant.name, shape.name)
    return CaseView(
        shape=shape,
        answer=_answer(book, subject, shape, step),
        limiters=limiters,
        ranked=[_ranked(book, variant, shape, x) for x in limiters.limiters[:MOST_LIMITERS]],
        why_not=book.why_stage(variant.name, shape.name, "profile"),
        finding=step.finding if step and step.parent else "",
        moved=_moved(book, step, subject) if step and parent else [],
        parent=parent,
        stalls=_stalls(book, subject, before),
        phases=_phases(book, variant, subject, before),
        samples=drawings.samples(subject.case, series) if series else None,
        memory=_memory(book, subject, before),
        heat=_heat(book, subject, parent),
    )


def _answer(book: Book, subject: Subject, shape: Shape, step: Step | None) -> list[str]:
    facts = book.record.facts
    time = facts.number(shape.time, subject)
    if not time:
        return [f"no time: {book.why(shape.time, subject)}"]
    words = [f"{significant(time)} µs {shape.rank_by.replace('_', ' ')}"]
    if step is not None and step.ratio:
        ends = f" [{1 / step.high:.3f}, {1 / step.low:.3f}]" if step.low and step.high else ""
        words.append(unbroken(faster(1 / step.ratio, "its parent")) + ends)
    peer = facts.number("speedup_vs_peer", subject)
    if peer:
        words.append(unbroken(faster(peer, "the fastest peer")))
    if gap := book.gap(subject, shape.time):
        floor = f"{significant(gap.floor_us, 3)} µs ({gap.floor.resource})"
        words.append(f"{significant(gap.ratio, 3)} × above its floor of {floor}")
    return words


# --- limiters ---------------------------------------------------------------------------------------


def _ranked(book: Book, variant: Variant, shape: Shape, limiter: Limiter) -> RankedLimiter:
    elsewhere = [r for r in book.remedies(shape).get(limiter.kind, ()) if r.variant != variant.name]
    remedies = [
        (
            Cell(r.variant, title=r.technique, href=variant_page(r.variant)),
            f"{r.before:.0f} → {r.after:.0f} %, {significant(r.faster, 3)} × faster than {r.parent}",
        )
        for r in elsewhere[:2]
    ]
    return RankedLimiter(limiter, round(min(limiter.share, 100.0), 1), remedies)


def _moved(book: Book, step: Step, subject: Subject) -> list[list[Cell]]:
    """The counters that changed against the parent: its value, this one's, and their ratio."""
    return [row for m in step.moved if (row := _moved_row(book, step, m, subject)) is not None]


def _moved_row(book: Book, step: Step, moved: Moved, subject: Subject) -> list[Cell] | None:
    was, now = moved.before.value, moved.after.value
    if was is None or now is None or abs(now - was) <= MOVED * max(abs(was), abs(now)):
        return None
    spec = FACTS[moved.fact]
    if spec.group == "static":
        cell = book.static_cell(moved.fact, step.variant, subject.shape)
    else:
        cell = book.cell(moved.fact, subject)
    before = Cell(*quantity(was, spec.unit), f"of {step.parent}", kind="number")
    times = f"{significant(moved.ratio, 3)} ×" if moved.ratio else "from or to 0"
    name = Cell(COUNTERS[moved.fact], title=spec.why)
    return [name, before, replace(cell, sort=None), Cell(times, kind="number")]


# --- warps ------------------------------------------------------------------------------------------


def _bar(name: str, fact: Fact, parent: float | None, text: str = "") -> Bar:
    percent = None if fact.number is None else round(fact.number, 1)
    return Bar(name, fact_cell(fact), percent, None if parent is None else round(parent, 1), text)


def _stalls(book: Book, subject: Subject, parent: Subject | None) -> list[Bar]:
    facts = book.record.facts
    bars = []
    for reason in STALL_REASONS:
        fact = facts.get(f"stall_share_{reason}", subject)
        if fact is not None and (fact.number or 0.0) >= 0.5:
            bars.append(_bar(reason.replace("_", " "), fact, facts.number(fact.name, parent) if parent else None))
    return sorted(bars, key=lambda bar: -(bar.percent or 0.0))


def _phases(book: Book, variant: Variant, subject: Subject, parent: Subject | None) -> list[Bar]:
    """Each phase's share of the warps' time, and its prediction."""
    before = {p: f.number for p, f in phase_shares(book.record, parent).items()} if parent else {}
    bars = []
    for phase, share in phase_shares(book.record, subject).items():
        prediction = predicted_share(variant, phase, subject.shape)
        after = prediction.after if prediction is not None else None
        bars.append(_bar(phase, share, before.get(phase), "" if after is None else f"predicted {after:g} %"))
    return bars


# --- bytes ------------------------------------------------------------------------------------------


def _memory(book: Book, subject: Subject, parent: Subject | None) -> drawings.Drawing | None:
    facts = book.record.facts

    def reader(case: Subject) -> Callable[[str], float | None]:
        busy = roofline.shared_busy(book.record, case)
        return lambda fact: busy if fact == "shared_busy" else facts.number(fact, case)

    if facts.number("l2_bytes", subject) is None:
        return None
    return drawings.memory(subject.case, reader(subject), reader(parent) if parent else None)


# --- source lines -----------------------------------------------------------------------------------


def _heat(book: Book, subject: Subject, parent: str | None) -> list[HotKernel]:
    """The hottest lines of each of its kernels, each with its machine instructions."""
    before = book.listings.get((parent or "", subject.shape or ""), ())
    return [_kernel(listing, before) for listing in book.listings.get((subject.variant, subject.shape or ""), ())]


def _kernel(listing: Listing, before: Sequence[Listing]) -> HotKernel:
    same = next((x for x in before if x.subject.kernel == listing.subject.kernel), before[0] if before else None)
    shares = heat.shares(same)
    lines = heat.lines(listing)
    counted = any(x.conflicts is not None for x in lines)
    shown, rest = lines[:MOST_LINES], lines[MOST_LINES:]
    hot = [_line(x, shares.get(x.source), counted) for x in shown]
    return HotKernel(listing.subject.kernel, hot, len(rest), sum(x.share for x in rest), counted)


def _count(value: float | None) -> Cell:
    """A count that should be 0: marked where it is not."""
    if value is None:
        return missing("ncu did not count passes by instruction")
    return Cell(f"{value:,.0f}", sort=value, kind="number", mark="waived" if value else "")


def _line(line: heat.Line, parent: float | None, counted: bool) -> HotLine:
    stall = f"{line.stall[0].replace('_', ' ')} {line.stall[1]:.0f} %" if line.stall else ""
    return HotLine(
        line,
        f"{line.file}:{line.number}" if line.number else "no line is known",
        round(line.share, 1),
        None if parent is None else round(parent, 1),
        [
            Cell(stall, sort=stall) if stall else not_applicable("no warp was held here"),
            Cell(f"{line.executed:,.0f}", sort=line.executed, kind="number"),
            *([_count(line.conflicts)] if counted else []),
            _count(line.local),
        ],
        _sass(line),
    )


def _sass(line: heat.Line) -> str:
    """The line's hottest instructions as a table of text."""
    hottest = sorted(line.instructions, key=lambda i: -i.values.get("samples", 0))[:MOST_INSTRUCTIONS]
    executed = {i.offset: f"{i.values.get('executed', 0):,.0f}" for i in hottest}
    wide = max(map(len, ("executed", *executed.values())))
    rows = [f"samples {'executed':>{wide}}  offset instruction"]
    for i in sorted(hottest, key=lambda i: i.offset):
        rows.append(f"{i.values.get('samples', 0):>7,.0f} {executed[i.offset]:>{wide}}  {i.offset:05x}  {i.text}")
    more = len(line.instructions) - len(hottest)
    return "\n".join([*rows, f"and {more} more"] if more else rows)
