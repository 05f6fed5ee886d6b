"""Reads a map from its record: each point's times, its fastest variant and reference, and the regret of a choice.

Regret is the time of a choice over the time of the point's fastest variant; references are not choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from flashcore.errors import UsageError
from flashcore.explain.predictions import Readings
from flashcore.explain.roofline import case_bounds
from flashcore.explain.rows import Row
from flashcore.gate.judge import Verdict
from flashcore.model.catalogue import FactSpec, Kind
from flashcore.model.causes import NotRecorded, NotTimed
from flashcore.model.gate_policy import AS_PLANNED
from flashcore.model.groups import grouped
from flashcore.model.intervals import Ratio, quantiles
from flashcore.model.record import Record, Subject
from flashcore.model.suite import Shape
from flashcore.model.text import UNMEASURED

REGRET = FactSpec("regret", "1", None, Kind.NONE, "a dispatcher's time over the fastest variant's, over a map's points")
Times = Mapping[str, float]
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p100": 1.0}


class Spot:
    """A point with a timed variant.

    Attributes:
        times, references: us by variant and by reference, fastest first.
        choices: the variants that are no dispatchers, or all if there are no others.
        dispatchers, ran: the dispatchers of this problem, and the one that is judged, the last; empty without one.
        best: the fastest choice.
        margin: the second fastest choice's time over the fastest's.
        dispatched: the regret of the dispatcher that is judged.
        share: the floor, us, over the fastest choice's time.
        over_reference: the fastest choice's time over the fastest reference's.

    A figure is NaN if there is nothing to compute it from.
    """

    def __init__(
        self, point: tuple[Shape, float], times: Times, references: Times, dispatchers: Sequence[str], floor: float
    ) -> None:
        (self.shape, self.weight), self.times, self.references = point, times, references
        self.params = {"problem": self.shape.problem, **self.shape.params}
        self.dispatchers, self.ran = dispatchers, ["", *dispatchers][-1]
        self.choices = {name: us for name, us in times.items() if name not in dispatchers} or times
        (self.best, least), *others = (*self.choices.items(), ("", math.nan))
        self.margin, self.share = others[0][1] / least, floor / least
        self.over_reference = least / next(iter(references.values()), math.nan)
        self.dispatched = self.regret_of(self.ran)

    def regret_of(self, dispatcher: str) -> float:
        """A dispatcher's regret; NaN if it is not this problem's."""
        return self.regret(dispatcher) if dispatcher in self.dispatchers else math.nan

    def regret(self, choice: str) -> float:
        """The regret of a choice; infinite if it has no time here."""
        return self.times.get(choice, math.inf) / min(self.times.values())


class Regions:
    """A recorded map. ``untimed`` counts the points without a timed variant; the others are ``spots``. ``lost`` are the
    untimed ones where a variant may have run, had nothing failed.

    Raises:
        UsageError: the record is of no map.
    """

    def __init__(self, record: Record) -> None:
        maps = [(name, table) for name, table in record.suite.tables.get("map", {}).items() if table.get("points")]
        if not maps:
            raise UsageError(
                f"run {record.id}: expected the record of a map, found another\n  hint: flashcore map --points 200"
            )
        (self.name, self.table), self.record = maps[0], record
        variants, readings = record.suite.variants, Readings(record)
        bounds = {b.subject: b for b in case_bounds(record)}
        dispatchers = grouped((variants[name].problem, name) for name in self.table["dispatchers"])
        status = grouped((o.shape, o.status) for o in record.outcomes if not variants[o.variant].is_reference)
        self.spots: list[Spot] = []
        self.lost = self.untimed = 0
        for point, weight in self.table["points"].items():
            shape = record.suite.shapes[point]
            us = Row(readings, [shape]).times
            references = {name: us[name] for name in us if variants[name].is_reference}
            if times := {name: us[name] for name in us if name not in references}:
                case = bounds.get(Subject(next(iter(times)), shape=point))
                floor = gap.floor_us if case and (gap := case.gap(shape.time)) else math.nan
                of_problem = dispatchers.get(shape.problem, ())
                self.spots.append(Spot((shape, weight), times, references, of_problem, floor))
            else:
                self.untimed += 1
                self.lost += {*status.get(point, ())} != {"unsupported"}

    def quantiles(self, of: Callable[[Spot], float]) -> dict[str, Ratio]:
        """The weighted quantiles of a figure over the points that have it; empty if no point has it."""
        pairs = [(of(spot), spot.weight) for spot in self.spots if not math.isnan(of(spot))]
        return quantiles(pairs, QUANTILES) if pairs else {}

    @property
    def tables(self) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
        """Title, heads and rows of each table of the map."""
        total = sum(spot.weight for spot in self.spots) / 100
        won = grouped((s.best, s.weight) for s in self.spots)
        rows = [[name, f"{len(won[name])}", f"{sum(won[name]) / total:.1f}"] for name in sorted(won)]
        yield "Winners", ("fastest variant", "points", "% of weight"), rows
        figures: dict[str, Callable[[Spot], float]] = {
            "regret of the dispatcher": lambda s: s.dispatched,
            **{f"regret of {name}": partial(Spot.regret_of, dispatcher=name) for name in self.table["dispatchers"]},
            "fastest variant over fastest reference": lambda s: s.over_reference,
            "floor over fastest variant": lambda s: s.share,
        }
        texts = ((name, [ratio.text for ratio in self.quantiles(of).values()]) for name, of in figures.items())
        rows = [[name, *(quantiles or [UNMEASURED] * len(QUANTILES))] for name, quantiles in texts]
        yield "Quantiles over the points, with 95 % intervals", ("figure", *QUANTILES), rows
        worst = sorted((s for s in self.spots if s.dispatched > 1), key=lambda s: -s.dispatched)[:20]
        rows = [
            [s.shape.name, s.shape.params_text, s.ran, s.best, f"{s.times[s.best]:.4g}", f"{s.dispatched:.3f}"]
            for s in worst
        ]
        yield "Largest regret", ("point", "params", "ran", "should have run", "its µs", "regret"), rows

    @property
    def verdicts(self) -> Iterator[Verdict]:
        """The limits of the map on its dispatcher's regret."""
        measured = self.quantiles(lambda spot: spot.dispatched)
        for name, limit in self.table["regret"].items():
            value = measured[name].value if measured else None
            cause = NotRecorded() if value is None else NotTimed() if self.lost and value <= limit else None
            yield Verdict(
                budget=f"{self.name}_regret_{name}",
                fact="regret",
                subject=Subject(self.name),
                tier="timing",
                severity="limit",
                required=True,
                status="unmeasured" if cause else "pass" if value is not None and value <= limit else "fail",
                value=value if value is None or math.isfinite(value) else None,
                unit="1",
                limit=f"≤ {limit:g}",
                source=f"map.{self.name}",
                reason=f"{len(self.spots)} points, {self.untimed} without a time, of which {self.lost} failed",
                cause=cause,
            )


def verdicts(record: Record, others: Sequence[Verdict]) -> Iterator[Verdict]:
    """The others, without those on points that a variant refuses, and the map's."""
    is_map = any("points" in table for table in record.suite.tables["map"].values())
    refused = {(plan.variant, plan.shape) for plan in record.plans if is_map and plan.cause and not plan.crashed}
    yield from (v for v in others if v.budget != AS_PLANNED or (v.subject.variant, v.subject.shape) not in refused)
    if is_map:
        yield from Regions(record).verdicts
