"""Groups identical shapes into a row: each variant's case, the best reference, and the speedups over it.

Identical shapes may have been timed in different rounds or on different GPUs. A comparison prefers cases that were
timed alternately, among those that are as good as the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import inf

from flashcore.explain.readings import Readings
from flashcore.explain.times import Speedup, no_interval
from flashcore.model.case import Case
from flashcore.model.suite import Shape

#: A time up to this much longer than the fastest counts as fast if it was taken alternately with what it is compared
#: with: GPUs of one model differ by 1 to 4 % (H200).
AS_FAST = 1.05


@dataclass(frozen=True)
class Row:
    """One computation, with all its shapes (see :meth:`Suite.rows`)."""

    readings: Readings
    shapes: Sequence[Shape]

    @property
    def shape(self) -> Shape:
        """The first shape, whose timing mode ranks the row."""
        return self.shapes[0]

    @property
    def name(self) -> str:
        """The shapes' names: ``mission = d64_s512_h8``."""
        return " = ".join(s.name for s in self.shapes)

    @cached_property
    def cases(self) -> Mapping[str, Case]:
        """Each variant's case; of several, the one on which it is fastest."""
        variants = self.readings.record.suite.variants.values()
        places = ((v.name, [Case(v.name, s.name) for s in self.shapes if v.runs_on(s)]) for v in variants)
        return {name: min(cases, key=self._time) for name, cases in places if cases}

    @cached_property
    def times(self) -> Mapping[str, float]:
        """The ranking times of the timed variants in µs, fastest first."""
        times = sorted((self._time(case), name) for name, case in self.cases.items())
        return {name: time for time, name in times if time < inf}

    def _time(self, case: Case) -> float:
        time = self.readings.of(self.shape.time, case).value or 0
        return time if time > 0 else inf

    @cached_property
    def references(self) -> Mapping[str, float]:
        """The times of the references."""
        variants = self.readings.record.suite.variants
        return {name: time for name, time in self.times.items() if variants[name].is_reference}

    @cached_property
    def reference(self) -> str | None:
        """The reference that the row is compared with: that of its fastest variant."""
        best = next((name for name in self.times if name not in self.references), None)
        return self.reference_of(best) if best else next(iter(self.references), None)

    def reference_of(self, variant: str) -> str | None:
        """The reference that a variant is compared with: the fastest, or one as fast if its ratio to the variant has an
        interval. Other references are compared with the fastest."""
        fastest = next(iter(self.references), None)
        if fastest is None or variant not in self.times or variant in self.references:
            return fastest
        fast = [name for name, time in self.references.items() if time <= AS_FAST * self.times[fastest]]
        return next((name for name in fast if self._alternate(variant, name)), fastest)

    def over(self, variant: str, other: str | None) -> Speedup | None:
        """The speedup of a variant over another of the row; ``None`` unless both were timed."""
        pair = self.pair(variant, other)
        return self.readings.speedup(self.shape.time, *pair) if pair else None

    def pair(self, variant: str, other: str | None) -> tuple[Case, Case] | None:
        """The two cases that :meth:`over` compares: as fast ones whose ratio has an interval, else the fastest."""
        if other is None or variant not in self.cases or other not in self.cases:
            return None
        return self._alternate(variant, other) or (self.cases[variant], self.cases[other])

    def _alternate(self, variant: str, other: str) -> tuple[Case, Case] | None:
        """Two of their cases that were timed alternately."""
        time = partial(self.readings.time, self.shape.time)
        pairs = product(self._as_fast(variant), self._as_fast(other))
        return next((pair for pair in pairs if no_interval(*map(time, pair)) is None), None)

    def _as_fast(self, variant: str) -> Iterator[Case]:
        """The cases on which a variant is as fast as on its fastest, which comes first."""
        times = {case: self._time(case) for case in (Case(variant, s.name) for s in self.shapes)}
        least = times[self.cases[variant]]
        cases = sorted(times, key=lambda case: times[case])
        return (case for case in cases if times[case] < inf and times[case] <= AS_FAST * least)
