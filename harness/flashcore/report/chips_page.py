"""The page over runs on several chips: a column for each, the rooflines side by side, and one gate.

Every figure comes from the pages of its own run; only the order combines several chips.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flashcore.chips import devices
from flashcore.explain import chips, roofline
from flashcore.gate.judge import Judgement
from flashcore.gate.wording import sentence, summary
from flashcore.model.suite import Shape
from flashcore.model.text import significant
from flashcore.report import frame, overview_page, roofline_page
from flashcore.report.cells import Cell, missing, not_applicable
from flashcore.report.view import GUARDRAILS, INDEX, ROOFLINE, Book, Page, variant_page

#: The overview's columns that each chip has here.
KEYS = ("time", "above-floor", "limits", "held")
_PLACES = [[column[0] for column in overview_page.COLUMNS].index(key) for key in KEYS]
#: Failures in full; the chips' own pages have all.
MOST_FAILED = 20


@dataclass(frozen=True)
class ChipReport:
    """One chip's report: its folder, and by shape what its overview and its roofline show."""

    name: str
    folder: str
    book: Book
    overview: dict[str, overview_page.Section]
    rooflines: dict[str, roofline_page.Section]

    def answer(self, shape: str) -> overview_page.Answer | None:
        return self.overview[shape].answer if shape in self.overview else None


@dataclass(frozen=True)
class Section:
    """All chips at one shape; ``others`` has their sizes where these differ."""

    shape: Shape
    others: list[str]
    answers: list[overview_page.Answer | None]
    rows: list[list[Cell]]
    rooflines: list[roofline_page.Section | None]


@dataclass(frozen=True)
class View:
    """The template's variables."""

    title: str
    chips: Sequence[ChipReport]
    machine: list[list[Cell]]
    sections: list[Section]
    summary: str
    failed: list[str]
    more: int
    notes: Sequence[str]
    columns: Sequence[tuple[str, ...]] = tuple(overview_page.COLUMNS[at] for at in _PLACES)


def folders(names: Sequence[str]) -> list[str]:
    """Names for chips' folders: ``nvidia-h200``."""
    slugs: list[str] = []
    for name in names:
        slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "chip"
        slugs.append(slug if slug not in (*slugs, "assets", "variant") else f"{slug}-{len(slugs) + 1}")
    return slugs


def page(reports: Sequence[ChipReport], judgement: Judgement) -> Page[View]:
    """The page ``index`` of several runs."""
    shapes = {name: section.shape for report in reports for name, section in report.overview.items()}
    # Shapes that were timed on most chips come first: the page opens with one.
    order = sorted(shapes, key=lambda name: -sum(report.answer(name) is not None for report in reports))
    sections = [
        Section(
            shapes[name],
            _others(reports, name),
            [report.answer(name) for report in reports],
            _rows(reports, shapes[name]),
            [report.rooflines.get(name) for report in reports],
        )
        for name in order
    ]
    failed = judgement.failed
    view = View(
        reports[0].book.record.suite.title,
        reports,
        list(_machine(reports)),
        sections,
        summary(judgement),
        [sentence(v) for v in failed[:MOST_FAILED]],
        max(0, len(failed) - MOST_FAILED),
        judgement.notes,
    )
    return Page(INDEX, "Chips", "chips.html.j2", view)


def _others(reports: Sequence[ChipReport], shape: str) -> list[str]:
    """Chips on which a shape of this name has other sizes: a problem may fit it to its machine."""
    sizes = [(r.name, r.overview[shape].shape.params_text) for r in reports if shape in r.overview]
    return [f"{name}: {size}" for name, size in sizes] if len({size for _, size in sizes}) > 1 else []


def _rows(reports: Sequence[ChipReport], shape: Shape) -> list[list[Cell]]:
    """A line for each variant, in the order of their times on the first chip; each chip's cells behind its name."""
    by_chip = [
        {row.cells[0].text: row.cells for row in r.overview[shape.name].rows} if shape.name in r.overview else {}
        for r in reports
    ]
    reasons = [chips.why_not(r.book.record) for r in reports]
    lines = []
    for name in dict.fromkeys(name for rows in by_chip for name in rows):
        variant = next(v for r in reports if (v := r.book.record.suite.variants.get(name)))
        line = [Cell(name, title=variant.technique, sort=name, detail="peer" if variant.is_reference else "")]
        for report, rows, why in zip(reports, by_chip, reasons, strict=True):
            absent = why(variant, shape) or ("" if name in rows else "not among the shapes that its report shows")
            for key, place in zip(KEYS, _PLACES, strict=True):
                cell = not_applicable(absent) if absent else rows[name][place]
                target = variant_page(name) if key == "time" and not absent else cell.href
                line.append(replace(cell, href=target and report.folder + target))
        lines.append(line)
    return lines


def _machine(reports: Sequence[ChipReport]) -> Iterator[list[Cell]]:
    """Each chip's machine, clock, spread and roofs: a cell for each chip behind the row's name."""
    records = [r.book.record for r in reports]
    yield [Cell("report"), *(Cell(r.book.record.id, href=r.folder + INDEX) for r in reports)]
    yield [Cell("gate"), *(frame.gate(r.book.judgement, r.folder + GUARDRAILS) for r in reports)]
    origins = [dict(frame.provenance(r)) for r in records]
    for name in ("", "driver", "nvcc", "source"):
        yield [Cell(name or "machine"), *(Cell(rows.get(name) or "not recorded") for rows in origins)]
    clocks = [[f.number for f in r.facts.named("bench_sm_clock") if f.number is not None] for r in records]
    medians = [Cell(f"{statistics.median(c):,.0f}", "MHz") if c else missing("not timed") for c in clocks]
    yield [Cell("SM clock", title="median over the timed cases"), *medians]
    if any(r.gpus for r in records):
        pairs = zip(records, origins, strict=True)
        gpus = ["; ".join(f"{g.uuid}: {rows[g.uuid]}" for g in r.gpus) for r, rows in pairs]
        yield [Cell("its GPUs"), *(Cell(text or "one") for text in gpus)]
    roofs = [roofline.roofs(devices.find(r.gpu), None, r.roofs) for r in records]
    for resource in dict.fromkeys(("dram", "l2", *(v.roof for r in records for v in r.suite.variants.values()))):
        best = [roofline.pick(ceilings, resource, roofline.REACHABLE) for ceilings in roofs]
        yield [
            Cell(f"roof: {resource}"),
            *(
                Cell(significant(r.value), r.unit, r.note or r.device, detail=r.origin, href=report.folder + ROOFLINE)
                if r
                else missing("no roof is known")
                for r, report in zip(best, reports, strict=True)
            ),
        ]
