"""The overview: the winner, its distance from the floor, its limiters, and the ladder that led there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from flashcore.explain import bounds_in_use
from flashcore.explain.ladder import Ladder, Step
from flashcore.explain.roofline import Gap
from flashcore.model import cause_text
from flashcore.model.catalogue import FACTS
from flashcore.model.groups import grouped
from flashcore.model.record import Subject
from flashcore.model.suite import REGIMES, Shape, Stage, Variant
from flashcore.model.text import UNMEASURED, faster, significant
from flashcore.report import frame
from flashcore.report.cells import Cell, missing, not_applicable, number_cell, unbroken
from flashcore.report.outcomes import check_cell, prediction_cell
from flashcore.report.view import (
    GUARDRAILS,
    INDEX,
    Answer,
    Book,
    LadderPicture,
    OverviewSection,
    Page,
    Row,
    Stair,
    variant_page,
)

#: Key, heading, unit, why. The first ``USUAL`` are shown until a reader chooses others.
COLUMNS = (
    ("variant", "variant", "", "links to its page; ★ is on the way from the baseline to the winner"),
    ("time", "time", "µs", "p50 of the regime that ranks at this shape"),
    ("over-parent", "× faster than parent", "", "its parent's time over its own, with the 95 % bootstrap interval"),
    ("over-peer", "× faster than peer", "", "the fastest peer's time over its own, with the 95 % bootstrap interval"),
    ("above-floor", "× above floor", "", "its time over the least that any resource allows"),
    ("right", "right?", "", "against fp64, within its tolerance class"),
    ("limits", "limits", "", "verdicts on its limits, over all archs and shapes"),
    ("held", "limited by", "", "what limits it the most; its page has the evidence"),
    ("over-baseline", "× faster than baseline", "", "the baseline's time over its own, with its interval"),
    *((f"{r}-p50", f"{r.replace('_', ' ')} p50", "µs", FACTS[f"{r}_p50"].why) for r in REGIMES),
    ("isolated-p90", "isolated p90", "µs", "of single calls"),
    ("tflops", "TFLOP/s", "", "formula FLOPs over the time that ranks"),
    ("floor", "floor", "µs", "the least time that any resource allows; hover names it"),
    ("tensor", "tensor active", "%", FACTS["tensor_active"].why),
    ("occupancy", "occ. theory", "%", "theoretical occupancy of the launch plan"),
    ("achieved", "occ. achieved", "%", FACTS["achieved_occupancy"].why),
    ("registers", "regs", "", FACTS["registers"].why),
    ("spills", "spills", "B", "bytes a thread spills, stores and loads (ptxas)"),
    ("smem", "smem", "B", FACTS["smem"].why),
    ("parent", "parent", "", "the variant it was made from"),
    ("came-true", "came true?", "", "outcome of the predicted time"),
    ("finding", "finding", "", "made of the facts, not written"),
    ("technique", "technique", "", "what it adds to its parent"),
)
USUAL = 8
#: The order of missing results.
STATUSES = ("failed", "stale", "skipped", "unsupported")
MOST_MISSING = 200

#: By variant and resource.
Needs = Mapping[str, Mapping[str, bounds_in_use.Need]]


@dataclass(frozen=True)
class View:
    """The template's variables.

    Args:
        gaps: missing results: stage, status, reason, cases.
        builds: missing builds: status, reason, archs, variants.
    """

    sections: list[OverviewSection]
    machine: list[tuple[str, str]]
    gaps: list[tuple[str, str, str, list[str]]]
    builds: list[tuple[str, str, tuple[str, ...], list[str]]]
    columns: Sequence[tuple[str, str, str, str]] = COLUMNS
    usual: int = USUAL
    resources: Sequence[str] = bounds_in_use.RESOURCES


def page(book: Book) -> Page[View]:
    """The page ``index``."""
    view = View(sections(book), frame.provenance(book.record), _gaps(book), _builds(book))
    return Page(INDEX, "Overview", "overview.html.j2", view)


def sections(book: Book) -> list[OverviewSection]:
    """The overview at each shown shape."""
    return [_section(book, shape) for shape in book.shown_shapes]


def _section(book: Book, shape: Shape) -> OverviewSection:
    ladder = book.ladder(shape)
    steps = {s.variant.name: s for s in ladder.steps}
    variants = book.cases(shape)
    timed = [(t, v) for v in variants if (t := _time(book, v, shape)) is not None]
    timed.sort(key=lambda x: (x[0], x[1].name))
    ordered = [v for _, v in timed] + [v for v in variants if _time(book, v, shape) is None]
    reasons = dict.fromkeys(book.why_stage(v.name, shape.name, "bench") for v in variants) if not timed else {}
    return OverviewSection(
        shape=shape,
        answer=_answer(book, ladder),
        ladder=_picture(book, ladder, timed) if timed else None,
        rows=[_row(book, v, shape, steps.get(v.name)) for v in ordered],
        no_times="; ".join(list(reasons)[:3]),
    )


def _time(book: Book, variant: Variant, shape: Shape) -> float | None:
    time = book.record.facts.number(shape.time, Subject(variant.name, shape=shape.name))
    return time if time and time > 0 else None


# --- the answer -------------------------------------------------------------------------------------


def _answer(book: Book, ladder: Ladder) -> Answer | None:
    """The winner in a sentence, its limiters, and its parent's limiters."""
    best, shape = ladder.best, ladder.shape
    if best is None or best.after.value is None:
        return None
    name, time = best.variant.name, best.after.value
    parent = best.parent if best.parent in book.record.suite.variants else None
    subject = Subject(name, shape=shape.name)
    others = [(r, book.record.facts.number(f"{r}_p50", subject)) for r in REGIMES if r != shape.rank_by]
    peer, gap = ladder.peer, ladder.floor
    return Answer(
        name=name,
        time=significant(time, 3),
        regime=_words(shape.rank_by),
        peer=unbroken(faster(peer[1] / time, peer[0])) if peer else "no peer was timed",
        floor=f"{significant(gap.ratio, 3)}\u00a0×\u00a0above its floor" if gap else "its floor is unknown",
        floor_title=_floor_text(gap) if gap else "",
        limiters=book.limiters(name, shape.name),
        parent=parent,
        parent_limiters=book.limiters(parent, shape.name).text or UNMEASURED if parent else "",
        gain=unbroken(faster(1 / best.ratio)) if best.ratio else "",
        others=[f"{_words(r)} {significant(t, 3)} µs" for r, t in others if t],
        summary=[
            Cell(name, href=variant_page(name)),
            number_cell(time),
            Cell(_words(shape.rank_by)),
            number_cell(peer[1] / time, detail=peer[0]) if peer else missing("no peer was timed"),
            number_cell(gap.ratio) if gap else missing("its floor is unknown"),
        ],
    )


def _words(regime: str) -> str:
    return regime.replace("_", " ")


def _floor_text(gap: Gap) -> str:
    origin = f", {gap.floor.roof.origin}" if gap.floor.roof else ""
    return f"{significant(gap.floor_us, 3)} µs ({gap.floor.resource}{origin})"


# --- the picture ------------------------------------------------------------------------------------


def _picture(book: Book, ladder: Ladder, timed: Sequence[tuple[float, Variant]]) -> LadderPicture:
    """Each variant's line after its parent's, peers last; the floor and the fastest peer as marks.

    Args:
        timed: times in µs and their variants, the fastest first.
    """
    shape = ladder.shape
    needs = {v.name: bounds_in_use.needs(book.readings, v, shape) for _, v in timed}
    floor = ladder.floor.floor_us if ladder.floor else None
    low, high = min(timed[0][0], floor or timed[0][0]) * 0.9, timed[-1][0] * 1.1

    def at(us: float) -> float:
        return round(100 * log10(us / low) / log10(high / low), 2)

    way = {s.variant.name for s in ladder.way}
    times = {v.name: t for t, v in timed}
    stairs = []
    order = {s.variant.name: i for i, s in enumerate(ladder.steps)}
    for t, v in sorted(timed, key=lambda x: (order.get(x[1].name, len(order)), -x[0])):
        usual = v.name in way or v.is_reference
        # A bar cannot start at a parent whose line is not shown.
        before = times[v.parent] if v.parent and v.parent in (way if usual else times) else None
        stairs.append(
            Stair(
                name=Cell(
                    v.name, title=v.technique, href=variant_page(v.name), detail="peer" if v.is_reference else ""
                ),
                role=book.role(v),
                text=significant(t, 3),
                at=at(t),
                before=at(before) if before is not None else None,
                slower=before is not None and t > before,
                needs=_bullets(needs[v.name], needs[v.parent] if before is not None and v.parent else {}),
                usual=usual,
            )
        )
    ticks: list[tuple[float, str]] = []
    for us in _ticks(low, high):
        if not ticks or at(us) - ticks[-1][0] >= _LABEL_WIDTH:
            ticks.append((at(us), f"{us:,g}"))
    marks = [("floor", at(floor), f"floor {significant(floor, 3)} µs")] if floor else []
    if ladder.peer:
        name, us = ladder.peer
        marks.append(("peer", at(us), f"fastest peer: {name} {significant(us, 3)} µs"))
    counted = any(n.counted for by_resource in needs.values() for n in by_resource.values())
    return LadderPicture(stairs, ticks, marks, counted, _facts(book, ladder, timed, needs))


def _bullets(
    needs: Mapping[str, bounds_in_use.Need], before: Mapping[str, bounds_in_use.Need]
) -> tuple[tuple[float, float | None, str] | None, ...]:
    return tuple(
        (round(needs[r].percent, 1), round(before[r].percent, 1) if r in before else None, needs[r].text)
        if r in needs
        else None
        for r in bounds_in_use.RESOURCES
    )


#: Percent of the scale that a tick's label needs on a phone.
_LABEL_WIDTH = 20
#: Where ticks stand in a decade, coarse to fine.
_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))


def _ticks(low: float, high: float) -> list[float]:
    """The fewest round values between the two that make a scale."""
    ticks: list[float] = []
    for steps in _STEPS:
        every = (round(s * 10.0**d, 6) for d in range(-3, 8) for s in steps)
        ticks = [us for us in every if low < us < high]
        if len(ticks) >= 3:
            break
    return ticks


def _facts(book: Book, ladder: Ladder, timed: Sequence[tuple[float, Variant]], needs: Needs) -> list[list[Any]]:
    """The picture's CSV."""
    shape, floor = ladder.shape, ladder.floor.floor_us if ladder.floor else None
    resources = bounds_in_use.RESOURCES
    rows: list[list[Any]] = [
        [
            "variant",
            "shape",
            "role",
            f"{shape.time} µs",
            "parent",
            "floor µs",
            *(f"{r} percent of the time" for r in resources),
        ]
    ]
    for t, v in reversed(timed):
        shares = [needs[v.name][r].percent if r in needs[v.name] else None for r in resources]
        rows.append([v.name, shape.name, book.role(v), t, v.parent, floor, *shares])
    return rows


# --- the table --------------------------------------------------------------------------------------


def _row(book: Book, variant: Variant, shape: Shape, step: Step | None) -> Row:
    subject = Subject(variant.name, shape=shape.name)

    def measured(name: str) -> Cell:
        return book.cell(name, subject, with_unit=False, brief=True)

    def static(name: str) -> Cell:
        return book.static_cell(name, variant, shape.name, with_unit=False)

    role = book.role(variant)
    correct, note = _correct(book, variant, shape)
    mark = "★" if step and step.on_way else "" if role == "variant" else role
    limiters = book.limiters(variant.name, shape.name)
    parent = variant.parent
    floor, gap = _floor(book, subject, shape.time)
    no_step = not_applicable("a peer")
    cells = (
        Cell(variant.name, title=variant.technique, sort=variant.name, href=variant_page(variant.name), detail=mark),
        book.cell("ncu_duration" if variant.imported else shape.time, subject, with_unit=False),
        _over_parent(step),
        _ratio(book, "speedup_vs_peer", subject),
        gap,
        correct,
        book.limits_badge(variant, f"{GUARDRAILS}?variant={variant.name}"),
        Cell(
            limiters.short,
            title=limiters.text if limiters.text != limiters.short else "",
            sort=limiters.short,
        )
        if limiters.text
        else missing(book.why_stage(variant.name, shape.name, "profile")),
        _ratio(book, "speedup_vs_baseline", subject),
        *(measured(f"{regime}_p50") for regime in REGIMES),
        measured("isolated_p90"),
        measured("tflops"),
        floor,
        measured("tensor_active"),
        static("theoretical_occupancy"),
        measured("achieved_occupancy"),
        static("registers"),
        _spills(static("spill_store_bytes"), static("spill_load_bytes")),
        static("smem"),
        Cell(parent, sort=parent, href=variant_page(parent) if parent in book.record.suite.variants else "")
        if parent
        else Cell("none", title="it has no parent", sort=""),
        prediction_cell(step.outcome) if step else no_step,
        Cell(step.finding, sort=step.finding) if step else no_step,
        Cell(variant.technique, title=variant.technique, sort=variant.technique),
    )
    return Row(cells, role, note)


def _correct(book: Book, variant: Variant, shape: Shape) -> tuple[Cell, str]:
    """Whether a case is right, and the visible note if it, or a later stage, is not."""
    stale = book.record.stale.get(f"{variant.name}/{shape.name}")
    if stale is not None:
        return Cell("stale", title=cause_text.text(stale), sort=2.0, mark="stale"), cause_text.text(stale)
    stages: tuple[Stage, ...] = ("check", "bench", "profile", "sanitize")
    outcomes = [o for s in stages if (o := book.outcome(variant.name, shape.name, s)) is not None]
    note = next((f"{o.status} in {o.stage}: {o.reason}" for o in outcomes if o.status != "ok"), "")
    check = book.outcome(variant.name, shape.name, "check")
    if check is None:
        return missing(book.why_stage(variant.name, shape.name, "check")), note
    if check.status != "ok":
        return check_cell(check, check.reason), note
    error = book.cell("max_error", Subject(variant.name, shape=shape.name))
    return check_cell(check, f"largest absolute error: {error.text}"), note


def _over_parent(step: Step | None) -> Cell:
    if step is None or step.parent is None:
        return not_applicable("it has no parent")
    if not step.ratio:
        return missing(step.after.why or f"of its parent: {step.before.why}")
    ends = f"{1 / step.high:.3f}–{1 / step.low:.3f}" if step.low and step.high else UNMEASURED
    return number_cell(1 / step.ratio, title=f"than {step.parent}; 95 % interval: {ends}")


def _ratio(book: Book, name: str, subject: Subject) -> Cell:
    value, low, high = (book.record.facts.number(f"{name}{end}", subject) for end in ("", "_low", "_high"))
    if value is None:
        return book.cell(name, subject, with_unit=False)
    interval = f"{significant(low, 3)}–{significant(high, 3)}" if low is not None and high is not None else UNMEASURED
    return number_cell(value, title=f"95 % interval: {interval}")


def _floor(book: Book, subject: Subject, time: str) -> tuple[Cell, Cell]:
    """The floor of the regime that ranks (of no time: with caches cold), and the gap to it."""
    bounds, gap = book.bounds.get(subject), book.gap(subject, time)
    bound = gap.floor if gap is not None else bounds.floor if bounds else None
    if bound is None:
        unknown = missing("no roof of this device is known")
        return unknown, unknown
    roof = bound.roof.name if bound.roof else ""
    title = f"{bound.resource} bound by {roof}" + (f"\n{gap.note}" if gap and gap.note else "")
    floor = number_cell(bound.us or 0, detail=bound.resource)
    if gap is None:
        return floor, missing(book.why(time, subject))
    return floor, number_cell(gap.ratio, title=f"over {significant(gap.floor_us, 3)} µs, {title}")


def _spills(stores: Cell, loads: Cell) -> Cell:
    if not isinstance(stores.sort, float) or not isinstance(loads.sort, float):
        return loads if isinstance(stores.sort, float) else stores
    title = f"stores: {stores.title}\nloads: {loads.title}"
    return Cell(f"{stores.text} + {loads.text}", title=title, sort=stores.sort + loads.sort, kind="number")


# --- the rest -----------------------------------------------------------------------------------


def _builds(book: Book) -> list[tuple[str, str, tuple[str, ...], list[str]]]:
    """Builds that failed or are unsupported, by the reason's first line and their archs, the failed ones first."""
    missing = [a for a in book.record.artifacts if a.status != "ok"]
    lines = [next(iter(a.message.strip().splitlines()), "no message was kept") for a in missing]
    archs = grouped(((a.status, line, a.variant), a.arch) for a, line in zip(missing, lines, strict=True))
    alike = grouped(((status, line, tuple(on)), variant) for (status, line, variant), on in archs.items())
    return sorted(((*key, variants) for key, variants in alike.items()), key=lambda build: build[0] != "failed")


def _gaps(book: Book) -> list[tuple[str, str, str, list[str]]]:
    """Missing results: cases by stage, status and reason, the most frequent reason first."""
    failures = [((x.stage, x.status, x.reason), f"{x.variant}/{x.shape}") for x in book.failures]
    plans = [p for p in book.record.plans if p.error]
    failures += [(("launch plan", "unsupported", p.error), f"{p.variant}/{p.shape}") for p in plans]
    gaps = [(*key, cases) for key, cases in grouped(failures).items()]
    return sorted(gaps, key=lambda gap: (STATUSES.index(gap[1]), -len(gap[3])))[:MOST_MISSING]
