"""Compares predictions with measurements: how much of each predicted change was measured.

Times depend on the device, so they are compared by their ratio. Counts and bytes are compared by their difference, and
values without a start as levels. A level of time on another device is not comparable; a speedup, as a ratio, is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log
from typing import Literal

from flashcore.chips import devices
from flashcore.explain import times
from flashcore.explain.roofline import CaseBounds, Gap, case_bounds
from flashcore.explain.times import Speedup
from flashcore.model import cause_text, intervals
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.causes import Detail, FirstRound, WorstInput
from flashcore.model.record import Fact, Plan, Record, Subject, Time, plans_for
from flashcore.model.suite import Prediction, Shape, Variant
from flashcore.model.text import in_words, same_hardware

#: ``elsewhere``: predicted for another device and not comparable with this one; ``open``: nothing was predicted.
Outcome = Literal["confirmed", "more", "partly", "none", "against", "missed", "unmeasured", "elsewhere", "open"]
Scale = Literal["ratio", "difference", "level"]

CONFIRMED = 0.8  # least share of the predicted change that confirms it
MORE = 1.25  # a larger share is more than predicted
HARDLY = 0.05  # a smaller share is no effect
SAME = 0.01  # relative difference below which two counters are equal
CLOSE = 0.1  # relative tolerance of a level if neither direction is better
#: A share predicted as zero may have up to this many percentage points.
ZERO_PCT = 0.5
#: The kind of inputs of errors in documents.
RANDOM = "normal"


@dataclass(frozen=True, slots=True)
class Reading:
    """A measured number and its ``detail``, or why there is none."""

    value: float | None
    why: str = ""
    detail: Detail | str = ""

    @property
    def note(self) -> str:
        """The detail in words, for people."""
        return cause_text.text(self.detail)


class Readings:
    """The numbers of a record by fact, variant and shape.

    Static readings are for the measured arch, else the suite's usual one, and for a variant's worst kernel: the largest
    value, or the smallest if higher is better.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.roofs = record.roofs_by("bench")
        gpu_arch, archs = record.gpu_arch, record.suite.archs
        #: The arch of the measured GPU, else the suite's usual one.
        self.arch = record.suite.usual_arch or None
        if gpu_arch is not None:
            same = (a for a in archs if same_hardware(a, gpu_arch))
            self.arch = gpu_arch if gpu_arch in archs else next(same, gpu_arch)
        self._plans: dict[str | None, Mapping[tuple[str, str], Plan]] = {}
        self._static: dict[tuple[str, str, str], dict[Subject, Fact]] = {}
        for fact in record.facts:
            s = fact.subject
            if s.arch is not None:
                self._static.setdefault((s.variant, s.arch, fact.name), {})[s] = fact

    @cached_property
    def alike(self) -> dict[str, list[Shape]]:
        """For each shape, the identical ones, itself included."""
        suite = self.record.suite
        return {shape.name: row for row in suite.rows(suite.shapes.values()) for shape in row}

    @cached_property
    def bounds(self) -> dict[Subject, CaseBounds]:
        """The bounds and gaps of each case with formulas."""
        return {bounds.subject: bounds for bounds in case_bounds(self.record)}

    def gap(self, variant: str, shape: str) -> Gap | None:
        """The gap of the case's time that ranks, if it was measured and a floor is known."""
        bounds = self.bounds.get(Subject(variant, shape=shape))
        return bounds.gap(self.record.suite.shapes[shape].time) if bounds else None

    def plans(self, arch: str | None) -> Mapping[tuple[str, str], Plan]:
        """The launch plans for an arch by variant and shape; see :func:`plans_for`."""
        if arch not in self._plans:
            self._plans[arch] = plans_for(self.record.plans, arch)
        return self._plans[arch]

    def static(self, name: str, variant: str, shape: str | None, arch: str | None) -> list[Fact]:
        """The static facts of that name of every kernel, at ``shape`` if they depend on the launch plan."""
        facts = self._static.get((variant, arch or "", name), {}).values()
        return [f for f in facts if f.subject.shape in (None, shape)]

    def of(self, name: str, variant: str | None, shape: str) -> Reading:
        """The reading of a fact of a case; a static fact's is that of the variant."""
        if variant is None:
            return Reading(None, "it has no parent")
        if variant not in self.record.suite.variants:
            return Reading(None, f"no variant {variant}")
        spec = FACTS.get(name)
        if spec is not None and spec.group == "static":
            facts = self.static(name, variant, shape, self.arch)
            if worst := extreme(name, facts):
                return Reading(worst.number)
            return Reading(None, unmeasured(facts) or f"not recorded for {self.arch or 'any arch'}")
        subject = Subject(variant, shape=shape)
        fact = self.record.facts.get(name, subject)
        if fact is None or fact.number is None:
            stale = self.record.stale.get(subject.case)
            return Reading(None, cause_text.text(stale) or (fact.note if fact else "") or "not recorded")
        return Reading(fact.number, detail=fact.detail)

    def speedup(
        self, time: str, variant: str, other: str | None, shape: str, of_shape: str | None = None
    ) -> Speedup | None:
        """The speedup of a variant over another by a time (``isolated_p50``), by :mod:`flashcore.explain.times`.

        Args:
            of_shape: the other variant's shape, by default ``shape``. It must be identical.
        """
        return times.speedup(self.time(time, other, of_shape or shape), self.time(time, variant, shape))

    def levels(self, time: str, variant: str, shape: str) -> str:
        """The two levels of a bimodal time in words; empty for any other."""
        levels = intervals.levels(self.time(time, variant, shape).samples)
        return levels.text if levels else ""

    def first_round(self, time: str, variant: str, shape: str) -> str:
        """The number of samples in words of a time that was taken no further after a first round; else empty."""
        fact = self.record.facts.get(f"{time.removesuffix('_p50')}_samples", Subject(variant, shape=shape))
        return f"{fact.value} samples" if fact and isinstance(fact.detail, FirstRound) else ""

    def time(self, fact: str, variant: str | None, shape: str) -> Time:
        """A time by its fact: a median with its samples, or another figure, which has none."""
        subject, mode = Subject(variant or "", shape=shape), fact.removesuffix("_p50")
        if mode != fact:
            return self.record.time(subject, mode)
        return Time(subject, mode, self.of(fact, variant, shape).value)


def extreme(name: str, facts: Sequence[Fact]) -> Fact | None:
    """The fact of a variant's worst kernel; ``None`` unless all kernels' facts were measured."""
    if not facts or any(f.number is None for f in facts):
        return None
    pick: Callable[..., Fact] = min if FACTS[name].better == "higher" else max
    return pick(facts, key=lambda f: f.number)


def unmeasured(facts: Sequence[Fact]) -> str:
    """The note of the first unmeasured fact; empty if there is none."""
    return next((f.note for f in facts if f.number is None), "")


@dataclass(frozen=True, slots=True)
class Judged:
    """A prediction and its measurement.

    Args:
        scale: whether ``predicted`` and ``measured`` are ratios, differences or levels.
        before, after: the parent's value and the variant's.
        finding: the outcome in words.
        note: a caveat about the comparison.
    """

    prediction: Prediction
    scale: Scale
    predicted: float | None
    measured: float | None
    before: Reading
    after: Reading
    outcome: Outcome
    finding: str
    note: str = ""


def judge(readings: Readings, variant: Variant, shape: str) -> Iterator[Judged]:
    """The outcomes of the variant's predictions for this shape, or for any shape."""
    for prediction in variant.predictions:
        if prediction.shape in (None, shape):
            yield judge_one(readings, prediction, variant, shape)


def predicted_share(variant: Variant, phase: str, shape: str | None) -> Prediction | None:
    """The first prediction of a phase's share at a shape; ``None`` if there is none."""
    shares = (p for p in variant.predictions if p.fact == PHASE_SHARE + phase and p.shape in (None, shape))
    return next(shares, None)


def judge_one(readings: Readings, p: Prediction, variant: Variant, shape: str) -> Judged:
    """The outcome of one prediction of a variant at that shape."""
    before, after = readings.of(p.fact, variant.parent, shape), readings.of(p.fact, variant.name, shape)
    gpu = readings.record.gpu
    foreign = p.device is not None and not devices.is_called(gpu, p.device)
    scale, predicted = _scale(p)
    note = ""
    if foreign:
        note = f"predicted for the {p.device}; compared as a {scale}" + (f" on {gpu}" if gpu else "")

    def judged(measured: float | None, outcome: Outcome, finding: str) -> Judged:
        return Judged(p, scale, predicted, measured, before, after, outcome, finding, note)

    if predicted is None:
        return judged(None, "unmeasured", "unmeasured: the prediction names no final value")
    if scale == "level" and foreign and _is_time(p.fact) and not p.fact.startswith("speedup_"):
        here = "" if after.value is None else f"; here {in_words(after.value, p.unit)}"
        return judged(after.value, "elsewhere", f"not comparable: a time on the {p.device}, without a ratio{here}")
    if after.value is None:
        return judged(None, "unmeasured", f"unmeasured: {after.why}")
    if scale == "level":
        # A phase's share is of one kernel, and a speedup over the baseline or a reference: neither depends on the
        # parent's value.
        start = None if p.fact.startswith((PHASE_SHARE, "speedup_")) else before.value
        outcome, finding = _level(p, predicted, start, after.value)
        if outcome != "confirmed" and _of_hard_inputs(after):
            value = f"{in_words(after.value, p.unit)}, {after.note}"
            return judged(after.value, "elsewhere", f"not comparable: {value}; predicted for {RANDOM} inputs")
        return judged(after.value, outcome, finding)
    if before.value is None:
        return judged(None, "unmeasured", f"unmeasured for its parent: {before.why}")
    if _of_hard_inputs(before) or _of_hard_inputs(after):
        return judged(None, "elsewhere", f"not comparable: {before.note} → {after.note}")
    if scale == "ratio":
        speedup = readings.speedup(p.fact, variant.name, variant.parent, shape)
        if speedup is None:
            return judged(None, "unmeasured", "unmeasured: no ratio with a value of 0")
        measured = 1 / speedup.value
        change, expected, same = log(measured), log(predicted), speedup.unchanged
        values, target = f"{measured:.2f}×", f"{predicted:.2f}×"
    else:
        measured = after.value - before.value
        change, expected, same = measured, predicted, _same(before.value, after.value)
        values = f"{in_words(before.value, p.unit)} → {in_words(after.value, p.unit)}"
        target = in_words(predicted, p.unit, sign=True)
    rises = expected > 0
    outcome = progress(change, expected, same, gains(p.fact, rises))
    # A change in the predicted direction that reaches the predicted value confirms the prediction, wherever it started:
    # 1 barrier meets a goal of at most 9, and 100 registers a cost of at most 115.
    if not foreign and outcome in ("partly", "missed", "none") and (change < 0) == (expected < 0):
        spec, limit = FACTS.get(p.fact), p.after
        if spec and limit is not None and spec.better:
            reached = after.value <= limit if spec.better == "lower" else after.value >= limit
            outcome = "confirmed" if reached else outcome
    return judged(measured, outcome, f"{words(outcome, p.fact, rises)}: {values}, predicted {target}")


def _same(before: float, after: float) -> bool:
    """Whether two counters are equal within :data:`SAME`."""
    return abs(after - before) <= SAME * max(abs(after), abs(before))


def _of_hard_inputs(reading: Reading) -> bool:
    """Whether it is an error that was largest on deliberately hard inputs, which documents do not predict."""
    return isinstance(reading.detail, WorstInput) and reading.detail.kind != RANDOM


def gains(fact: str, rises: bool) -> bool:
    """Whether a rise (or fall) of the fact is an improvement."""
    spec = FACTS.get(fact)
    return spec is not None and spec.better == ("higher" if rises else "lower")


def words(outcome: Outcome, fact: str, rises: bool) -> str:
    """The outcome of a predicted rise (or fall) in words."""
    if outcome == "missed":  # a larger change than predicted, and not an improvement
        return "worse than predicted" if gains(fact, not rises) else "beyond the prediction"
    return _WORDS[outcome]


_WORDS: dict[Outcome, str] = {
    "confirmed": "prediction confirmed",
    "more": "more than predicted",
    "partly": "in the predicted direction",
    "none": "no effect",
    "against": "contrary to the prediction",
    "missed": "missed",
}


def _is_time(name: str) -> bool:
    spec = FACTS.get(name)
    return spec is not None and (spec.group == "timing" or spec.unit in ("us", "ns"))


def _scale(p: Prediction) -> tuple[Scale, float | None]:
    if p.after is None:
        return "level", None
    if p.before is None:
        return "level", p.after
    if _is_time(p.fact):
        ratio = p.after / p.before if p.before else 0.0
        return ("ratio", ratio) if 0 < ratio < inf else ("level", p.after)
    return "difference", p.after - p.before


def progress(measured: float, predicted: float, unchanged: bool, gain: bool = True) -> Outcome:
    """The outcome of a measured change, compared with the predicted one.

    Args:
        unchanged: whether the measured change is insignificant.
        gain: whether the predicted change is an improvement; if not, exceeding it is a miss.
    """
    if abs(predicted) < 1e-9:
        return "confirmed" if unchanged else "against"
    if unchanged:
        return "none"
    share = measured / predicted
    if share >= CONFIRMED:
        return "confirmed" if share <= MORE else "more" if gain else "missed"
    if share >= HARDLY:
        return "partly"
    return "none" if share > -HARDLY else "against"


def _level(p: Prediction, target: float, before: float | None, after: float) -> tuple[Outcome, str]:
    spec = FACTS.get(p.fact)
    better = spec.better if spec else ""
    if target == 0:
        reached = after == 0 or (p.unit == "pct" and abs(after) < ZERO_PCT)
    elif better:
        reached = after <= target * (1 + SAME) if better == "lower" else after >= target * (1 - SAME)
    else:
        reached = abs(after - target) <= CLOSE * abs(target)
    side = {"lower": "at most ", "higher": "at least "}.get(better, "") if target != 0 else ""
    values = f"{in_words(after, p.unit)}, predicted {side}{in_words(target, p.unit)}"
    if reached:
        return "confirmed", f"prediction confirmed: {values}"
    if before is None or before == target:
        return "missed", f"missed: {values}"
    outcome = progress(after - before, target - before, _same(before, after))
    if outcome in ("confirmed", "more"):
        outcome = "partly"
    return outcome, f"{_WORDS[outcome]}: {values}, the parent's {in_words(before, p.unit)}"
