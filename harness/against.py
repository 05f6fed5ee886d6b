"""Whether one build is slower than another, decided so that chance rarely says so.

Both builds, and one of them a second time, are timed turn by turn in several processes. The second time gives
the spread of *no* change (A against A): differences of layout, order and drift that interleaving leaves. A
case is slower only if its difference is one that this spread makes unlikely, for all cases together, **and**
larger than an effect worth naming. Builds of the same machine code are never called different.

Pure functions of numbers.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

ALPHA = 1e-3  # false alarms a gate run, over all its cases
EFFECT = 0.01  # slower by less than this is not worth stopping anyone
FEWEST = 4  # processes, below which there is no spread to speak of

Outcome = Literal["same code", "slower", "faster", "no difference", "too small to matter", "undecided"]


@dataclass(frozen=True, slots=True)
class Timed:
    """The median times of one case in each process, in one unit: before, after, and before once more."""

    before: Sequence[float]
    after: Sequence[float]
    again: Sequence[float]
    same_code: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a case.

    Args:
        change: after over before, less 1: 0.02 is 2 % slower.
        critical: the change from which on chance is ruled out, for all cases together.
        reason: why nothing was decided; else empty.
    """

    outcome: Outcome
    change: float | None
    critical: float | None
    reason: str = ""

    @property
    def text(self) -> str:
        """``slower by 2.1 % (chance ends at 0.4 %)``."""
        if self.change is None or self.critical is None:
            return f"{self.outcome}: {self.reason}"
        by = f" by {abs(100 * self.change):.2f} %" if self.outcome in ("slower", "faster") else ""
        return f"{self.outcome}{by} ({100 * self.change:+.2f} %; chance ends at {100 * self.critical:.2f} %)"


def decide(cases: Mapping[str, Timed], *, alpha: float = ALPHA, effect: float = EFFECT) -> dict[str, Decision]:
    """Decides every case, each at ``alpha`` over their number.

    A case's spread is the largest of three: that of A against A over all cases, its own of A against A, and
    its own of after against before. The last keeps a case that is noisy only after the change from being judged
    by the calm of the others; so the rate of false alarms stays below ``alpha`` rather than at it.
    """
    judged = {name: t for name, t in cases.items() if not t.same_code and not _gap(t)}
    level = alpha / max(len(judged), 1)
    nulls = {name: _logs(t.before, t.again) for name, t in judged.items()}
    pooled = math.sqrt(statistics.fmean(_variance(n) for n in nulls.values())) if nulls else 0.0
    found: dict[str, Decision] = {}
    for name, timed in cases.items():
        if timed.same_code:
            found[name] = Decision("same code", None, None, "the two builds are the same machine code")
        elif gap := _gap(timed):
            found[name] = Decision("undecided", None, None, gap)
        else:
            logs = _logs(timed.before, timed.after)
            spread = max(pooled, math.sqrt(_variance(nulls[name])), math.sqrt(_variance(logs)))
            found[name] = _decide(logs, spread, level, effect)
    return found


def _decide(logs: Sequence[float], spread: float, level: float, effect: float) -> Decision:
    count = len(logs)
    change = statistics.fmean(logs)
    critical = student_quantile(1 - level, count - 1) * spread / math.sqrt(count)
    outcome: Outcome = "no difference"
    if abs(change) > critical:
        outcome = "slower" if change > 0 else "faster"
        if abs(math.expm1(change)) <= effect:
            outcome = "too small to matter"
    return Decision(outcome, math.expm1(change), math.expm1(critical))


def _gap(timed: Timed) -> str:
    """Why there is nothing to decide with; empty if there is."""
    lengths = {len(timed.before), len(timed.after), len(timed.again)}
    if len(lengths) > 1:
        return "the processes did not time all three builds"
    if min(lengths) < FEWEST:
        return f"timed in {min(lengths)} processes; at least {FEWEST} are needed"
    if not all(math.isfinite(x) and x > 0 for side in (timed.before, timed.after, timed.again) for x in side):
        return "a time is not a positive number"
    return ""


def _logs(below: Sequence[float], above: Sequence[float]) -> list[float]:
    return [math.log(a / b) for b, a in zip(below, above, strict=True)]


def _variance(values: Sequence[float]) -> float:
    """Of differences whose true mean is not known."""
    return statistics.variance(values)


# --- two quantiles ---------------------------------------------------------------------------------


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
    return 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def binomial_upper(alarms: int, trials: int, confidence: float = 0.95) -> float:
    """The rate that is ruled out by so few alarms in so many trials (Clopper and Pearson's upper bound)."""
    if alarms >= trials:
        return 1.0
    low, high = alarms / trials, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        # The chance of at most `alarms` at this rate.
        if incomplete_beta(trials - alarms, alarms + 1, 1 - middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    ) / a  # fmt: skip
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    fraction = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction
