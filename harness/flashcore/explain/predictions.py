"""Compares predictions with measurements: how much of each predicted change was measured.

Times depend on the device, so they are compared by their ratio. Counts and bytes are compared by their difference, and
values without a start as levels. A level of time on another device is not comparable; a speedup, as a ratio, is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log
from typing import Literal

from flashcore.chips import devices
from flashcore.explain.readings import Reading, Readings
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.causes import WorstInput
from flashcore.model.suite import Prediction, Variant
from flashcore.model.text import in_words

#: ``elsewhere``: predicted for another device and not comparable with this one; ``open``: nothing was predicted.
PredictionOutcome = Literal[
    "confirmed", "more", "partly", "none", "against", "missed", "unmeasured", "elsewhere", "open"
]
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
class JudgedPrediction:
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
    outcome: PredictionOutcome
    finding: str
    note: str = ""


def outcomes(readings: Readings, variant: Variant, shape: str) -> Iterator[JudgedPrediction]:
    """The outcomes of the variant's predictions for this shape, or for any shape."""
    for prediction in variant.predictions:
        if prediction.shape in (None, shape):
            yield outcome_of(readings, prediction, variant, shape)


def predicted_share(variant: Variant, phase: str, shape: str | None) -> Prediction | None:
    """The first prediction of a phase's share at a shape; ``None`` if there is none."""
    shares = (p for p in variant.predictions if p.fact == PHASE_SHARE + phase and p.shape in (None, shape))
    return next(shares, None)


def outcome_of(readings: Readings, p: Prediction, variant: Variant, shape: str) -> JudgedPrediction:
    """The outcome of one prediction of a variant at that shape."""
    parent, case = Case(variant.parent or "", shape), Case(variant.name, shape)
    before, after = readings.of(p.fact, parent), readings.of(p.fact, case)
    gpu = readings.record.gpu
    foreign = p.device is not None and not devices.is_called(gpu, p.device)
    scale, predicted = _scale(p)
    note = ""
    if foreign:
        note = f"predicted for the {p.device}; compared as a {scale}" + (f" on {gpu}" if gpu else "")

    def judged(measured: float | None, outcome: PredictionOutcome, finding: str) -> JudgedPrediction:
        return JudgedPrediction(p, scale, predicted, measured, before, after, outcome, finding, note)

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
        speedup = readings.speedup(p.fact, case, parent)
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


def words(outcome: PredictionOutcome, fact: str, rises: bool) -> str:
    """The outcome of a predicted rise (or fall) in words."""
    if outcome == "missed":  # a larger change than predicted, and not an improvement
        return "worse than predicted" if gains(fact, not rises) else "beyond the prediction"
    return _WORDS[outcome]


_WORDS: dict[PredictionOutcome, str] = {
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


def progress(measured: float, predicted: float, unchanged: bool, gain: bool = True) -> PredictionOutcome:
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


def _level(p: Prediction, target: float, before: float | None, after: float) -> tuple[PredictionOutcome, str]:
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
