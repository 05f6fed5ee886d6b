"""The ladder page: step by step, what was predicted of each technique and what the counters say it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flashcore.analysis import ladder, roofline
from flashcore.analysis.ladder import COUNTERS, Ladder, Moved, Step
from flashcore.analysis.limiter import phase_shares
from flashcore.analysis.predictions import Judged, Outcome, Reading
from flashcore.model.catalogue import FACTS, OTHER_PHASE, PHASE_SHARE
from flashcore.model.record import Fact, Subject
from flashcore.model.suite import REGIMES, Prediction, Shape, Variant
from flashcore.model.text import UNMEASURED, said, significant, unit_text
from flashcore.report import charts
from flashcore.report.cells import Cell, fact_cell, missing, not_applicable, number_cell
from flashcore.report.view import LADDER, MAX_ROWS, Book, Page, tile, variant_page

STEPS = (
    ("step", "", "links to its page; ★ lies on the way from the baseline to the best"),
    ("parent", "", "what it was made from"),
    ("from", "", "the FlashCore design that describes it"),
    *((f"{regime} p50".replace("_", " "), "µs", FACTS[f"{regime}_p50"].why) for regime in REGIMES),
    ("× parent", "", "the time that ranks, over its parent's, with the 95 % bootstrap interval"),
    ("predicted", "", "the same ratio as it was predicted, on whatever device"),
    ("gap", "×", "its time over the floor: the least time that any resource allows"),
    ("came true?", "", "what became of the predicted time"),
    ("finding", "", "made of the facts, not written"),
)
#: An outcome's word, and the mark that the style sheet knows.
OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "held": ("held", "pass"),
    "more": ("exceeded", "pass"),
    "partly": ("partly", "waived"),
    "none": ("no effect", "open"),
    "against": ("other way", "fail"),
    "missed": ("missed", "fail"),
    "elsewhere": ("not comparable", "unmeasured"),
    "unmeasured": ("unmeasured", "unmeasured"),
    "open": ("none made", "open"),
}


def outcome_cell(outcome: Outcome, note: str = "") -> Cell:
    """The badge of what became of a prediction; ``note`` on hover."""
    text, mark = OUTCOMES[outcome]
    return Cell(text, title=note, sort=float(list(OUTCOMES).index(outcome)), mark=mark)


def page(book: Book) -> Page:
    """The page ``ladder``."""
    suite = book.record.suite
    known = any(v.parent in suite.variants for v in suite.variants.values())
    shown = [s for s in book.shown_shapes if any(not v.is_peer for v in book.cases(s))] if known else []
    context: dict[str, Any] = {
        "gpu": book.record.gpu,
        "notes": suite.notes,
        "shapes": [_shape(book, s) for s in shown],
        "shapes_left_out": len(book.shapes) - len(book.shown_shapes) if known else 0,
        "steps_columns": STEPS,
        "counters": [(COUNTERS[n], unit_text(FACTS[n].unit), FACTS[n].why) for n in COUNTERS],
        "arch": book.arch,
    }
    return Page(LADDER, "Ladder", "ladder.html.j2", context)


def _shape(book: Book, shape: Shape) -> dict[str, Any]:
    found = ladder.ladder(book.record, shape, book.readings, book.bounds)
    judged = [(s, j) for s in found.steps for j in s.judged]
    return {
        "shape": shape,
        "params": shape.params_text,
        "tiles": _tiles(book, found),
        "figure": charts.waterfall(f"way-{shape.name}", found) if len(found.way) > 1 else None,
        "steps": [_step(book, s, shape) for s in found.steps][:MAX_ROWS],
        "moved": [_moved(book, s, shape) for s in found.steps][:MAX_ROWS],
        "phases": _phases(book, found.steps, shape),
        "judged": [_judged(book, s, j) for s, j in judged][:MAX_ROWS],
    }


# --- steps ----------------------------------------------------------------------------------------


def _name(step: Step) -> Cell:
    name = step.variant.name
    return Cell(
        name, title=step.variant.technique, sort=name, href=variant_page(name), detail="★" if step.chosen else ""
    )


def _step(book: Book, step: Step, shape: Shape) -> dict[str, Any]:
    variant = step.variant
    subject = Subject(variant.name, shape=shape.name)
    known = step.parent in book.record.suite.variants
    parent = (
        Cell(step.parent, sort=step.parent, href=variant_page(step.parent) if known else "")
        if step.parent
        else not_applicable("it has no parent")
    )
    cells = (
        _name(step),
        parent,
        Cell(variant.document, sort=variant.document) if variant.document else not_applicable("no document"),
        *(book.cell(f"{regime}_p50", subject, with_unit=False) for regime in REGIMES),
        _ratio(step),
        _predicted(step),
        _gap(book, subject, shape.time),
        outcome_cell(step.outcome),
    )
    return {"cells": cells, "technique": variant.technique, "finding": step.finding, "chosen": step.chosen}


def _ratio(step: Step) -> Cell:
    if step.parent is None:
        return not_applicable("it has no parent")
    if step.ratio is None:
        return missing(step.after.why or f"of its parent: {step.before.why}")
    interval = f"[{step.low:.3f}, {step.high:.3f}]" if step.low is not None and step.high is not None else "unmeasured"
    title = f"{step.ratio:.4f}\n95 % interval: {interval}"
    return Cell(f"{step.ratio:.2f}", title=title, sort=step.ratio, kind="number")


def _predicted(step: Step) -> Cell:
    found = step.predicted
    if found is None or found.predicted is None:
        return not_applicable("no ratio of times was predicted")
    return Cell(f"{found.predicted:.2f}", title=found.prediction.source, sort=found.predicted, kind="number")


def _gap(book: Book, subject: Subject, time: str) -> Cell:
    bounds = book.bounds.get(subject)
    gap = next((g for g in bounds.gaps if g.time == time), None) if bounds else None
    if gap is None:
        return missing("no floor is known" if bounds is None else book.why(time, subject))
    return number_cell(gap.ratio, "1", f"over {_floor_text(gap)}")


def _floor_text(gap: roofline.Gap) -> str:
    origin = f", {gap.floor.roof.origin}" if gap.floor.roof else ""
    return f"{significant(gap.floor_us, 3)} µs ({gap.floor.resource}{origin})"


# --- counters -------------------------------------------------------------------------------------


def _moved(book: Book, step: Step, shape: Shape) -> list[Cell]:
    return [_name(step), *(_counter(book, step, m, shape) for m in step.moved)]


def _counter(book: Book, step: Step, moved: Moved, shape: Shape) -> Cell:
    """The variant's value; smaller beside it what it was times the parent's, or the parent's where that is 0."""
    spec = FACTS[moved.fact]
    if moved.after.value is None:
        return missing(moved.after.why, moved.fact)
    if spec.group == "static":
        cell = book.static_cell(moved.fact, step.variant, shape.name, with_unit=False)
    else:
        fact = book.record.facts.get(moved.fact, Subject(step.variant.name, shape=shape.name))
        cell = fact_cell(fact, with_unit=False) if fact else missing(moved.after.why, moved.fact)
    if moved.before.value is None:
        return cell
    title = f"{cell.title}\nits parent: {said(moved.before.value, spec.unit)}"
    return replace(cell, title=title, detail=_beside(moved, spec.unit))


def _beside(moved: Moved, unit: str) -> str:
    before, after = moved.before.value, moved.after.value
    if before is None or after is None or before == after:
        return "="
    if moved.ratio is None:
        return f"from {said(before, unit)}"
    return f"{moved.ratio:.2f}×" if moved.ratio < 9.95 else f"{moved.ratio:,.0f}×"


# --- phases ---------------------------------------------------------------------------------------


def predicted_share(step: Variant, phase: str, shape: Shape) -> Prediction | None:
    """What was said of a phase's share; of several the first."""
    own = (p for p in step.predictions if p.fact == PHASE_SHARE + phase and p.shape in (None, shape.name))
    return next(own, None)


def _phases(book: Book, steps: Sequence[Step], shape: Shape) -> dict[str, Any]:
    """Steps whose sources mark phases: a row a step, a column a phase."""
    known = [(s, phase_shares(book.record, Subject(s.variant.name, shape=shape.name))) for s in steps]
    names = list(dict.fromkeys(phase for _, found in known for phase in found))
    names.sort(key=lambda phase: phase == OTHER_PHASE)
    rows = [[_name(s), *(_phase(s.variant, found.get(p), p, shape) for p in names)] for s, found in known if found]
    return {"names": names, "rows": rows[:MAX_ROWS]}


def _phase(step: Variant, share: Fact | None, phase: str, shape: Shape) -> Cell:
    """A phase's share; smaller beside it what was predicted."""
    if share is None:
        return not_applicable("its sources mark no such phase")
    cell = fact_cell(share, with_unit=False)
    wanted = predicted_share(step, phase, shape)
    if wanted is None or wanted.after is None:
        return cell
    return replace(cell, title=f"{cell.title}\n{wanted.source}", detail=f"predicted {wanted.after:g}")


# --- predictions ----------------------------------------------------------------------------------


def _judged(book: Book, step: Step, j: Judged) -> dict[str, Any]:
    p = j.prediction
    spec = FACTS.get(p.fact)

    def value(x: float | None) -> str:
        return "not said" if x is None else said(x, p.unit)

    return {
        "cells": (
            _name(step),
            Cell(p.fact, title=spec.why if spec else "", sort=p.fact),
            Cell(f"{value(p.before)} → {value(p.after)}" if p.before is not None else value(p.after), sort=p.after),
            Cell(p.device or "any", sort=p.device or ""),
            Cell(_measured(j), sort=j.after.value, kind="text" if j.after.value is not None else "missing"),
            Cell(j.scale, title=j.note, sort=j.scale),
            outcome_cell(j.outcome, j.note),
        ),
        "source": p.source,
        "finding": j.finding,
    }


def _measured(j: Judged) -> str:
    def value(reading: Reading) -> str:
        return "unmeasured" if reading.value is None else said(reading.value, j.prediction.unit)

    alone = j.scale == "level" and j.before.value is None
    return value(j.after) if alone else f"{value(j.before)} → {value(j.after)}"


# --- the summary ----------------------------------------------------------------------------------


def _tiles(book: Book, found: Ladder) -> list[dict[str, str]]:
    best = found.best
    tiles: list[dict[str, str]] = []
    if best is not None and best.after.value is not None:
        first = found.way[0]
        gain = first.after.value / best.after.value if first.after.value else None
        tiles.append(tile("Best step", f"{significant(best.after.value)} µs", best.variant.name))
        if gain and first is not best:
            steps = f"{len(found.way) - 1} step{'s' if len(found.way) > 2 else ''} from it"
            detail = f"{significant(first.after.value or 0)} µs; {steps}"
            tiles.append(tile(f"Against {first.variant.name}", f"{significant(gain, 3)} × as fast", detail))
        if found.peer is not None:
            name, time = found.peer
            share = f"{significant(best.after.value / time, 3)} × its time"
            tiles.append(tile("Against the fastest peer", share, f"{name}, {significant(time)} µs"))
        if found.floor is not None:
            tiles.append(tile("Above its floor", f"{significant(found.floor.ratio, 3)} ×", _floor_text(found.floor)))
    else:
        tiles.append(tile("Best step", UNMEASURED, "no times were recorded"))
    counts = found.counts()
    total = sum(counts.values())
    if total:
        held = counts.get("held", 0) + counts.get("more", 0)
        rest = ", ".join(
            f"{n} {OUTCOMES[o][0]}" for o in OUTCOMES if o not in ("held", "more") and (n := counts.get(o, 0))
        )
        tiles.append(tile("Predictions held", f"{held} of {total}", rest or "all of them"))
    return tiles
