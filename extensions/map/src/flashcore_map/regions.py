"""Reads a map from its record: each point's times, its fastest variant and reference, and the regret of a choice.

Regret is the time of a choice over the time of the point's fastest variant; references are not choices. A dispatcher's
regret has the interval of both cases' samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flashcore.errors import UsageError
from flashcore.explain.readings import Readings
from flashcore.explain.roofline import case_bounds
from flashcore.explain.rows import Row
from flashcore.explain.verdict import Verdict
from flashcore.model.case import Case
from flashcore.model.catalogue import FactSpec, Kind
from flashcore.model.cause import Cause
from flashcore.model.causes import MESSAGE, NOT_TIMED
from flashcore.model.gate_policy import AS_PLANNED
from flashcore.model.groups import grouped
from flashcore.model.intervals import Ratio, quantiles
from flashcore.model.record import CodeSubject, Record

REGRET = FactSpec("regret", "1", None, Kind.NONE, "a dispatcher's time over the fastest variant's, over a map's points")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p100": 1.0}
#: Titles of the figures whose quantiles are shown.
FIGURES = {
    "dispatched": "regret of the dispatcher",
    "over_reference": "fastest variant over fastest reference",
    "share": "floor over fastest variant",
}


class Spot:
    """A point, and its choices: the timed variants that are no dispatchers.

    Attributes:
        times, references: us by variant and by reference, fastest first.
        choices: the times without the dispatcher's.
        best: the fastest choice; empty without one.
        dispatched: the regret of the problem's dispatcher: infinite if it has no time here, NaN without one.
        figures: ``margin``, the second fastest choice's time over the fastest's; ``dispatched``; ``share``, the floor
            over the fastest choice's time; ``over_reference``, that over the fastest reference's. NaN without times.
    """

    def __init__(self, row: Row, table: Mapping[str, Any], shares: Mapping[Case, float]) -> None:
        self.name, self.shape, self.references = row.name, row.shape, row.references
        self.weight = table["points"][row.name]
        self.params = {"problem": self.shape.problem, **self.shape.params}
        ran = next((name for name in table["dispatchers"] if name in row.cases), "")
        self.times = {name: us for name, us in row.times.items() if name not in row.references}
        self.choices = dict(self.times)
        self.choices.pop(ran, None)
        self.best, (least, second, *_) = next(iter(self.choices), ""), (*self.choices.values(), math.nan, math.nan)
        over = row.over(next(iter(self.times), ran), ran)
        value = over.value if over else math.inf if ran else math.nan
        self.dispatched = Ratio(value, *(over.ends if over and over.ends else (value, value)))
        self.figures = {
            "margin": second / least,
            "dispatched": value,
            "share": shares.get(Case(self.best, row.name), math.nan),
            "over_reference": least / next(iter(self.references.values()), math.nan),
        }

    def regret(self, choice: str) -> float:
        """The regret of a choice by its time; infinite if it has none here."""
        return self.times.get(choice, math.inf) / min(self.times.values())


class Regions:
    """A recorded map. The points with a timed choice are ``spots``; ``untimed`` counts the others.

    Raises:
        UsageError: the record is of no map.
    """

    def __init__(self, record: Record) -> None:
        maps = [item for item in record.suite.tables.get("map", {}).items() if "points" in item[1]]
        if not maps:
            raise UsageError(
                f"run {record.id}: expected the record of a map, found another\n  hint: flashcore map --points 200"
            )
        (self.name, self.table), self.record = maps[0], record
        time = f"{self.table['rank_by']}_p50"
        shares = {b.subject.case: gap.least_us / gap.time_us for b in case_bounds(record) if (gap := b.gap(time))}
        readings = Readings(record)
        spots = [Spot(Row(readings, [shape]), self.table, shares) for shape in record.suite.shapes.values()]
        self.spots = [spot for spot in spots if spot.choices]
        self.untimed = len(spots) - len(self.spots)

    def quantiles(self, figures: Iterable[float]) -> dict[str, Ratio]:
        """The weighted quantiles of the points' figures, without those that are NaN; NaN if all are."""
        pairs = [(value, s.weight) for value, s in zip(figures, self.spots, strict=True) if not math.isnan(value)]
        return quantiles(pairs or [(math.nan, 1.0)], QUANTILES)

    @property
    def tables(self) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
        """Title, heads and rows of each table of the map."""
        won = grouped((s.best, s.weight) for s in self.spots)
        total = sum(map(sum, won.values())) / 100
        rows = [[name, f"{len(won[name])}", f"{sum(won[name]) / total:.1f}"] for name in sorted(won)]
        yield "Winners", ("fastest variant", "points", "% of weight"), rows
        rows = [
            [title, *(ratio.text for ratio in self.quantiles(s.figures[name] for s in self.spots).values())]
            for name, title in FIGURES.items()
        ]
        yield "Quantiles over the points, with 95 % intervals", ("figure", *QUANTILES), rows
        worst = sorted((s for s in self.spots if s.dispatched.value > 1), key=lambda s: -s.dispatched.value)
        rows = [[s.name, s.shape.params_text, s.best, f"{s.times[s.best]:.4g}", s.dispatched.text] for s in worst[:20]]
        yield "Largest regret", ("point", "params", "should have run", "its µs", "regret"), rows

    @property
    def verdicts(self) -> Iterator[Verdict]:
        """The limits on the dispatcher's regret; unmeasured unless the times tell that one is kept or missed."""
        regrets = [self.quantiles(getattr(s.dispatched, end) for s in self.spots) for end in ("low", "value")]
        for name, limit in self.table["regret"].items():
            low, value = (of[name].value for of in regrets)
            cause: Cause | None = None
            if math.isnan(value) or (value <= limit and self.untimed):
                cause = NOT_TIMED()
            elif low <= limit < value:
                cause = MESSAGE("the times are not exact enough")
            yield Verdict(
                budget=f"{self.name}_regret_{name}",
                fact="regret",
                subject=CodeSubject(self.name),
                tier="timing",
                required=True,
                status="unmeasured" if cause else "pass" if value <= limit else "fail",
                value=value if math.isfinite(value) else None,
                unit="1",
                limit=f"{name} ≤ {limit:g}",
                source=f"map.{self.name}",
                reason=f"{len(self.spots)} points, {self.untimed} more without a time; at least {low:.3f} by the times",
                cause=cause,
            )


def verdicts(record: Record, others: Sequence[Verdict]) -> Sequence[Verdict]:
    """The others, without those on points that a variant refuses, and the map's."""
    try:
        regions = Regions(record)
    except UsageError:
        return others
    refused = {plan.case for plan in record.plans if not plan.can_run and not plan.failed}
    judged = (v for v in others if v.budget != AS_PLANNED or v.subject.case not in refused)
    return [*judged, *regions.verdicts]
