"""Judges a record by its suite's budgets: a pure function, the same verdicts wherever it runs.

It fails closed. A budget is expanded over everything it promises (variants, archs, shapes, kernels)
before any fact is looked at, so that a fact which is missing, stale or not a number is reported as *unmeasured*, never
skipped. Four promises hold without being written: every variant builds for every arch that it names, its answers are
right, no stage fails on it, and it launches what its plan says.

A limit that is missed fails unless a waiver accepts the value. A goal never fails.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from flashcore.errors import Exit
from flashcore.explain.clocks import LEAST_OF_FLOOR
from flashcore.explain.explain import advice
from flashcore.explain.roofline import case_bounds
from flashcore.gate.baseline import Baseline, compilers
from flashcore.gate.expand import Expansion, Expectation, accepts, excess, limit_text
from flashcore.gate.regressions import Comparison, another_compiler, compare
from flashcore.model.catalogue import FACTS
from flashcore.model.cause_text import text
from flashcore.model.causes import BelowFloor, Cause, DidNotCompile, Impossible, NotBuilt, OtherCompiler
from flashcore.model.gate_policy import AS_PLANNED, CORRECT, RUNS
from flashcore.model.record import Fact, Record, Source, Subject, Value
from flashcore.model.suite import TIERS, Budget, Severity, Tier, Waiver
from flashcore.model.text import matches_any, number

#: ``open`` is a goal not reached yet; the others are as they read.
Status = Literal["pass", "fail", "unmeasured", "waived", "open"]
WaiverState = Literal["holds", "exceeded", "not needed", "expired", "idle"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one budget on one subject.

    Args:
        budget: its name; ``builds``, ``correct``, ``runs`` and ``as_planned`` need no budget.
        limit: what was promised, as text: ``≤ 128``.
        source: where the promise comes from.
        fact_source: where the value was read; ``None`` if it was not.
        reason: why it is not a plain pass, for people.
        cause: why it is unmeasured.
        required: whether an unmeasured value here makes the gate exit 3.
        progress: for a goal, 1.0 when reached: target over value, or value over target.
    """

    budget: str
    fact: str
    subject: Subject
    tier: Tier
    severity: Severity
    status: Status
    value: Value | None
    unit: str
    limit: str
    source: str
    fact_source: Source | None = None
    reason: str = ""
    cause: Cause | None = None
    required: bool = False
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class WaiverUse:
    """What a waiver did.

    ``holds`` covers a miss; ``exceeded`` met a value worse than accepted; ``not needed`` covers
    nothing, since all that it names is within the limit; ``expired`` is past its date; ``idle`` met
    no measured value. ``worst`` is the value farthest from the limit among those it names.
    """

    waiver: Waiver
    state: WaiverState
    covers: int
    worst: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts in the order of the budgets, and the exit code they lead to.

    Args:
        left_out: (variant, arch or shape) pairs that the manifest declares unsupported.
        relaxed: rules of the manifest that are looser than the default rules, with their reasons.
        trouble: why static facts cannot be judged at all on this machine; never a regression.
        chips: of which this is a judgement, where it is of several; see :mod:`flashcore.gate.together`.
    """

    verdicts: tuple[Verdict, ...]
    waivers: tuple[WaiverUse, ...]
    notes: tuple[str, ...]
    left_out: int
    require: Tier
    exit_code: Exit
    relaxed: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()

    @property
    def limits(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.severity == "limit")

    @property
    def goals(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.severity == "goal")

    def counts(self, severity: Severity = "limit") -> Counter[Status]:
        """How many verdicts of that severity have each status."""
        return Counter(v.status for v in self.verdicts if v.severity == severity)

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.limits if v.status == "fail")

    @property
    def waived(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.limits if v.status == "waived")

    @property
    def gaps(self) -> tuple[Verdict, ...]:
        """Limits that are unmeasured though required."""
        return tuple(v for v in self.limits if v.required and v.status == "unmeasured")

    @property
    def own_gaps(self) -> tuple[Verdict, ...]:
        """The gaps that a build which failed does not explain: that failure stands for the others."""
        return tuple(v for v in self.gaps if not isinstance(v.cause, DidNotCompile))

    @property
    def loosened(self) -> tuple[WaiverUse, ...]:
        """The waivers that loosen a limit now."""
        return tuple(w for w in self.waivers if w.state in ("holds", "exceeded"))


def judge(
    record: Record,
    *,
    require: Tier = "static",
    today: date | None = None,
    variants: Collection[str] | None = None,
    baseline: Baseline | None = None,
    insisted: Collection[str] = (),
) -> Judgement:
    """Judges ``record`` by the budgets of its suite.

    Static facts compare within one nvcc release. Made by another one, they are *unmeasured*, and the exit
    code is that of a machine which cannot do it.

    Args:
        require: the highest tier in which an unmeasured limit exits 3.
        today: the day that waivers' dates are compared with; without it none is expired, and a note
            says so.
        variants: judge only these, by name (what an inner loop has built); all if ``None``.
        baseline: earlier static facts that the present ones are compared with.
        insisted: budgets, by name, whose facts are required whatever their tier.
    """
    return _Judge(record, require, today, variants, baseline, insisted).judge()


_ALL_VARIANTS = "every variant"
_LIMITS = {
    "builds": "compiles",
    CORRECT: "within its tolerance class",
    RUNS: "no stage fails",
    AS_PLANNED: "launches what its plan says",
}
_PLANNED = Budget(AS_PLANNED, "plan_matches", "1", "counters", "limit", _ALL_VARIANTS, minimum=1)
_IMPLICIT = {name: Budget(name, name, "1", "counters", "limit", _ALL_VARIANTS, maximum=0) for name in _LIMITS}


@dataclass(slots=True)
class _Tally:
    """What a waiver has covered so far."""

    covers: int = 0
    exceeded: int = 0
    measured: int = 0
    needed: int = 0
    worst: float | None = None
    worst_by: float = -math.inf


@dataclass
class _Judge:
    """Judges one record; see :func:`judge` for the fields."""

    record: Record
    require: Tier
    today: date | None
    variants: Collection[str] | None
    baseline: Baseline | None
    insisted: Collection[str]

    def __post_init__(self) -> None:
        self.trouble = self._incomparable()
        self.required_tiers = TIERS[: TIERS.index(self.require) + 1]
        self.expansion = Expansion(self.record, self.variants)
        self.waivers: dict[str, list[tuple[Waiver, _Tally]]] = {}
        for waiver in self.record.suite.waivers:
            self.waivers.setdefault(waiver.budget, []).append((waiver, _Tally()))

    def judge(self) -> Judgement:
        verdicts = [*self._builds(), *self._correct(), *self._runs(), *self._plans()]
        for budget in (_PLANNED, *self.record.suite.budgets):
            verdicts += [self._verdict(budget, expectation) for expectation in self.expansion.expand(budget)]
        comparison = Comparison()
        if self.baseline is not None:
            comparison = compare(self.record, self.baseline, self.variants, self.today)
            verdicts += [self._verdict(budget, expectation) for budget, expectation in comparison.expectations]
        return Judgement(
            tuple(verdicts),
            tuple(self._use(w, t) for pairs in self.waivers.values() for w, t in pairs),
            (*self._notes(), *comparison.notes, *_overall_notes(verdicts)),
            len(self.expansion.left_out),
            self.require,
            self._exit(verdicts),
            comparison.relaxed,
            tuple(self.trouble.values()),
        )

    def _incomparable(self) -> dict[str, str]:
        """Compiler → why its static facts here cannot be compared with the suite's budgets."""
        suite = self.record.suite
        messages = {} if self.baseline is None else another_compiler(self.record, self.baseline)
        for compiler, version in compilers(self.record).items():
            expected = suite.languages.get(compiler, suite.nvcc)
            if ".".join(version.split(".")[:2]) != expected:
                messages[compiler] = (
                    f"built with {compiler} {version}, but the static budgets were set with {expected}: "
                    "static facts compare only within one release"
                )
        return messages

    def _foreign(self, fact: str, variant: str) -> OtherCompiler | None:
        """Why a static fact made here cannot be judged; ``None`` if it can. Formulas depend on no compiler."""
        compiled = fact == "builds" or FACTS[fact].group == "static"
        known_variant = self.record.suite.variants.get(variant)
        compiler = "nvcc" if known_variant is None else known_variant.kind.compiler
        return OtherCompiler(self.trouble[compiler]) if compiled and compiler in self.trouble else None

    def _exit(self, verdicts: Sequence[Verdict]) -> Exit:
        if any(v.status == "fail" for v in verdicts):
            return Exit.FAILED
        if self.trouble:
            return Exit.INCAPABLE
        if any(v.required and v.status == "unmeasured" for v in verdicts) or not _judged(verdicts):
            return Exit.UNMEASURED
        return Exit.OK

    # --- what is promised without a budget ------------------------------------------------------

    def _builds(self) -> Iterator[Verdict]:
        for variant in self.expansion.variants:
            # Imported kernels are not built here; nor, where CUDA_ARCH names one, are other archs.
            archs = [a for a in variant.where.archs if a in self.record.suite.archs]
            for arch in () if variant.imported else archs:
                artifact = self.expansion.artifacts.get((variant.name, arch))
                status: Status = "pass"
                reason = ""
                if artifact is None:
                    status, reason = "unmeasured", text(NotBuilt())
                elif artifact.status == "failed":
                    status, reason = "fail", artifact.message or "the build failed"
                    if foreign := self._foreign("builds", variant.name):
                        status, reason = "unmeasured", f"{text(foreign)}; {reason}"
                elif artifact.status == "unsupported":
                    self.expansion.left_out.add((variant.name, arch))
                    continue
                yield self._implicit("builds", Subject(variant.name, arch), "static", status, reason)

    def _correct(self) -> Iterator[Verdict]:
        for variant in self.expansion.variants:
            for shape in self.expansion.shapes(variant, ("*",), "check"):
                subject = Subject(variant.name, shape=shape)
                status, cause = self.expansion.outcome(variant.name, shape, "check")
                if status == "unsupported":
                    self.expansion.left_out.add((variant.name, shape))
                    continue
                if status == "skipped":
                    yield self._implicit(CORRECT, subject, "counters", "unmeasured", text(cause))
                else:
                    yield self._missed(CORRECT, subject, int(status == "failed"), text(cause))

    def _runs(self) -> Iterator[Verdict]:
        """Of each case that was run at all after its check: whether a stage failed on it, or timed it below what
        any resource allows."""
        failures: dict[tuple[str, str], list[str]] = {}
        for o in self.record.outcomes:
            if o.stage != "check" and o.status in ("ok", "failed"):
                failed = [f"{o.stage}: {o.reason or 'no reason given'}"] if o.status == "failed" else []
                failures.setdefault((o.variant, o.shape), []).extend(failed)
        for bounds in case_bounds(self.record) if failures else ():
            case = (bounds.subject.variant, bounds.subject.shape or "")
            for gap in bounds.gaps:
                # Launches can overlap back to back: bench itself compares those times with the empty launch.
                if case in failures and gap.floor.resource != "launch" and gap.ratio < LEAST_OF_FLOOR:
                    void = BelowFloor(gap.time, gap.time_us, gap.floor.resource, gap.floor_us)
                    failures[case].append(f"bench: {text(void)}")
        imported = {v.name: bool(v.imported) for v in self.expansion.variants}
        for (variant, shape), failed in failures.items():
            # Reading a report runs nothing, so it keeps no promise.
            if variant in imported and (failed or not imported[variant]):
                yield self._missed(RUNS, Subject(variant, shape=shape), len(failed), "; ".join(failed))

    def _plans(self) -> Iterator[Verdict]:
        """Launch plans that crash, refuse a shape that the manifest promises, or name a kernel that was not built."""
        judged = {v.name for v in self.expansion.variants}
        for plan in self.record.plans:
            subject = Subject(plan.variant, shape=plan.shape)
            if plan.variant not in judged:
                continue
            if plan.cause:
                yield self._missed(AS_PLANNED, subject, 1, f"{plan.error} (shapes that it does not support: `where`)")
            names = dict.fromkeys(launch.kernel for launch in plan.launches)
            for arch in self.record.suite.archs:
                built = self.expansion.kernels.get((plan.variant, arch))
                if built and (missing := [n for n in names if n not in built]):
                    reason = f"its launch plan names {', '.join(missing)}; built are {', '.join(built)}"
                    yield self._missed(AS_PLANNED, replace(subject, arch=arch), 1, reason)

    def _missed(self, name: str, subject: Subject, times: int, reason: str) -> Verdict:
        """An implicit promise that failed so many times; a waiver may accept it."""
        status, waived = self._limit(_IMPLICIT[name], subject, times)
        return self._implicit(name, subject, "counters", status, "; ".join(filter(None, (waived, reason))))

    def _implicit(self, name: str, subject: Subject, tier: Tier, status: Status, reason: str) -> Verdict:
        return Verdict(
            budget=name,
            fact=name,
            subject=subject,
            tier=tier,
            severity="limit",
            status=status,
            value=None if status == "unmeasured" else status == "pass",
            unit="",
            limit=_LIMITS[name],
            source=_ALL_VARIANTS,
            reason=reason,
            required=tier in self.required_tiers,
        )

    # --- verdicts -------------------------------------------------------------------------------

    def _verdict(self, budget: Budget, expectation: Expectation) -> Verdict:
        subject, fact, other_gpu = expectation.subject, expectation.fact, expectation.other_gpu
        value, cause = _number(fact)
        if budget.tier == "static" and (foreign := self._foreign(budget.fact, subject.variant)):
            value, cause = None, foreign
        status: Status
        progress = None
        if value is None:
            cause = other_gpu or cause or expectation.cause
            status, reason = "unmeasured", text(cause)
        elif budget.severity == "goal":
            progress = _progress(budget, value)
            status, reason = ("pass" if excess(budget, value) <= 0 else "open"), ""
        else:
            status, reason = self._limit(budget, subject, value)
            if status in ("fail", "waived"):
                reason = "; ".join(
                    filter(None, (reason, advice(self.record, self.expansion.plans, budget.fact, subject)))
                )
        return Verdict(
            budget=budget.name,
            fact=budget.fact,
            subject=subject,
            tier=budget.tier,
            severity=budget.severity,
            status=status,
            value=None if value is None or fact is None else fact.value,
            unit=budget.unit,
            limit=limit_text(budget),
            source=budget.source,
            fact_source=fact.source if fact else None,
            reason=reason,
            cause=cause if value is None else None,
            required=budget.severity == "limit"
            and not other_gpu
            and (budget.tier in self.required_tiers or budget.name in self.insisted),
            progress=progress,
        )

    def _limit(self, budget: Budget, subject: Subject, value: float) -> tuple[Status, str]:
        over = excess(budget, value)
        status: Status = "pass" if over <= 0 else "fail"
        reasons: list[str] = []
        for waiver, tally in self.waivers.get(budget.name, ()):
            if not self._names(waiver, subject):
                continue
            tally.measured += 1
            if over > tally.worst_by:
                tally.worst_by, tally.worst = over, value
            if over <= 0:
                continue
            tally.needed += 1
            if self._expired(waiver):
                reasons.append(f"its waiver expired on {waiver.expires}: {waiver.reason}")
            elif accepts(budget, waiver, value):
                tally.covers += 1
                if status != "waived":
                    accepted = number(waiver.accepted, budget.unit)
                    status, reasons = "waived", [f"accepted up to {accepted}: {waiver.reason}"]
            else:
                tally.exceeded += 1
                accepted, measured = number(waiver.accepted, budget.unit), number(value, budget.unit)
                reasons.append(f"{measured} is worse than the {accepted} that its waiver accepts")
        return status, "; ".join(reasons[:1] if status == "waived" else reasons)

    def _names(self, waiver: Waiver, subject: Subject) -> bool:
        arch = subject.arch or self.record.gpu_arch
        return all(
            "*" in globs or (name is not None and matches_any(name, globs))
            for name, globs in (
                (subject.variant, waiver.variants),
                (arch, waiver.archs),
                (subject.shape, waiver.shapes),
                (subject.kernel, waiver.kernels),
            )
        )

    def _expired(self, waiver: Waiver) -> bool:
        return bool(waiver.expires and self.today and date.fromisoformat(waiver.expires) < self.today)

    def _use(self, waiver: Waiver, tally: _Tally) -> WaiverUse:
        state: WaiverState = "idle"
        if self._expired(waiver):
            state = "expired"
        elif tally.exceeded:
            state = "exceeded"
        elif tally.covers:
            state = "holds"
        elif tally.measured and not tally.needed:
            state = "not needed"
        return WaiverUse(waiver, state, tally.covers, tally.worst)

    def _notes(self) -> Iterator[str]:
        suite = self.record.suite
        yield from self.trouble.values()
        if self.today is None and any(w.expires for w in suite.waivers):
            yield "no date was given: no waiver counts as expired"
        if {arch for v in suite.variants.values() for arch in v.where.archs} - {*suite.archs}:
            yield f"judged only for {', '.join(suite.archs)}: CUDA_ARCH names no other arch"
        for outcome in self.record.outcomes:
            variant = suite.variants.get(outcome.variant)
            if variant is not None and variant.is_reference and outcome.status == "failed":
                yield f"peer {outcome.case} failed in {outcome.stage}: {outcome.reason}"


def _judged(verdicts: Iterable[Verdict]) -> bool:
    """Whether any limit was judged at all: without one nothing has passed."""
    return any(v.severity == "limit" and v.status in ("pass", "fail", "waived") for v in verdicts)


def _overall_notes(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """What a reader should know about the verdicts as a whole."""
    if not _judged(verdicts):
        yield "nothing was judged: there is no variant with a limit, or nothing of it is known"
    counts: dict[str, Counter[Status]] = {}
    for v in verdicts:
        if v.severity == "limit" and v.status != "unmeasured":
            counts.setdefault(v.budget, Counter())[v.status] += 1
    build_gaps = Counter(v.subject.variant for v in verdicts if isinstance(v.cause, DidNotCompile))
    for variant, gaps in build_gaps.items():
        yield f"{variant}: {gaps} facts are unmeasured, as it does not build"
    for name, count in counts.items():
        if (waived := count["waived"]) > 1 and waived == count.total():
            yield f'{name}: all {waived} of {waived} are waived: that is a goal (severity = "goal"), not a limit'


def _number(fact: Fact | None) -> tuple[float | None, Cause | None]:
    """A fact's finite value, or ``None`` and the cause (none if there is no fact)."""
    if fact is None or fact.value is None:
        return None, fact.cause if fact else None
    value = fact.number
    if value is None or not math.isfinite(value):
        return None, Impossible("a finite number", repr(fact.value))
    return value, None


def _progress(budget: Budget, value: float) -> float:
    if excess(budget, value) <= 0:
        return 1.0
    if budget.maximum is not None and value > budget.maximum:
        return max(0.0, budget.maximum / value) if value > 0 else 0.0
    assert budget.minimum is not None
    return max(0.0, value / budget.minimum) if budget.minimum > 0 else 0.0
