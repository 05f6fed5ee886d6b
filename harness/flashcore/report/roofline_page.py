"""The roofline page: where each case stands under the roofs, and the least time each resource allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.roofline import LEVELS, Bound, CaseBounds, Gap, Point
from flashcore.model.record import Roof, Subject
from flashcore.model.suite import REGIMES, Shape
from flashcore.model.text import significant
from flashcore.report.cells import Cell, missing, not_applicable
from flashcore.report.view import ROOFLINE, Book, Page, variant_page

LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


def page(book: Book) -> Page:
    """The page ``roofline``."""
    record = book.record
    by_shape: dict[str, list[Point]] = {}
    for point in roofline.points(record):
        by_shape.setdefault(point.subject.shape or "", []).append(point)
    device = devices.find(record.gpu)
    own = dict.fromkeys(r for gpu in record.gpus for r in gpu.roofs)  # of each GPU, where each has its own
    known = roofline.roofs(device, None, tuple(own) or record.roofs)
    gaps: dict[str, list[str]] = {}
    for subject, reason in roofline.missing(record):
        if subject.kernel is None:
            gaps.setdefault(reason, []).append(str(subject))
    context: dict[str, Any] = {
        "device": device,
        "gpu": record.gpu,
        "roofs": [_roof_row(r) for r in known],
        "shapes": [_section(book, s, by_shape.get(s.name, []), known) for s in book.shown_shapes],
        "shapes_left_out": len(book.shapes) - len(book.shown_shapes),
        "faults": _faults(p for points in by_shape.values() for p in points),
        "gaps": [
            {"reason": reason, "cases": cases[:40], "more": max(0, len(cases) - 40), "count": len(cases)}
            for reason, cases in sorted(gaps.items(), key=lambda g: -len(g[1]))
        ][:100],
    }
    return Page(ROOFLINE, "Roofline", "roofline.html.j2", context)


def _faults(points: Iterable[Point]) -> list[dict[str, str]]:
    """Impossible points, reported once for each case and cause."""
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
    variants = book.cases(shape)
    if not points:  # no counters: points from the formulas and the bench
        subjects = (Subject(v.name, shape=shape.name) for v in variants)
        points = [p for subject in subjects for p in roofline.formula_points(book.record, subject)]
    # A kernel's own point says something new only where a case has several.
    kernels: dict[str, set[str]] = {}
    for p in points:
        if p.subject.kernel:
            kernels.setdefault(p.subject.variant, set()).add(p.subject.kernel)
    shown = [p for p in points if not p.subject.kernel or len(kernels[p.subject.variant]) > 1]
    cases = [book.bounds[s] for v in variants if (s := Subject(v.name, shape=shape.name)) in book.bounds]
    resources = list(dict.fromkeys(bound.resource for b in cases for bound in b.bounds))
    return {
        "shape": shape,
        "params": shape.params_text,
        "drawn": _drawing(book, shape, shown, known) if shown else None,
        "counted": any(p.counted == "hardware" for p in shown),
        "variants": list(dict.fromkeys(p.subject.variant for p in shown)),
        "points": [_point_row(p) for p in shown if p.counted == shown[0].counted and not p.subject.kernel],
        "resources": resources,
        "bounds": [_bounds_row(book, b, resources) for b in cases],
    }


def _drawing(book: Book, shape: Shape, points: Sequence[Point], known: Sequence[Roof]) -> dict[str, Any]:
    """What the page's script draws: roofs, points, the ladder's path through them, and the variants that are always
    labelled."""
    found = book.ladder(shape)
    best = found.best
    named = {"winner": best and best.variant.name, "parent": best and best.parent,
             "baseline": book.record.suite.baseline, "peer": found.peer and found.peer[0]}  # fmt: skip
    roles = {v.name: book.role(v) for v in book.cases(shape)}
    roofs = [
        {"resource": r.resource, "value": r.value, "compute": r.unit == "TFLOP/s", "origin": r.origin,
         "label": f"{significant(r.value, 3)} {r.unit} {_origin(r)}"}
        for r in _drawn(known, points)
    ]  # fmt: skip
    head = ["variant", "kernel", "shape", "level", "FLOPs by", "FLOP", "bytes", "time µs", "FLOP per byte", "TFLOP/s",
            "regime"]  # fmt: skip
    rows = [
        [p.subject.variant, p.subject.kernel, shape.name, p.level, p.counted, p.flop, p.bytes, p.time_us,
         _short(p.intensity), _short(p.tflops), p.regime]
        for p in points
    ]  # fmt: skip
    return {
        "kind": "roofline",
        "table": [head, *rows],
        "roles": {p.subject.variant: roles.get(p.subject.variant, "variant") for p in points},
        "shares": [p.share and round(100 * p.share, 1) for p in points],
        "faults": {i: p.faults for i, p in enumerate(points) if p.faults},
        "roofs": roofs,
        "named": named,
        "way": [s.variant.name for s in found.way],
    }


def _short(value: float) -> float:
    """The values derived from the facts beside them."""
    return float(f"{value:.6g}")


def _origin(roof: Roof) -> str:
    return f"at {roof.clock_mhz:,.0f} MHz" if roof.origin == "at clock seen" and roof.clock_mhz else f"({roof.origin})"


def _drawn(known: Iterable[Roof], points: Iterable[Point]) -> list[Roof]:
    """One roof for each resource and origin: of those at the clocks seen, the one of the highest clock. Where the
    clock was seen, the datasheet's own says nothing more."""
    points = list(points)
    dtypes = {p.roof for p in points}
    candidates = [r for r in known if r.resource in (*dtypes, *LEVELS)]
    for p in points:
        for ceiling in (p.theory, p.measured):
            candidates += [r for r in (ceiling.compute, ceiling.bandwidth) if r is not None]
    best: dict[tuple[str, str], Roof] = {}
    for roof in candidates:
        kept = best.get((roof.resource, roof.origin))
        if kept is None or roof.value > kept.value:
            best[roof.resource, roof.origin] = roof
    return [r for (name, origin), r in best.items() if origin != "datasheet" or (name, "at clock seen") not in best]


def _point_row(point: Point) -> list[Cell]:
    about = f"FLOPs by {point.counted}, {point.regime}"
    share = None if point.share is None else 100 * point.share
    reason = f"no roof is known for {point.roof} or {LEVEL_NAMES[point.level]} on this device"
    return [
        Cell(point.subject.variant, title=about, sort=point.subject.variant, href=variant_page(point.subject.variant)),
        Cell(LEVEL_NAMES[point.level], sort=point.level),
        *(Cell(significant(x, 4), sort=x, kind="number") for x in (point.time_us, point.intensity, point.tflops)),
        missing(reason) if share is None else Cell(f"{share:.1f}", sort=share, kind="number"),
        Cell("cannot be right", title="\n".join(point.faults), sort=0.0, mark="fail") if point.faults else
        Cell("ok", sort=1.0, mark="pass"),
    ]  # fmt: skip


def bound_cell(bound: Bound | None) -> Cell:
    """The least time that one resource allows."""
    if bound is None:
        return not_applicable("its FLOPs are on the roof of another dtype")
    if bound.us is None:
        return missing(bound.note)
    return Cell(significant(bound.us, 4), sort=bound.us, kind="number")


def _bounds_row(book: Book, case: CaseBounds, resources: Sequence[str]) -> list[Cell]:
    by_name = {b.resource: b for b in case.bounds}
    gaps: dict[str, Gap] = {g.time: g for g in case.gaps}
    floor = bound_cell(case.floor) if case.floor else missing("no roof of this device is known")
    cells = [Cell(case.subject.variant, sort=case.subject.variant, href=variant_page(case.subject.variant))]
    cells += [bound_cell(by_name.get(name)) for name in resources]
    cells.append(replace(floor, detail=case.floor.resource if case.floor else ""))
    for time in (f"{regime}_p50" for regime in REGIMES):
        cells.append(book.cell(time, case.subject, with_unit=False, brief=True))
        gap = gaps.get(time)
        if gap is None:
            known = book.record.facts.number(time, case.subject) is not None
            cells.append(missing("no roof of this device is known" if known else book.why(time, case.subject)))
            continue
        title = "" if gap.floor == case.floor else f"over {gap.floor.resource}, {significant(gap.floor_us)} µs"
        mark, word = ("fail", "below its floor: cannot be right") if gap.ratio < 1 else ("", "")
        cells.append(Cell(significant(gap.ratio, 3), "", title, gap.ratio, "number", mark, detail=word))
    return cells
