"""The roofline page: where each case stands under the roofs, and the least time each resource allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.roofline import LEVELS, Bound, CaseBounds, Point
from flashcore.model.groups import grouped
from flashcore.model.record import Roof, Subject
from flashcore.model.suite import REGIMES, Shape
from flashcore.model.text import significant
from flashcore.report.cells import Cell, missing, not_applicable, number_cell, six_digits
from flashcore.report.view import ROOFLINE, Book, Page, RooflineSection, variant_page

LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


@dataclass(frozen=True)
class View:
    """The template's variables.

    Args:
        roofs: resource, value, unit, origin, clock, source.
        faults: impossible points: subject, reason, levels.
        gaps: cases without a point: reason, subjects.
    """

    device: devices.Device | None
    gpu: str | None
    roofs: list[tuple[str, ...]]
    shapes: list[RooflineSection]
    faults: list[tuple[str, str, str]]
    gaps: list[tuple[str, list[str]]]


def page(book: Book) -> Page[View]:
    """The page ``roofline``."""
    record = book.record
    by_shape = grouped((p.subject.shape or "", p) for p in roofline.points(record))
    device = devices.find(record.gpu)
    by_gpu = dict.fromkeys(r for gpu in record.gpus for r in gpu.roofs)  # of each GPU, where each has its own
    roofs = roofline.roofs(device, None, tuple(by_gpu) or record.roofs)
    gaps = grouped((reason, str(s)) for s, reason in roofline.missing(record) if s.kernel is None)
    view = View(
        device,
        record.gpu,
        roofs=[
            (r.resource, significant(r.value), r.unit, r.origin, _clock(r) or "any clock", r.note or r.device)
            for r in roofs
        ],
        shapes=[_section(book, s, by_shape.get(s.name, []), roofs) for s in book.shown_shapes],
        faults=_faults(p for points in by_shape.values() for p in points),
        gaps=sorted(gaps.items(), key=lambda gap: -len(gap[1]))[:100],
    )
    return Page(ROOFLINE, "Roofline", "roofline.html.j2", view)


def _faults(points: Iterable[Point]) -> list[tuple[str, str, str]]:
    """Impossible points, once for each case and cause."""
    faults = grouped(
        ((str(p.subject), text), f"{LEVEL_NAMES[p.level]}, FLOPs by {p.counted}")
        for p in points
        if not p.subject.kernel
        for text in p.faults
    )
    return [(*key, "; ".join(dict.fromkeys(levels))) for key, levels in faults.items()][:200]


def _clock(roof: Roof) -> str:
    return f"{roof.clock_mhz:,.0f} MHz" if roof.clock_mhz else ""


def _section(book: Book, shape: Shape, points: Sequence[Point], roofs: Sequence[Roof]) -> RooflineSection:
    subjects = [Subject(v.name, shape=shape.name) for v in book.cases(shape)]
    if not points:  # no counters: points from the formulas and the bench
        points = [p for subject in subjects for p in roofline.formula_points(book.record, subject)]
    # A kernel's own point says something new only where a case has several.
    kernels = grouped((p.subject.variant, p.subject.kernel) for p in points if p.subject.kernel)
    shown = [p for p in points if not p.subject.kernel or len(set(kernels[p.subject.variant])) > 1]
    cases = [book.bounds[s] for s in subjects if s in book.bounds]
    resources = list(dict.fromkeys(bound.resource for case in cases for bound in case.bounds))
    return RooflineSection(
        shape=shape,
        drawn=_drawing(book, shape, shown, roofs) if shown else None,
        counted=any(p.counted == "hardware" for p in shown),
        variants=list(dict.fromkeys(p.subject.variant for p in shown)),
        points=[_point_row(p) for p in shown if p.counted == shown[0].counted and not p.subject.kernel],
        resources=resources,
        bounds=[_bounds_row(book, case, resources) for case in cases],
    )


def _drawing(book: Book, shape: Shape, points: Sequence[Point], roofs: Sequence[Roof]) -> dict[str, Any]:
    """The chart's data: roofs, points, the ladder's path through them, and the variants that are always labelled."""
    ladder = book.ladder(shape)
    best, peer = ladder.best, ladder.peer
    roles = {v.name: book.role(v) for v in book.cases(shape)}
    head = "variant", "kernel", "shape", "level", "FLOPs by", "FLOP", "bytes", "time µs", "FLOP per byte", "TFLOP/s"
    rows = [
        (
            p.subject.variant,
            p.subject.kernel,
            shape.name,
            p.level,
            p.counted,
            p.flop,
            p.bytes,
            p.time_us,
            six_digits(p.intensity),
            six_digits(p.tflops),
            p.regime,
        )
        for p in points
    ]
    return {
        "kind": "roofline",
        "table": [(*head, "regime"), *rows],
        "roles": {p.subject.variant: roles.get(p.subject.variant, "variant") for p in points},
        "shares": [p.share and round(100 * p.share, 1) for p in points],
        "faults": {i: p.faults for i, p in enumerate(points) if p.faults},
        "roofs": [
            {
                "resource": r.resource,
                "value": r.value,
                "compute": r.unit == "TFLOP/s",
                "origin": r.origin,
                "label": f"{significant(r.value, 3)} {r.unit} {_origin(r)}",
            }
            for r in _drawn(roofs, points)
        ],
        "named": {
            "winner": best and best.variant.name,
            "parent": best and best.parent,
            "baseline": book.record.suite.baseline,
            "peer": peer and peer[0],
        },
        "way": [s.variant.name for s in ladder.way],
    }


def _origin(roof: Roof) -> str:
    return f"at {_clock(roof)}" if roof.origin == "at clock seen" and roof.clock_mhz else f"({roof.origin})"


def _drawn(roofs: Sequence[Roof], points: Sequence[Point]) -> list[Roof]:
    """One roof for each resource and origin: the highest of those at the clocks seen.

    Where the clock was seen, the datasheet's own roof adds nothing.
    """
    resources = {*LEVELS, *(p.roof for p in points)}
    ceilings = [ceiling for p in points for ceiling in (p.theory, p.measured)]
    candidates = [r for r in roofs if r.resource in resources]
    candidates += [r for c in ceilings for r in (c.compute, c.bandwidth) if r is not None]
    best: dict[tuple[str, str], Roof] = {}
    for roof in candidates:
        higher = best.setdefault((roof.resource, roof.origin), roof)
        if roof.value > higher.value:
            best[roof.resource, roof.origin] = roof
    return [r for (name, origin), r in best.items() if origin != "datasheet" or (name, "at clock seen") not in best]


def _point_row(point: Point) -> list[Cell]:
    about = f"FLOPs by {point.counted}, {point.regime}"
    share = None if point.share is None else 100 * point.share
    reason = f"no roof is known for {point.roof} or {LEVEL_NAMES[point.level]} on this device"
    return [
        Cell(point.subject.variant, title=about, sort=point.subject.variant, href=variant_page(point.subject.variant)),
        Cell(LEVEL_NAMES[point.level], sort=point.level),
        *(number_cell(x, 4) for x in (point.time_us, point.intensity, point.tflops)),
        missing(reason) if share is None else Cell(f"{share:.1f}", sort=share, kind="number"),
        Cell("cannot be right", title="\n".join(point.faults), sort=0.0, mark="fail")
        if point.faults
        else Cell("ok", sort=1.0, mark="pass"),
    ]


def _bound_cell(bound: Bound | None) -> Cell:
    """The least time that one resource allows."""
    if bound is None:
        return not_applicable("its FLOPs are on the roof of another dtype")
    if bound.us is None:
        return missing(bound.note)
    return number_cell(bound.us, 4)


def _bounds_row(book: Book, case: CaseBounds, resources: Sequence[str]) -> list[Cell]:
    by_name = {b.resource: b for b in case.bounds}
    unknown = missing("no roof of this device is known")
    name = case.subject.variant
    cells = [Cell(name, sort=name, href=variant_page(name)), *(_bound_cell(by_name.get(r)) for r in resources)]
    cells.append(replace(_bound_cell(case.floor), detail=case.floor.resource) if case.floor else unknown)
    for time in (f"{regime}_p50" for regime in REGIMES):
        cells.append(book.cell(time, case.subject, with_unit=False, brief=True))
        gap = case.gap(time)
        if gap is None:
            timed = book.record.facts.number(time, case.subject) is not None
            cells.append(unknown if timed else missing(book.why(time, case.subject)))
            continue
        title = "" if gap.floor == case.floor else f"over {gap.floor.resource}, {significant(gap.floor_us)} µs"
        cell = number_cell(gap.ratio, title=title)
        cells.append(replace(cell, mark="fail", detail="below its floor: cannot be right") if gap.ratio < 1 else cell)
    return cells
