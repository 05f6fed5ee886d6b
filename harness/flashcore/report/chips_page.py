"""The page about runs on several chips: a column for each, their rooflines side by side, and one gate.

Every value comes from its run's pages; only the row order combines chips.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from flashcore.chips import devices
from flashcore.explain import chips, roofline
from flashcore.gate.judge import Judgement
from flashcore.model.suite import Shape
from flashcore.model.text import significant
from flashcore.report import overview_page, roofline_page
from flashcore.report.cells import Cell, missing, not_applicable
from flashcore.report.overview_page import Overview
from flashcore.report.roofline_page import Roofline
from flashcore.report.view import GUARDRAILS, INDEX, ROOFLINE, Book, Page, gate_badge, provenance, variant_page

#: The overview's columns that each chip has on this page.
KEYS = ("time", "above-floor", "limits", "held")
_PLACES = [[column[0] for column in overview_page.COLUMNS].index(key) for key in KEYS]


@dataclass(frozen=True)
class ChipReport:
    """One chip's report: its folder, its overview and its roofline."""

    name: str
    folder: str
    book: Book
    overview: Overview
    roofline: Roofline

    @cached_property
    def sections(self) -> dict[str, overview_page.Section]:
        return {section.shape.name: section for section in self.overview.sections}

    @cached_property
    def rooflines(self) -> dict[str, roofline_page.Section]:
        return {section.shape.name: section for section in self.roofline.shapes}

    def answer(self, shape: Shape) -> overview_page.Answer | None:
        return self.sections[shape.name].answer if shape.name in self.sections else None


@dataclass(frozen=True)
class Chips:
    """The page's content."""

    reports: Sequence[ChipReport]
    judgement: Judgement
    columns = tuple(overview_page.COLUMNS[at] for at in _PLACES)

    @property
    def shapes(self) -> list[Shape]:
        """The shapes, first those timed on most chips, since the page opens with the first."""
        shapes = {name: section.shape for report in self.reports for name, section in report.sections.items()}
        return sorted(shapes.values(), key=lambda s: -sum(report.answer(s) is not None for report in self.reports))

    def sizes(self, shape: Shape) -> str:
        """The shape's parameters, or each chip's if they differ: a problem may scale a shape to the machine."""
        sizes = [(r.name, r.sections[shape.name].shape.params_text) for r in self.reports if shape.name in r.sections]
        several = len({size for _, size in sizes}) > 1
        return "; ".join(f"{name}: {size}" for name, size in sizes) if several else shape.params_text

    def rows(self, shape: Shape) -> Iterator[list[Cell]]:
        """A row per variant, ordered by time on the first chip: its name, then each chip's cells."""
        by_chip = [
            {row.cells[0].text: row.cells for row in r.sections[shape.name].rows} if shape.name in r.sections else {}
            for r in self.reports
        ]
        reasons = [chips.why_not(r.book.record) for r in self.reports]
        for name in dict.fromkeys(name for rows in by_chip for name in rows):
            variant = next(v for r in self.reports if (v := r.book.record.suite.variants.get(name)))
            line = [Cell(name, title=variant.technique, sort=name, detail="reference" if variant.is_reference else "")]
            for report, rows, why in zip(self.reports, by_chip, reasons, strict=True):
                absent = why(variant, shape) or ("" if name in rows else "not among the shapes in its report")
                for key, place in zip(KEYS, _PLACES, strict=True):
                    cell = not_applicable(absent) if absent else rows[name][place]
                    target = variant_page(name) if key == "time" and not absent else cell.href
                    line.append(replace(cell, href=target and report.folder + target))
            yield line

    @property
    def machine(self) -> Iterator[list[Cell]]:
        """Rows of each chip's machine, clock and roofs: the row's name, then a cell per chip."""
        reports = self.reports
        records = [r.book.record for r in reports]
        yield [Cell("report"), *(Cell(r.book.record.id, href=r.folder + INDEX) for r in reports)]
        yield [
            Cell("gate"),
            *(gate_badge(r.book.judgement, (r.folder + GUARDRAILS) * bool(r.book.judgement.verdicts)) for r in reports),
        ]
        origins = [dict(provenance(r)) for r in records]
        for name in ("", "driver", "nvcc", "source"):
            yield [Cell(name or "machine"), *(Cell(rows.get(name) or "not recorded") for rows in origins)]
        clocks = [[f.number for f in r.facts.named("bench_sm_clock") if f.number is not None] for r in records]
        medians = [Cell(f"{statistics.median(c):,.0f}", "MHz") if c else missing("not timed") for c in clocks]
        yield [Cell("SM clock", title="median over the timed cases"), *medians]
        if any(r.gpus for r in records):
            pairs = zip(records, origins, strict=True)
            gpus = ["; ".join(f"{g.uuid}: {rows[g.uuid]}" for g in r.gpus) for r, rows in pairs]
            yield [Cell("GPUs"), *(Cell(text or "one") for text in gpus)]
        roofs = [roofline.roofs(devices.find(r.gpu), None, r.roofs) for r in records]
        for resource in dict.fromkeys(("dram", "l2", *(v.roof for r in records for v in r.suite.variants.values()))):
            row = [Cell(f"roof: {resource}")]
            for report, ceilings in zip(reports, roofs, strict=True):
                r, href = roofline.pick(ceilings, resource, roofline.REACHABLE), report.folder + ROOFLINE
                cell = r and Cell(significant(r.value), r.unit, r.note or r.device, detail=r.origin, href=href)
                row.append(cell or missing("no roof is known"))
            yield row


def folders(names: Sequence[str]) -> list[str]:
    """Folder names for the chips, such as ``nvidia-h200``."""
    slugs: list[str] = []
    for name in names:
        slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "chip"
        slugs.append(slug if slug not in (*slugs, "assets", "variant") else f"{slug}-{len(slugs) + 1}")
    return slugs


def page(reports: Sequence[ChipReport], judgement: Judgement) -> Page[Chips]:
    """The page ``index`` of several runs."""
    return Page(INDEX, "Chips", "chips.html.j2", Chips(reports, judgement))
