"""Reads a map from its record: each point's times, its fastest variant and reference, and the regret of a choice.

Regret is the time of a choice over the time of the point's fastest variant; references are not choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flashcore.errors import UsageError
from flashcore.explain.predictions import Readings
from flashcore.explain.roofline import case_bounds
from flashcore.explain.rows import Row
from flashcore.model.intervals import CONFIDENCE, RESAMPLES, Ratio
from flashcore.model.record import Record, Subject
from flashcore.model.suite import Shape

QUANTILES = ("p50", "p90", "p99", "p100")


@dataclass(frozen=True, slots=True)
class Spot:
    """A point with at least one timed variant: us by variant and by reference, fastest first.

    ``ran`` is the variant that the suite's dispatcher is at this point; ``floor`` is the fastest variant's, us.
    """

    shape: Shape
    weight: float
    times: Mapping[str, float]
    references: Mapping[str, float]
    ran: str | None
    floor: float | None

    @property
    def best(self) -> str:
        return next(iter(self.times))

    @property
    def margin(self) -> float | None:
        """The second fastest variant's time over the fastest's; ``None`` if only one was timed."""
        first, *others = self.times.values()
        return others[0] / first if others else None

    @property
    def share(self) -> float | None:
        """The floor over the fastest variant's time."""
        return self.floor and self.floor / self.times[self.best]

    @property
    def over_reference(self) -> float | None:
        """The fastest variant's time over the fastest reference's."""
        return next((self.times[self.best] / us for us in self.references.values()), None)

    def regret(self, choice: str | None) -> float:
        """The regret of a choice; infinite if it has no time here."""
        return self.times.get(choice or "", math.inf) / self.times[self.best]


class Regions:
    """A recorded map.

    Attributes:
        spots: the points with a timed variant; ``untimed`` the shapes of the others.

    Raises:
        UsageError: the record is of no map, or no point has a time.
    """

    def __init__(self, record: Record) -> None:
        maps = record.suite.tables.get("map", {})
        if len(maps) != 1 or "points" not in next(iter(maps.values())):
            raise UsageError(f"run {record.id}: expected the record of a map, found another\n  hint: map --points N")
        self.record = record
        ((self.name, self.table),) = maps.items()
        variants, readings = record.suite.variants, Readings(record)
        bounds = {b.subject: b for b in case_bounds(record)}
        dispatcher = {variants[name].problem: name for name in self.table["dispatchers"]}
        self.spots: list[Spot] = []
        self.untimed: list[Shape] = []
        for shape in record.suite.shapes.values():
            row = Row(readings, [shape])
            own = {n: us for n, us in row.times.items() if not variants[n].is_reference}
            if not own:
                self.untimed.append(shape)
                continue
            case = bounds.get(Subject(next(iter(own)), shape=shape.name))
            gap = case.gap(shape.time) if case else None
            libraries = {n: us for n, us in row.times.items() if n not in own}
            weight = self.table["points"][shape.name]
            ran = dispatcher.get(shape.problem)
            self.spots.append(Spot(shape, weight, own, libraries, ran, gap.floor_us if gap else None))
        if not self.spots:
            raise UsageError(f"run {record.id}: expected points with times, found none of {len(self.untimed)}")

    @property
    def dispatched(self) -> list[Spot]:
        """The points whose problem has a dispatcher."""
        return [spot for spot in self.spots if spot.ran]


def quantiles(spots: Sequence[Spot], of: Callable[[Spot], float]) -> dict[str, Ratio]:
    """The weighted quantiles of a figure over points, with bootstrap intervals over the points.

    A quantile is the least value that has at least this share of the weight at or below it.
    """
    import numpy as np

    order = sorted(range(len(spots)), key=lambda i: of(spots[i]))
    values, weights = (np.array([f(spots[i]) for i in order]) for f in (of, lambda spot: spot.weight))
    drawn = np.random.default_rng(0).multinomial(len(spots), np.full(len(spots), 1 / len(spots)), RESAMPLES)
    results = {}
    for name in QUANTILES:
        share = int(name[1:]) / 100 - 1e-12

        def at(counts: np.ndarray, share: float = share) -> np.ndarray:
            total = np.cumsum(counts * weights, axis=-1)
            return values[(total < share * total[..., -1:]).sum(axis=-1)]

        low, high = np.quantile(at(drawn), ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2), method="nearest")
        value = float(at(np.ones(len(spots))))
        results[name] = Ratio(value, min(value, float(low)), max(value, float(high)))
    return results
