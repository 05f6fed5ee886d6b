"""A verdict: the outcome of a budget on a subject, as :mod:`flashcore.gate` decides it and every output shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from flashcore.explain.advice import Advice
from flashcore.model.cause import Cause
from flashcore.model.record import Source, Subject, Value
from flashcore.model.suite import Severity, Tier

#: ``open`` is a goal that is not reached yet.
Status = Literal["pass", "fail", "unmeasured", "waived", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one budget on one subject.

    Args:
        budget: its name, or ``builds``, ``correct``, ``runs`` or ``as_planned``, which need no budget.
        limit: the limit as text: ``≤ 128``.
        source: the source of the limit.
        fact_source: the source of the value; ``None`` if unmeasured.
        reason: why it is not a plain pass, for people.
        cause: why it is unmeasured.
        required: whether the gate exits 3 if this is unmeasured.
        progress: for a goal, target over value or value over target; 1.0 if reached.
        advice: for a missed limit, the advice on its fact.
        headroom: the distance from a budget's limit, relative to it; negative if exceeded; ``None`` if undefined.
        at_risk: whether it passes with little headroom that may be gone in the next run.
    """

    budget: str
    fact: str
    subject: Subject
    tier: Tier
    severity: Severity = "limit"
    status: Status
    value: Value | None
    unit: str = ""
    limit: str
    source: str
    fact_source: Source | None = None
    reason: str = ""
    cause: Cause | None = None
    required: bool = False
    progress: float | None = None
    advice: Advice | None = None
    headroom: float | None = None
    at_risk: bool = False

    @property
    def room(self) -> float:
        """The headroom as a sort key: a missed limit of 0 comes first, any other without headroom last."""
        if self.headroom is not None:
            return self.headroom
        return -inf if self.status == "fail" else inf


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts on a suite or on one variant, in the order of the budgets."""

    verdicts: tuple[Verdict, ...]

    @property
    def limits(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.severity == "limit")

    @property
    def goals(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.severity == "goal")

    def counts(self, severity: Severity = "limit") -> Counter[Status]:
        """The number of verdicts of that severity by status."""
        return Counter(v.status for v in self.verdicts if v.severity == severity)

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.limits if v.status == "fail")

    @property
    def waived(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.limits if v.status == "waived")

    @property
    def at_risk(self) -> tuple[Verdict, ...]:
        """The limits at risk, the least headroom first."""
        return by_room(v for v in self.verdicts if v.at_risk)


def by_room(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts by rising headroom: the most exceeded first."""
    return tuple(sorted(verdicts, key=lambda v: v.room))
