"""The roofline page: where each case stands under the roofs, and the least time each resource allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flashcore.analysis import roofline
from flashcore.analysis.roofline import LEVELS, Bound, CaseBounds, Gap, Point
from flashcore.hardware import devices
from flashcore.model.record import Roof, Subject
from flashcore.model.suite import REGIMES, Shape
from flashcore.model.text import significant
from flashcore.report import charts
from flashcore.report.cells import Cell, missing, not_applicable, number_cell
from flashcore.report.view import ROOFLINE, Book, Page, variant_page

LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


def page(book: Book) -> Page:
    """The page ``roofline``."""
    record = book.record
    by_shape: dict[str, list[Point]] = {}
    for point in roofline.points(record):
        by_shape.setdefault(point.subject.shape or "", []).append(point)
    device = devices.find(record.gpu)
    known = roofline.roofs(device, None, record.roofs)
    gaps: dict[tuple[str, str], list[str]] = {}
    for subject, reason in roofline.missing(record):
        if subject.kernel is None:
            gaps.setdefault((reason, ""), []).append(str(subject))
    context: dict[str, Any] = {
        "device": device,
        "gpu": record.gpu,
        "roofs": [_roof_row(r) for r in known],
        "shapes": [_section(book, s, by_shape.get(s.name, []), known) for s in book.shown_shapes],
        "shapes_left_out": len(book.shapes) - len(book.shown_shapes),
        "faults": _faults(p for points in by_shape.values() for p in points),
        "gaps": [
            {"reason": reason, "cases": cases[:40], "more": max(0, len(cases) - 40), "count": len(cases)}
            for (reason, _), cases in sorted(gaps.items(), key=lambda g: -len(g[1]))
        ][:100],
    }
    return Page(ROOFLINE, "Roofline", "roofline.html.j2", context)


def _faults(points: Iterable[Point]) -> list[dict[str, str]]:
    """What cannot be right, said once for each case and cause."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for p in points:
        for text in p.faults if not p.subject.kernel else ():
            groups.setdefault((str(p.subject), text), {})[f"{LEVEL_NAMES[p.level]}, FLOPs by {p.counted}"] = None
    return [{"subject": s, "text": text, "where": "; ".join(where)} for (s, text), where in groups.items()][:200]


def _roof_row(roof: Roof) -> dict[str, str]:
    clock = f"{roof.clock_mhz:,.0f} MHz" if roof.clock_mhz else "any clock"
    return {
        "resource": roof.resource,
        "value": significant(roof.value),
        "unit": roof.unit,
        "origin": roof.origin,
        "clock": clock,
        "note": roof.note or roof.device,
    }


def _section(book: Book, shape: Shape, points: Sequence[Point], known: Sequence[Roof]) -> dict[str, Any]:
    roles = {v.name: book.role(v) for v in book.cases(shape)}
    # A kernel's own point says something new only where a case has several.
    kernels: dict[str, set[str]] = {}
    for p in points:
        if p.subject.kernel:
            kernels.setdefault(p.subject.variant, set()).add(p.subject.kernel)
    shown = [p for p in points if not p.subject.kernel or len(kernels[p.subject.variant]) > 1]
    figures = []
    for level in LEVELS:
        own = [(p, roles.get(p.subject.variant, "variant")) for p in shown if p.level == level]
        figure = charts.roofline(f"{level}-{shape.name}", level, shape.name, own, _drawn(known, [p for p, _ in own]))
        lines = {r.resource for p, _ in own for r in (p.theory.bandwidth, p.measured.bandwidth) if r}
        figures.append({"name": LEVEL_NAMES[level], "figure": figure, "roofed": bool(lines)})
    subjects = [Subject(v.name, shape=shape.name) for v in book.cases(shape)]
    cases = [book.bounds[s] for s in subjects if s in book.bounds]
    resources = list(dict.fromkeys(bound.resource for b in cases for bound in b.bounds))
    return {
        "shape": shape,
        "params": shape.params_text,
        "figures": figures,
        "points": [_point_row(p) for p in shown],
        "resources": resources,
        "bounds": [_bounds_row(book, b, resources) for b in cases],
    }


def _drawn(known: Iterable[Roof], points: Iterable[Point]) -> list[Roof]:
    """One roof for each resource and origin: of those at the clocks seen, the one of the highest clock."""
    points = list(points)
    dtypes = {p.roof for p in points}
    candidates = [r for r in known if r.resource in dtypes or r.unit == "GB/s"]
    for p in points:
        for ceiling in (p.theory, p.measured):
            candidates += [r for r in (ceiling.compute, ceiling.bandwidth) if r is not None]
    best: dict[tuple[str, str], Roof] = {}
    for roof in candidates:
        kept = best.get((roof.resource, roof.origin))
        if kept is None or roof.value > kept.value:
            best[roof.resource, roof.origin] = roof
    return list(best.values())


def _point_row(point: Point) -> dict[str, Any]:
    about = f"{point.subject}, FLOPs by {point.counted}, {point.regime}"
    compute = point.theory.compute.name if point.theory.compute else "none known"
    bandwidth = point.theory.bandwidth.name if point.theory.bandwidth else "none known"
    share = None if point.share is None else 100 * point.share
    return {
        "cells": [
            Cell(point.subject.variant, sort=point.subject.variant, href=variant_page(point.subject.variant),
                 detail=point.subject.kernel or ""),
            Cell(LEVEL_NAMES[point.level], sort=point.level),
            Cell(point.counted, sort=point.counted),
            number_cell(point.time_us, "us", about, with_unit=False),
            number_cell(point.flop, "1", about),
            number_cell(point.bytes, "B", about),
            number_cell(point.intensity, "1", about),
            number_cell(point.tflops, "TFLOP/s", about, with_unit=False),
            number_cell(point.gbps, "1", about),
            number_cell(share, "pct", f"compute roof {compute}, bandwidth roof {bandwidth}", with_unit=False,
                  reason=f"no roof is known for {point.roof} or {LEVEL_NAMES[point.level]} on this device"),
            Cell(point.regime, sort=point.regime),
            Cell("cannot be right", title="\n".join(point.faults), sort=0.0, mark="fail")
            if point.faults else Cell("ok", title="below every roof known", sort=1.0, mark="pass"),
        ],
    }  # fmt: skip


def bound_cell(bound: Bound | None) -> Cell:
    """The least time that one resource allows."""
    if bound is None:
        return not_applicable("its FLOPs are on the roof of another dtype")
    if bound.us is None:
        return missing(bound.note)
    roof = f"{bound.roof.name}: {significant(bound.roof.value)} {bound.roof.unit}" if bound.roof else ""
    return number_cell(bound.us, "us", f"{bound.amount:,.0f} {bound.unit} at {roof}", with_unit=False)


def _bounds_row(book: Book, case: CaseBounds, resources: Sequence[str]) -> dict[str, Any]:
    by_name = {b.resource: b for b in case.bounds}
    gaps: dict[str, Gap] = {g.time: g for g in case.gaps}
    floor = bound_cell(case.floor) if case.floor else missing("no roof of this device is known")
    cells = [Cell(case.subject.variant, sort=case.subject.variant, href=variant_page(case.subject.variant))]
    for name in resources:
        cells.append(bound_cell(by_name.get(name)))
    held = case.floor.resource if case.floor else ""
    cells.append(Cell(floor.text, floor.unit, floor.title, floor.sort, floor.kind, detail=held))
    for time in (f"{regime}_p50" for regime in REGIMES):
        cells.append(book.cell(time, case.subject, with_unit=False))
        gap = gaps.get(time)
        if gap is None:
            fact = book.record.facts.number(time, case.subject)
            cells.append(missing(book.why(time, case.subject) if fact is None else "no roof of this device is known"))
            continue
        title = f"over the {gap.floor.resource} floor of {significant(gap.floor_us)} µs"
        title += f"\n{gap.note}" if gap.note else ""
        gap_cell = number_cell(gap.ratio, "1", title)
        mark = "fail" if gap.ratio < 1 else ""
        word = "below its floor: cannot be right" if gap.ratio < 1 else gap.floor.resource
        cells.append(Cell(gap_cell.text, "×", gap_cell.title, gap.ratio, "number", mark, detail=word))
    return {"cells": cells, "held": held}
