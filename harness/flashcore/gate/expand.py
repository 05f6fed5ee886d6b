"""Expands budgets over their subjects, each with its fact or the reason why there is none.

A budget names variants, archs, shapes and kernels by globs. They are expanded over the manifest, the builds and the
launch plans before any fact is read, so a missing fact leaves a visible gap.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase

from flashcore.chips import devices
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, GROUP_STAGE, chip_of, spec_of
from flashcore.model.cause import Cause
from flashcore.model.causes import (
    NO_CUBIN,
    NO_PLAN,
    NOT_BUILT,
    NOT_LIMITED,
    NOT_RECORDED,
    OTHER_GPU,
    RENAMED,
    DidNotCompile,
    NotLaunched,
    NotReturned,
)
from flashcore.model.record import CaseOutcome, CaseSubject, CodeSubject, Fact, Record, Subject, plans_for, subject_of
from flashcore.model.suite import Budget, GateRule, Stage, Variant, Waiver
from flashcore.model.text import matches_any, number, same_hardware

#: Static facts that depend on the launch plan; their subjects are (variant, arch, shape, kernel).
PLANNED = frozenset(("dynamic_smem", "smem", "threads", "blocks", "theoretical_occupancy", "blocks_per_sm", "waves"))
#: Facts of the launch plan without a kernel: of all launches on a shape.
PLAN_TOTALS = frozenset(("workspace_bytes",))

#: A variant, arch and shape.
_Place = tuple[str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One subject of a budget.

    Args:
        fact: the recorded fact, if there is one.
        cause: why there is no fact; ignored if there is one.
        other_gpu: set if the budget does not apply to this record's GPU.
    """

    subject: Subject
    fact: Fact | None
    cause: Cause | None = None
    other_gpu: Cause | None = None


class Expansion:
    """Expands budgets over a record.

    Args:
        only: the variants to expand over, by name; all but the references if ``None``.
    """

    def __init__(self, record: Record, only: Collection[str] | None = None) -> None:
        self.record = record
        self.variants: list[Variant] = [
            v for v in record.suite.variants.values() if not v.is_reference and (only is None or v.name in only)
        ]
        #: (variant, arch or shape) pairs so far that the manifest or a stage declares unsupported.
        self.left_out: set[tuple[str, str]] = set()
        self.artifacts = {(a.variant, a.arch): a for a in record.artifacts}
        #: The plans for each arch.
        self.plans = {arch: plans_for(record.plans, arch) for arch in (*record.suite.archs, record.gpu_arch)}
        #: The recorded kernels of each (variant, arch).
        self.kernels: dict[tuple[str, str], dict[str, None]] = {}
        for s in (fact.subject for fact in record.facts):
            if s.arch is not None and s.kernel is not None and s.shape is None:  # facts with a shape are of the plan
                self.kernels.setdefault((s.variant, s.arch), {})[s.kernel] = None
        #: Other names of an imported kernel: the name without parameters, and the variant's.
        self._aliases = {v.imported: (v.technique, v.name) for v in self.variants if v.imported}
        self._shapes = {v.name: [s for s in record.suite.shapes.values() if v.runs_on(s)] for v in self.variants}
        self._facts: dict[str, dict[_Place, dict[Subject, Fact]]] = {}

    def outcome(self, case: Case, stage: Stage) -> CaseOutcome:
        """The outcome of a case in a stage; a stale or missing one is ``skipped``."""
        outcome = self.record.outcome(case, stage)
        if outcome is None or case in self.record.stale:
            return CaseOutcome(case.variant, case.shape, stage, "skipped", self.record.missing(case, stage))
        return outcome

    def shapes(self, variant: Variant, globs: Sequence[str], stage: Stage | None) -> Iterator[str]:
        """The matching shapes that a variant runs on; in a stage, none if it does not support the GPU's arch."""
        arch = self.record.gpu_arch
        if stage is not None and arch and not any(same_hardware(arch, a) for a in variant.where.archs):
            self.left_out.add((variant.name, arch))
            return
        for shape in self._shapes[variant.name]:
            if (stage is None or stage in shape.stages) and matches_any(shape.name, globs):
                yield shape.name

    def _at(self, fact: str, variant: str, arch: str | None = None, shape: str | None = None) -> dict[Subject, Fact]:
        """The facts of one name at one place, by subject."""
        if fact not in self._facts:
            places = self._facts[fact] = {}
            for f in self.record.facts.named(fact):
                s = f.subject
                places.setdefault((s.variant, s.arch, s.shape), {})[s] = f
        return self._facts[fact].get((variant, arch, shape), {})

    def expand(self, budget: Budget) -> Iterator[Expectation]:
        """All subjects of ``budget``, in the manifest's order."""
        spec = spec_of(budget.fact)
        assert spec is not None, "checked against the catalogue when it was read"
        self._matched: set[str] = set()  # the kernel globs that matched
        self._named: set[bool] = set()  # whether the budget applies, of all kernels
        self._limits = [b for b in self.record.suite.budgets if b.fact == budget.fact and b.severity == "limit"]
        for variant in self.variants:
            if not matches_any(variant.name, budget.variants):
                continue
            if budget.tier != "static" and variant.imported:
                yield from self._imported(budget, variant)
            elif budget.tier != "static":
                stage: Stage = "bench" if budget.tier == "timing" else "profile"
                yield from self._measured(budget, variant, GROUP_STAGE.get(spec.group, stage))
            elif spec.group == "formula":
                for shape in self.shapes(variant, budget.shapes, None):
                    yield from self._by_kernel(budget, CaseSubject(Case(variant.name, shape)), (), NOT_RECORDED())
            else:
                yield from self._static(budget, variant)
        unmatched = [g for g in budget.kernels if g != "*" and g[:1] != "!" and g not in self._matched]
        if (unmatched or self._named == {False}) and self._covers_all_variants(budget):
            # A limit on a kernel must not lapse because the kernel was renamed, or because its new name is excluded.
            cause: Cause = RENAMED(tuple(unmatched or budget.kernels))
            others = (a.unlaunched for a in self.artifacts.values() if matches_any(a.variant, budget.variants))
            if unlaunched := {k: None for names in others for k in names if matches_any(k, unmatched)}:
                cause = NotLaunched(tuple(unlaunched))
            yield Expectation(CodeSubject(" ".join(budget.variants)), None, cause)

    def _covers_all_variants(self, budget: Budget) -> bool:
        """Whether the expansion includes all of a budget's variants, if static on all of its archs, and has kernels."""
        archs = {arch for v in self.variants for arch in v.where.archs if matches_any(arch, budget.archs)}
        if budget.tier == "static" and not archs <= {*self.record.suite.archs}:
            return False  # with CUDA_ARCH
        selected = {v.name for v in self.variants}
        required = {n for n in self.record.suite.matching("*") if matches_any(n, budget.variants)}
        return required <= selected and bool(self.kernels or self.record.plans or self._aliases)

    def _names(self, budget: Budget, kernel: str | None) -> bool:
        """Whether the budget applies to this kernel; ``None`` is a fact of all kernels together."""
        if budget.kernels == ("*",) or kernel is None:
            return budget.kernels == ("*",)
        names = (kernel, *self._aliases.get(kernel, ()))
        globs = [glob for glob in budget.kernels if any(matches_any(name, (glob,)) for name in names)]
        self._matched.update(globs)
        is_named = bool(globs) and all(matches_any(name, ("*", *budget.kernels)) for name in names)
        self._named.add(is_named)
        return is_named

    def _kernel(self, budget: Budget, subject: Subject, fact: Fact | None, cause: Cause) -> Iterator[Expectation]:
        """Yields the kernel if the budget names it.

        If limits on the fact name other kernels but not this one, it is a gap: a renamed kernel must not escape its
        limit. Imported reports are excepted, because most of their kernels have no budgets.
        """
        if self._names(budget, subject.kernel):
            yield Expectation(subject, fact, cause)
        elif (
            budget.severity == "limit"
            and not budget.decision  # whose fact is its own
            and not self._aliases
            and not any(in_scope(limit, subject, unknown=True) for limit in self._limits)
        ):
            yield Expectation(subject, None, NOT_LIMITED(budget.fact))

    def _static(self, budget: Budget, variant: Variant) -> Iterator[Expectation]:
        for arch in self.record.suite.archs:
            if not matches_any(arch, budget.archs):
                continue
            artifact = self.artifacts.get((variant.name, arch))
            if arch not in variant.where.archs or (artifact and artifact.status == "unsupported"):
                self.left_out.add((variant.name, arch))
                continue
            cause: Cause = NOT_RECORDED() if artifact else NOT_BUILT()
            if variant.imported:
                cause = NO_CUBIN()
            if artifact and artifact.status == "failed":
                cause = DidNotCompile()  # the failed build is reported once, separately
            if budget.fact not in PLANNED | PLAN_TOTALS:
                kernels = self.kernels.get((variant.name, arch), ())
                yield from self._by_kernel(budget, CodeSubject(variant.name, arch), kernels, cause)
                continue
            for shape in self.shapes(variant, budget.shapes, None):
                case = Case(variant.name, shape)
                plan = self.plans[arch].get(case)
                launches = plan.launches if plan and budget.fact in PLANNED else ()
                gap = plan.cause or cause if plan else NO_PLAN()
                kernels = dict.fromkeys(launch.kernel for launch in launches)
                yield from self._by_kernel(budget, CaseSubject(case, arch=arch), kernels, gap)

    def _by_kernel(self, budget: Budget, at: Subject, kernels: Collection[str], cause: Cause) -> Iterator[Expectation]:
        """The facts at one place, and a gap for each kernel without one."""
        facts = self._at(budget.fact, at.variant, at.arch, at.shape)
        recorded = [subject for subject in facts if self._names(budget, subject.kernel)]
        yield from (Expectation(subject, facts[subject]) for subject in recorded)
        if not recorded and not kernels:
            yield Expectation(at, None, cause)
        seen = {subject.kernel for subject in recorded}
        for kernel in kernels if None not in seen else ():
            if kernel not in seen:
                yield from self._kernel(budget, replace(at, kernel=kernel), None, cause)

    def _measured(self, budget: Budget, variant: Variant, stage: Stage) -> Iterator[Expectation]:
        other_gpu = self._other_gpu(budget)
        for shape in self.shapes(variant, budget.shapes, stage):
            case = CaseSubject(Case(variant.name, shape))
            if self.outcome(case.case, stage).status == "unsupported":
                self.left_out.add((variant.name, shape))
                continue
            cause = self.record.missing(case.case, stage)
            if other_gpu or case.case in self.record.stale:
                yield Expectation(case, None, cause, other_gpu)
                continue
            facts = self._at(budget.fact, variant.name, shape=shape)
            if budget.kernels == ("*",):
                yield Expectation(case, facts.get(case), cause)
                continue
            kernels = dict.fromkeys(s.kernel for s in facts if s.kernel and s.launch is None)
            if plan := self.plans[self.record.gpu_arch].get(case.case):
                kernels |= dict.fromkeys(launch.kernel for launch in plan.launches)
            if not kernels:
                yield Expectation(case, None, cause)
            for kernel in kernels:
                subject = replace(case, kernel=kernel)
                yield from self._kernel(budget, subject, facts.get(subject), cause)

    def _imported(self, budget: Budget, variant: Variant) -> Iterator[Expectation]:
        """Each launch of an imported kernel separately. There is no plan to compare them with."""
        if budget.fact == "plan_matches" or not self._names(budget, variant.imported):
            return
        other_gpu = self._other_gpu(budget)
        # A metric of a catalogue fact is recorded by the fact's name.
        chip = chip_of(divmod(int((self.record.gpu_arch or "sm_0")[3:].rstrip("af")), 10)) or "unknown"
        same = (s.name for s in FACTS.values() if s.ncu_name(chip) == budget.fact and not s.opcodes)
        names = (budget.fact, *same)
        timed = self.shapes(variant, budget.shapes, "bench")  # benchmarks
        for shape in dict.fromkeys((*self.shapes(variant, budget.shapes, "profile"), *timed)):
            facts = next(filter(None, (self._at(name, variant.name, shape=shape) for name in names)), {})
            kernels = tuple(s for s in facts if s.kernel is not None)
            launches = tuple(s for s in kernels if s.launch is not None)
            for subject in launches or kernels or (subject_of(variant.name, shape),):
                fact = None if other_gpu else facts.get(subject)
                yield Expectation(subject, fact, NotReturned(report=True), other_gpu)

    def _other_gpu(self, budget: Budget) -> Cause | None:
        """Why a measured budget does not apply to the record's GPU; ``None`` if it does."""
        gpu, arch = self.record.gpu, self.record.gpu_arch
        here = gpu or "a machine without a GPU"
        if budget.device is not None and not devices.is_called(gpu, budget.device):
            return OTHER_GPU(budget.device, here)
        if arch is not None and not any(same_hardware(arch, g) or fnmatchcase(arch, g) for g in budget.archs):
            return OTHER_GPU(", ".join(budget.archs), here)
        return None


# --- a budget in numbers and words ---------------------------------------------------------------


def in_scope(scope: Budget | Waiver | GateRule, subject: Subject, *, unknown: bool) -> bool:
    """Whether the globs of ``scope`` match the subject.

    Args:
        unknown: whether any glob matches a part that the subject lacks; otherwise only ``*`` does.
    """
    return all(
        (unknown or "*" in globs) if name is None else matches_any(name, globs)
        for name, globs in (
            (subject.variant, scope.variants),
            (subject.arch, scope.archs),
            (subject.shape, scope.shapes),
            (subject.kernel, scope.kernels),
        )
    )


def expired(exception: Waiver | GateRule, today: date | None) -> bool:
    """Whether a waiver or rule has expired; false if ``today`` is ``None``."""
    return bool(exception.expires and today and date.fromisoformat(exception.expires) < today)


def excess(budget: Budget, value: float) -> float:
    """How far the value is beyond the limit, in its unit; at most 0 if it is within."""
    over = value - budget.maximum if budget.maximum is not None else -math.inf
    under = budget.minimum - value if budget.minimum is not None else -math.inf
    return max(over, under)


def headroom(budget: Budget | None, value: object) -> float | None:
    """The distance between a value and its limit, relative to the limit; negative if the limit is exceeded.

    ``None`` if undefined: for a limit of 0, and for an exact value that is met.
    """
    if budget is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    over = excess(budget, float(value))
    limit = budget.maximum if budget.maximum is not None and over == value - budget.maximum else budget.minimum
    met = budget.minimum == budget.maximum and not over
    return -over / abs(limit) if limit and not met else None


def accepts(budget: Budget, waiver: Waiver, value: float) -> bool:
    """Whether a value that misses the budget is no worse than the waiver's, on the missed side."""
    if budget.maximum is not None and value > budget.maximum:
        return value <= waiver.accepted
    return value >= waiver.accepted


def limit_text(budget: Budget) -> str:
    """The limit as text: ``≤ 128``, ``≥ 30 %`` or ``8 to 16``, with a goal's stretch value."""
    if budget.decision:
        return str(budget.decision)
    low, high, unit = budget.minimum, budget.maximum, budget.unit
    if low is not None and high is not None:
        text = f"{number(low)} to {number(high, unit)}"
    else:
        text = f"≤ {number(high, unit)}" if high is not None else f"≥ {number(low, unit)}"
    return text if budget.stretch is None else f"{text} (stretch {number(budget.stretch, unit)})"
