"""Builds the ladder: for each step from a parent to its variant, the prediction, the measurement and a finding.

A step whose time changed is compared with its prediction. The finding of a step without a change names the limiter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import log

from flashcore.explain import roofline
from flashcore.explain.limiter import time_parts
from flashcore.explain.predictions import JudgedPrediction, PredictionOutcome, outcomes, progress
from flashcore.explain.readings import Reading
from flashcore.explain.rows import Row
from flashcore.explain.times import Speedup
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.groups import grouped
from flashcore.model.intervals import NOISE
from flashcore.model.record import Record
from flashcore.model.suite import Variant
from flashcore.model.text import faster, in_words

#: Counters that a technique may change, in the order in which every step shows them, with their names in sentences.
COUNTERS: Mapping[str, str] = {
    "barriers_per_block": "barriers",
    "bank_conflicts": "bank conflicts",
    "shared_wavefronts": "shared-memory passes",
    "tensor_active": "tensor pipe active",
    "l2_bytes": "L2 bytes",
    "instructions": "instructions",
    "registers": "registers",
    "spill_instructions": "spill instructions",
    "smem": "shared memory",
    "theoretical_occupancy": "theoretical occupancy",
    "achieved_occupancy": "achieved occupancy",
    "memory_stalls": "memory stalls",
}
#: Those that can be causes; the others are consequences.
_CAUSES = tuple(n for n in COUNTERS if n not in ("memory_stalls", "tensor_active", "achieved_occupancy"))
_MOST_CAUSES = 2
_WORTH = log(1.15)  # a smaller change of a counter explains nothing
#: Insignificant amounts of counters; of others, one per hundred instructions.
_SMALL = {
    "barriers_per_block": 1.0,
    "l2_bytes": 65536.0,
    "registers": 8.0,
    "smem": 1024.0,
    "theoretical_occupancy": 5.0,
}


@dataclass(frozen=True, slots=True)
class Moved:
    """One counter of a step: the parent's and the variant's value."""

    fact: str
    before: Reading
    after: Reading


@dataclass(frozen=True, slots=True)
class Step:
    """A variant as a step from its parent, at one shape.

    Args:
        time: the ranking fact at this shape.
        speedup: over its parent.
        outcome: the outcome of its first prediction of time; without one, of the step itself.
        limiter: the variant's limiters in one line; empty if unmeasured.
        on_path: whether it is on the path from the baseline to the best.
    """

    variant: Variant
    parent: str | None
    time: str
    before: Reading
    after: Reading
    speedup: Speedup | None
    judged: tuple[JudgedPrediction, ...]
    moved: tuple[Moved, ...]
    limiter: str
    outcome: PredictionOutcome
    finding: str
    on_path: bool

    @property
    def predicted(self) -> JudgedPrediction | None:
        """The first prediction of its time as a ratio to the parent's."""
        return next((j for j in self.judged if j.prediction.fact == self.time and j.scale == "ratio"), None)


@dataclass(frozen=True, slots=True)
class Ladder:
    """All steps of one row, parents before their children.

    Args:
        path: the steps from the baseline (or the best's first ancestor) to the best; empty without times.
        floor: the best variant's time over its floor.
    """

    row: Row
    steps: tuple[Step, ...]
    path: tuple[Step, ...]
    floor: roofline.Gap | None

    @property
    def best(self) -> Step | None:
        return self.path[-1] if self.path else None


def ladder(row: Row) -> Ladder:
    """The ladder of a row."""
    record = row.readings.record
    variants = list(_in_order([v for name in row.cases if not (v := record.suite.variants[name]).is_reference]))
    timed = {v.name: v for v in variants if v.name in row.times}
    best = next((timed[name] for name in row.times if name in timed), None)
    names = _path(record, best, {*timed}) if best else []
    steps = {v.name: _step(row, v, v.name in names) for v in variants}
    return Ladder(
        row,
        tuple(steps.values()),
        tuple(steps[n] for n in names),
        row.readings.gap(row.cases[best.name]) if best else None,
    )


def _in_order(variants: list[Variant]) -> Iterator[Variant]:
    """Each parent followed by its descendants, otherwise in the manifest's order."""
    names = {v.name for v in variants}
    children = grouped((v.parent if v.parent in names else None, v) for v in variants)
    stack = children.get(None, [])[::-1]
    while stack:
        variant = stack.pop()
        yield variant
        stack += children.get(variant.name, [])[::-1]


def _path(record: Record, best: Variant, timed: set[str]) -> list[str]:
    """The timed variants from the baseline to the best, along its ancestors."""
    names, at = [best.name], best
    while at.name != record.suite.baseline and (parent := record.suite.variants.get(at.parent or "")):
        if parent.name in names:
            break
        at = parent
        names.append(at.name)
    return [n for n in reversed(names) if n in timed]


def _step(row: Row, variant: Variant, on_path: bool) -> Step:
    readings, case, time = row.readings, row.cases[variant.name], row.shape.time
    parent = Case(variant.parent or "", case.shape)

    def pair(fact: str) -> tuple[Reading, Reading]:
        return readings.of(fact, parent), readings.of(fact, case)

    before, after = pair(time)
    step = Step(
        variant=variant,
        parent=variant.parent,
        time=time,
        before=before,
        after=after,
        speedup=row.over(variant.name, variant.parent),
        judged=tuple(outcomes(readings, variant, case.shape)),
        moved=tuple(Moved(name, *pair(name)) for name in COUNTERS),
        limiter=time_parts(readings, case).text,
        outcome="unmeasured",
        finding="",
        on_path=on_path,
    )
    outcome, finding = _finding(step, time_parts(readings, parent).text)
    if variant.also and step.speedup is not None:
        finding += f"; more than one change: {variant.also}"
    return replace(step, outcome=outcome, finding=finding)


# --- findings --------------------------------------------------------------------------


def _finding(step: Step, parent_limiter: str) -> tuple[PredictionOutcome, str]:
    if step.after.value is None:
        return "unmeasured", f"unmeasured: {step.after.why}"
    if step.parent is None:
        return "open", "the first step: nothing to compare with"
    if step.speedup is None:
        return "unmeasured", f"unmeasured: its parent {step.parent} has no time: {step.before.why}"
    ratio, target = 1 / step.speedup.value, step.predicted.predicted if step.predicted else None
    if step.speedup.unchanged:
        return _no_effect(step, ratio, target, parent_limiter)
    causes = _causes(step, worse=ratio > 1)
    if target is None:
        return "open", f"{'slower: ' if ratio > 1 else ''}{_faster(ratio)}, without a prediction{causes}"
    outcome = progress(log(ratio), log(target), False, target < 1)
    if outcome == "none" and (ratio > 1) != (target > 1):
        outcome = "against"  # a small change, but not noise
    lead = {
        "confirmed": "prediction confirmed",
        "more": "more than predicted",
        "missed": "slower than predicted",
        "partly": f"{'faster' if target < 1 else 'slower'}, but less than predicted",
        "against": "slower" if ratio > 1 else "faster",
    }.get(outcome, "hardly any effect")
    finding = f"{lead}: {_faster(ratio)}, predicted {1 / target:.2f} ×{_others(step)}"
    if outcome in ("against", "missed") and causes:
        finding += causes
    elif outcome not in ("confirmed", "more") and step.limiter:
        finding += f"; limited by {step.limiter}"
    return outcome, finding


def _faster(ratio: float) -> str:
    """A ratio of times as a speedup: below 1 is slower."""
    return faster(1 / ratio, shown=f"{1 / ratio:.2f}")


def _others(step: Step) -> str:
    """Further predictions of the step's time, from other documents."""
    times = [j.predicted for j in step.judged if j.prediction.fact == step.time and j.scale == "ratio" and j.predicted]
    more = [f"{1 / t:.2f} ×" for t in times[1:]]
    return f" (other predictions: {', '.join(more)})" if more else ""


def _no_effect(step: Step, ratio: float, target: float | None, parent_limiter: str) -> tuple[PredictionOutcome, str]:
    if target is not None and abs(target - 1) < NOISE:
        return "confirmed", f"prediction confirmed: {_faster(ratio)}, predicted {1 / target:.2f} ×"
    improved = [
        f"{COUNTERS.get(j.prediction.fact, j.prediction.fact.replace('_', ' '))} "
        f"{in_words(j.before.value, j.prediction.unit)} → {in_words(j.after.value, j.prediction.unit)}"
        for j in step.judged
        if j.outcome in ("confirmed", "more", "partly")
        and j.before.value is not None
        and j.after.value is not None
        and j.before.value != j.after.value
    ]
    though = f", although {', '.join(improved[:_MOST_CAUSES])}" if improved else ""
    where = f": the parent's limiter was {parent_limiter}" if parent_limiter else ""
    predicted = "" if target is None else f"; predicted {_faster(target)}"
    return "none", f"no effect{though}{where}{predicted}"


def _causes(step: Step, worse: bool) -> str:
    """The counters that worsened (or improved) the most."""
    changes: list[tuple[float, str]] = []
    values = {m.fact: (m.before.value, m.after.value) for m in step.moved}
    instructions = values["instructions"][0] or 100.0
    for fact in _CAUSES:
        before, after = values[fact]
        spec = FACTS[fact]
        if before is None or after is None or ((after > before) != (spec.better == "higher")) != worse:
            continue
        small = _SMALL.get(fact) or instructions / 100  # keeps a change between few and none small
        size = abs(log(max(after, 0.0) + small) - log(max(before, 0.0) + small))
        if size > _WORTH:
            text = f"{in_words(before, spec.unit)} → {in_words(after, spec.unit)}"
            if before and after and spec.unit != "pct" and max(before, after) >= 1000:
                text = f"{after / before:.2f}×"
            changes.append((-size, f"{COUNTERS[fact]} {text}"))
    return "; along with " + ", ".join(t for _, t in sorted(changes)[:_MOST_CAUSES]) if changes else ""
