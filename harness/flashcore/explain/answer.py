"""Answers the four questions of a case: is it correct, is it faster, what limits it, did it miss a budget.

Terminal, brief, ``watch``, Markdown and pages show this object. A figure that two of them show is one attribute of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from typing import Literal

from flashcore.explain import times
from flashcore.explain.advice import Advice, advice, unadvised
from flashcore.explain.limiter import TimeParts, time_parts
from flashcore.explain.readings import Readings
from flashcore.explain.resources import Part
from flashcore.explain.roofline import Gap
from flashcore.explain.rows import Row
from flashcore.explain.times import Speedup
from flashcore.explain.verdict import Verdict, Verdicts
from flashcore.model import intervals
from flashcore.model.case import Case
from flashcore.model.cause import Cause, Detail
from flashcore.model.causes import WrongAnswer
from flashcore.model.groups import grouped
from flashcore.model.record import CaseOutcome, Time
from flashcore.model.suite import TIMING_MODES, RankMode, TimingMode

#: What a variant's time is compared with.
Role = Literal["parent", "baseline", "reference", "last save", "best save", "commit"]


@dataclass(frozen=True, slots=True)
class Correctness:
    """Whether a variant's answers are correct.

    Args:
        status: ``wrong`` if they are on any shape; else the outcome of the case's own shape.
        correct: the number of shapes on which they are.
        wrong: the failed checks, the smallest problem first.
        unchecked: the checks without an outcome.
        error: the largest error, over that of its tolerance class.
        missing: why it is unmeasured.
    """

    status: Literal["correct", "wrong", "unmeasured"]
    correct: int
    wrong: tuple[CaseOutcome, ...]
    unchecked: tuple[CaseOutcome, ...]
    error: float | None
    missing: Cause | None

    @property
    def everywhere(self) -> Literal["correct", "wrong", "unmeasured"]:
        """Whether they are on all shapes that the variant supports."""
        if self.wrong:
            return "wrong"
        complete = self.correct and all(o.status == "unsupported" for o in self.unchecked)
        return "correct" if complete else "unmeasured"

    @property
    def smallest(self) -> str:
        """The smallest shape with wrong answers; empty if there is none."""
        return self.wrong[0].shape if self.wrong else ""

    @property
    def elements(self) -> Detail | None:
        """The first wrong element at that shape; ``None`` if unknown."""
        cause = self.wrong[0].cause if self.wrong else None
        return cause.elements if isinstance(cause, WrongAnswer) else None


@dataclass(frozen=True, slots=True)
class Duration:
    """A case's time in the mode that ranks on its shape, and what it is compared with.

    Args:
        us: the median; ``None`` if unmeasured.
        samples: each of them, µs.
        levels: its two levels in words; empty if it has only one.
        first_round: the number of samples in words, if it was timed no further after a first round; else empty.
        gap: the time over the floor of its problem.
        others: the medians in the other modes, µs.
        over: the speedup over the other of each role, which is that of its row of identical shapes.
        names: the variant of each role, empty for another build of the same one; a role without one is left out.
        pairs: the two cases that are compared.
        missing: why it is unmeasured.
    """

    case: Case
    mode: RankMode
    us: float | None
    samples: Sequence[float]
    levels: str
    first_round: str
    gap: Gap | None
    others: Mapping[TimingMode, float]
    over: Mapping[Role, Speedup]
    names: Mapping[Role, str]
    pairs: Mapping[Role, tuple[Case, Case]]
    missing: Cause | None

    def other(self, role: Role) -> str:
        """What the time is compared with: ``the parent fast``, ``the last save``."""
        return f"the {role} {self.names[role]}".rstrip()

    def pair(self, role: Role) -> str:
        """The two cases that are compared, if one is on a shape of another name than the case's; else empty."""
        pair = self.pairs.get(role, ())
        return " against ".join(map(str, pair)) if {x.shape for x in pair} - {self.case.shape} else ""

    @property
    def note(self) -> str:
        """What a reader of the median should know."""
        return self.levels or self.first_round

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median, µs; ``None`` without samples."""
        ratio = intervals.ratio(self.samples, (1.0,), paired=False) if self.samples else None
        return (ratio.low, ratio.high) if ratio else None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answers for one case.

    Args:
        parts: what takes the time; ``parts.limiter`` is the largest.
        uncounted: why no limiter is known.
        steps: all advice, the next step first.
        unadvised: the part of which the most lies above the floor, if no advice can remove some of it.
        budgets: the verdicts on its variant.
        nearest: each budget where the case is nearest to its limit, failed ones first, then by rising headroom. Limits
            that need no budget are there only if they failed.
    """

    case: Case
    correct: Correctness
    time: Duration
    parts: TimeParts
    uncounted: Cause | None
    steps: tuple[Advice, ...]
    unadvised: Part | None
    budgets: Verdicts
    nearest: tuple[Verdict, ...]


class Answers:
    """The answers for each case, made once.

    Args:
        verdicts: those of the command's judgement.
    """

    def __init__(self, readings: Readings, verdicts: Verdicts) -> None:
        self.readings = readings
        self._limits = {budget.name for budget in readings.record.suite.budgets}
        by_variant = grouped((v.subject.variant, v) for v in verdicts.verdicts)
        row = cache(lambda shape: Row(readings, readings.alike[shape]))
        self.budgets = cache(lambda variant: Verdicts(tuple(by_variant.get(variant, ()))))
        self.correct = cache(partial(_correctness, readings))
        self.time = cache(lambda case: duration(row(case.shape), case))
        self.of = cache(self._answer)

    def _answer(self, case: Case) -> Answer:
        readings = self.readings
        parts, budgets = time_parts(readings, case), self.budgets(case.variant)
        return Answer(
            case,
            self.correct(case),
            self.time(case),
            parts,
            None if parts.limiter else readings.record.missing(case, "profile" if parts.timed else "bench"),
            advice(readings, case),
            unadvised(readings, case),
            budgets,
            self._nearest(budgets, case.shape),
        )

    def _nearest(self, budgets: Verdicts, shape: str) -> tuple[Verdict, ...]:
        here = (v for v in budgets.verdicts if v.subject.shape in (None, shape))
        shown = [v for v in here if v.budget in self._limits or v.status == "fail"]
        nearest: dict[str, Verdict] = {}
        for v in sorted(shown, key=lambda v: (v.status != "fail", v.severity != "limit", v.room)):
            nearest.setdefault(v.budget, v)
        return tuple(nearest.values())


def _correctness(readings: Readings, case: Case) -> Correctness:
    """Whether a case's variant is correct."""
    record, variant = readings.record, case.variant
    fresh = [o for o in record.outcomes if o.variant == variant and o.stage == "check" and o.case not in record.stale]

    def size(outcome: CaseOutcome) -> float:
        return readings.of("formula_flop", outcome.case).value or inf

    wrong = sorted((o for o in fresh if o.status == "failed"), key=size)
    correct = sum(o.status == "ok" for o in fresh)
    unchecked = tuple(o for o in fresh if o.status not in ("ok", "failed"))
    check = next((o for o in fresh if o.shape == case.shape), None)
    status: Literal["correct", "wrong", "unmeasured"] = "correct" if check and check.status == "ok" else "unmeasured"
    status = "wrong" if wrong else status
    missing = record.missing(case, "check") if status == "unmeasured" else None
    errors = (f.number for f in record.facts.of(variant) if f.name == "max_error_over_class")
    error = max((e for e in errors if e is not None), default=None)
    return Correctness(status, correct, tuple(wrong), unchecked, error, missing)


def duration(row: Row, case: Case) -> Duration:
    """A case's time and its comparisons in its row of identical shapes."""
    readings, record, variant = row.readings, row.readings.record, case.variant
    shape = record.suite.shapes[case.shape]
    taken = readings.time(shape.time, case)
    declared = record.suite.variants.get(variant)
    names: dict[Role, str | None] = {
        "parent": declared.parent if declared else None,
        "baseline": record.suite.baseline,
        "reference": row.reference_of(variant),
    }
    others = {role: name for role, name in names.items() if name and name != variant}
    over = {role: ratio for role, name in others.items() if (ratio := row.over(variant, name))}
    return Duration(
        case,
        shape.rank_by,
        taken.us,
        () if taken.us is None else taken.samples,
        readings.levels(shape.time, case),
        readings.first_round(shape.time, case),
        readings.gap(case),
        {m: us for m in TIMING_MODES if m != shape.rank_by and (us := readings.of(f"{m}_p50", case).value)},
        over,
        others,
        {role: pair for role, name in others.items() if (pair := row.pair(variant, name))},
        record.missing(case, "bench") if taken.us is None else None,
    )


def beside(time: Duration, taken: Time, others: Mapping[Role, Time]) -> Duration:
    """A duration with its speedups over other builds of the variant, which were timed alternately with it.

    Args:
        taken: its own time, with the samples.
    """
    over = {role: ratio for role, other in others.items() if (ratio := times.speedup(other, taken))}
    return replace(time, over={**over, **time.over}, names={**dict.fromkeys(others, ""), **time.names})
