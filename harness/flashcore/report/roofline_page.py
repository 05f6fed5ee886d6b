"""The roofline page: each case's position under the roofs, and the least time that each resource allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.roofline import LEVELS, CaseBounds, Ceiling, Point
from flashcore.explain.rows import Row
from flashcore.model.groups import grouped
from flashcore.model.record import Roof
from flashcore.model.suite import REGIMES, Shape
from flashcore.model.text import significant
from flashcore.report.cells import Cell, missing, not_applicable, number_cell, six_digits
from flashcore.report.view import MAX_SHAPES, ROOFLINE, Book, Page, variant_cell

LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
_ENERGY = {"energy": "mJ per call", "flop_per_joule": "GFLOP/J"}


@dataclass(frozen=True, slots=True)
class Section:
    """The roofline on one shape: the chart's data, whether it uses hardware counters, and its tables."""

    row: Row
    drawn: dict[str, Any] | None
    counted: bool
    variants: list[str]
    points: list[list[Cell]]
    resources: list[str]
    bounds: list[list[Cell]]

    @property
    def shape(self) -> Shape:
        return self.row.shape


@dataclass(frozen=True)
class Roofline:
    """The page's content."""

    book: Book

    @cached_property
    def device(self) -> devices.Device | None:
        return devices.find(self.book.record.gpu)

    @cached_property
    def roofs(self) -> tuple[Roof, ...]:
        record = self.book.record
        by_gpu = dict.fromkeys(r for gpu in record.gpus for r in gpu.roofs)  # each sharing GPU's measured roofs
        return roofline.roofs(self.device, None, tuple(by_gpu) or record.roofs)

    @cached_property
    def points(self) -> list[Point]:
        return roofline.points(self.book.record)

    @cached_property
    def shapes(self) -> list[Section]:
        by_case = grouped((p.subject.case, p) for p in self.points)
        return [_section(self.book, row, by_case, self.roofs) for row in self.book.rows[:MAX_SHAPES]]

    @property
    def faults(self) -> list[tuple[tuple[str, str], list[str]]]:
        """Impossible points, once per case and cause, with their levels."""
        faults = grouped(
            ((str(p.subject), text), f"{LEVEL_NAMES[p.level]}, FLOPs by {p.counted}")
            for p in self.points
            if not p.subject.kernel
            for text in p.faults
        )
        return list(faults.items())[:200]

    @property
    def gaps(self) -> list[tuple[str, list[str]]]:
        """(reason, cases without a point), the most frequent reason first."""
        gaps = grouped((reason, str(s)) for s, reason in roofline.missing(self.book.record) if s.kernel is None)
        return sorted(gaps.items(), key=lambda gap: -len(gap[1]))[:100]


def page(book: Book) -> Page[Roofline]:
    """The page ``roofline``."""
    return Page(ROOFLINE, "Roofline", "roofline.html.j2", Roofline(book))


def _section(book: Book, row: Row, by_case: Mapping[str, list[Point]], roofs: Sequence[Roof]) -> Section:
    cases = book.cases(row)
    points = [p for case in cases for p in by_case.get(case.subject.case, ())]
    if not points:  # no counters: points from the formulas and the bench
        points = [p for case in cases for p in roofline.formula_points(book.record, case.subject)]
    # A kernel's point differs from its case's only if the case has several kernels.
    kernels = grouped((p.subject.variant, p.subject.kernel) for p in points if p.subject.kernel)
    shown = [p for p in points if not p.subject.kernel or len(set(kernels[p.subject.variant])) > 1]
    bounds = [book.bounds[case.subject] for case in cases if case.subject in book.bounds]
    resources = list(dict.fromkeys(bound.resource for case in bounds for bound in case.bounds))
    return Section(
        row,
        _drawing(book, row, shown, roofs) if shown else None,
        any(p.counted == "hardware" for p in shown),
        list(dict.fromkeys(p.subject.variant for p in shown)),
        [_point_row(p) for p in shown if p.counted == shown[0].counted and not p.subject.kernel],
        resources,
        [_bounds_row(book, case, resources) for case in bounds],
    )


def _drawing(book: Book, row: Row, points: Sequence[Point], roofs: Sequence[Roof]) -> dict[str, Any]:
    """The chart's data: roofs, points, the ladder's path through them, and the variants that are always labeled."""
    ladder, suite = book.ladder(*row.shapes), book.record.suite
    best = ladder.best
    drawn = _drawn(roofs, points)
    head = "variant", "kernel", "shape", "level", "FLOPs by", "FLOP", "bytes", "time µs", "FLOP per byte", "TFLOP/s"
    energy = {name: why for name, why in _ENERGY.items() if any(book.record.facts.named(name))}
    return {
        "kind": "roofline",
        "table": [
            (*head, "regime", *energy.values()),
            *(
                (
                    *(
                        p.subject.variant,
                        p.subject.kernel,
                        p.subject.shape,
                        p.level,
                        p.counted,
                        p.flop,
                        p.bytes,
                        p.time_us,
                    ),
                    *(six_digits(p.intensity), six_digits(p.tflops), p.regime),
                    *(None if p.subject.kernel else book.record.facts.number(name, p.subject) for name in energy),
                )
                for p in points
            ),
        ],
        "roles": {p.subject.variant: suite.role(suite.variants[p.subject.variant]) for p in points},
        "shares": [p.share and round(100 * p.share, 1) for p in points],
        # Each point's roofs: those its share is relative to, and the measured ones. The focus's roofs are drawn.
        "over": [_indices(drawn, p.ceiling) for p in points],
        "measured": [_indices(drawn, p.measured) for p in points],
        "faults": {i: p.faults for i, p in enumerate(points) if p.faults},
        "roofs": [
            {
                "resource": r.resource,
                "value": r.value,
                "compute": r.unit == "TFLOP/s",
                "origin": r.origin,
                "label": f"{significant(r.value, 3)} {r.unit} {_origin(r)}",
            }
            for r in drawn
        ],
        "named": {
            "winner": best and best.variant.name,
            "parent": best and best.parent,
            "baseline": suite.baseline,
            "peer": row.reference,
        },
        "way": [s.variant.name for s in ladder.path],
    }


def _origin(roof: Roof) -> str:
    seen = roof.origin == "at clock seen" and roof.clock_mhz
    return f"at {roof.clock_mhz:,.0f} MHz" if seen else f"({roof.origin})"


def _drawn(roofs: Sequence[Roof], points: Sequence[Point]) -> list[Roof]:
    """The distinct roofs of these points and their levels; each observed clock and each GPU has separate roofs.

    If a roof at the observed clock exists, the datasheet's is omitted.
    """
    resources = {*LEVELS, *(p.roof for p in points)}
    above = dict.fromkeys(r for p in points for c in (p.theory, p.measured) for r in (c.compute, c.bandwidth) if r)
    seen = {r.resource for r in above if r.origin == "at clock seen"}
    others = (r for r in roofs if r.resource in resources and (r.origin != "datasheet" or r.resource not in seen))
    return list(dict.fromkeys((*above, *others)))


def _indices(drawn: Sequence[Roof], above: Ceiling) -> list[int]:
    return [drawn.index(r) for r in (above.compute, above.bandwidth) if r is not None]


def _point_row(point: Point) -> list[Cell]:
    share = None if point.share is None else 100 * point.share
    reason = f"no roof for {point.roof} or {LEVEL_NAMES[point.level]} is known on this device"
    return [
        variant_cell(
            point.subject.variant, f"FLOPs by {point.counted}, {point.regime}", shape=point.subject.shape or ""
        ),
        Cell(LEVEL_NAMES[point.level], sort=point.level),
        *(number_cell(x, 4) for x in (point.time_us, point.intensity, point.tflops)),
        missing(reason) if share is None else Cell(f"{share:.1f}", sort=share, kind="number"),
        Cell("impossible", title="\n".join(point.faults), sort=0.0, mark="fail")
        if point.faults
        else Cell("ok", sort=1.0, mark="pass"),
    ]


def _bounds_row(book: Book, case: CaseBounds, resources: Sequence[str]) -> list[Cell]:
    """A row of the least time that each resource allows, the floor, and each regime's time with its gap."""
    other = not_applicable("its FLOPs count toward another dtype's roof")
    unknown = missing("no roof of this device is known")
    times = {b.resource: missing(b.note) if b.us is None else number_cell(b.us, 4) for b in case.bounds}
    floor = replace(times[case.floor.resource], detail=case.floor.resource) if case.floor else unknown
    cells = [
        variant_cell(case.subject.variant, shape=case.subject.shape or ""),
        *(times.get(r, other) for r in resources),
        floor,
    ]
    for time in (f"{regime}_p50" for regime in REGIMES):
        measured, gap = book.cell(time, case.subject, with_unit=False, brief=True), case.gap(time)
        if gap is None:
            why = missing(book.why(time, case.subject))
            cells += [measured, why if measured.kind == "missing" else unknown]
            continue
        title = "" if gap.floor == case.floor else f"over {gap.floor.resource}, {significant(gap.floor_us)} µs"
        cell = number_cell(gap.ratio, title=title)
        wrong = replace(cell, mark="fail", detail="impossible: below its floor")
        cells += [measured, wrong if gap.is_impossible else cell]
    return cells
