"""The page over runs on several chips: a column for each, the rooflines side by side, and one gate.

Every figure is taken from the pages of the run it belongs to, so only the order combines several chips.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from flashcore.chips import devices
from flashcore.explain import chips, roofline
from flashcore.gate.judge import Judgement
from flashcore.gate.wording import sentence, summary
from flashcore.model.suite import Shape
from flashcore.model.text import significant
from flashcore.report import frame, overview_page
from flashcore.report.cells import Cell, missing, not_applicable
from flashcore.report.view import GUARDRAILS, INDEX, ROOFLINE, Book, Page, variant_page

#: Of the overview's columns those that each chip has here.
KEYS = ("time", "above-floor", "limits", "held")
_COLUMNS = {key: (i, *rest) for i, (key, *rest) in enumerate(overview_page.COLUMNS)}
#: Failures that are written out; the chips' own pages have all.
MOST_FAILED = 20


def folders(names: Sequence[str]) -> list[str]:
    """Names for chips' folders, as ``nvidia-h200``."""
    found: list[str] = []
    for name in names:
        slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "chip"
        found.append(slug if slug not in (*found, "assets", "variant") else f"{slug}-{len(found) + 1}")
    return found


def page(books: Sequence[Book], pages: Sequence[Sequence[Page]], own: Sequence[str], judgement: Judgement) -> Page:
    """The page ``index`` of several runs.

    Args:
        pages: of each run, as its own report has them.
        own: the folders of these reports.
    """
    records = [book.record for book in books]
    by_name = [{p.name: p.context for p in of} for of in pages]
    sections = [{s["shape"].name: s for s in of[INDEX]["sections"]} for of in by_name]
    drawn = [{s["shape"].name: s for s in of[ROOFLINE]["shapes"]} for of in by_name]
    answers = [{name: s["answer"] for name, s in of.items() if s["answer"]} for of in sections]
    shapes = {name: s["shape"] for of in sections for name, s in of.items()}
    # What was timed on most of them comes first: the page opens with it.
    shapes = dict(sorted(shapes.items(), key=lambda item: -sum(item[0] in of for of in answers)))
    context: dict[str, Any] = {
        "title": records[0].suite.title,
        "chips": [{"name": name, "folder": folder} for name, folder in zip(judgement.chips, own, strict=True)],
        "machine": list(_machine(books, own)),
        "columns": [_COLUMNS[key][1:] for key in KEYS],
        "keys": KEYS,
        "sections": [
            {
                "shape": shape,
                "params": shape.params_text,
                "others": _others(judgement.chips, sections, shape),
                "answers": [of.get(name) for of in answers],
                "rows": _rows(books, sections, own, shape),
                "rooflines": [of.get(name) for of in drawn],
            }
            for name, shape in shapes.items()
        ],
        "summary": summary(judgement),
        "failed": [sentence(v) for v in judgement.failed[:MOST_FAILED]],
        "more": max(0, len(judgement.failed) - MOST_FAILED),
        "notes": judgement.notes,
    }  # fmt: skip
    return Page(INDEX, "Chips", "chips.html.j2", context)


def _others(names: Sequence[str], sections: Sequence[dict[str, Any]], shape: Shape) -> list[str]:
    """Chips on which a shape of this name has other sizes: a problem may fit it to its machine."""
    each = [(name, of[shape.name]["params"]) for name, of in zip(names, sections, strict=True) if shape.name in of]
    return [f"{name}: {params}" for name, params in each] if len({params for _, params in each}) > 1 else []


def _rows(books: Sequence[Book], sections: Sequence[dict[str, Any]], own: Sequence[str], shape: Shape) -> list[Any]:
    """A line for each variant, in the order of their times on the first chip; each chip's cells behind its name."""
    rows = [{row.cells[0].text: row.cells for row in of[shape.name]["rows"]} if shape.name in of else {}
            for of in sections]  # fmt: skip
    reasons = [chips.why_not(book.record) for book in books]
    lines = []
    for name in dict.fromkeys(name for of in rows for name in of):
        variant = next(v for book in books if (v := book.record.suite.variants.get(name)))
        line = [Cell(name, title=variant.technique, sort=name, detail="peer" if variant.is_reference else "")]
        for of, why, folder in zip(rows, reasons, own, strict=True):
            gone = why(variant, shape) or ("" if name in of else "not among the shapes that its report shows")
            for key in KEYS:
                cell = not_applicable(gone) if gone else of[name][_COLUMNS[key][0]]
                page = variant_page(name) if key == "time" and not gone else cell.href
                line.append(replace(cell, href=page and folder + page))
        lines.append(line)
    return lines


def _machine(books: Sequence[Book], own: Sequence[str]) -> Iterator[list[Cell]]:
    """What each chip is, with its own clocks, spread and roofs: a cell for each behind the row's name."""
    records = [book.record for book in books]
    yield [Cell("report"), *(Cell(r.id, href=folder + INDEX) for r, folder in zip(records, own, strict=True))]
    yield [Cell("gate"), *(frame.gate(b.judgement, folder + GUARDRAILS) for b, folder in zip(books, own, strict=True))]
    known = [dict(frame.provenance(r)) for r in records]
    for name in ("", "driver", "nvcc", "source"):
        yield [Cell(name or "machine"), *(Cell(of.get(name) or "not recorded") for of in known)]
    clocks = [[f.number for f in r.facts.named("bench_sm_clock") if f.number is not None] for r in records]
    yield [Cell("SM clock", title="median over the timed cases"),
           *(Cell(f"{statistics.median(c):,.0f}", "MHz") if c else missing("not timed") for c in clocks)]  # fmt: skip
    if any(r.gpus for r in records):
        yield [Cell("its GPUs"), *(Cell("; ".join(f"{g.uuid}: {of[g.uuid]}" for g in r.gpus) or "one")
                                   for r, of in zip(records, known, strict=True))]  # fmt: skip
    roofs = [roofline.roofs(devices.find(r.gpu), None, r.roofs) for r in records]
    for resource in dict.fromkeys(("dram", "l2", *(v.roof for r in records for v in r.suite.variants.values()))):
        best = [roofline.pick(of, resource, roofline.REACHABLE) for of in roofs]
        yield [Cell(f"roof: {resource}"), *(
            Cell(significant(r.value), r.unit, r.note or r.device, detail=r.origin, href=folder + ROOFLINE) if r else
            missing("no roof is known") for r, folder in zip(best, own, strict=True)
        )]  # fmt: skip
