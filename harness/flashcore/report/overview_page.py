"""The overview page: the fastest variant, its limiter, the budgets, the next step; then the ladder that led there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log10

from flashcore.chips.occupancy import waves
from flashcore.explain.advice import UNTIMED, Advice, order
from flashcore.explain.answer import Duration, Role
from flashcore.explain.ladder import Ladder, Step
from flashcore.explain.limiter import TimeParts
from flashcore.explain.resources import Part
from flashcore.explain.roofline import sm_count
from flashcore.explain.rows import Row as CaseRow
from flashcore.explain.verdict import Verdict, by_room
from flashcore.gate.judge import AT_RISK
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import cause_text
from flashcore.model.groups import grouped
from flashcore.model.suite import TIMING_MODES, Shape, Stage, Variant
from flashcore.model.text import abbreviated, as_words, percentage, significant, whole
from flashcore.report.cells import (
    Cell,
    Table,
    breaks,
    check_cell,
    missing,
    not_applicable,
    number_cell,
    prediction_cell,
    status_mark,
    unbroken,
    whole_cell,
)
from flashcore.report.view import BUDGETS, INDEX, LABELS, MAX_SHAPES, Book, Page, ShownCase, variant_cell

#: (key, heading, unit, description). The first ``USUAL`` are shown by default. Keys occur in addresses.
COLUMNS = (
    ("variant", "variant", "", "links to its page; ★: on the path from the baseline to the winner"),
    ("time", "time", "µs", "p50 of the timing mode that ranks on this shape"),
    ("over-parent", "× faster than parent", "", "the parent's time over this one's, with the 95 % bootstrap interval"),
    (
        "over-reference",
        "× faster than reference",
        "",
        "the best reference's time over this one's, with the 95 % interval",
    ),
    ("above-floor", "× floor", "", "time over the least time that its resources allow"),
    ("correct", "correct", "", "against fp64, within its tolerance class"),
    ("limits", "limits", "", "results of its budgets, over all archs and shapes"),
    ("limiter", "limited by", "", "the largest limiter; the variant's page has the evidence"),
    ("over-baseline", "× faster than baseline", "", "the baseline's time over this one's, with the 95 % interval"),
    *((f"{r}-p50", f"{as_words(r)} p50", "µs", FACTS[f"{r}_p50"].why) for r in TIMING_MODES),
    ("isolated-p90", "isolated p90", "µs", "of single calls"),
    ("tflops", "TFLOP/s", "", "formula FLOPs over the ranking time"),
    ("floor", "floor", "µs", "the least time that its resources allow; hover for the resource"),
    ("tensor", "tensor active", "%", FACTS["tensor_active"].why),
    ("occupancy", "occ. theory", "%", "theoretical occupancy of the launch plan"),
    ("achieved", "occ. achieved", "%", FACTS["achieved_occupancy"].why),
    ("waves", "waves", "", FACTS["waves"].why),
    ("registers", "regs", "", FACTS["registers"].why),
    ("spills", "spills", "B", "bytes spilled per thread, stores and loads (ptxas)"),
    ("smem", "smem", "B", FACTS["smem"].why),
    ("parent", "parent", "", "the variant it was derived from"),
    ("prediction", "prediction", "", "outcome of the predicted time"),
    ("finding", "finding", "", "derived from the facts"),
    ("technique", "technique", "", "its change from the parent"),
)
DESCRIPTIONS = {name: why for _, name, _, why in COLUMNS}
USUAL = 8
#: Resource → its column in the ladder's picture; ``compute`` is the variant's compute roof.
RESOURCES = {
    "dram": "DRAM",
    "l2": "L2",
    "shared": "shared",
    "compute": "compute",
    "exp": "exp",
    "issue": "issue",
    "launch": "launch",
}
#: The columns shown if nothing was timed.
STATIC = ("variant", "limits", "registers", "spills", "smem", "occupancy", "waves", "technique")
#: Those of the displayed arch.
BUILT = ("registers", "spills", "smem", "occupancy")
#: The columns of a run that measures roofs; ``tflops`` is then the rate of any resource.
RATES = ("variant", "time", "tflops", "over-reference", "correct", "limits", "limiter", "technique")
_RATE = ("tflops", "rate", "", "the amount that the case saturates a resource with, over the time")
#: Follows a time whose median hides two levels.
TWO_LEVELS = "two levels"
#: The order of missing results.
STATUSES = ("failed", "stale", "skipped", "unsupported")
MOST_MISSING = 200
MOST_STEPS = 3


@dataclass(frozen=True, slots=True)
class TableRow:
    """A variant's row in the overview's table: cells, role (reference, baseline, variant), a failure's description."""

    cells: tuple[Cell, ...]
    role: str
    note: str


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest variant on a shape: its answer as text and as cells.

    Args:
        speedup: over the fastest reference in words, without ``interval``; of a roofs run, the rate.
        pair: the compared cases, if the shape has several names.
        others: its times in the other modes.
        levels: descriptions of its time and the reference's, if they have two levels.
        summary: its cells in the table of all problems.
    """

    case: ShownCase
    time: str
    mode: str
    speedup: str
    interval: str
    pair: str
    floor: str
    floor_title: str
    others: list[tuple[str, str]]
    levels: list[str]
    summary: list[Cell]


@dataclass(frozen=True, slots=True)
class Stair:
    """A variant's row in the ladder's picture. Positions are in percent of the width, from the floor to the slowest.

    Args:
        us: the variant's time.
        at, before: the positions of its time and its parent's; ``None`` if the parent is not drawn.
        usual: whether the row is shown by default.
        uses: the share of its time that each resource takes, with its parent's.
    """

    variant: Variant
    us: float
    at: float
    before: float | None
    usual: bool
    uses: list[Cell]

    @property
    def slower(self) -> bool:
        return self.before is not None and self.at > self.before

    @property
    def left(self) -> bool:
        """Whether the number is left of the dot: if the bar comes from the left, or the right edge is near."""
        return self.at > 15 and (self.at > 88 or (self.before is not None and not self.slower))


@dataclass(frozen=True, slots=True)
class Picture:
    """The ladder on a log scale: rows, ticks (position, label) and marks (class, position, label).

    Args:
        counted: whether any share comes from hardware counters.
    """

    stairs: list[Stair]
    ticks: list[tuple[float, str]]
    marks: list[tuple[str, float, str]]
    counted: bool


@dataclass(frozen=True, slots=True)
class ShapeSection:
    """The overview of one row of cases. ``no_times``: why nothing was timed.

    Args:
        columns: the table's columns, as in :data:`COLUMNS`; without times the static ones come first.
        about: the winner; without times, the case with the largest possible gain, else the last case.
        time: the breakdown of its time.
        planned: occupancy and waves of its launch plan, if the time is unknown.
        steps: advice on the winner; without times, on any variant, each rule once with all its variants.
        unadvised: the part of the winner's time of which the most lies above the floor, if no advice is about it.
    """

    row: CaseRow
    answer: Winner | None
    picture: Picture | None
    columns: Sequence[tuple[str, str, str, str]]
    rows: list[TableRow]
    no_times: str
    about: ShownCase | None
    time: TimeParts | None
    planned: str
    steps: list[tuple[Advice, list[str]]]
    unadvised: Part | None

    @property
    def shape(self) -> Shape:
        return self.row.shape


@dataclass(frozen=True)
class Overview:
    """The page's content."""

    book: Book
    usual = USUAL
    why = DESCRIPTIONS
    resources = RESOURCES
    untimed = f"; gain unmeasured: {UNTIMED}"
    little = AT_RISK

    @cached_property
    def sections(self) -> list[ShapeSection]:
        """The section of each displayed row."""
        return [_section(self.book, row) for row in self.book.rows[:MAX_SHAPES]]

    @property
    def summaries(self) -> Table:
        """The table of all problems: shape, winner, time, and what it is compared with."""
        return [
            [
                Cell(breaks(s.row.name), title=s.shape.params_text, href=f"{INDEX}?shape={s.shape.name}"),
                *(s.answer.summary if s.answer else [missing(s.no_times)] * (3 if self.book.rates else 4)),
            ]
            for s in self.sections
        ]

    def heads(self, section: ShapeSection) -> list[tuple[str, str, str]]:
        """The headings of a section's table: name, unit, description."""
        arch = f" {self.book.arch or ''}"
        return [(name, (unit + arch * (key in BUILT)).strip(), why) for key, name, unit, why in section.columns]

    @cached_property
    def failed(self) -> Sequence[Verdict]:
        """The failed limits, the most exceeded first."""
        return by_room(self.book.judgement.failed)

    def worst(self, winner: str) -> list[tuple[Verdict, int]]:
        """Each failed budget, or if none failed, each budget at risk, the winner's first: worst limit, number of
        limits. If none is at risk, the limit to which the winner is nearest; without a winner, any variant."""
        limits = self.failed or sorted(self.book.judgement.at_risk, key=lambda v: v.subject.variant != winner)
        if not limits:
            passed = (v for v in self.book.judgement.limits if v.status == "pass" and v.headroom is not None)
            limits = by_room(v for v in passed if winner in ("", v.subject.variant))[:1]
        return [(same[0], len(same)) for same in grouped((v.budget, v) for v in limits).values()]

    @property
    def builds(self) -> list[tuple[str, str, tuple[str, ...], list[str]]]:
        """Missing builds, failed ones first: status, the reason's first line, archs, variants."""
        missing = [a for a in self.book.record.artifacts if a.status != "ok"]
        archs = grouped(
            ((a.status, next(iter(a.message.strip().splitlines()), "no message was recorded"), a.variant), a.arch)
            for a in missing
        )
        same = grouped(((status, line, tuple(on)), variant) for (status, line, variant), on in archs.items())
        return sorted(((*key, variants) for key, variants in same.items()), key=lambda build: build[0] != "failed")

    @property
    def gaps(self) -> Table:
        """Missing results, the most frequent reason first."""
        failures = [((x.stage, x.status, x.reason), f"{x.variant}/{x.shape}") for x in self.book.failures]
        plans = [p for p in self.book.record.plans if p.error]
        failures += [(("launch plan", "unsupported", p.error), f"{p.variant}/{p.shape}") for p in plans]
        gaps = sorted(grouped(failures).items(), key=lambda gap: (STATUSES.index(gap[0][1]), -len(gap[1])))
        return [
            [
                Cell(status, mark=status_mark(status)),
                Cell(stage),
                whole_cell(len(cases)),
                Cell(reason or "no reason was recorded", kind="wrap"),
                Cell(abbreviated(cases, 40), kind="wrap small"),
            ]
            for (stage, status, reason), cases in gaps[:MOST_MISSING]
        ]


def page(book: Book) -> Page[Overview]:
    """The page ``index``."""
    return Page(INDEX, "Overview", "overview.html.j2", Overview(book))


def _section(book: Book, row: CaseRow) -> ShapeSection:
    cases = {case.variant.name: case for case in book.cases(row)}
    timed = [cases[name] for name in row.times]
    reasons = dict.fromkeys(case.why("bench") for case in cases.values()) if not timed else {}
    ladder = book.ladder(*row.shapes)
    winner = _winner(ladder, timed)
    # Without times, not the baseline: it would have the largest gain, but nobody works on it.
    ours = [case for case in cases.values() if case.role != "reference"]
    built = [case for case in ours if case.role != "baseline"] or ours
    items = [x for case in ([winner.case] if winner else built) for x in case.answer.steps]
    steps = grouped((x.rule, x) for x in (items if winner else sorted(items, key=order)))
    first = next(iter(steps.values()), None)
    rows = [_row(case, ladder) for case in (*timed, *(c for name, c in cases.items() if name not in row.times))]
    keys = [key for key, *_ in COLUMNS]
    shown = [keys.index(key) for key in ((RATES if book.rates else ()) if timed else STATIC)]
    every = [*shown, *(i for i in range(len(keys)) if i not in shown)]
    columns = sorted(every, key=lambda i: all(r.cells[i].kind in ("missing", "none") for r in rows))  # empty ones last
    about = winner.case if winner else cases[first[0].subject.variant] if first else next(reversed(ours), None)
    time = about.parts if about else None
    if time and not time.timed and time.parts[-1].share > 95:  # only shows that the SMs are busy
        time = None
    return ShapeSection(
        row,
        winner,
        _picture(ladder, timed) if timed else None,
        [_RATE if book.rates and COLUMNS[i][0] == "tflops" else COLUMNS[i] for i in columns],
        [replace(r, cells=tuple(r.cells[i] for i in columns)) for r in rows],
        "; ".join(list(reasons)[:3]),
        about,
        time,
        _planned(about) if about and not time else "",
        [(same[0], list(dict.fromkeys(x.subject.variant for x in same))) for same in steps.values()][:MOST_STEPS],
        winner.case.answer.unadvised if winner else None,
    )


# --- the answer -------------------------------------------------------------------------------------


def _winner(ladder: Ladder, timed: Sequence[ShownCase]) -> Winner | None:
    """The winner, as sentence parts and as a row."""
    if ladder.best is None or ladder.best.after.value is None:
        return None
    case = next(c for c in timed if c.variant is ladder.best.variant)
    time, name = case.time, case.variant.name
    gap, reference, speedup = time.gap, time.names.get("reference"), time.over.get("reference")
    pair = " against ".join(map(str, time.pairs.get("reference", ()))) * bool(ladder.row.shapes[1:])
    origin = f", {gap.floor.roof.origin}" if gap and gap.floor.roof else ""
    over, interval, compared = "no reference was timed", "", [missing("no reference was timed")] * 2
    floor = f"{significant(gap.ratio, 3)}\u00a0×\u00a0its floor" if gap else "its floor is unknown"
    if reference and speedup:
        over, interval = unbroken(speedup.words(reference)), speedup.interval
        compared = [_ratio(time, "reference"), Cell(reference, kind="mono", sort=reference)]
    if rate := _rate(case):
        over, compared, floor = f"{rate.text}\u00a0{rate.unit}", [rate], rate.title
    named = [c for c in timed if c.time.levels and c.variant.name in (name, reference)]
    return Winner(
        case=case,
        time=significant(time.us or 0.0, 3),
        mode=as_words(time.mode),
        speedup=over,
        interval=interval,
        pair=pair,
        floor=floor,
        floor_title=f"{significant(gap.floor_us, 3)} µs ({gap.floor.resource}{origin})" if gap else "",
        others=[(as_words(mode), f"{significant(us, 3)} µs") for mode, us in time.others.items()],
        levels=[f"{c.variant.name} has {c.time.levels}" for c in named],
        summary=[
            variant_cell(name, shape=case.shape.name),
            number_cell(
                time.us or 0.0,
                title=time.levels,
                detail=f"{as_words(time.mode)}, {TWO_LEVELS}" if time.levels else as_words(time.mode),
            ),
            *compared,
        ],
    )


# --- the picture ------------------------------------------------------------------------------------


def _picture(ladder: Ladder, timed: Sequence[ShownCase]) -> Picture:
    """The ladder's picture: each variant's row after its parent's, references last, with marks for the floor and the
    fastest reference.

    Args:
        timed: the timed cases, fastest first.
    """
    row, times = ladder.row, ladder.row.times
    shares = {c.variant.name: _columns(c) for c in timed}
    floor = ladder.floor.floor_us if ladder.floor else None
    fastest, slowest = min(times.values()), max(times.values())
    low, high = min(fastest, floor or fastest) * 0.9, slowest * 1.1

    def at(us: float) -> float:
        return round(100 * log10(us / low) / log10(high / low), 2)

    way = {s.variant.name for s in ladder.path}
    order = {s.variant.name: i for i, s in enumerate(ladder.steps)}
    stairs = []
    for case in sorted(timed, key=lambda c: (order.get(c.variant.name, len(order)), -times[c.variant.name])):
        variant, us, parent = case.variant, times[case.variant.name], case.variant.parent
        usual = variant.name in way or variant.is_reference
        # A bar starts at the parent's time only if the parent's row is shown.
        before = at(times[parent]) if parent and parent in (way if usual else times) else None
        shares_before = shares[parent] if parent and before is not None else {}
        uses = [_use(shares[variant.name].get(r), shares_before.get(r)) for r in RESOURCES]
        stairs.append(Stair(variant, us, at(us), before, usual, uses))
    ticks: list[tuple[float, str]] = []
    for us in _ticks(low, high):
        if not ticks or at(us) - ticks[-1][0] >= _LABEL_WIDTH:
            ticks.append((at(us), f"{us:,g}"))
    marks = [("floor", at(floor), f"floor {significant(floor, 3)} µs")] if floor else []
    if row.reference:
        us = times[row.reference]
        marks.append(("reference", at(us), f"fastest reference: {row.reference} {significant(us, 3)} µs"))
    counted = any(use.counted for by_resource in shares.values() for use in by_resource.values())
    return Picture(stairs, ticks, marks, counted)


def _columns(case: ShownCase) -> dict[str, Part]:
    """The shares of :data:`RESOURCES`; a case's compute roof is ``compute``."""
    return {("compute" if name == case.variant.roof else name): use for name, use in case.parts.uses.items()}


def _use(use: Part | None, before: Part | None) -> Cell:
    """The cell of a resource's share of the time, with the parent's."""
    if use is None:
        return Cell("–", title="unknown", kind="none")
    text = whole(use.share) if use.share >= 1 else "<1"
    return Cell(text, title=use.text, share=use.share, tick=before.share if before else None)


#: Width of a tick's label on a phone, in percent of the scale.
_LABEL_WIDTH = 20
#: Tick positions within a decade, coarse to fine.
_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))


def _ticks(low: float, high: float) -> list[float]:
    """Round values between the two, at least three if possible."""
    ticks: list[float] = []
    for steps in _STEPS:
        every = (round(s * 10.0**d, 6) for d in range(-3, 8) for s in steps)
        ticks = [us for us in every if low < us < high]
        if len(ticks) >= 3:
            break
    return ticks


# --- the table --------------------------------------------------------------------------------------


def _row(case: ShownCase, ladder: Ladder) -> TableRow:
    variant, parts, row, taken = case.variant, case.parts, ladder.row, case.time
    step = next((s for s in ladder.steps if s.variant is variant), None)
    mark = "★" if step and step.on_path else LABELS.get(case.role, "")
    correct, note = _correct(case)
    floor, gap = _floor(case)
    no_step = not_applicable("a reference")
    parent = Cell(variant.parent, sort=variant.parent) if variant.parent else Cell("none", "", "it has no parent", "")
    if case.parent:
        parent = variant_cell(case.parent.variant.name, shape=case.shape.name)
    limiter = Cell(parts.short, title=parts.text if parts.text != parts.short else "", sort=parts.short)
    time = case.cell(variant.time_on(case.shape), brief=False)
    cells = (
        variant_cell(
            variant.name, variant.technique, f"{mark} {case.shape.name}" if row.shapes[1:] else mark, case.shape.name
        ),
        replace(time, title=f"{time.title}\n{taken.levels}", detail=TWO_LEVELS)
        if taken.levels
        else replace(time, detail=taken.first_round),
        _over_parent(case, step),
        _over(case, "reference", "speedup_vs_reference"),
        gap,
        correct,
        case.book.limits_badge(variant, f"{BUDGETS}?variant={variant.name}"),
        limiter if parts.text else missing(case.why("profile")),
        _over(case, "baseline", "speedup_vs_baseline"),
        *(case.cell(name) for name in (*(f"{mode}_p50" for mode in TIMING_MODES), "isolated_p90")),
        _rate(case) or case.cell("tflops"),
        floor,
        *(case.cell(name) for name in ("tensor_active", "theoretical_occupancy", "achieved_occupancy")),
        _waves(case),
        case.cell("registers"),
        _spills(case),
        case.cell("smem"),
        parent,
        prediction_cell(step.outcome) if step else no_step,
        Cell(step.finding, sort=step.finding) if step else no_step,
        Cell(variant.technique, title=variant.technique, sort=variant.technique),
    )
    return TableRow(cells, case.role, note)


def _rate(case: ShownCase) -> Cell | None:
    """What a case of a roofs run measures."""
    rate = case.book.rates.get(case.subject)
    if rate is None:
        return None
    share = (
        f"{percentage(100 * rate.ratio, 1)} of the datasheet's at this clock"
        if rate.ratio
        else "no datasheet states it"
    )
    return Cell(significant(rate.value), rate.unit.replace("us", "µs each"), share, rate.value, "number")


def _correct(case: ShownCase) -> tuple[Cell, str]:
    """The cell of a case's check, and a note if it or a later stage failed."""
    if stale := case.book.record.stale.get(case.subject.case):
        return Cell("stale", title=cause_text(stale), sort=2.0, mark="stale"), cause_text(stale)
    stages: tuple[Stage, ...] = ("check", "bench", "profile", "sanitize")
    outcomes = [o for s in stages if (o := case.outcome(s)) is not None]
    note = next((f"{o.status} in {o.stage}: {o.reason}" for o in outcomes if o.status != "ok"), "")
    check = case.outcome("check")
    if check is None:
        why, elsewhere = case.why("check"), case.answer.correct.everywhere
        if elsewhere == "unmeasured" or "check" in case.shape.stages:
            return missing(why), note
        is_wrong, title = elsewhere == "wrong", f"on other shapes; {why}"
        mark = "fail" if is_wrong else "pass"
        return Cell(elsewhere, "", title, float(is_wrong), mark=mark, detail="on other shapes"), note
    return check_cell(check, check.reason or f"largest absolute error: {case.cell('max_error').text}"), note


def _over_parent(case: ShownCase, step: Step | None) -> Cell:
    speedup = case.time.over.get("parent")
    if step is None or step.parent is None:
        return not_applicable("it has no parent")
    if speedup is None:
        return missing(step.after.why or f"of its parent: {step.before.why}")
    return _ratio(case.time, "parent")


def _over(case: ShownCase, role: Role, fact: str) -> Cell:
    """The speedup over another variant; without one, the fact's cell, which has the reason."""
    return _ratio(case.time, role) if role in case.time.over else case.cell(fact)


def _ratio(time: Duration, role: Role) -> Cell:
    """A speedup, with its interval and the compared cases on hover."""
    speedup = time.over[role]
    title = "\n".join(filter(None, (speedup.than(time.names[role]), time.pair(role))))
    return number_cell(speedup.value, title=title)


def _floor(case: ShownCase) -> tuple[Cell, Cell]:
    """The floor of the ranking mode (without a time: of cold caches), and the gap to it."""
    bounds, gap = case.book.bounds.get(case.subject), case.time.gap
    bound = gap.floor if gap is not None else bounds.floor if bounds else None
    if bound is None:
        unknown = missing("no roof of this device is known")
        return unknown, unknown
    by = f" by {bound.roof.name}" if bound.roof else f": {bound.note}"
    floor = number_cell(bound.us or 0, detail=bound.resource)
    if gap is None:
        return floor, missing(case.book.why(case.shape.time, case.subject))
    title = f"over {significant(gap.floor_us, 3)} µs, {bound.resource} bound{by}"
    return floor, number_cell(gap.ratio, title="\n".join(filter(None, (title, gap.note))))


def _planned(case: ShownCase) -> str:
    """Occupancy and waves of the launch plan, if computed; they need no GPU."""
    cells = (case.cell("theoretical_occupancy"), "{} % occupancy"), (_waves(case), "{} waves")
    return ", ".join(form.format(cell.text) for cell, form in cells if cell.kind == "number")


def _waves(case: ShownCase) -> Cell:
    """The waves of the kernel with the most; without a GPU, computed for the arch's largest GPU."""
    cell, readings, sms = case.cell("waves"), case.book.readings, sm_count(case.book.record)
    if isinstance(cell.sort, float) or not sms:
        return cell
    at = (case.variant.name, case.shape.name, case.book.arch)
    fits = {f.subject.kernel: f.number for f in readings.static("blocks_per_sm", *at)}
    blocks = {f.subject.kernel: f.number for f in readings.static("blocks", *at)}
    most = max((waves(n, fit, sms) for k, n in blocks.items() if n and (fit := fits.get(k))), default=None)
    return cell if most is None else number_cell(most, title=f"on {sms} SMs, the largest GPU of {case.book.arch}")


def _spills(case: ShownCase) -> Cell:
    stores, loads = (case.cell(f"spill_{kind}_bytes") for kind in ("store", "load"))
    if not isinstance(stores.sort, float) or not isinstance(loads.sort, float):
        return loads if isinstance(stores.sort, float) else stores
    title = f"stores: {stores.title}\nloads: {loads.title}"
    return Cell(f"{stores.text} + {loads.text}", title=title, sort=stores.sort + loads.sort, kind="number")
