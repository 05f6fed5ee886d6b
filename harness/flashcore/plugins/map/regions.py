"""Reads a map from its record: each point's times, its fastest variant and reference, and the regret of a choice.

Regret is the time of a choice over the time of the point's fastest variant; references are not choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p100": 1.0}


@dataclass(frozen=True, slots=True)
class Spot:
    """A point with a timed variant: us by variant and by reference, fastest first.

    ``dispatchers`` are the suite's for this problem; the last is judged. ``floor`` is the fastest variant's, us.
    """

    shape: Shape
    weight: float
    times: Mapping[str, float]
    references: Mapping[str, float]
    dispatchers: Sequence[str]
    floor: float

    @property
    def params(self) -> Mapping[str, object]:
        """The point's params, and its problem."""
        return {"problem": self.shape.problem, **self.shape.params}

    @property
    def ran(self) -> str:
        """The dispatcher that is judged; empty without one."""
        return self.dispatchers[-1] if self.dispatchers else ""

    @property
    def best(self) -> str:
        """The fastest variant that is no dispatcher, or the fastest dispatcher if there is no other."""
        return next((name for name in self.times if name not in self.dispatchers), next(iter(self.times)))

    @property
    def margin(self) -> float:
        """The second fastest time of those that are no dispatcher over the fastest; NaN if there is one."""
        choices = [us for name, us in self.times.items() if name not in self.dispatchers]
        return choices[1] / choices[0] if len(choices) > 1 else math.nan

    @property
    def share(self) -> float:
        """The floor over the fastest variant's time; NaN if it is unknown."""
        return self.floor / self.times[self.best]

    @property
    def over_reference(self) -> float:
        """The fastest variant's time over the fastest reference's; NaN if none was timed."""
        return self.times[self.best] / next(iter(self.references.values()), math.nan)

    @property
    def dispatched(self) -> float:
        """The regret of the dispatcher that is judged; NaN without one."""
        return self.dispatched_by(self.ran)

    def dispatched_by(self, name: str) -> float:
        """A dispatcher's regret; NaN if it is not this problem's."""
        return self.regret(name) if name in self.dispatchers else math.nan

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
        self.record = record
        for self.name, self.table in record.suite.tables.get("map", {}).items():
            if not (weights := self.table.get("points")):
                continue
            variants, readings = record.suite.variants, Readings(record)
            bounds = {b.subject: b for b in case_bounds(record)}
            dispatchers = grouped((variants[name].problem, name) for name in self.table["dispatchers"])
            status = grouped((o.shape, o.status) for o in record.outcomes if not variants[o.variant].is_reference)
            self.spots: list[Spot] = []
            self.lost = 0
            for shape in (record.suite.shapes[point] for point in weights):
                row = Row(readings, [shape])
                of_role = grouped((variants[name].is_reference, (name, us)) for name, us in row.times.items())
                times, references = (dict(of_role.get(is_reference, ())) for is_reference in (False, True))
                case = bounds.get(Subject(next(iter(times), ""), shape=shape.name))
                floor = gap.floor_us if case and (gap := case.gap(shape.time)) else math.nan
                of_problem = dispatchers.get(shape.problem, ())
                if times:
                    self.spots.append(Spot(shape, weights[shape.name], times, references, of_problem, floor))
                else:
                    self.lost += {*status.get(shape.name, ())} != {"unsupported"}
            self.untimed = len(weights) - len(self.spots)
            return
        raise UsageError(
            f"run {record.id}: expected the record of a map, found another\n  hint: flashcore map --points 200"
        )

    def quantiles(self, of: Callable[[Spot], float]) -> dict[str, Ratio]:
        """The weighted quantiles of a figure over the points that have it; empty if no point has it."""
        pairs = [(of(spot), spot.weight) for spot in self.spots if not math.isnan(of(spot))]
        return quantiles(pairs, QUANTILES) if pairs else {}

    @property
    def tables(self) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
        """Title, heads and rows of each table of the map."""
        total = sum(spot.weight for spot in self.spots) / 100
        won = grouped((s.best, s) for s in self.spots)
        rows = [[n, f"{len(won[n])}", f"{sum(s.weight for s in won[n]) / total:.1f}"] for n in sorted(won)]
        yield "Winners", ("fastest variant", "points", "% of weight"), rows
        figures: dict[str, Callable[[Spot], float]] = {
            "regret of the dispatcher": lambda s: s.dispatched,
            **{f"regret of {name}": partial(Spot.dispatched_by, name=name) for name in self.table["dispatchers"]},
            "fastest variant over fastest reference": lambda s: s.over_reference,
            "floor over fastest variant": lambda s: s.share,
        }
        texts = ((name, [ratio.text for ratio in self.quantiles(of).values()]) for name, of in figures.items())
        rows = [[name, *(quantiles or [UNMEASURED] * len(QUANTILES))] for name, quantiles in texts]
        yield "Quantiles over the points, with 95 % intervals", ("figure", *QUANTILES), rows
        rows = [
            [s.shape.name, s.shape.params_text, s.ran, s.best, f"{s.times[s.best]:.4g}", f"{s.dispatched:.3f}"]
            for s in sorted((s for s in self.spots if s.dispatched > 1), key=lambda s: -s.dispatched)[:20]
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
