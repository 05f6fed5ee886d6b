"""What each budget promises: every subject it is about, with its fact or the reason there is none.

A budget names variants, archs, shapes and kernels by globs. Here it is expanded over all that the manifest, the builds
and the launch plans name, before any fact is looked at: so a missing fact leaves a visible gap.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from flashcore.chips import devices
from flashcore.model.catalogue import FACTS, OWN_STAGE, spec_of
from flashcore.model.causes import (
    Cause,
    DidNotCompile,
    NoCubin,
    NoPlan,
    NoStage,
    NotBuilt,
    NotRecorded,
    NotReturned,
    OtherGpu,
    Renamed,
)
from flashcore.model.record import Artifact, CaseOutcome, Fact, Plan, Record, Subject
from flashcore.model.suite import Budget, Shape, Stage, Variant, Waiver
from flashcore.model.text import matches_any, number, same_hardware

#: Static facts that depend on the launch plan: about (variant, arch, shape, kernel).
PLANNED = frozenset(("dynamic_smem", "smem", "threads", "blocks", "theoretical_occupancy", "blocks_per_sm", "waves"))
#: Planned too, but about all launches of a shape together.
PLAN_TOTALS = frozenset(("workspace_bytes",))

#: The facts of one name and variant, by (arch, shape) and subject.
_VariantFacts = Mapping[tuple[str | None, str | None], Mapping[Subject, Fact]]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One subject of a budget.

    Args:
        fact: what was recorded about it, if anything.
        cause: why there is no fact; meaningless if there is one.
        elsewhere: why the budget is not about this record's GPU, if it is not.
    """

    subject: Subject
    fact: Fact | None
    cause: Cause | None = None
    other_gpu: OtherGpu | None = None


class Expansion:
    """Expands budgets over a record.

    Args:
        only: the variants to look at, by name; all but the peers if ``None``.
    """

    def __init__(self, record: Record, only: Collection[str] | None = None) -> None:
        self.record = record
        self.variants: list[Variant] = [
            v for v in record.suite.variants.values() if not v.is_reference and (only is None or v.name in only)
        ]
        #: (variant, arch or shape) pairs met so far that the manifest or a stage calls unsupported.
        self.left_out: set[tuple[str, str]] = set()
        self.artifacts: dict[tuple[str, str], Artifact] = {(a.variant, a.arch): a for a in record.artifacts}
        self.plans: dict[tuple[str, str], Plan] = {(p.variant, p.shape): p for p in record.plans}
        self._outcomes: dict[tuple[str, str, Stage], CaseOutcome] = {
            (o.variant, o.shape, o.stage): o for o in record.outcomes
        }
        self.kernels = self._find_kernels()
        #: Other names of an imported kernel: without its parameters, and its slug.
        self._aliases = {v.imported: (v.technique, v.name) for v in self.variants if v.imported}
        self._shapes: dict[str, Sequence[Shape]] = {}

    def _find_kernels(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """The kernels that each (variant, arch) is known to have."""
        kernels: dict[tuple[str, str], dict[str, None]] = {}
        for name, spec in FACTS.items():
            if spec.group != "static" or name in PLANNED or name in PLAN_TOTALS:
                continue
            for fact in self.record.facts.named(name):
                s = fact.subject
                if s.arch is not None and s.kernel is not None and s.shape is None:  # with a shape: as the plan has it
                    kernels.setdefault((s.variant, s.arch), {})[s.kernel] = None
        return {k: list(v) for k, v in kernels.items()}

    def outcome(self, variant: str, shape: str, stage: Stage) -> tuple[str, Cause | None]:
        """Status and cause of a case in a stage; a stale or absent one is ``skipped``."""
        stale = self.record.stale.get(f"{variant}/{shape}")
        if stale is not None:
            return "skipped", stale
        outcome = self._outcomes.get((variant, shape, stage))
        if outcome is None:
            return "skipped", NoStage(stage)
        return outcome.status, outcome.cause

    def shapes(self, variant: Variant, globs: Sequence[str], stage: Stage | None) -> Iterator[str]:
        """The shapes a variant runs on; none where the GPU is of an arch that it does not support."""
        arch = self.record.gpu_arch
        if stage is not None and arch and not any(same_hardware(arch, a) for a in variant.where.archs):
            self.left_out.add((variant.name, arch))
            return
        for shape in self._supported(variant):
            if (stage is None or stage in shape.stages) and matches_any(shape.name, globs):
                yield shape.name

    def _supported(self, variant: Variant) -> Sequence[Shape]:
        """Its shapes, whatever the stage; every budget asks."""
        if variant.name not in self._shapes:
            self._shapes[variant.name] = [s for s in self.record.suite.shapes.values() if variant.runs_on(s)]
        return self._shapes[variant.name]

    def expand(self, budget: Budget) -> Iterator[Expectation]:
        """Everything that ``budget`` is about, in the manifest's order."""
        spec = spec_of(budget.fact)
        assert spec is not None, "checked against the catalogue when it was read"
        self._matched: set[str] = set()  # the globs for kernels that matched one
        self._covering = [
            b for b in self.record.suite.budgets if b.fact == budget.fact and b.severity == budget.severity
        ]
        facts: dict[str, dict[tuple[str | None, str | None], dict[Subject, Fact]]] = {}
        for fact in self.record.facts.named(budget.fact):
            s = fact.subject
            facts.setdefault(s.variant, {}).setdefault((s.arch, s.shape), {})[s] = fact
        for variant in self.variants:
            if not matches_any(variant.name, budget.variants):
                continue
            variant_facts = facts.get(variant.name, {})
            if variant.imported and budget.tier != "static":
                yield from self._imported(budget, variant, variant_facts)
                continue
            if spec.group == "formula":
                expectations = self._formula(budget, variant, variant_facts)
            elif budget.tier == "static":
                expectations = self._static(budget, variant, variant_facts)
            else:
                stage: Stage = "bench" if budget.tier == "timing" else "profile"
                stage = OWN_STAGE.get(spec.group, stage)
                expectations = self._measured(budget, variant, variant_facts, stage)
            yield from expectations
        unmatched = [g for g in budget.kernels if g != "*" and g not in self._matched]
        if unmatched and self._covers_all_variants(budget):
            # A promise about a kernel must not lapse because the kernel has a new name.
            yield Expectation(Subject(" ".join(budget.variants)), None, Renamed(tuple(unmatched)))

    def _covers_all_variants(self, budget: Budget) -> bool:
        """Whether all variants that a budget names are looked at."""
        selected = {v.name for v in self.variants}
        return all(
            n in selected or not matches_any(n, budget.variants) for n in self.record.suite.matching("*")
        ) and bool(self.kernels or self.plans or self._aliases)

    def _named(self, budget: Budget, kernel: str) -> bool:
        """Whether the budget is about this kernel."""
        names = (kernel, *self._aliases.get(kernel, ()))
        globs = [g for g in budget.kernels if any(matches_any(name, (g,)) for name in names)]
        self._matched.update(globs)
        return bool(globs)

    def _unlimited(self, budget: Budget, at: Subject, kernels: Iterable[str]) -> Iterator[Expectation]:
        """Kernels that no limit on the fact names, where some limit names others: a renamed kernel must not escape its
        limit. Not of imported reports, which hold many kernels that no budget is meant for."""
        for kernel in () if self._aliases else kernels:
            if budget.severity == "limit" and not any(
                matches_any(kernel, b.kernels)
                and matches_any(at.variant, b.variants)
                and (at.arch is None or matches_any(at.arch, b.archs))
                and (at.shape is None or matches_any(at.shape, b.shapes))
                for b in self._covering
            ):
                yield Expectation(Subject(at.variant, at.arch, at.shape, kernel), None, Renamed(fact=budget.fact))

    def _formula(self, budget: Budget, variant: Variant, variant_facts: _VariantFacts) -> Iterator[Expectation]:
        for shape in self.shapes(variant, budget.shapes, None):
            yield from self._at(budget, variant_facts, Subject(variant.name, shape=shape), (), NotRecorded())

    def _static(self, budget: Budget, variant: Variant, variant_facts: _VariantFacts) -> Iterator[Expectation]:
        for arch in self.record.suite.archs:
            if not matches_any(arch, budget.archs):
                continue
            artifact = self.artifacts.get((variant.name, arch))
            if arch not in variant.where.archs or (artifact and artifact.status == "unsupported"):
                self.left_out.add((variant.name, arch))
                continue
            cause: Cause = NotBuilt() if artifact is None else NotRecorded()
            cause = NoCubin() if variant.imported else cause
            if artifact is not None and artifact.status == "failed":
                cause = DidNotCompile()  # that failure is the one to report
            if budget.fact not in PLANNED and budget.fact not in PLAN_TOTALS:
                kernels = self.kernels.get((variant.name, arch), ())
                yield from self._at(budget, variant_facts, Subject(variant.name, arch), kernels, cause)
                continue
            for shape in self.shapes(variant, budget.shapes, None):
                plan = self.plans.get((variant.name, shape))
                why = NoPlan() if plan is None else plan.cause or cause
                names = [x.kernel for x in plan.launches] if plan and budget.fact in PLANNED else []
                subject = Subject(variant.name, arch, shape)
                yield from self._at(budget, variant_facts, subject, list(dict.fromkeys(names)), why)

    def _at(
        self,
        budget: Budget,
        variant_facts: _VariantFacts,
        subject: Subject,
        kernels: Sequence[str],
        cause: Cause,
    ) -> Iterator[Expectation]:
        """The facts at one (arch, shape), and a gap for each kernel that should have one."""
        everywhere = budget.kernels == ("*",)
        seen: set[str | None] = set()
        for fact_subject, fact in variant_facts.get((subject.arch, subject.shape), {}).items():
            if everywhere or (fact_subject.kernel is not None and self._named(budget, fact_subject.kernel)):
                seen.add(fact_subject.kernel)
                yield Expectation(fact_subject, fact)
        if None in seen:
            return
        for kernel in kernels:
            if kernel not in seen and self._named(budget, kernel):
                seen.add(kernel)
                yield Expectation(Subject(subject.variant, subject.arch, subject.shape, kernel), None, cause)
        if not seen and (everywhere or not kernels):
            yield Expectation(subject, None, cause)
        yield from self._unlimited(budget, subject, [k for k in kernels if k not in seen])

    def _measured(
        self, budget: Budget, variant: Variant, variant_facts: _VariantFacts, stage: Stage
    ) -> Iterator[Expectation]:
        other_gpu = self._other_gpu(budget)
        for shape in self.shapes(variant, budget.shapes, stage):
            case_subject = Subject(variant.name, shape=shape)
            status, cause = self.outcome(variant.name, shape, stage)
            if status == "unsupported":
                self.left_out.add((variant.name, shape))
                continue
            cause = cause or NotRecorded()
            if other_gpu or case_subject.case in self.record.stale:
                yield Expectation(case_subject, None, cause, other_gpu)
                continue
            shape_facts = variant_facts.get((None, shape), {})
            if budget.kernels == ("*",):
                yield Expectation(case_subject, shape_facts.get(case_subject), cause)
                continue
            kernels = {s.kernel: s for s in shape_facts if s.kernel and s.launch is None}
            plan = self.plans.get((variant.name, shape))
            for launch in plan.launches if plan else ():
                kernels.setdefault(launch.kernel, Subject(variant.name, shape=shape, kernel=launch.kernel))
            if not kernels:
                yield Expectation(case_subject, None, cause)
            for kernel, subject in kernels.items():
                if self._named(budget, kernel):
                    yield Expectation(subject, shape_facts.get(subject), cause)
                else:
                    yield from self._unlimited(budget, case_subject, [kernel])

    def _imported(self, budget: Budget, variant: Variant, variant_facts: _VariantFacts) -> Iterator[Expectation]:
        """Each launch of an imported kernel is judged by itself. There is no plan to compare it with."""
        other_gpu = self._other_gpu(budget)
        named = budget.fact != "plan_matches" and self._named(budget, variant.imported)
        for shape in self.shapes(variant, budget.shapes, "profile") if named else ():
            shape_facts = variant_facts.get((None, shape), {})
            launches = [s for s in shape_facts if s.launch is not None] or [
                s for s in shape_facts if s.kernel is not None
            ]
            launches = launches or [Subject(variant.name, shape=shape)]
            for subject in launches:
                yield Expectation(subject, shape_facts.get(subject), NotReturned(report=True), other_gpu)

    def _other_gpu(self, budget: Budget) -> OtherGpu | None:
        """Why a measured budget is not about the record's GPU; ``None`` if it is."""
        gpu, arch = self.record.gpu, self.record.gpu_arch
        here = gpu or "a machine without a GPU"
        if budget.device is not None and not devices.is_called(gpu, budget.device):
            return OtherGpu(budget.device, here)
        if arch is not None and not any(same_hardware(arch, g) or fnmatchcase(arch, g) for g in budget.archs):
            return OtherGpu(", ".join(budget.archs), here)
        return None


# --- a promise in numbers and words -------------------------------------------------------------


def excess(budget: Budget, value: float) -> float:
    """By how much the value is beyond the limit; 0 or less is within it."""
    over = value - budget.maximum if budget.maximum is not None else -math.inf
    under = budget.minimum - value if budget.minimum is not None else -math.inf
    return max(over, under)


def accepts(budget: Budget, waiver: Waiver, value: float) -> bool:
    """Whether a value that misses the budget is no worse than the waiver allows, on the same side."""
    if budget.maximum is not None and value > budget.maximum:
        return value <= waiver.accepted
    return value >= waiver.accepted


def limit_text(budget: Budget) -> str:
    """``≤ 128``, ``≥ 30 %`` or ``8 to 16``, with the stretch value of a goal."""
    low, high, unit = budget.minimum, budget.maximum, budget.unit
    if low is not None and high is not None:
        text = f"{number(low)} to {number(high, unit)}"
    else:
        text = f"≤ {number(high, unit)}" if high is not None else f"≥ {number(low, unit)}"
    return text if budget.stretch is None else f"{text} (stretch {number(budget.stretch, unit)})"
