"""What every page needs from one record: its judgement and bounds, look-ups, and link targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

from flashcore.explain import ladder, limiter, roofline
from flashcore.explain.ladder import Ladder
from flashcore.explain.limiter import Held, Remedy
from flashcore.explain.predictions import Readings
from flashcore.explain.roofline import CaseBounds
from flashcore.gate import judge
from flashcore.gate.baseline import Baseline
from flashcore.gate.judge import Judgement, Verdict
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Artifact, CaseOutcome, Fact, Listing, Record, Subject
from flashcore.model.suite import Budget, Shape, Stage, Tier, Variant
from flashcore.report.cells import Cell, fact_cell, missing, not_applicable

INDEX, ROOFLINE, GUARDRAILS, COMPARE = "index", "roofline", "guardrails", "compare"

#: A page shows at most so many and says how many it leaves out; the record has them all.
MAX_SHAPES = 40
MAX_COLUMNS = 24

PEER_STATIC = "a peer: its kernels are not built here"


def variant_page(name: str) -> str:
    """The page of a variant."""
    return f"variant/{name}"


@dataclass(frozen=True, slots=True)
class Page:
    """One page: ``name`` decides its file and anchor, ``body`` is its template: a file of ``templates/``, or a path.

    ``in_menu`` says whether the header links it besides the core's own pages.
    """

    name: str
    title: str
    body: str
    context: dict[str, Any]
    in_menu: bool = False


class Book:
    """A record as the pages see it. Presentation only: the statements come from analysis and the gate."""

    def __init__(self, record: Record, require: Tier, today: date | None, baseline: Baseline | None = None) -> None:
        self.record = record
        self.judgement: Judgement = judge.judge(record, require=require, today=today, baseline=baseline)
        self.artifacts: dict[tuple[str, str], Artifact] = {(a.variant, a.arch): a for a in record.artifacts}
        self._outcomes: dict[tuple[str, str, Stage], CaseOutcome] = {
            (o.variant, o.shape, o.stage): o for o in record.outcomes
        }
        self._ladders: dict[str, Ladder] = {}
        self._remedies: dict[str, dict[str, list[Remedy]]] = {}
        self._static: dict[tuple[str, str, str], dict[Subject, Fact]] = {}
        for fact in record.facts:
            s = fact.subject
            if s.arch is not None:
                self._static.setdefault((s.variant, s.arch, fact.name), {})[s] = fact

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

    def ladder(self, shape: Shape) -> Ladder:
        """The ladder of a shape."""
        if shape.name not in self._ladders:
            self._ladders[shape.name] = ladder.ladder(self.record, shape, self.readings, self.bounds)
        return self._ladders[shape.name]

    def held(self, variant: str, shape: str) -> Held:
        """The limiters of a case."""
        return limiter.held(self.readings, variant, shape)

    def remedies(self, shape: Shape) -> dict[str, list[Remedy]]:
        """The steps that took a limiter away at a shape, by its kind."""
        if shape.name not in self._remedies:
            held = {v.name: self.held(v.name, shape.name) for v in self.cases(shape)}
            self._remedies[shape.name] = limiter.remedies(self.readings, shape.name, held)
        return self._remedies[shape.name]

    @cached_property
    def listings(self) -> dict[tuple[str, str], list[Listing]]:
        """Listings by variant and shape."""
        found: dict[tuple[str, str], list[Listing]] = {}
        for x in self.record.listings:
            found.setdefault((x.subject.variant, x.subject.shape or ""), []).append(x)
        return found

    @cached_property
    def verdicts(self) -> dict[str, list[Verdict]]:
        """Verdicts by variant."""
        found: dict[str, list[Verdict]] = {}
        for v in self.judgement.verdicts:
            found.setdefault(v.subject.variant, []).append(v)
        return found

    @cached_property
    def shapes(self) -> list[Shape]:
        """The shapes that are timed or profiled (all, if none is), in the manifest's order."""
        every = list(self.record.suite.shapes.values())
        return [s for s in every if "bench" in s.stages or "profile" in s.stages] or every

    @cached_property
    def shown_shapes(self) -> list[Shape]:
        return self.shapes[:MAX_SHAPES]

    def cases(self, shape: Shape) -> list[Variant]:
        """The variants that run on a shape."""
        return [v for v in self.record.suite.variants.values() if v.runs_on(shape)]

    def shapes_of(self, variant: Variant) -> list[Shape]:
        """The shapes a variant is timed or profiled on."""
        return [s for s in self.shapes if variant.runs_on(s)]

    def outcome(self, variant: str, shape: str, stage: Stage) -> CaseOutcome | None:
        return self._outcomes.get((variant, shape, stage))

    def static(self, variant: str, name: str, arch: str | None, shape: str | None = None) -> list[Fact]:
        """Static facts of one name: of every kernel, at ``shape`` where they depend on the launch plan."""
        if arch is None:
            return []
        found = self._static.get((variant, arch, name), {}).values()
        return [f for f in found if f.subject.shape in (None, shape)]

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
            return not_applicable(PEER_STATIC)
        found = self.static(variant.name, name, self.arch, shape)
        return self.extreme(found, name, self.why_static(variant, self.arch), with_unit=with_unit)

    def extreme(self, found: list[Fact], name: str, reason: str, *, with_unit: bool = True) -> Cell:
        """The one fact among kernels that a reader should know, the others on hover."""
        known = [f for f in found if f.number is not None]
        if len(known) < len(found) or not known:
            lost = next((f for f in found if f.number is None), None)
            return missing((lost.note if lost else "") or reason, name)
        spec = FACTS.get(name)
        pick: Callable[..., Fact] = min if spec is not None and spec.better == "higher" else max
        chosen = pick(known, key=lambda f: f.number)
        cell = fact_cell(chosen, with_unit=with_unit)
        if len(known) == 1:
            return cell
        word = "smallest" if pick is min else "largest"
        each = "\n".join(f"{f.subject.kernel}: {f.value}" for f in known)
        title = f"{cell.title}\n{word} of {len(known)} kernels:\n{each}"
        return Cell(cell.text, cell.unit, title, cell.sort, cell.kind)

    def why_static(self, variant: Variant, arch: str | None) -> str:
        """Why a static fact is missing."""
        if arch is None:
            return "the suite names no arch"
        if arch in variant.where.unsupported:
            return f"unsupported on {arch}: {variant.where.unsupported[arch]}"
        artifact = self.artifacts.get((variant.name, arch))
        if artifact is None:
            return f"not built for {arch}"
        if artifact.status == "ok":
            return "not recorded"
        first = artifact.message.strip().splitlines()
        said = {"failed": "does not build", "unsupported": "unsupported"}[artifact.status]
        return f"{said} on {arch}" + (f": {first[0]}" if first else "")

    def why(self, name: str, subject: Subject) -> str:
        """Why a measured fact is missing."""
        spec = FACTS.get(name)
        if spec is not None and spec.group == "formula":
            return "the problem's formulas do not say"
        stage: Stage = "profile"
        if spec is not None and spec.group == "check":
            stage = "check"
        elif spec is not None and spec.group == "sanitizer":
            stage = "sanitize"
        elif spec is not None and spec.group == "timing":
            stage = "bench"
        return self.why_stage(subject.variant, subject.shape or "", stage)

    def why_stage(self, variant: str, shape: str, stage: Stage) -> str:
        """Why a case has nothing from a stage."""
        stale = self.record.stale.get(f"{variant}/{shape}")
        if stale is not None:
            return f"stale: {stale}"
        outcome = self._outcomes.get((variant, shape, stage))
        if outcome is not None and outcome.status != "ok":
            return f"{outcome.status} in {stage}: {outcome.reason}"
        found = self.record.suite.variants.get(variant)
        if stage == "bench" and found is not None and found.imported:
            return "its kernels were imported, and the time is what ncu counted of the launch of median duration"
        declared = self.record.suite.shapes.get(shape)
        if declared is not None and stage not in declared.stages:
            return f"shape {shape} is not for {stage}"
        note = next((s for s in self.record.stages if s.stage == stage), None)
        if note is not None and note.status != "ok" and outcome is None:
            return f"{stage} {note.status}: {note.reason}"
        return "not recorded" if outcome is not None else f"no {stage} of this case was recorded"

    def badge(self, verdicts: Iterable[Verdict]) -> Cell:
        """One variant's limits in a badge: the worst status, with the counts on hover."""
        counts: dict[str, int] = {}
        failed = []
        for v in verdicts:
            if v.severity == "limit":
                counts[v.status] = counts.get(v.status, 0) + 1
                if v.status == "fail":
                    failed.append(f"{v.budget}: {v.subject}" + (f" ({v.reason.splitlines()[0]})" if v.reason else ""))
        order = ("fail", "waived", "unmeasured", "pass")
        worst = next((s for s in order if counts.get(s)), "")
        if not worst:
            return not_applicable("no limit is set on it")
        said = ", ".join(f"{counts[s]} {s}" for s in order if counts.get(s))
        text = worst if worst == "pass" else f"{counts[worst]} {worst}"
        title = "\n".join([f"limits: {said}", *failed[:8]])
        return Cell(text, title=title, sort=float(order.index(worst)), mark=worst)
