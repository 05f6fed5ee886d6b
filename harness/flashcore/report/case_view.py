"""One case on its variant's page: the answer, its limiters and where on the ladder they changed, where its warps and
its bytes are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flashcore.explain import bounds_in_use, heat
from flashcore.explain.ladder import COUNTERS, Moved, Step
from flashcore.explain.limiter import Limiter, phase_shares
from flashcore.model.catalogue import FACTS, STALL_REASONS
from flashcore.model.record import Fact, Listing, Subject
from flashcore.model.suite import REGIMES, Shape, Variant
from flashcore.model.text import quantity, significant
from flashcore.report import drawings
from flashcore.report.cells import Cell, fact_cell, faster, missing, not_applicable
from flashcore.report.outcomes import predicted_share
from flashcore.report.view import Book, variant_page

MODES = (*REGIMES, "eager")
MOST_LINES = 20
MOST_INSTRUCTIONS = 12
MOST_LIMITERS = 6
#: A counter that changed by less than this counts as the same.
MOVED = 0.05


def case_view(book: Book, variant: Variant, shape: Shape) -> dict[str, Any]:
    """What is shown of a case that was profiled, or, of a variant none of whose were, of its first."""
    subject = Subject(variant.name, shape=shape.name)
    step = next((s for s in book.ladder(shape).steps if s.variant.name == variant.name), None)
    parent = variant.parent if variant.parent in book.record.suite.variants else None
    series = [(m, s) for m in MODES if (s := book.record.samples.get(f"{subject.case}/{m}"))]
    held = book.held(variant.name, shape.name)
    return {
        "shape": shape,
        "answer": _answer(book, subject, shape, step),
        "held": held,
        "limiters": [_limiter(book, variant, shape, x) for x in held.limiters[:MOST_LIMITERS]],
        "why_not": book.why_stage(variant.name, shape.name, "profile"),
        "finding": step.finding if step and step.parent else "",
        "moved": _moved(book, step, shape) if step and parent else [],
        "parent": parent,
        "stalls": _stalls(book, subject, parent),
        "phases": _phases(book, variant, shape, parent),
        "samples": drawings.samples(subject.case, series) if series else None,
        "no_samples": book.why_stage(variant.name, shape.name, "bench"),
        "memory": _memory(book, variant, shape, parent),
        "heat": _heat(book, subject, parent),
    }


def _answer(book: Book, subject: Subject, shape: Shape, step: Step | None) -> list[str]:
    """Its time, compared with parent, peer and floor, in parts of a sentence."""
    facts = book.record.facts
    time = facts.number(shape.time, subject)
    if not time:
        return [f"no time: {book.why(shape.time, subject)}"]
    words = [f"{significant(time)} µs {shape.rank_by.replace('_', ' ')}"]
    if step is not None and step.ratio:
        ends = f" [{1 / step.high:.3f}, {1 / step.low:.3f}]" if step.low and step.high else ""
        words.append(faster(1 / step.ratio, "its parent") + ends)
    peer = facts.number("speedup_vs_peer", subject)
    if peer:
        words.append(faster(peer, "the fastest peer"))
    bounds = book.bounds.get(subject)
    gap = next((g for g in bounds.gaps if g.time == shape.time), None) if bounds else None
    if gap:
        words.append(f"{significant(gap.ratio, 3)} × above its floor of {significant(gap.floor_us, 3)} µs "
                     f"({gap.floor.resource})")  # fmt: skip
    return words


# --- what holds it ----------------------------------------------------------------------------------


def _limiter(book: Book, variant: Variant, shape: Shape, x: Limiter) -> dict[str, Any]:
    found = [r for r in book.remedies(shape).get(x.kind, ()) if r.variant != variant.name]
    elsewhere = [
        {"variant": r.variant, "href": variant_page(r.variant), "technique": r.technique,
         "text": f"{r.before:.0f} → {r.after:.0f} %, {significant(r.faster, 3)} × faster than {r.parent}"}
        for r in found[:2]
    ]  # fmt: skip
    return {"brief": x.brief, "share": round(min(x.share, 100.0), 1), "evidence": x.evidence, "elsewhere": elsewhere}


def _moved(book: Book, step: Step, shape: Shape) -> list[list[Cell]]:
    """The counters that changed against the parent: its value, this one's, and their ratio."""
    return [row for m in step.moved if (row := _moved_row(book, step, m, shape)) is not None]


def _moved_row(book: Book, step: Step, moved: Moved, shape: Shape) -> list[Cell] | None:
    was, now = moved.before.value, moved.after.value
    if was is None or now is None or abs(now - was) <= MOVED * max(abs(was), abs(now)):
        return None
    spec = FACTS[moved.fact]
    if spec.group == "static":
        cell = book.static_cell(moved.fact, step.variant, shape.name)
    else:
        cell = book.cell(moved.fact, Subject(step.variant.name, shape=shape.name))
    text, unit = quantity(was, spec.unit)
    before = Cell(text, unit, f"of {step.parent}", kind="number")
    times = f"{significant(moved.ratio, 3)} ×" if moved.ratio else "from or to 0"
    name = Cell(COUNTERS[moved.fact], title=spec.why)
    return [name, before, replace(cell, sort=None), Cell(times, kind="number")]


# --- where its warps are ----------------------------------------------------------------------------


def _bar(name: str, own: Fact, was: float | None, text: str = "") -> dict[str, Any]:
    """A share as a bar, the parent's as a tick on it."""
    value = own.number
    return {"name": name, "cell": fact_cell(own), "percent": None if value is None else round(value, 1),
            "parent": None if was is None else round(was, 1), "text": text}  # fmt: skip


def _stalls(book: Book, subject: Subject, parent: str | None) -> list[dict[str, Any]]:
    facts = book.record.facts
    rows = []
    for reason in STALL_REASONS:
        own = facts.get(f"stall_share_{reason}", subject)
        if own is not None and own.number is not None and own.number >= 0.5:
            was = facts.number(own.name, Subject(parent, shape=subject.shape)) if parent else None
            rows.append(_bar(reason.replace("_", " "), own, was))
    return sorted(rows, key=lambda r: -(r["percent"] or 0.0))


def _phases(book: Book, variant: Variant, shape: Shape, parent: str | None) -> list[dict[str, Any]]:
    """Where the time of its warps goes, phase by phase, beside what was predicted."""
    before = phase_shares(book.record, Subject(parent, shape=shape.name)) if parent else {}
    rows = []
    for phase, share in phase_shares(book.record, Subject(variant.name, shape=shape.name)).items():
        wanted = predicted_share(variant, phase, shape)
        said = f"predicted {wanted.after:g} %" if wanted is not None and wanted.after is not None else ""
        rows.append(_bar(phase, share, before[phase].number if phase in before else None, said))
    return rows


# --- where its bytes are ----------------------------------------------------------------------------


def _memory(book: Book, variant: Variant, shape: Shape, parent: str | None) -> drawings.Drawing | None:
    facts = book.record.facts
    subject = Subject(variant.name, shape=shape.name)

    def reader(name: str) -> drawings.Read:
        about = Subject(name, shape=shape.name)
        busy = bounds_in_use.shared_busy(book.readings, about)
        return lambda fact: busy if fact == "shared_busy" else facts.number(fact, about)

    if facts.number("l2_bytes", subject) is None:
        return None
    return drawings.memory(subject.case, reader(variant.name), reader(parent) if parent else None)


# --- source heat ------------------------------------------------------------------------------------


def _heat(book: Book, subject: Subject, parent: str | None) -> list[dict[str, Any]]:
    """The hottest lines of each of its kernels, each with its machine instructions."""
    own = book.listings.get((subject.variant, subject.shape or ""), ())
    before = book.listings.get((parent or "", subject.shape or ""), ())
    return [_kernel(listing, before) for listing in own]


def _kernel(listing: Listing, before: Sequence[Listing]) -> dict[str, Any]:
    same = next((x for x in before if x.subject.kernel == listing.subject.kernel), before[0] if before else None)
    was = heat.shares(same)
    lines = heat.lines(listing)
    counted = any(x.conflicts is not None for x in lines)
    return {
        "kernel": listing.subject.kernel,
        "lines": [_line(x, was.get(x.source) if same is not None else None, counted) for x in lines[:MOST_LINES]],
        "more": max(0, len(lines) - MOST_LINES),
        "rest": sum(x.share for x in lines[MOST_LINES:]),
        "conflicts": counted,
        "parent": same is not None,
    }


def _count(value: float | None) -> Cell:
    """A count that should be 0: marked where it is not."""
    if value is None:
        return missing("ncu did not count passes by instruction")
    return Cell(f"{value:,.0f}", sort=value, kind="number", mark="waived" if value else "")


def _line(x: heat.Line, was: float | None, counted: bool) -> dict[str, Any]:
    place = f"{x.file}:{x.number}" if x.number else "no line is known"
    held = f"{x.held[0].replace('_', ' ')} {x.held[1]:.0f} %" if x.held else ""
    hottest = sorted(x.instructions, key=lambda i: -i.values.get("samples", 0))[:MOST_INSTRUCTIONS]
    counts = [f"{i.values.get('executed', 0):,.0f}" for i in hottest]
    wide = max(len("executed"), *map(len, counts))
    sass = [
        f"{i.values.get('samples', 0):>7,.0f} {i.values.get('executed', 0):>{wide},.0f}  {i.offset:05x}  {i.text}"
        for i in sorted(hottest, key=lambda i: i.offset)
    ]
    if left := len(x.instructions) - len(hottest):
        sass.append(f"and {left} more")
    return {
        "place": place,
        "source": x.source or place,
        "share": round(x.share, 1),
        "parent": None if was is None else round(was, 1),
        "cells": [
            Cell(held, sort=held) if held else not_applicable("no warp was held here"),
            Cell(f"{x.executed:,.0f}", sort=x.executed, kind="number"),
            *([_count(x.conflicts)] if counted else []),
            _count(x.local),
        ],
        "sass": "\n".join([f"samples {'executed':>{wide}}  offset instruction", *sass]),
        "count": len(x.instructions),
    }  # fmt: skip
