"""The roofline page: each case's position under the roofs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flashcore import roofline_figure
from flashcore.chips import devices
from flashcore.explain import compare_records, roofline
from flashcore.explain.limiter import time_parts
from flashcore.explain.roofline import Point
from flashcore.model.groups import grouped
from flashcore.model.record import Roof
from flashcore.model.suite import Shape
from flashcore.model.text import fixed, significant, whole
from flashcore.report.cells import Cell, Table, missing, number_cell
from flashcore.report.view import CHARTS, MAX_SHAPES, ROOFLINE, Book, Page, variant_cell
from flashcore.roofline_figure import COUNTED, USEFUL, Chart, Marks, share_text


@dataclass(frozen=True)
class RooflineSection:
    """The roofline of one row of shapes, or of all kernels of an import."""

    book: Book
    shape: Shape
    title: str
    detail: str
    chart: Chart

    @cached_property
    def drawn(self) -> dict[str, Any]:
        return self.chart.figure()

    @property
    def counted(self) -> bool:
        """Whether any bytes were counted."""
        return any(not p.modeled for p in self.chart.points)

    @property
    def first(self) -> tuple[str, str, str]:
        """The variant of the mark with which the chart opens, what it is, and the mark in words."""
        p = self.chart.first
        if p is None:
            return "", "", ""
        unit = "useful TFLOP/s" if p.counted == USEFUL else "TFLOP/s by counters"
        rate = f"{significant(p.tflops)} {unit} in {significant(p.time_us)} µs, {p.mode}"
        limiter = time_parts(self.book.readings, p.subject.case).text
        words = (
            rate,
            share_text(p),
            f"limited by {limiter}" if limiter else "its limiter is unmeasured",
        )
        return p.subject.variant, self.chart.labels.get(p.subject, ""), "; ".join(words)

    @property
    def clock(self) -> str:
        """The clock of the drawn roofs, and what it is."""
        clock = self.chart.clock(self.chart.counts[0])
        if clock is None:
            return "The marks' clock is unknown: roofs that depend on it are at the datasheet's or the measured one"
        return f"Roofs that depend on the SM clock are drawn at {whole(clock)} MHz, the highest of the marks"

    @property
    def points(self) -> Table:
        shown = (p for p in self.chart.points if p.counted == self.chart.counts[0] and not p.subject.kernel)
        return [_point_row(self.chart, p) for p in shown]


@dataclass(frozen=True)
class Roofline:
    """The page's content."""

    book: Book
    most = MAX_SHAPES

    @cached_property
    def device(self) -> devices.Device | None:
        return devices.find(self.book.record.gpu)

    @cached_property
    def roofs(self) -> tuple[Roof, ...]:
        record = self.book.record
        by_gpu = dict.fromkeys(r for gpu in record.gpus for r in gpu.roofs)  # each sharing GPU's measured roofs
        return roofline.roofs(self.device, None, tuple(by_gpu) or record.roofs)

    @property
    def listed(self) -> Table:
        """The row of each roof with its names: a resource has that of its fastest measurement."""
        named = grouped((replace(roof, resource=""), roof.resource) for roof in self.roofs)
        source = self.device.source if self.device else ""
        return [
            [
                Cell(", ".join(names)),
                Cell(significant(roof.value), roof.unit.replace("us", "µs"), sort=roof.value, kind="number"),
                Cell(roof.origin),
                Cell(whole(roof.clock_mhz) if roof.clock_mhz else "any"),
                Cell("as above" if source and roof.note == source else roof.note or roof.device, kind="wrap"),
            ]
            for roof, names in named.items()
        ]

    @property
    def has_content(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.roofs or self.marks.by_case)

    @cached_property
    def marks(self) -> Marks:
        return Marks(self.book.record)

    @cached_property
    def shapes(self) -> list[RooflineSection]:
        """The sections with a point."""
        book, marks = self.book, self.marks
        if book.imported:
            chart = roofline_figure.of_imports(marks)
            return [RooflineSection(book, book.shapes[0], "All kernels", "by their share of the time", chart)][
                : len(chart.points)
            ]
        before = Marks(book.other) if book.other and not compare_records.comparable(book.other, book.record) else None
        sections = []
        for row in book.rows[:MAX_SHAPES]:
            chart = roofline_figure.of_row(row, marks, before)
            sections.append(RooflineSection(book, row.shape, row.name, row.shape.params_text, chart))
        return [s for s in sections if s.chart.points]

    @property
    def faults(self) -> list[tuple[tuple[str, str], list[str]]]:
        """Impossible points, once per case and cause, with their levels."""
        faults = grouped(
            ((str(p.subject), text), f"{roofline_figure.name(p.level)}, {COUNTED[p.counted]}")
            for p in self.marks.of(self.marks.by_case)
            if not p.subject.kernel
            for text in p.faults
        )
        return list(faults.items())[:200]

    @property
    def gaps(self) -> list[tuple[str, int]]:
        """Why cases have no mark, and how many, the most frequent reason first."""
        lacking = dict.fromkeys(
            (s, r) for s, r in roofline.missing(self.book.record) if not s.kernel and s not in self.marks.by_case
        )
        return Counter(reason for _, reason in lacking).most_common(10)


def page(book: Book) -> Page[Roofline]:
    """The page ``roofline``."""
    view = Roofline(book)
    return Page(ROOFLINE, "Roofline", "roofline.html.j2", view, scripts=CHARTS if view.shapes else ())


def _point_row(chart: Chart, point: Point) -> list[Cell]:
    reason = f"no roof for {point.roof} or {roofline_figure.name(point.level)} is known on this device"
    shares = [s and 100 * s for s in (point.share, point.share_of_measured)]
    times = chart.padding(point.subject)
    return [
        variant_cell(point.subject.variant, f"{COUNTED[point.counted]}, {point.mode}", shape=point.subject.shape or ""),
        Cell(roofline_figure.name(point.level), sort=point.level, detail="formula" if point.modeled else ""),
        *(number_cell(x, 4) for x in (point.time_us, point.intensity, point.tflops, point.gbps)),
        *(missing(reason) if s is None else Cell(fixed(s, 1), sort=s, kind="number") for s in shares),
        missing("the hardware's FLOPs or the problem's are unknown") if times is None else number_cell(times),
        Cell("impossible", title="\n".join(point.faults), sort=0.0, mark="fail")
        if point.faults
        else Cell("ok", sort=1.0, mark="pass"),
    ]
