"""The overview: the winner, how far it is from its floor, what limits it, and the ladder that led there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log10
from typing import Any

from flashcore.explain import bounds_in_use
from flashcore.explain.ladder import Ladder, Step
from flashcore.explain.roofline import Gap
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Subject
from flashcore.model.suite import REGIMES, Shape, Variant
from flashcore.model.text import UNMEASURED, significant
from flashcore.report import frame
from flashcore.report.cells import Cell, faster, missing, not_applicable
from flashcore.report.outcomes import outcome_cell
from flashcore.report.view import GUARDRAILS, INDEX, Book, Page, variant_page

#: Key, heading, unit, why; the first eight are shown unless a reader chooses others.
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
#: Of each variant that was timed, by resource.
Needs = Mapping[str, Mapping[str, bounds_in_use.Need]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: its cells, and its class (peer, baseline, variant)."""

    cells: tuple[Cell, ...]
    role: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stair:
    """One line of the picture. Positions are percent of its width, from the floor to the slowest.

    Args:
        at, before: the positions of its time and of its parent's; ``None`` where that is not drawn.
        needs: a resource's share of its time and of its parent's, in the order of the page; ``None``: not known.
        usual: whether it is shown before a reader asks for all.
    """

    name: Cell
    role: str
    text: str
    at: float
    before: float | None
    slower: bool
    needs: tuple[tuple[float, float | None, str] | None, ...]
    usual: bool

    @property
    def left(self) -> bool:
        """Whether its number is on its left: where the bar comes from the right, or has no room there."""
        return self.at > 15 and (self.at > 88 or (self.before is not None and not self.slower))


def page(book: Book) -> Page:
    """The page ``index``."""
    record = book.record
    sections = [_section(book, s) for s in book.shown_shapes]
    context: dict[str, Any] = {
        "machine": frame.provenance(record),
        "stages": record.stages,
        "gaps": _gaps(book),
        "builds": _builds(book),
        "columns": COLUMNS,
        "usual": USUAL,
        "resources": bounds_in_use.RESOURCES,
        "sections": sections,
        "shapes_left_out": len(book.shapes) - len(book.shown_shapes),
        "arch": book.arch,
    }
    return Page(INDEX, "Overview", "overview.html.j2", context)


def _section(book: Book, shape: Shape) -> dict[str, Any]:
    found = book.ladder(shape)
    steps = {s.variant.name: s for s in found.steps}
    variants = book.cases(shape)
    timed = [(t, v) for v in variants if (t := _time(book, v, shape)) is not None]
    timed.sort(key=lambda x: (x[0], x[1].name))
    ordered = [v for _, v in timed] + [v for v in variants if _time(book, v, shape) is None]
    reasons = dict.fromkeys(book.why_stage(v.name, shape.name, "bench") for v in variants) if not timed else {}
    needs = {v.name: bounds_in_use.needs(book.readings, v, shape) for _, v in timed}
    stairs, ticks, marks = _stairs(book, shape, found, timed, needs)
    return {
        "shape": shape,
        "params": shape.params_text,
        "answer": _answer(book, shape, found),
        "stairs": stairs,
        "ticks": ticks,
        "marks": marks,
        "counted": any(n.counted for own in needs.values() for n in own.values()),
        "table": _facts(book, shape, found, timed, needs),
        "rows": [_row(book, v, shape, steps.get(v.name)) for v in ordered],
        "no_times": "; ".join(list(reasons)[:3]),
    }


def _time(book: Book, variant: Variant, shape: Shape) -> float | None:
    time = book.record.facts.number(shape.time, Subject(variant.name, shape=shape.name))
    return time if time and time > 0 else None


# --- the answer -------------------------------------------------------------------------------------


def _answer(book: Book, shape: Shape, found: Ladder) -> dict[str, Any] | None:
    """The winner in a sentence, its limiters, and its parent with those of the parent."""
    best = found.best
    if best is None or best.after.value is None:
        return None
    name, time = best.variant.name, best.after.value
    parent = best.parent if best.parent in book.record.suite.variants else None
    gain = 1 / best.ratio if best.ratio else None
    subject = Subject(name, shape=shape.name)
    others = [(r, book.record.facts.number(f"{r}_p50", subject)) for r in REGIMES if r != shape.rank_by]
    return {
        "name": name,
        "time": significant(time, 3),
        "regime": shape.rank_by.replace("_", " "),
        "over_peer": significant(found.peer[1] / time, 3) if found.peer else UNMEASURED,
        "peer_name": found.peer[0] if found.peer else "",
        "above": significant(found.floor.ratio, 3) if found.floor else UNMEASURED,
        "short": book.held(name, shape.name).short or UNMEASURED,
        "peer": faster(found.peer[1] / time, found.peer[0]) if found.peer else "no peer was timed",
        "floor": _above(found.floor.ratio) if found.floor else "its floor is unknown",
        "floor_title": _floor_text(found.floor) if found.floor else "",
        "held": book.held(name, shape.name).text or UNMEASURED,
        "parent": parent,
        "parent_held": book.held(parent, shape.name).text or UNMEASURED if parent else "",
        "gain": faster(gain, "").rsplit(maxsplit=1)[0] if gain else "",
        "others": [f"{r.replace('_', ' ')} {significant(t, 3)} µs" for r, t in others if t],
    }


def _above(ratio: float) -> str:
    return f"{significant(ratio, 3)}\u00a0×\u00a0above its floor"


def _floor_text(gap: Gap) -> str:
    origin = f", {gap.floor.roof.origin}" if gap.floor.roof else ""
    return f"{significant(gap.floor_us, 3)} µs ({gap.floor.resource}{origin})"


# --- the picture ------------------------------------------------------------------------------------


def _stairs(
    book: Book, shape: Shape, found: Ladder, timed: Sequence[tuple[float, Variant]], needs: Needs
) -> tuple[list[Stair], list[tuple[float, str]], list[tuple[str, float, str]]]:
    """The lines, each after its parent, peers last; then ticks and marks (floor, fastest peer)."""
    if not timed:
        return [], [], []
    floor = found.floor.floor_us if found.floor else None
    low, high = min(timed[0][0], floor or timed[0][0]) * 0.9, timed[-1][0] * 1.1

    def at(us: float) -> float:
        return round(100 * log10(us / low) / log10(high / low), 2)

    way = {s.variant.name for s in found.way}
    times = {v.name: t for t, v in timed}
    stairs = []
    order = {s.variant.name: i for i, s in enumerate(found.steps)}
    for t, v in sorted(timed, key=lambda x: (order.get(x[1].name, len(order)), -x[0])):
        usual = v.name in way or v.is_reference
        # A bar cannot start at a parent whose line is not shown.
        parent = v.parent if v.parent in (way if usual else times) else None
        own, before = needs[v.name], needs.get(parent or "", {})
        bullets = tuple(
            (round(own[r].percent, 1), round(before[r].percent, 1) if r in before else None, own[r].text)
            if r in own else None
            for r in bounds_in_use.RESOURCES
        )  # fmt: skip
        name = Cell(v.name, title=v.technique, href=variant_page(v.name), detail="peer" if v.is_reference else "")
        start = at(times[parent]) if parent else None
        slower = parent is not None and t > times[parent]
        stairs.append(Stair(name, book.role(v), significant(t, 3), at(t), start, slower, bullets, usual))
    ticks: list[tuple[float, str]] = []
    for us in _ticks(low, high):
        if not ticks or at(us) - ticks[-1][0] >= _APART:
            ticks.append((at(us), f"{us:,g}"))
    marks = [("floor", at(floor), f"floor {significant(floor, 3)} µs")] if floor else []
    if found.peer:
        marks.append(("peer", at(found.peer[1]), f"fastest peer: {found.peer[0]} {significant(found.peer[1], 3)} µs"))
    return stairs, ticks, marks


#: Percent of the scale that a tick's label needs on a phone.
_APART = 20
#: Where ticks stand in a decade, coarse to fine.
_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))


def _ticks(low: float, high: float) -> list[float]:
    """As few round values between the two as make a scale."""
    found: list[float] = []
    for steps in _STEPS:
        every = (round(s * 10.0**d, 6) for d in range(-3, 8) for s in steps)
        found = [us for us in every if low < us < high]
        if len(found) >= 3:
            break
    return found


def _facts(
    book: Book, shape: Shape, found: Ladder, timed: Sequence[tuple[float, Variant]], needs: Needs
) -> list[list[Any]]:
    """The picture's CSV."""
    floor = found.floor.floor_us if found.floor else None
    head = ["variant", "shape", "role", f"{shape.time} µs", "parent", "floor µs"]
    rows: list[list[Any]] = [head + [f"{r} percent of the time" for r in bounds_in_use.RESOURCES]]
    for t, v in reversed(timed):
        own = needs[v.name]
        shares = [own[r].percent if r in own else None for r in bounds_in_use.RESOURCES]
        rows.append([v.name, shape.name, book.role(v), t, v.parent, floor, *shares])
    return rows


# --- the table --------------------------------------------------------------------------------------


def _row(book: Book, variant: Variant, shape: Shape, step: Step | None) -> Row:
    subject = Subject(variant.name, shape=shape.name)

    def measured(name: str) -> Cell:
        return book.cell(name, subject, with_unit=False, brief=True)

    role = book.role(variant)
    right, note = _right(book, variant, shape)
    mark = "★" if step and step.chosen else "" if role == "variant" else role
    held = book.held(variant.name, shape.name)
    parent = variant.parent
    floor, gap = _floor(book, subject, shape.time)
    cells = (
        Cell(variant.name, title=variant.technique, sort=variant.name, href=variant_page(variant.name), detail=mark),
        book.cell("ncu_duration" if variant.imported else shape.time, subject, with_unit=False),
        _over_parent(step),
        _ratio(book, "speedup_vs_peer", subject),
        gap,
        right,
        not_applicable("peers carry no budgets")
        if variant.is_reference
        else replace(book.badge(book.verdicts.get(variant.name, ())), href=f"{GUARDRAILS}?variant={variant.name}"),
        Cell(held.short, title=held.text if held.text != held.short else "", sort=held.short)
        if held.text else missing(book.why_stage(variant.name, shape.name, "profile")),
        _ratio(book, "speedup_vs_baseline", subject),
        *(measured(f"{regime}_p50") for regime in REGIMES),
        measured("isolated_p90"),
        measured("tflops"),
        floor,
        measured("tensor_active"),
        book.static_cell("theoretical_occupancy", variant, shape.name, with_unit=False),
        measured("achieved_occupancy"),
        book.static_cell("registers", variant, with_unit=False),
        _spills(book, variant),
        book.static_cell("smem", variant, shape.name, with_unit=False),
        Cell(parent, sort=parent, href=variant_page(parent) if parent in book.record.suite.variants else "")
        if parent else Cell("none", title="it has no parent", sort=""),
        outcome_cell(step.outcome) if step else not_applicable("a peer"),
        Cell(step.finding, sort=step.finding) if step else not_applicable("a peer"),
        Cell(variant.technique, title=variant.technique, sort=variant.technique),
    )  # fmt: skip
    return Row(cells, role, note)


def _right(book: Book, variant: Variant, shape: Shape) -> tuple[Cell, str]:
    """Whether a case is right, and the visible note if it, or a later stage, is not."""
    stale = book.record.stale.get(f"{variant.name}/{shape.name}")
    if stale is not None:
        return Cell("stale", title=stale, sort=2.0, mark="stale"), f"stale: {stale}"
    note = ""
    for stage in ("check", "bench", "profile", "sanitize"):
        outcome = book.outcome(variant.name, shape.name, stage)
        if outcome is not None and outcome.status != "ok":
            note = f"{outcome.status} in {stage}: {outcome.reason}"
            break
    outcome = book.outcome(variant.name, shape.name, "check")
    if outcome is None:
        return missing(book.why_stage(variant.name, shape.name, "check")), note
    if outcome.status == "ok":
        error = book.cell("max_error", Subject(variant.name, shape=shape.name))
        return Cell("right", title=f"largest absolute error: {error.text}", sort=0.0, mark="pass"), note
    mark = "fail" if outcome.status == "failed" else "unmeasured"
    text = "wrong" if outcome.status == "failed" else outcome.status
    return Cell(text, title=outcome.reason, sort=1.0, mark=mark), note


def _over_parent(step: Step | None) -> Cell:
    if step is None or step.parent is None:
        return not_applicable("it has no parent")
    if not step.ratio:
        return missing(step.after.why or f"of its parent: {step.before.why}")
    ends = f"{1 / step.high:.3f}–{1 / step.low:.3f}" if step.low and step.high else "unmeasured"
    title = f"than {step.parent}; 95 % interval: {ends}"
    return Cell(significant(1 / step.ratio, 3), title=title, sort=1 / step.ratio, kind="number")


def _ratio(book: Book, name: str, subject: Subject) -> Cell:
    cell = book.cell(name, subject, with_unit=False)
    facts = book.record.facts
    low, high = facts.number(f"{name}_low", subject), facts.number(f"{name}_high", subject)
    value = facts.number(name, subject)
    if value is None:
        return cell
    interval = f"{significant(low, 3)}–{significant(high, 3)}" if low is not None and high is not None else UNMEASURED
    return replace(cell, text=significant(value, 3), title=f"95 % interval: {interval}")


def _floor(book: Book, subject: Subject, time: str) -> tuple[Cell, Cell]:
    """The floor of the regime that ranks (of no time: with caches cold), and the gap to it."""
    bounds = book.bounds.get(subject)
    gap = next((g for g in bounds.gaps if g.time == time), None) if bounds else None
    bound = gap.floor if gap is not None else bounds.floor if bounds else None
    if bound is None:
        gone = missing("no roof of this device is known")
        return gone, gone
    roof = bound.roof.name if bound.roof else ""
    title = f"{bound.resource} bound by {roof}" + (f"\n{gap.note}" if gap and gap.note else "")
    floor = Cell(significant(bound.us or 0, 3), sort=bound.us, kind="number", detail=bound.resource)
    if gap is None:
        return floor, missing(book.why(time, subject))
    over = f"over {significant(gap.floor_us, 3)} µs, {title}"
    return floor, Cell(significant(gap.ratio, 3), title=over, sort=gap.ratio, kind="number")


def _spills(book: Book, variant: Variant) -> Cell:
    stores = book.static_cell("spill_store_bytes", variant, with_unit=False)
    loads = book.static_cell("spill_load_bytes", variant, with_unit=False)
    if not isinstance(stores.sort, float) or not isinstance(loads.sort, float):
        return stores if not isinstance(stores.sort, float) else loads
    title = f"stores: {stores.title}\nloads: {loads.title}"
    return Cell(f"{stores.text} + {loads.text}", title=title, sort=stores.sort + loads.sort, kind="number")


# --- the rest -----------------------------------------------------------------------------------


def _builds(book: Book) -> list[dict[str, Any]]:
    """Builds that failed or are not meant to be, by the first line of the reason: the variants that have it for the
    same archs, the failed ones first."""
    archs: dict[tuple[str, str, str], list[str]] = {}
    for a in book.record.artifacts:
        if a.status != "ok":
            reason = next(iter(a.message.strip().splitlines()), "no message was kept")
            archs.setdefault((a.status, reason, a.variant), []).append(a.arch)
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (status, reason, variant), own in archs.items():
        alike.setdefault((status, reason, tuple(own)), []).append(variant)
    found = [{"status": s, "reason": r, "archs": own, "variants": names} for (s, r, own), names in alike.items()]
    return sorted(found, key=lambda b: b["status"] != "failed")


def _gaps(book: Book) -> list[dict[str, Any]]:
    """Missing results: cases by stage, state and reason, the most frequent reason first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    record = book.record
    for case, reason in record.stale.items():
        groups.setdefault(("all measured stages", "stale", reason), []).append(case)
    for o in record.outcomes:
        if o.status != "ok" and o.case not in record.stale:
            groups.setdefault((o.stage, o.status, o.reason), []).append(o.case)
    for plan in record.plans:
        if plan.error:
            groups.setdefault(("launch plan", "unsupported", plan.error), []).append(f"{plan.variant}/{plan.shape}")
    rank = {"failed": 0, "stale": 1, "skipped": 2, "unsupported": 3}
    found = [
        {"stage": stage, "status": status, "reason": reason, "cases": cases[:40], "more": max(0, len(cases) - 40),
         "count": len(cases)}
        for (stage, status, reason), cases in groups.items()
    ]  # fmt: skip
    return sorted(found, key=lambda g: (rank.get(str(g["status"]), 9), -int(str(g["count"]))))[:200]
