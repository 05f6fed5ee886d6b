"""Decides whether one build is slower than another; noise rarely gives a false alarm.

Both builds, and the first one again, are timed alternately in several processes. The second timing gives the spread of
*no* change (A against A): the remaining differences of layout, order and drift. A case is slower only if its difference
is unlikely with this spread, over all cases together, **and** larger than the effect size. Builds of the same machine
code are never timed against each other.

A process counts once, however many rounds it timed: its memory layout affects a build alike in every round. Pure.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from flashcore.model.text import percentage

ALPHA = 1e-3  # false alarms per gate run, over all its cases
EFFECT = 0.01  # a smaller slowdown does not fail a comparison
PROCESSES = 9  # each of the three builds is three times the first, the second and the last to be loaded
FEWEST = 4  # processes, below which the spread cannot be estimated
#: Where even so large a change could be noise, the case is undecided.
COARSE = 0.05

TimeOutcome = Literal["slower", "faster", "no difference", "too small to matter", "undecided"]

#: A change is relative to the mean of two times, a null compares one time with one: its variance is 4/3 of a change's.
_NULL_TO_CHANGE = math.sqrt(3 / 4)


class ProcessTimes(NamedTuple):
    """The result of one process for one case, as logarithms of ratios of times.

    Args:
        change: after over before.
        null: before over before, the second load over the first: a sample of no change.
    """

    change: float
    null: float

    @staticmethod
    def of(before: Sequence[float], after: Sequence[float], again: Sequence[float]) -> ProcessTimes:
        """From the times of the same rounds, in one unit; NaN if one of them is no time.

        Ratios are taken within a round and the median over rounds, so that a drift that a round's times share
        cancels. There are two ratios of the change, one to each time before; each is symmetric where nothing changed,
        so their mean has no bias even if the noise is skewed.
        """
        sides = (before, after, again)
        if not all(sides) or not all(math.isfinite(x) and x > 0 for side in sides for x in side):
            return ProcessTimes(math.nan, math.nan)
        return ProcessTimes((_typical(before, after) + _typical(again, after)) / 2, _typical(before, again))


def _typical(below: Sequence[float], above: Sequence[float]) -> float:
    return statistics.median(math.log(a / b) for b, a in zip(below, above, strict=True))


@dataclass(frozen=True, slots=True)
class TimeDecision:
    """The outcome of a case.

    Args:
        change: after over before, less 1: 0.02 is 2 % slower.
        critical: the change up to which it could be noise, for all cases together.
        reason: why nothing was decided; else empty.
    """

    outcome: TimeOutcome
    change: float | None
    critical: float | None
    reason: str = ""


def decide(
    cases: Mapping[str, Sequence[ProcessTimes]], *, alpha: float = ALPHA, effect: float = EFFECT
) -> dict[str, TimeDecision]:
    """Decides every case, each at ``alpha`` over their number (Bonferroni).

    A change has to pass two tests. The first is Student's t of the changes over processes, which is valid for any
    spread of either build. The second is the same with the spread of no change in place of its own: the larger of the
    case's own and of what is typical of all cases. So a few changes that happen to agree are no proof. It uses the
    degrees of freedom of both together, since the first test is valid by itself.

    Args:
        cases: the results of each process for each case.
        alpha: the share of gate runs in which noise may make a case slower, and the same for faster.
        effect: the share of the time before that a change must exceed to matter.
    """
    # About zero and not about their mean: a second load that is always slower adds to the spread too.
    spreads = {
        name: _NULL_TO_CHANGE * math.sqrt(statistics.fmean(p.null**2 for p in processes))
        for name, processes in cases.items()
        if not _gap(processes)
    }
    level = alpha / max(len(spreads), 1)
    typical = statistics.median(spreads.values()) if spreads else 0.0
    decided: dict[str, TimeDecision] = {}
    for name, processes in cases.items():
        if gap := _gap(processes):
            decided[name] = TimeDecision("undecided", None, None, gap)
            continue
        changes, count = [p.change for p in processes], len(processes)
        critical = max(
            student_quantile(1 - level, count - 1) * statistics.stdev(changes),
            student_quantile(1 - level, 2 * count - 1) * max(spreads[name], typical),
        ) / math.sqrt(count)
        decided[name] = _decision(statistics.fmean(changes), critical, effect)
    return decided


def _decision(change: float, critical: float, effect: float) -> TimeDecision:
    ratio, threshold = math.expm1(change), math.expm1(critical)
    if abs(change) > critical:
        if abs(ratio) <= effect:
            return TimeDecision("too small to matter", ratio, threshold)
        return TimeDecision("slower" if change > 0 else "faster", ratio, threshold)
    if threshold > COARSE:
        return TimeDecision(
            "undecided", ratio, threshold, f"too noisy: up to {percentage(100 * threshold, 1)} could be noise"
        )
    return TimeDecision("no difference", ratio, threshold)


def _gap(processes: Sequence[ProcessTimes]) -> str:
    """Why the data do not suffice for a decision; empty if they do."""
    if len(processes) < FEWEST:
        return f"timed in {len(processes)} processes; at least {FEWEST} are needed"
    if not all(math.isfinite(x) for p in processes for x in p):
        return "a time is not a positive number"
    return ""


# --- a quantile ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def student_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t stays below with this probability (above one half)."""
    low, high = 0.0, 1.0
    while _student_tail(high, freedom) > 1 - probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if _student_tail(middle, freedom) > 1 - probability:
            low = middle
        else:
            high = middle
    return high


def _student_tail(t: float, freedom: int) -> float:
    """The chance of more than ``t``: a finite series for whole degrees of freedom (Abramowitz and Stegun, 26.7)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = total = math.cos(angle) ** odd
    for k in range(2 + odd, freedom, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    within = math.sin(angle) * (total if freedom > 1 else 0.0)
    return 0.5 - (angle + within) / math.pi if odd else 0.5 - within / 2
