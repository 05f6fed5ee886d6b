"""Compares a record with its suite's budgets. The verdicts depend on nothing else.

It fails closed. A budget is expanded over all its variants, archs, shapes and kernels before any fact is read, so a
fact that is missing, stale or not a number is *unmeasured*, never skipped. Four limits need no budget: every variant
builds for each of its archs, its answers are right, no stage fails on it, and its launches match its plan.

A missed limit fails unless a waiver accepts the value. A goal never fails.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Literal, NamedTuple

from flashcore.chips import occupancy
from flashcore.errors import Exit
from flashcore.explain.advice import for_fact
from flashcore.explain.comparison import Comparison
from flashcore.explain.readings import Readings
from flashcore.explain.roofline import case_bounds
from flashcore.explain.verdict import Status, Verdict, Verdicts
from flashcore.explain.verdict_note import note_on
from flashcore.gate.baseline import Baseline, compilers
from flashcore.gate.expand import Expansion, Expectation, accepts, excess, expired, headroom, in_scope, limit_text
from flashcore.gate.regressions import BaselineLimits, another_compiler, changed, limits
from flashcore.model import plugin
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import Cause, cause_text
from flashcore.model.causes import (
    BELOW_FLOOR,
    IMPOSSIBLE,
    NOT_BUILT,
    NOT_RECORDED,
    OTHER_COMPILER,
    DidNotCompile,
    DoesNotFit,
    LibraryLaunches,
    MachineStopped,
    NotLaunched,
)
from flashcore.model.gate_policy import AS_PLANNED, CORRECT, RUNS
from flashcore.model.groups import grouped
from flashcore.model.record import (
    CaseSubject,
    CodeSubject,
    Fact,
    Launch,
    Record,
    Subject,
    unlaunched_note,
)
from flashcore.model.suite import TIERS, Budget, Tier, Waiver
from flashcore.model.text import count, number

#: A passing limit with less relative headroom may be at risk.
AT_RISK = 0.05
WaiverState = Literal["holds", "exceeded", "not needed", "expired", "idle"]


@dataclass(frozen=True, slots=True)
class WaiverUse:
    """The effect of a waiver.

    Its state is ``holds`` if it covers a miss, ``exceeded`` if a value is worse than accepted, ``not needed`` if all
    values are within the limit, ``expired`` after its date, and ``idle`` without a measured value. ``covers`` counts
    the covered misses; ``worst`` is the value farthest from the limit.
    """

    waiver: Waiver
    state: WaiverState
    covers: int
    worst: float | None


@dataclass(frozen=True, slots=True)
class Judgement(Verdicts):
    """All verdicts in the order of the budgets, and the resulting exit code.

    Args:
        left_out: the number of (variant, arch or shape) pairs that are declared unsupported.
        relaxed: rules of the manifest that are looser than the defaults, with their reasons.
        trouble: why static facts cannot be checked on this machine; never a regression.
        changed: what changed of the code since the baseline, or the base revision's; ``None`` without one.
    """

    waivers: tuple[WaiverUse, ...]
    notes: tuple[str, ...]
    left_out: int
    require: Tier
    exit_code: Exit
    relaxed: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
    changed: Comparison | None = None

    @property
    def gaps(self) -> tuple[Verdict, ...]:
        """Required limits that are unmeasured."""
        return tuple(v for v in self.limits if v.required and v.status == "unmeasured")

    @property
    def unexplained_gaps(self) -> tuple[Verdict, ...]:
        """The gaps not caused by a failed build, which is reported separately."""
        return tuple(v for v in self.gaps if not isinstance(v.cause, DidNotCompile))

    @property
    def loosened(self) -> tuple[WaiverUse, ...]:
        """The waivers that apply to a miss."""
        return tuple(w for w in self.waivers if w.state in ("holds", "exceeded"))


def judge(
    record: Record,
    *,
    require: Tier = "static",
    today: date | None = None,
    variants: Collection[str] | None = None,
    baseline: Baseline | None = None,
    required_budgets: Collection[str] = (),
) -> Judgement:
    """Compares ``record`` with the budgets of its suite.

    Static facts compare within one compiler release. Those of another release are *unmeasured*, and the exit code is
    4.

    Args:
        require: the highest tier in which an unmeasured limit exits 3.
        today: the date for the expiry of waivers; without it none expires, and a note says so.
        variants: check only these, by name, such as those that an inner loop built; all if ``None``.
        baseline: earlier static facts to compare with.
        required_budgets: names of budgets whose facts are required in any tier.
    """
    compared = BaselineLimits() if baseline is None else limits(record, baseline, variants, today)
    expansion, others = Expansion(record, variants), _other_compilers(record, baseline)
    required = _Required(TIERS[: TIERS.index(require) + 1], required_budgets)
    gate = _Gate(record, expansion, required, today, others, compared.before)
    verdicts = [*gate.builds(), *gate.correct(), *gate.runs(), *gate.plans()]
    for budget in (_PLANNED, *record.suite.budgets):
        verdicts += gate.verdicts(budget, gate.expansion.expand(budget))
    for budget, expectations in compared.expectations:
        verdicts += gate.verdicts(budget, expectations)
    for table in record.suite.tables:
        if of_table := plugin.entry("verdicts", table):
            verdicts = [*plugin.resolve(of_table)(record, verdicts)]
        elif plugin.entry("tables", table) is None:
            verdicts.append(gate.unprovided(table))
    trouble = (*gate.trouble.values(), *gate.stopped)
    return Judgement(
        tuple(verdicts),
        tuple(gate.uses()),
        (*record.environment_notes(), *gate.notes(), *compared.notes, *_overall_notes(verdicts)),
        len(gate.expansion.left_out),
        require,
        _exit(verdicts, trouble),
        compared.relaxed,
        trouble,
        None if baseline is None else changed(record, baseline, variants),
    )


def _exit(verdicts: Sequence[Verdict], trouble: Collection[str]) -> Exit:
    if any(v.status == "fail" for v in verdicts):
        return Exit.FAILED
    if trouble:
        return Exit.INCAPABLE
    if any(v.required and v.status == "unmeasured" for v in verdicts) or not _any_measured(verdicts):
        return Exit.UNMEASURED
    return Exit.OK


_ALL_VARIANTS = "every variant"
_LIMITS = {
    "builds": "it compiles",
    CORRECT: "answers within its tolerance class",
    RUNS: "every stage succeeds",
    AS_PLANNED: "the launches of its plan",
}
_PLANNED = Budget(AS_PLANNED, "plan_matches", "1", "counters", "limit", _ALL_VARIANTS, minimum=1)
_IMPLICIT = {name: Budget(name, name, "1", "counters", "limit", _ALL_VARIANTS, maximum=0) for name in _LIMITS}

#: From weakest to strongest.
WAIVER_STATES: tuple[WaiverState, ...] = ("idle", "not needed", "expired", "holds", "exceeded")


class _Required(NamedTuple):
    """The tiers, and the names of the budgets in any tier, whose unmeasured limits exit 3."""

    tiers: Collection[Tier]
    budgets: Collection[str]

    def needs(self, budget: Budget) -> bool:
        return budget.tier in self.tiers or budget.name in self.budgets


def _other_compilers(record: Record, baseline: Baseline | None) -> dict[str, str]:
    """By compiler, why its static facts cannot be compared with the suite's budgets or baseline."""
    trouble = {} if baseline is None else another_compiler(record, baseline)
    for compiler, version in compilers(record).items():
        expected = record.suite.languages.get(compiler, record.suite.nvcc)
        if ".".join(version.split(".")[:2]) != expected:
            trouble[compiler] = (
                f"built with {compiler} {version}, but the static budgets were set with {expected}: "
                "static facts compare only within one release"
            )
    return trouble


class _Gate:
    """The verdicts on one record; :func:`judge` describes the arguments.

    Args:
        trouble: by compiler, why its static facts cannot be compared with the suite's budgets.
        before: the baseline's values, by the name and the subject of the fact.
    """

    def __init__(
        self,
        record: Record,
        expansion: Expansion,
        required: _Required,
        today: date | None,
        trouble: Mapping[str, str],
        before: Mapping[tuple[str, Subject], float],
    ) -> None:
        self.record = record
        self.before = before
        self.budgets = {budget.name for budget in record.suite.budgets}
        self.required = required
        self.today = today
        self.expansion = expansion
        self.trouble = trouble
        self.stopped: list[str] = []  # builds and plans that the machine stopped, with the reason
        #: By budget, each waiver with the values that it was applied to: excess over the limit, value, state.
        self.waivers = grouped((w.budget, (w, list[tuple[float, float, WaiverState]]())) for w in record.suite.waivers)

    @cached_property
    def readings(self) -> Readings:
        """The record's readings, for advice on failures."""
        return Readings(self.record)

    def _foreign(self, fact: str, variant: str) -> Cause | None:
        """Why a static fact cannot be compared; ``None`` if it can. Formulas do not depend on a compiler."""
        if not self.trouble or (fact != "builds" and FACTS[fact].group != "static"):
            return None
        declared = self.record.suite.variants.get(variant)
        trouble = self.trouble.get(declared.kind.compiler if declared else "nvcc")
        return OTHER_COMPILER(trouble) if trouble else None

    # --- limits without a budget ----------------------------------------------------------------

    def builds(self) -> Iterator[Verdict]:
        for variant in self.expansion.variants:
            # Imported kernels are not built; with CUDA_ARCH, other archs are not built either.
            archs = [a for a in variant.where.archs if a in self.record.suite.archs]
            for arch in () if variant.imported else archs:
                artifact = self.expansion.artifacts.get((variant.name, arch))
                status: Status = "pass"
                reason = ""
                if artifact is None:
                    status, reason = "unmeasured", cause_text(NOT_BUILT())
                elif isinstance(artifact.cause, MachineStopped):
                    status, reason = "unmeasured", artifact.message
                    self.stopped.append(f"{variant.name} for {arch}: {reason}")
                elif artifact.status == "failed":
                    status, reason = "fail", artifact.message.partition("\n")[0] or "the build failed"
                    if foreign := self._foreign("builds", variant.name):
                        status, reason = "unmeasured", f"{cause_text(foreign)}; {reason}"
                elif artifact.status == "unsupported":
                    self.expansion.left_out.add((variant.name, arch))
                    continue
                yield self._implicit("builds", CodeSubject(variant.name, arch), "static", status, reason)

    def correct(self) -> Iterator[Verdict]:
        for variant in self.expansion.variants:
            for shape in self.expansion.shapes(variant, ("*",), "check"):
                subject = CaseSubject(Case(variant.name, shape))
                outcome = self.expansion.outcome(subject.case, "check")
                if outcome.status == "unsupported":
                    self.expansion.left_out.add((variant.name, shape))
                elif outcome.status == "skipped":
                    yield self._implicit(CORRECT, subject, "counters", "unmeasured", outcome.reason)
                else:
                    yield self._missed(CORRECT, subject, int(outcome.status == "failed"), outcome.reason)

    def runs(self) -> Iterator[Verdict]:
        """For each case that ran after its check: failed stages, and times below the floor."""
        failures: dict[Subject, list[str]] = {}
        for o in self.record.outcomes:
            if o.stage != "check" and o.status in ("ok", "failed"):
                failed = [f"{o.stage}: {o.reason or 'no reason given'}"] if o.status == "failed" else []
                failures.setdefault(CaseSubject(o.case), []).extend(failed)
        for bounds in case_bounds(self.record) if failures else ():
            for gap in bounds.gaps:
                # Launches can overlap back to back, so bench compares those times with an empty launch.
                if bounds.subject in failures and gap.largest.resource != "launch" and gap.is_impossible:
                    void = BELOW_FLOOR(gap.time, gap.time_us, gap.largest.resource, gap.least_us)
                    failures[bounds.subject].append(f"bench: {cause_text(void)}")
        imported = {v.name: bool(v.imported) for v in self.expansion.variants}
        for subject, failed in failures.items():
            # Importing a report runs nothing, so it cannot pass.
            if subject.variant in imported and (failed or not imported[subject.variant]):
                yield self._missed(RUNS, subject, len(failed), "; ".join(failed))

    def plans(self) -> Iterator[Verdict]:
        """Launch plans that crash, refuse a shape, name a kernel that was not built, or that no GPU of an arch can
        launch."""
        variants = {v.name for v in self.expansion.variants}
        for plan in self.record.plans:
            if plan.variant not in variants:
                continue
            subject = CaseSubject(plan.case)
            archs = plan.archs or self.record.suite.archs
            for place in (replace(subject, arch=arch) for arch in archs if plan.cause):
                if stopped := isinstance(plan.cause, MachineStopped):
                    self.stopped.append(f"{place}: {plan.error}")
                if stopped or plan.can_run:  # its launches are unknown
                    tier: Tier = "counters" if isinstance(plan.cause, LibraryLaunches) else "static"
                    yield self._implicit(AS_PLANNED, place, tier, "unmeasured", plan.error)
                else:
                    hint = "" if plan.failed else " (exclude unsupported shapes by `where`)"
                    yield self._missed(AS_PLANNED, place, 1, plan.error + hint)
            names = dict.fromkeys(launch.kernel for launch in plan.launches)
            for arch in archs:
                built = self.expansion.kernels.get((plan.variant, arch), {})
                if built and (missing := [n for n in names if n not in built]):
                    reason = f"its launch plan names {', '.join(missing)}; the built kernels are {', '.join(built)}"
                    yield self._missed(AS_PLANNED, replace(subject, arch=arch), 1, reason)
                launches = dict.fromkeys(launch for launch in plan.launches if launch.kernel in built)
                refusals = dict.fromkeys((x.kernel, self._refusal(plan.variant, arch, x)) for x in launches)
                for kernel, cause in refusals:
                    place = replace(subject, arch=arch, kernel=kernel)
                    if isinstance(cause, DoesNotFit):
                        yield self._missed(AS_PLANNED, place, 1, f"no GPU of this arch can launch it: {cause.text}")
                    elif cause:
                        yield self._implicit(AS_PLANNED, place, "static", "unmeasured", cause_text(cause))

    def _refusal(self, variant: str, arch: str, launch: Launch) -> Cause | None:
        """Why no GPU of the arch can run the launch, or why that is unknown; ``None`` if one can."""
        facts = self.record.facts.about(CodeSubject(variant, arch, kernel=launch.kernel))
        kernel = {f.name: int(value) for f in facts if (value := _number(f)[0]) is not None}
        if not kernel.keys() >= {"registers", "static_smem"}:
            return NOT_RECORDED()
        return occupancy.launch_refusal(arch, launch, kernel)

    def _missed(self, name: str, subject: Subject, times: int, reason: str) -> Verdict:
        """The verdict on an implicit limit with that many failures; a waiver may accept them."""
        status, waived = self._limit(_IMPLICIT[name], subject, times)
        return self._implicit(name, subject, "counters", status, "; ".join(filter(None, (waived, reason))))

    def unprovided(self, table: str) -> Verdict:
        """A table of the suite that nothing here judges."""
        reason = f"no installed extension provides [{table}]: docs/reference/extensions.md"
        return self._implicit(table, CodeSubject(""), "static", "unmeasured", reason)

    def _implicit(self, name: str, subject: Subject, tier: Tier, status: Status, reason: str) -> Verdict:
        return Verdict(
            budget=name,
            fact=name,
            subject=subject,
            tier=tier,
            status=status,
            value=None if status == "unmeasured" else status == "pass",
            limit=_LIMITS.get(name, "judged by its extension"),
            source=_ALL_VARIANTS,
            reason=reason,
            required=tier in self.required.tiers,
        )

    # --- verdicts -------------------------------------------------------------------------------

    def verdicts(self, budget: Budget, expectations: Iterable[Expectation]) -> Iterator[Verdict]:
        """The outcome of a budget on each of its subjects."""
        limit = limit_text(budget)
        required = budget.severity == "limit" and self.required.needs(budget)
        for expectation in expectations:
            subject, fact, other_gpu = expectation.subject, expectation.fact, expectation.other_gpu
            value, cause = _number(fact)
            if budget.tier == "static" and (foreign := self._foreign(budget.fact, subject.variant)):
                value, cause = None, foreign
            status: Status
            progress = None
            if value is None:
                cause = other_gpu or cause or expectation.cause
                status, reason = "unmeasured", cause_text(cause)
                if isinstance(cause, NotLaunched) and budget.severity == "limit":
                    status = "fail"
            elif budget.severity == "goal":
                progress = _progress(budget, value)
                status, reason = ("pass" if progress == 1.0 else "open"), ""
            else:
                status, reason = self._limit(budget, subject, value)
                if status != "pass":
                    more = note_on(self.record, self.expansion.plans.get(subject.arch, {}), budget.fact, subject)
                    reason = "; ".join(filter(None, (reason, more)))
            shown = None if value is None or fact is None else fact.value
            room = headroom(budget, shown) if budget.name in self.budgets else None
            yield Verdict(
                budget=budget.name,
                fact=budget.fact,
                subject=subject,
                tier=budget.tier,
                severity=budget.severity,
                status=status,
                value=shown,
                unit=budget.unit,
                limit=limit,
                source=budget.source,
                fact_source=fact.source if fact else None,
                reason=reason,
                cause=cause if value is None else None,
                required=required and not other_gpu,
                progress=progress,
                advice=for_fact(self.readings, budget.fact, subject) if status == "fail" else None,
                headroom=room,
                at_risk=status == "pass" and self._at_risk(budget, subject, room),
            )

    def _at_risk(self, budget: Budget, subject: Subject, room: float | None) -> bool:
        """Whether a limit's headroom is small and may be gone in the next run: it shrank since the baseline, or the
        value is measured, so it varies. An exact value that did not change is not at risk, however close it is."""
        if budget.severity != "limit" or room is None or room >= AT_RISK:
            return False
        before = headroom(budget, self.before.get((budget.fact, subject)))
        return budget.tier != "static" or (before is not None and room < before)

    def _limit(self, budget: Budget, subject: Subject, value: float) -> tuple[Status, str]:
        over = excess(budget, value)
        accepted, missed = [], []
        scope = subject if subject.arch else replace(subject, arch=self.record.gpu_arch)
        for waiver, met in self.waivers.get(budget.name, ()):
            if not in_scope(waiver, scope, unknown=False):
                continue
            state: WaiverState = "not needed"
            limit = number(waiver.accepted, budget.unit)
            if expired(waiver, self.today):
                state = "expired"
                missed.append(f"its waiver expired on {waiver.expires}: {waiver.reason}")
            elif over > 0 and accepts(budget, waiver, value):
                state = "holds"
                accepted.append(f"accepted up to {limit}: {waiver.reason}")
            elif over > 0:
                state = "exceeded"
                missed.append(f"{number(value, budget.unit)} is worse than the {limit} that its waiver accepts")
            met.append((over, value, state))
        if over <= 0:
            return "pass", ""
        return ("waived", accepted[0]) if accepted else ("fail", "; ".join(missed))

    def uses(self) -> Iterator[WaiverUse]:
        """The effect of each waiver."""
        for waiver, met in (pair for pairs in self.waivers.values() for pair in pairs):
            states: list[WaiverState] = [state for *_, state in met]
            idle: WaiverState = "expired" if expired(waiver, self.today) else "idle"
            worst = max(met, key=lambda value: value[0], default=None)
            yield WaiverUse(
                waiver,
                max(states, key=WAIVER_STATES.index, default=idle),
                states.count("holds"),
                worst[1] if worst else None,
            )

    def notes(self) -> Iterator[str]:
        suite = self.record.suite
        yield from self.trouble.values()
        if self.today is None and any(w.expires for w in suite.waivers):
            yield "without a date, no waiver counts as expired"
        if {arch for v in suite.variants.values() for arch in v.where.archs} - {*suite.archs}:
            yield f"checked only for {', '.join(suite.archs)}: no other arch was selected"
        yield from unlaunched_note(self.record.artifacts)
        built = grouped(((a.arch, a.code, a.unlaunched), a.variant) for a in self.record.artifacts if a.code)
        identical = grouped((", ".join(same), arch) for (arch, *_), same in built.items() if len(same) > 1)
        for variants, archs in identical.items():
            yield f"the machine code of {variants} is identical ({', '.join(archs)})"
        for outcome in self.record.outcomes:
            variant = suite.variants.get(outcome.variant)
            if variant is not None and variant.is_reference and outcome.status == "failed":
                yield f"reference {outcome.case} failed in {outcome.stage}: {outcome.reason}"


def _any_measured(verdicts: Iterable[Verdict]) -> bool:
    """Whether any limit was measured; otherwise nothing has passed."""
    return any(v.severity == "limit" and v.status != "unmeasured" for v in verdicts)


def _overall_notes(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Notes on the verdicts as a whole."""
    if not _any_measured(verdicts):
        yield "nothing was checked: no variant has a limit, or no fact of one was measured"
    build_gaps = Counter(v.subject.variant for v in verdicts if isinstance(v.cause, DidNotCompile))
    for variant, gaps in build_gaps.items():
        yield f"{variant}: {count(gaps, 'fact')} not measured, because it did not compile"
    limits = grouped((v.budget, v.status) for v in verdicts if v.severity == "limit" and v.status != "unmeasured")
    for name, statuses in limits.items():
        if len(statuses) > 1 and {*statuses} == {"waived"}:
            yield f'{name}: all {len(statuses)} verdicts are waived: consider a goal (severity = "goal")'


def _number(fact: Fact | None) -> tuple[float | None, Cause | None]:
    """A fact's finite value, or ``None`` and the cause, if there is a fact."""
    if fact is None or fact.value is None:
        return None, fact.cause if fact else None
    value = fact.number
    if value is None or not math.isfinite(value):
        return None, IMPOSSIBLE("a finite number", repr(fact.value))
    return value, None


def _progress(budget: Budget, value: float) -> float:
    """1.0 for a reached goal, else target over value or value over target."""
    if excess(budget, value) <= 0:
        return 1.0
    if budget.maximum is not None and value > budget.maximum:
        part, whole = budget.maximum, value
    else:
        part, whole = value, budget.minimum or 0.0
    return max(0.0, part / whole) if whole > 0 else 0.0
