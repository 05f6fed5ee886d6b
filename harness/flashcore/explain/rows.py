"""Groups identical shapes into a row: each variant's case, the fastest reference, and the speedups over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from flashcore.explain.predictions import Readings, Speedup
from flashcore.model.suite import Shape


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
    def cases(self) -> Mapping[str, Shape]:
        """Each variant's shape; of several, the one on which it is fastest."""
        variants = self.readings.record.suite.variants.values()
        places = ((v.name, [s for s in self.shapes if v.runs_on(s)]) for v in variants)
        return {name: min(shapes, key=lambda s: self._time(name, s)) for name, shapes in places if shapes}

    @cached_property
    def times(self) -> Mapping[str, float]:
        """The ranking times of the timed variants in µs, fastest first."""
        times = sorted((self._time(name, shape), name) for name, shape in self.cases.items())
        return {name: time for time, name in times if time < inf}

    def _time(self, variant: str, shape: Shape) -> float:
        time = self.readings.of(self.shape.time, variant, shape.name).value or 0
        return time if time > 0 else inf

    @cached_property
    def references(self) -> Mapping[str, float]:
        """The times of the references."""
        variants = self.readings.record.suite.variants
        return {name: time for name, time in self.times.items() if variants[name].is_reference}

    @property
    def reference(self) -> str | None:
        """The fastest reference."""
        return next(iter(self.references), None)

    def over(self, variant: str, other: str | None) -> Speedup | None:
        """The speedup of a variant over another of the row; ``None`` unless both were timed."""
        if other is None or other not in self.cases:
            return None
        at, of = self.cases[variant].name, self.cases[other].name
        return self.readings.speedup(self.shape.time, variant, other, at, of)

    def pair(self, variant: str, other: str | None) -> str:
        """The two cases that :meth:`over` compares, and whether they were timed in different rounds or on different
        GPUs; empty for a row of one shape."""
        if other is None or len(self.shapes) == 1:
            return ""
        cases = [f"{name}/{self.cases[name].name}" for name in (variant, other)]
        text = " against ".join(cases)
        if self.cases[variant] is self.cases[other]:
            return text
        gpus = sum(not {*cases}.isdisjoint(gpu.cases.get("bench", ())) for gpu in self.readings.record.gpus)
        return f"{text}, not timed in the same rounds" + (" nor on one GPU" if gpus > 1 else "")
