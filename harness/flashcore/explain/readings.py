"""The numbers of a record: by fact, variant and shape, with the cause of each that is missing.

Every reader of a record's numbers asks :class:`Readings`, so that all agree on the arch, the worst kernel, the floor
and the speedup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from flashcore.explain import times
from flashcore.explain.roofline import CaseBounds, Gap, case_bounds
from flashcore.explain.times import Speedup
from flashcore.model import intervals
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import Detail, Noted, cause_text
from flashcore.model.causes import FirstRound
from flashcore.model.record import CaseSubject, Fact, Plan, Record, Subject, Time, plans_for
from flashcore.model.suite import Shape
from flashcore.model.text import same_hardware

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Reading(Noted):
    """A measured number and its ``detail``, or why there is none."""

    value: float | None
    why: str = ""
    detail: Detail | str = ""


class Readings:
    """The numbers of a record by fact, variant and shape.

    Static readings are for the measured arch, else the suite's usual one, and for a variant's worst kernel: the largest
    value, or the smallest if higher is better.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.roofs = record.roofs_by("bench")
        gpu_arch, archs = record.gpu_arch, record.suite.archs
        #: The arch of the measured GPU, else the suite's usual one.
        self.arch = record.suite.usual_arch or None
        if gpu_arch is not None:
            same = (a for a in archs if same_hardware(a, gpu_arch))
            self.arch = gpu_arch if gpu_arch in archs else next(same, gpu_arch)
        #: The launch plans for an arch by case; see :func:`plans_for`.
        self.plans: Callable[[str | None], Mapping[Case, Plan]] = cache(lambda arch: plans_for(record.plans, arch))
        self._static: dict[tuple[str, str, str], dict[Subject, Fact]] = {}
        for fact in record.facts:
            s = fact.subject
            if s.arch is not None:
                self._static.setdefault((s.variant, s.arch, fact.name), {})[s] = fact

    @cached_property
    def alike(self) -> dict[str, list[Shape]]:
        """For each shape, the identical ones, itself included."""
        suite = self.record.suite
        return {shape.name: row for row in suite.rows(suite.shapes.values()) for shape in row}

    @cached_property
    def bounds(self) -> dict[CaseSubject, CaseBounds]:
        """The bounds and gaps of each case with formulas."""
        return {bounds.subject: bounds for bounds in case_bounds(self.record)}

    def gap(self, case: Case) -> Gap | None:
        """The gap of the case's time that ranks, if it was measured and a floor is known."""
        bounds = self.bounds.get(CaseSubject(case))
        return bounds.gap(self.record.suite.shapes[case.shape].time) if bounds else None

    def static(self, name: str, variant: str, shape: str | None, arch: str | None) -> list[Fact]:
        """The static facts of that name of every kernel, at ``shape`` if they depend on the launch plan."""
        facts = self._static.get((variant, arch or "", name), {}).values()
        return [f for f in facts if f.subject.shape in (None, shape)]

    def of(self, name: str, case: Case) -> Reading:
        """The reading of a fact of a case; a static fact's is that of the variant."""
        if not case.variant:
            return Reading(None, "it has no parent")
        if case.variant not in self.record.suite.variants:
            return Reading(None, f"no variant {case.variant}")
        spec = FACTS.get(name)
        if spec is not None and spec.group == "static":
            facts = self.static(name, case.variant, case.shape, self.arch)
            if worst := extreme(name, facts):
                return Reading(worst.number)
            return Reading(None, unmeasured(facts) or f"not recorded for {self.arch or 'any arch'}")
        fact = self.record.facts.get(name, CaseSubject(case))
        if fact is None or fact.number is None:
            stale = self.record.stale.get(case)
            return Reading(None, cause_text(stale) or (fact.note if fact else "") or "not recorded")
        return Reading(fact.number, detail=fact.detail)

    def speedup(self, time: str, case: Case, other: Case) -> Speedup | None:
        """The speedup of a case over another on an identical shape by a time (``isolated_p50``), by
        :mod:`flashcore.explain.times`."""
        return times.speedup(self.time(time, other), self.time(time, case))

    def levels(self, time: str, case: Case) -> str:
        """The two levels of a bimodal time in words; empty for any other."""
        levels = intervals.levels(self.time(time, case).samples)
        return levels.text if levels else ""

    def first_round(self, time: str, case: Case) -> str:
        """The number of samples in words of a time that was taken no further after a first round; else empty."""
        fact = self.record.facts.get(f"{time.removesuffix('_p50')}_samples", CaseSubject(case))
        return f"{fact.value} samples" if fact and isinstance(fact.detail, FirstRound) else ""

    def time(self, fact: str, case: Case) -> Time:
        """A time by its fact: a median with its samples, or another figure, which has none."""
        subject, mode = CaseSubject(case), fact.removesuffix("_p50")
        if mode != fact:
            return self.record.time(subject, mode)
        return Time(subject, mode, self.of(fact, case).value)


def per_readings(
    function: Callable[Concatenate[Readings, _Arguments], _Value],
) -> Callable[Concatenate[Readings, _Arguments], _Value]:
    """Caches a function's results for the lifetime of the readings: each case is looked up as a variant, as a parent
    and by pages."""
    results: WeakKeyDictionary[Readings, dict[object, _Value]] = WeakKeyDictionary()

    @wraps(function)
    def cached(readings: Readings, /, *arguments: _Arguments.args, **more: _Arguments.kwargs) -> _Value:
        of_readings, key = results.setdefault(readings, {}), (arguments, *more.items())
        if key not in of_readings:
            of_readings[key] = function(readings, *arguments, **more)
        return of_readings[key]

    return cached


def extreme(name: str, facts: Sequence[Fact]) -> Fact | None:
    """The fact of a variant's worst kernel; ``None`` unless all kernels' facts were measured."""
    if not facts or any(f.number is None for f in facts):
        return None
    pick: Callable[..., Fact] = min if FACTS[name].better == "higher" else max
    return pick(facts, key=lambda f: f.number)


def unmeasured(facts: Sequence[Fact]) -> str:
    """The note of the first unmeasured fact; empty if there is none."""
    return next((f.note for f in facts if f.number is None), "")
