"""What the pages share: a record with its judgement and look-ups, and the view objects that templates read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Generic, TypeVar

from flashcore.explain import ladder, limiter, roofline
from flashcore.explain.ladder import Ladder
from flashcore.explain.limiter import Limiters, Remedy
from flashcore.explain.predictions import Readings, extreme
from flashcore.explain.roofline import CaseBounds, Gap
from flashcore.gate import judge
from flashcore.gate.baseline import Baseline
from flashcore.gate.judge import Judgement, Status, Verdict
from flashcore.model.catalogue import FACTS
from flashcore.model.cause_text import text
from flashcore.model.groups import grouped
from flashcore.model.record import Artifact, CaseOutcome, Listing, Record, Subject
from flashcore.model.suite import Budget, Shape, Stage, Tier, Variant
from flashcore.report.cells import Cell, fact_cell, missing, not_applicable

INDEX, ROOFLINE, GUARDRAILS, COMPARE = "index", "roofline", "guardrails", "compare"

#: The most shapes and columns that a page shows. It says how many it leaves out; the record has them all.
MAX_SHAPES = 40
MAX_COLUMNS = 24

STAGE_BY_GROUP: dict[str, Stage] = {"check": "check", "sanitizer": "sanitize", "timing": "bench"}

View = TypeVar("View", covariant=True)


def variant_page(name: str) -> str:
    """The name of a variant's page."""
    return f"variant/{name}"


@dataclass(frozen=True, slots=True)
class Page(Generic[View]):
    """One page: its name is its file and anchor.

    Args:
        template: a file of ``templates/``, or the absolute path of a plugin's.
        view: the template's variables: a dataclass or a mapping.
        in_menu: whether the header links it besides the core's own pages.
    """

    name: str
    title: str
    template: str
    view: View
    in_menu: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A case without a result from a stage, or that is stale."""

    variant: str
    shape: str
    stage: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """A variant's row in the overview's table: cells, role (peer, baseline, variant), and what went wrong."""

    cells: tuple[Cell, ...]
    role: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The winner at a shape, in words and as cells.

    Args:
        others: its times in the regimes that do not rank.
        summary: its row in the table of all shapes, without the limiters.
    """

    name: str
    time: str
    regime: str
    peer: str
    floor: str
    floor_title: str
    limiters: Limiters
    parent: str | None
    parent_limiters: str
    gain: str
    others: list[str]
    summary: list[Cell]


@dataclass(frozen=True, slots=True)
class Stair:
    """A variant's line in the ladder's picture. Positions are percent of its width, from the floor to the slowest.

    Args:
        at, before: the positions of its time and of its parent's; ``None`` where that is not drawn.
        needs: by resource: its share of the time, the parent's, and the origin of both; ``None`` is unknown.
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


@dataclass(frozen=True, slots=True)
class LadderPicture:
    """The ladder on a log scale: its lines, ticks (position, label) and marks (class, position, label), and the facts
    that its CSV holds. ``counted`` says that at least one share comes from hardware counters."""

    stairs: list[Stair]
    ticks: list[tuple[float, str]]
    marks: list[tuple[str, float, str]]
    counted: bool
    table: list[list[Any]]


@dataclass(frozen=True, slots=True)
class OverviewSection:
    """The overview at one shape. ``no_times`` says why nothing was timed."""

    shape: Shape
    answer: Answer | None
    ladder: LadderPicture | None
    rows: list[Row]
    no_times: str


@dataclass(frozen=True, slots=True)
class RooflineSection:
    """The roofline at one shape: the chart's data, whether hardware counters stand behind it, and its tables."""

    shape: Shape
    drawn: dict[str, Any] | None
    counted: bool
    variants: list[str]
    points: list[list[Cell]]
    resources: list[str]
    bounds: list[list[Cell]]


class Book:
    """A record as the pages see it: presentation only, statements come from :mod:`flashcore.explain` and the gate."""

    def __init__(self, record: Record, require: Tier, today: date | None, baseline: Baseline | None = None) -> None:
        self.record = record
        self.judgement: Judgement = judge.judge(record, require=require, today=today, baseline=baseline)
        self.artifacts: dict[tuple[str, str], Artifact] = {(a.variant, a.arch): a for a in record.artifacts}
        self._outcomes: dict[tuple[str, str, Stage], CaseOutcome] = {
            (o.variant, o.shape, o.stage): o for o in record.outcomes
        }
        self._ladders: dict[str, Ladder] = {}
        self._remedies: dict[str, dict[str, list[Remedy]]] = {}

    @property
    def arch(self) -> str | None:
        """The arch whose static facts the ladder shows."""
        return self.readings.arch

    def role(self, variant: Variant) -> str:
        """``peer``, ``baseline`` or ``variant``."""
        return self.record.suite.role(variant)

    @cached_property
    def readings(self) -> Readings:
        """The numbers that predictions are compared with."""
        return Readings(self.record)

    @cached_property
    def budgets(self) -> dict[str, Budget]:
        """Budgets by name."""
        return {b.name: b for b in self.record.suite.budgets}

    @cached_property
    def bounds(self) -> dict[Subject, CaseBounds]:
        """Bounds by case."""
        return {b.subject: b for b in roofline.case_bounds(self.record)}

    def gap(self, subject: Subject, time: str) -> Gap | None:
        """The distance of a measured time from its floor."""
        return self.bounds[subject].gap(time) if subject in self.bounds else None

    def ladder(self, shape: Shape) -> Ladder:
        """The ladder of a shape."""
        if shape.name not in self._ladders:
            self._ladders[shape.name] = ladder.ladder(self.record, shape, self.readings, self.bounds)
        return self._ladders[shape.name]

    def limiters(self, variant: str, shape: str) -> Limiters:
        """The limiters of a case."""
        return limiter.limiters(self.readings, variant, shape)

    def remedies(self, shape: Shape) -> dict[str, list[Remedy]]:
        """The steps that removed a limiter at a shape, by its kind."""
        if shape.name not in self._remedies:
            limiters = {v.name: self.limiters(v.name, shape.name) for v in self.cases(shape)}
            self._remedies[shape.name] = limiter.remedies(self.readings, shape.name, limiters)
        return self._remedies[shape.name]

    @cached_property
    def listings(self) -> dict[tuple[str, str], list[Listing]]:
        """Listings by variant and shape."""
        return grouped(((x.subject.variant, x.subject.shape or ""), x) for x in self.record.listings)

    @cached_property
    def _verdicts(self) -> dict[str, list[Verdict]]:
        return grouped((v.subject.variant, v) for v in self.judgement.verdicts)

    def verdicts(self, variant: Variant, severity: str = "limit") -> list[Verdict]:
        """The verdicts on a variant's limits or goals."""
        return [v for v in self._verdicts.get(variant.name, ()) if v.severity == severity]

    @cached_property
    def shapes(self) -> list[Shape]:
        """The shapes that are timed or profiled (all, if none is), in the manifest's order."""
        every = list(self.record.suite.shapes.values())
        return [s for s in every if "bench" in s.stages or "profile" in s.stages] or every

    @property
    def shown_shapes(self) -> list[Shape]:
        return self.shapes[:MAX_SHAPES]

    @property
    def shapes_left_out(self) -> int:
        return max(0, len(self.shapes) - MAX_SHAPES)

    def cases(self, shape: Shape) -> list[Variant]:
        """The variants that run on a shape."""
        return [v for v in self.record.suite.variants.values() if v.runs_on(shape)]

    @cached_property
    def failures(self) -> list[Failure]:
        """Cases without a result, in the order of the outcomes, stale ones last."""
        record = self.record
        failures = [
            Failure(o.variant, o.shape, o.stage, o.status, o.reason)
            for o in record.outcomes
            if o.status != "ok" and o.case not in record.stale
        ]
        stale = ([*c.split("/"), "all measured stages", "stale", text(cause)] for c, cause in record.stale.items())
        return failures + [Failure(*fields) for fields in stale]

    def outcome(self, variant: str, shape: str, stage: Stage) -> CaseOutcome | None:
        return self._outcomes.get((variant, shape, stage))

    # --- cells ----------------------------------------------------------------------------------

    def cell(self, name: str, subject: Subject, *, with_unit: bool = True, brief: bool = False) -> Cell:
        """The cell of a measured fact, or why there is none."""
        fact = self.record.facts.get(name, subject)
        if fact is None:
            return missing(self.why(name, subject), f"{name} of {subject}")
        return fact_cell(fact, with_unit=with_unit, brief=brief)

    def static_cell(self, name: str, variant: Variant, shape: str | None = None, *, with_unit: bool = True) -> Cell:
        """The largest value among a variant's kernels (of occupancies the smallest), each named on hover."""
        if variant.is_reference:
            return not_applicable("a peer: its kernels are not built here")
        facts = self.readings.static(name, variant.name, shape, self.arch)
        fact = extreme(name, facts)
        if fact is None:
            note = next((f.note for f in facts if f.number is None), "")
            return missing(note or self._why_static(variant), name)
        cell = fact_cell(fact, with_unit=with_unit)
        if len(facts) == 1:
            return cell
        word = "smallest" if FACTS[name].better == "higher" else "largest"
        each = "\n".join(f"{f.subject.kernel}: {f.value}" for f in facts)
        return replace(cell, title=f"{cell.title}\n{word} of {len(facts)} kernels:\n{each}")

    def _why_static(self, variant: Variant) -> str:
        arch = self.arch
        if arch is None:
            return "the suite names no arch"
        if arch in variant.where.unsupported:
            return f"unsupported on {arch}: {variant.where.unsupported[arch]}"
        artifact = self.artifacts.get((variant.name, arch))
        if artifact is None:
            return f"not built for {arch}"
        if artifact.status == "ok":
            return "not recorded"
        first = artifact.message.strip().splitlines()[:1]
        status = {"failed": "does not build", "unsupported": "unsupported"}[artifact.status]
        return ": ".join([f"{status} on {arch}", *first])

    def why(self, name: str, subject: Subject) -> str:
        """Why a measured fact is missing."""
        group = FACTS[name].group if name in FACTS else ""
        if group == "formula":
            return "the problem's formulas do not say"
        return self.why_stage(subject.variant, subject.shape or "", STAGE_BY_GROUP.get(group, "profile"))

    def why_stage(self, variant: str, shape: str, stage: Stage) -> str:
        """Why a case has nothing from a stage."""
        stale = self.record.stale.get(f"{variant}/{shape}")
        if stale is not None:
            return text(stale)
        outcome = self.outcome(variant, shape, stage)
        if outcome is not None and outcome.status != "ok":
            return f"{outcome.status} in {stage}: {outcome.reason}"
        declared = self.record.suite.variants.get(variant)
        if stage == "bench" and declared is not None and declared.imported:
            return "its kernels were imported, and the time is what ncu counted of the launch of median duration"
        at = self.record.suite.shapes.get(shape)
        if at is not None and stage not in at.stages:
            return f"shape {shape} is not for {stage}"
        note = next((s for s in self.record.stages if s.stage == stage), None)
        if note is not None and note.status != "ok" and outcome is None:
            return f"{stage} {note.status}: {note.reason}"
        return "not recorded" if outcome is not None else f"no {stage} of this case was recorded"

    def limits_badge(self, variant: Variant, href: str = "") -> Cell:
        """A variant's limits in a badge that links to ``href``: the worst status, with the counts on hover."""
        if variant.is_reference:
            return not_applicable("peers carry no budgets")
        verdicts = self.verdicts(variant)
        counts = Counter(v.status for v in verdicts)
        order: tuple[Status, ...] = ("fail", "waived", "unmeasured", "pass")
        present = [s for s in order if counts[s]]
        if not present:
            return not_applicable("no limit is set on it")
        worst = present[0]
        failed = [
            f"{v.budget}: {v.subject}" + (f" ({v.reason.splitlines()[0]})" if v.reason else "")
            for v in verdicts
            if v.status == "fail"
        ]
        title = "\n".join(["limits: " + ", ".join(f"{counts[s]} {s}" for s in present), *failed[:8]])
        text = worst if worst == "pass" else f"{counts[worst]} {worst}"
        return Cell(text, title=title, sort=float(order.index(worst)), mark=worst, href=href)
