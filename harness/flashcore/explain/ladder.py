"""The ladder's story: for each step from a parent to its variant, what was predicted and what was measured.

A pure function of a record. Findings are made of the facts, never written by hand: a step whose time moved
says by how much of what was predicted, one whose time did not change names what limited it instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, log

from flashcore.explain import roofline
from flashcore.explain.limiter import limiter
from flashcore.explain.predictions import NOISE, SAME, Judged, Outcome, Reading, Readings, judge, progress, still
from flashcore.model import intervals
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Record, Subject
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import said

#: Counters that a technique may change: shown for every step, in this order, with the words for a sentence.
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
    "theoretical_occupancy": "occupancy in theory",
    "achieved_occupancy": "occupancy achieved",
    "memory_stalls": "memory stalls",
}
#: Of these, the possible causes: shares of stalls only follow from the rest.
_CAUSES = tuple(n for n in COUNTERS if n not in ("memory_stalls", "tensor_active", "achieved_occupancy"))
_MOST_CAUSES = 2
_WORTH = log(1.15)  # a counter that changed by less explains nothing
#: What is little of each; of what a case does as a whole, one for each hundred instructions.
_LEAST = {"barriers_per_block": 1.0, "l2_bytes": 65536.0, "registers": 8.0, "smem": 1024.0,
          "theoretical_occupancy": 5.0}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moved:
    """One counter of a step, of the parent and of the variant."""

    fact: str
    before: Reading
    after: Reading

    @property
    def ratio(self) -> float | None:
        """After over before; ``None`` unless both are measured and not 0."""
        return self.after.value / self.before.value if self.before.value and self.after.value else None


@dataclass(frozen=True, slots=True)
class Step:
    """A variant as a step from its parent, at one shape.

    Args:
        time: the fact that ranks at this shape.
        ratio: its time over its parent's, with the 95 % interval where the samples are there.
        outcome: the outcome of the first prediction of time; without one, of the step itself.
        limiter: what limited the variant most, by the counters; empty if unmeasured.
        on_way: whether it lies on the way from the baseline to the best.
    """

    variant: Variant
    parent: str | None
    time: str
    before: Reading
    after: Reading
    ratio: float | None
    low: float | None
    high: float | None
    judged: tuple[Judged, ...]
    moved: tuple[Moved, ...]
    limiter: str
    outcome: Outcome
    finding: str
    on_way: bool

    @property
    def still(self) -> bool:
        """Whether the times of parent and variant cannot be told apart."""
        return self.ratio is not None and still(self.ratio, self.low, self.high)

    @property
    def predicted(self) -> Judged | None:
        """The first prediction of its time that can be compared with the parent's."""
        return next((j for j in self.judged if j.prediction.fact == self.time and j.scale == "ratio"), None)


@dataclass(frozen=True, slots=True)
class Ladder:
    """All steps at one shape, parents before what was made from them.

    Args:
        way: the variants from the baseline (or the first of its line) to the best; empty without times.
        floor: the bound of the best variant's time.
        peer: the fastest peer and its time in us.
    """

    shape: Shape
    steps: tuple[Step, ...]
    way: tuple[Step, ...]
    floor: roofline.Gap | None
    peer: tuple[str, float] | None

    @property
    def best(self) -> Step | None:
        return self.way[-1] if self.way else None


Bounds = Mapping[Subject, roofline.CaseBounds]


def ladder(record: Record, shape: Shape, readings: Readings | None = None, bounds: Bounds | None = None) -> Ladder:
    """The ladder of a shape. ``readings`` and ``bounds`` (by case) can be given, so that they are made once for all
    shapes."""
    known = readings or Readings(record)
    if bounds is None:
        bounds = {b.subject: b for b in roofline.case_bounds(record)}
    own = [v for v in record.suite.variants.values() if v.runs_on(shape)]
    variants = list(_in_order([v for v in own if not v.is_reference]))
    times = {v.name: t for v in own if (t := known.of(shape.time, v.name, shape.name).value) is not None and t > 0}
    timed = [v for v in variants if v.name in times]
    best = min(timed, key=lambda v: times[v.name], default=None)
    names = _way(record, best, {v.name for v in timed}) if best else []
    steps = tuple(_step(known, v, shape, v.name in names) for v in variants)
    by_name = {s.variant.name: s for s in steps}
    peers = [(times[v.name], v.name) for v in own if v.is_reference and v.name in times]
    return Ladder(
        shape,
        steps,
        tuple(by_name[n] for n in names),
        _floor(bounds, best.name, shape) if best else None,
        min(peers)[::-1] if peers else None,
    )


def _in_order(variants: list[Variant]) -> Iterator[Variant]:
    """Parents first, each followed by what was made from it; otherwise as the manifest has them."""
    names = {v.name for v in variants}
    children: dict[str | None, list[Variant]] = {}
    for v in variants:
        children.setdefault(v.parent if v.parent in names else None, []).append(v)
    stack = children.get(None, [])[::-1]
    while stack:
        variant = stack.pop()
        yield variant
        stack += children.get(variant.name, [])[::-1]


def _way(record: Record, best: Variant, timed: set[str]) -> list[str]:
    """Names from the baseline to the best, along its parents; variants that were not timed are skipped."""
    found, at = [best.name], best
    while at.name != record.suite.baseline and (parent := record.suite.variants.get(at.parent or "")):
        if parent.name in found:
            break
        at = parent
        found.append(at.name)
    return [n for n in reversed(found) if n in timed]


def _floor(bounds: Bounds, variant: str, shape: Shape) -> roofline.Gap | None:
    own = bounds.get(Subject(variant, shape=shape.name))
    return next((g for g in own.gaps if g.time == shape.time), None) if own else None


def _step(known: Readings, variant: Variant, at: Shape, on_way: bool) -> Step:
    shape = at.name
    before, after = known.of(at.time, variant.parent, shape), known.of(at.time, variant.name, shape)
    ratio = after.value / before.value if before.value and after.value else None
    if ratio is not None and not 0 < ratio < inf:
        ratio = None
    low = high = None
    samples = known.record.samples
    ours, theirs = (samples.get(f"{name}/{shape}/{at.rank_by}") for name in (variant.name, variant.parent))
    if ratio is not None and ours and theirs:
        interval = intervals.ratio(ours, theirs)
        # Of the rounds that both have: the ratio shown is the one that its interval is about.
        ratio, low, high = interval.value, interval.low, interval.high
    moved = tuple(
        Moved(name, known.of(name, variant.parent, shape), known.of(name, variant.name, shape)) for name in COUNTERS
    )
    bare = Step(
        variant, variant.parent, at.time, before, after, ratio, low, high, tuple(judge(known, variant, shape)), moved,
        limiter(known, variant.name, shape), "unmeasured", "", on_way,
    )  # fmt: skip
    outcome, finding = _finding(bare, limiter(known, variant.parent, shape))
    if variant.also and ratio is not None:
        finding += f"; not one change: {variant.also}"
    return replace(bare, outcome=outcome, finding=finding)


# --- one line for a step --------------------------------------------------------------------------


def _finding(step: Step, held_before: str) -> tuple[Outcome, str]:
    if step.after.value is None:
        return "unmeasured", f"unmeasured: {step.after.why}"
    if step.parent is None:
        return "open", "the first step: nothing to compare with"
    if step.ratio is None:
        return "unmeasured", f"unmeasured: no time of its parent {step.parent}: {step.before.why}"
    predicted = step.predicted
    wanted = predicted.predicted if predicted else None
    if step.still:
        return _stood_still(step, wanted, held_before)
    moved = _with(step, "worse" if step.ratio > 1 else "better")
    if wanted is None:
        return "open", f"{'slower: ' if step.ratio > 1 else ''}{_faster(step.ratio)}, none was predicted{moved}"
    outcome = progress(log(step.ratio), log(wanted), False, wanted < 1)
    if outcome == "none" and (step.ratio > 1) != (wanted > 1):
        outcome = "against"  # little, but not noise
    share = f"{_faster(step.ratio)}, predicted {1 / wanted:.2f} ×{_also(step)}"
    lead = {
        "held": "prediction held",
        "more": "more than predicted",
        "missed": "slower than predicted",
        "partly": "went the right way" if wanted < 1 else "slower, though less than predicted",
        "against": "slower" if step.ratio > 1 else "faster",
    }.get(outcome, "hardly any effect")
    if outcome in ("held", "more"):
        return outcome, f"{lead}: {share}"
    held = f"; limited by {step.limiter}" if step.limiter else ""
    return outcome, f"{lead}: {share}" + ((moved or held) if outcome in ("against", "missed") else held)


def _faster(ratio: float) -> str:
    """A ratio of times as the speed-up that it is: below 1 is slower."""
    return f"{1 / ratio:.2f} × faster" if ratio <= 1 else f"{1 / ratio:.2f} × the speed"


def _also(step: Step) -> str:
    """Other predictions of the step's time: documents differ."""
    times = [j.predicted for j in step.judged if j.prediction.fact == step.time and j.scale == "ratio" and j.predicted]
    more = [f"{1 / t:.2f} ×" for t in times[1:]]
    return f" (elsewhere {', '.join(more)})" if more else ""


def _stood_still(step: Step, wanted: float | None, held_before: str) -> tuple[Outcome, str]:
    assert step.ratio is not None
    if wanted is not None and abs(wanted - 1) < NOISE:
        return "held", f"prediction held: {_faster(step.ratio)}, predicted {1 / wanted:.2f} ×"
    done = [
        f"{COUNTERS.get(j.prediction.fact, j.prediction.fact.replace('_', ' '))} "
        f"{said(j.before.value, j.prediction.unit)} → {said(j.after.value, j.prediction.unit)}"
        for j in step.judged
        if j.outcome in ("held", "more", "partly") and j.before.value is not None and j.after.value is not None
        and j.before.value != j.after.value
    ]  # fmt: skip
    though = f" though {', '.join(done[:_MOST_CAUSES])}" if done else ""
    where = f": the limiter was elsewhere ({held_before})" if held_before else ""
    said_of = "" if wanted is None else f"; predicted {_faster(wanted)}"
    return "none", f"no effect{though}{where}{said_of}"


def _with(step: Step, direction: str) -> str:
    """The counters that changed the most in that direction."""
    found: list[tuple[float, str]] = []
    instructions = next((m.before.value for m in step.moved if m.fact == "instructions"), None) or 100.0
    for m in step.moved:
        if m.fact not in _CAUSES or m.before.value is None or m.after.value is None:
            continue
        rose = m.after.value > m.before.value
        if (rose != (FACTS[m.fact].better == "higher")) != (direction == "worse"):
            continue
        unit = FACTS[m.fact].unit
        least = _LEAST.get(m.fact) or instructions / 100  # so that a change from a few to none is not infinite
        size = abs(log(max(m.after.value, 0.0) + least) - log(max(m.before.value, 0.0) + least))
        if size > max(_WORTH, SAME):
            small = m.ratio is None or unit in ("pct",) or max(m.before.value, m.after.value) < 1000
            text = f"{said(m.before.value, unit)} → {said(m.after.value, unit)}" if small else f"{m.ratio:.2f}×"
            found.append((-size, f"{COUNTERS[m.fact]} {text}"))
    return "; with it " + ", ".join(t for _, t in sorted(found)[:_MOST_CAUSES]) if found else ""
