"""Predictions against measurements: how much of each predicted change was measured.

Pure functions of a record. A time depends on its device, so two times are compared as their ratio, counts and bytes as
their difference, a value without a start as a level. A prediction that only names times of another device says nothing
about this one and is not compared; a speed-up is a ratio and is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log
from typing import Literal

from flashcore.chips import devices
from flashcore.model import cause_text, intervals
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.causes import Detail, FirstRound, WorstInput
from flashcore.model.intervals import NOISE, Ratio
from flashcore.model.record import Fact, Plan, Record, Subject, plans_for
from flashcore.model.suite import Prediction, Shape, Variant
from flashcore.model.text import in_words, same_hardware

#: ``elsewhere``: predicted for another device and not comparable with this one; ``open``: nothing was predicted.
Outcome = Literal["held", "more", "partly", "none", "against", "missed", "unmeasured", "elsewhere", "open"]
Conclusion = Literal["faster", "slower", "no difference"]
Scale = Literal["ratio", "difference", "level"]
#: How many times faster, and the ends of the 95 % interval where there are samples.
Speedup = tuple[float, float | None, float | None]

HELD = 0.8  # share of the predicted change that confirms it
MORE = 1.25
HARDLY = 0.05  # less of it than this is none
SAME = 0.01  # two counters that differ by less are the same
CLOSE = 0.1  # how near a level must be where neither side of it is better
#: Below this many percentage points a share that was to be zero is.
ZERO_PCT = 0.5
#: The kind of inputs that documents refer to when they name an error.
RANDOM = "normal"


def still(ratio: float, low: float | None, high: float | None) -> bool:
    """Whether two times cannot be told apart, by their ratio, and its interval where there is one."""
    return abs(ratio - 1) < NOISE or (low is not None and high is not None and low <= 1 <= high)


def conclusion(ratio: Ratio) -> Conclusion:
    """Whether a time is faster than another, by their ratio."""
    if still(ratio.value, ratio.low, ratio.high):
        return "no difference"
    return "faster" if ratio.value > 1 else "slower"


@dataclass(frozen=True, slots=True)
class Reading:
    """A measured number, or why there is none; ``detail`` says more of one that was measured."""

    value: float | None
    why: str = ""
    detail: Detail | str = ""

    @property
    def note(self) -> str:
        """The detail in words, for people."""
        return cause_text.text(self.detail)


class Readings:
    """The numbers of a record by fact, variant and shape.

    Static readings are of the measured arch, else of the suite's usual one, and of a variant's worst kernel: the
    largest value, or the smallest if higher is better.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.roofs = record.roofs_by("bench")
        gpu_arch, archs = record.gpu_arch, record.suite.archs
        #: The measured GPU's, else the suite's usual one.
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
        """Each shape's row: the shapes identical to it."""
        suite = self.record.suite
        return {shape.name: row for row in suite.rows(suite.shapes.values()) for shape in row}

    def plans(self, arch: str | None) -> Mapping[tuple[str, str], Plan]:
        """The launch plans for an arch by variant and shape; see :func:`plans_for`."""
        if arch not in self._plans:
            self._plans[arch] = plans_for(self.record.plans, arch)
        return self._plans[arch]

    def static(self, name: str, variant: str, shape: str | None, arch: str | None) -> list[Fact]:
        """Static facts of one name: of every kernel, at ``shape`` where they depend on the launch plan."""
        facts = self._static.get((variant, arch or "", name), {}).values()
        return [f for f in facts if f.subject.shape in (None, shape)]

    def of(self, name: str, variant: str | None, shape: str) -> Reading:
        """The reading of one fact about a case (static ones: about its variant)."""
        if variant is None:
            return Reading(None, "it has no parent")
        if variant not in self.record.suite.variants:
            return Reading(None, f"no variant {variant}")
        spec = FACTS.get(name)
        if spec is not None and spec.group == "static":
            facts = self.static(name, variant, shape, self.arch)
            if worst := extreme(name, facts):
                return Reading(worst.number)
            note = next((f.note for f in facts if f.number is None), "")
            return Reading(None, note or f"not recorded for {self.arch or 'any arch'}")
        subject = Subject(variant, shape=shape)
        fact = self.record.facts.get(name, subject)
        if fact is None or fact.number is None:
            stale = self.record.stale.get(subject.case)
            return Reading(None, cause_text.text(stale) or (fact.note if fact else "") or "not recorded")
        return Reading(fact.number, detail=fact.detail)

    def speedup(
        self, time: str, variant: str, other: str | None, shape: str, of_shape: str | None = None
    ) -> Speedup | None:
        """How many times faster a variant is than another by a time (``isolated_p50``), and the interval's ends.

        Every statement about two times of one run uses this ratio: that of the rounds that both have. Without samples
        it is the ratio of the recorded times, and has no interval.

        Args:
            of_shape: the other's, if not ``shape``: an identical one, timed in other rounds, so they are not paired.
        """
        was_at = of_shape or shape
        was, now = self.of(time, other, was_at).value, self.of(time, variant, shape).value
        if not was or not now or not 0 < was / now < inf:
            return None
        before, after = self._samples(time, other, was_at), self._samples(time, variant, shape)
        if not before or not after:
            return was / now, None, None
        ratio = intervals.ratio(before, after, paired=was_at == shape)
        return ratio.value, ratio.low, ratio.high

    def levels(self, time: str, variant: str, shape: str) -> str:
        """The two levels of a time in words; empty if it has one, or none."""
        levels = intervals.levels(self._samples(time, variant, shape))
        return levels.text if levels and self.of(time, variant, shape).value is not None else ""

    def first_round(self, time: str, variant: str, shape: str) -> str:
        """The number of samples in words of a time that was taken no further after a first round; else empty."""
        fact = self.record.facts.get(f"{time.removesuffix('_p50')}_samples", Subject(variant, shape=shape))
        return f"{fact.value} samples" if fact and isinstance(fact.detail, FirstRound) else ""

    def _samples(self, time: str, variant: str | None, shape: str) -> Sequence[float]:
        return self.record.samples.get(f"{variant}/{shape}/{time.removesuffix('_p50')}", ())


def extreme(name: str, facts: Sequence[Fact]) -> Fact | None:
    """The fact of a variant's worst kernel, by which way is better; ``None`` unless all were measured."""
    if not facts or any(f.number is None for f in facts):
        return None
    pick: Callable[..., Fact] = min if FACTS[name].better == "higher" else max
    return pick(facts, key=lambda f: f.number)


@dataclass(frozen=True, slots=True)
class Judged:
    """A prediction and its measurement.

    Args:
        scale: how it is compared; ``predicted`` and ``measured`` are ratios, differences or levels.
        before, after: the parent's value and the variant's.
        finding: the outcome in words.
        note: a caveat of the comparison.
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
    """The variant's predictions for this shape, or for no shape in particular."""
    for prediction in variant.predictions:
        if prediction.shape in (None, shape):
            yield judge_one(readings, prediction, variant, shape)


def predicted_share(variant: Variant, phase: str, shape: str | None) -> Prediction | None:
    """The first prediction of a phase's share at a shape."""
    shares = (p for p in variant.predictions if p.fact == PHASE_SHARE + phase and p.shape in (None, shape))
    return next(shares, None)


def judge_one(readings: Readings, p: Prediction, variant: Variant, shape: str) -> Judged:
    """One prediction of a variant, compared with its measurement at that shape."""
    before, after = readings.of(p.fact, variant.parent, shape), readings.of(p.fact, variant.name, shape)
    gpu = readings.record.gpu
    foreign = p.device is not None and not devices.is_called(gpu, p.device)
    scale, predicted = _scale(p)
    note = ""
    if foreign:
        note = f"said of the {p.device}; compared as a {scale}" + (f" on {gpu}" if gpu else "")

    def judged(measured: float | None, outcome: Outcome, finding: str) -> Judged:
        return Judged(p, scale, predicted, measured, before, after, outcome, finding, note)

    if predicted is None:
        return judged(None, "unmeasured", "unmeasured: the prediction names no value to come to")
    if scale == "level" and foreign and _is_time(p.fact) and not p.fact.startswith("speedup_"):
        here = "" if after.value is None else f"; here {in_words(after.value, p.unit)}"
        return judged(after.value, "elsewhere", f"a level of the {p.device}: no ratio to compare by{here}")
    if after.value is None:
        return judged(None, "unmeasured", f"unmeasured: {after.why}")
    if scale == "level":
        # A phase's share describes one kernel, and a speed-up is over the baseline or a reference: the parent's value
        # does not matter.
        start = None if p.fact.startswith((PHASE_SHARE, "speedup_")) else before.value
        outcome, finding = _level(p, predicted, start, after.value)
        if outcome != "held" and _of_hard_inputs(after):
            value = f"{in_words(after.value, p.unit)}, {after.note}"
            return judged(after.value, "elsewhere", f"not comparable: {value}; predicted of {RANDOM} inputs")
        return judged(after.value, outcome, finding)
    if before.value is None:
        return judged(None, "unmeasured", f"unmeasured: of its parent, {before.why}")
    if _of_hard_inputs(before) or _of_hard_inputs(after):
        return judged(None, "elsewhere", f"not comparable: {before.note} → {after.note}")
    if scale == "ratio":
        speedup = readings.speedup(p.fact, variant.name, variant.parent, shape)
        if speedup is None:
            return judged(None, "unmeasured", "unmeasured: no ratio with a value of 0")
        measured = 1 / speedup[0]
        change, expected, unchanged = log(measured), log(predicted), still(*speedup)
        values, target = f"{measured:.2f}×", f"{predicted:.2f}×"
    else:
        measured = after.value - before.value
        change, expected, unchanged = measured, predicted, _same(before.value, after.value)
        values = f"{in_words(before.value, p.unit)} → {in_words(after.value, p.unit)}"
        target = in_words(predicted, p.unit, sign=True)
    rises = expected > 0
    outcome = progress(change, expected, unchanged, gains(p.fact, rises))
    # A change that goes the predicted way and reaches the predicted value holds, wherever it started: 1 barrier meets a
    # goal of at most 9, and 100 registers a cost of at most 115.
    if not foreign and outcome in ("partly", "missed", "none") and (change < 0) == (expected < 0):
        spec, limit = FACTS.get(p.fact), p.after
        if spec and limit is not None and spec.better:
            reached = after.value <= limit if spec.better == "lower" else after.value >= limit
            outcome = "held" if reached else outcome
    return judged(measured, outcome, f"{words(outcome, p.fact, rises)}: {values}, predicted {target}")


def _same(before: float, after: float) -> bool:
    """Whether two counters cannot be told apart."""
    return abs(after - before) <= SAME * max(abs(after), abs(before))


def _of_hard_inputs(reading: Reading) -> bool:
    """Whether it is an error that was largest on deliberately hard inputs, which no document means."""
    return isinstance(reading.detail, WorstInput) and reading.detail.kind != RANDOM


def gains(fact: str, rises: bool) -> bool:
    """Whether a rise (or fall) of the fact is for the better."""
    spec = FACTS.get(fact)
    return spec is not None and spec.better == ("higher" if rises else "lower")


def words(outcome: Outcome, fact: str, rises: bool) -> str:
    """The outcome of a predicted rise (or fall) in words."""
    if outcome == "missed":  # beyond what was predicted, and not for the better
        return "worse than predicted" if gains(fact, not rises) else "beyond the prediction"
    return _WORDS[outcome]


_WORDS: dict[Outcome, str] = {
    "held": "prediction held",
    "more": "more than predicted",
    "partly": "went the predicted way",
    "none": "no effect",
    "against": "went the other way",
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


def progress(measured: float, predicted: float, still: bool, gain: bool = True) -> Outcome:
    """The outcome of a change, compared with the predicted one.

    Args:
        still: whether the measured change is too small to be one.
        gain: whether the predicted change is for the better; if it is for the worse, far more of it is a miss.
    """
    if abs(predicted) < 1e-9:
        return "held" if still else "against"
    if still:
        return "none"
    share = measured / predicted
    if share >= HELD:
        return "held" if share <= MORE else "more" if gain else "missed"
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
        return "held", f"prediction held: {values}"
    if before is None or before == target:
        return "missed", f"missed: {values}"
    outcome = progress(after - before, target - before, _same(before, after))
    if outcome in ("held", "more"):
        outcome = "partly"
    return outcome, f"{_WORDS[outcome]}: {values}, the parent's {in_words(before, p.unit)}"
