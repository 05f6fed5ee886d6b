"""The ratio of two recorded times, which is the only definition of *faster* for pages, commands, frames and the API.

Two times were taken alternately if they are of the same run, GPU and rounds. Only their ratio has an interval: between
runs and GPUs there are differences that no resampling of the samples shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple

from flashcore.model import intervals
from flashcore.model.cause import Cause, cause_text
from flashcore.model.causes import OTHER_GPUS, OTHER_ROUNDS, OTHER_RUNS, SAMPLES_MISSING
from flashcore.model.intervals import NOISE
from flashcore.model.record import Time
from flashcore.model.text import bracketed, faster

Conclusion = Literal["faster", "slower", "no difference"]


class Speedup(NamedTuple):
    """The ratio of two times, before over after: above 1 is faster.

    Args:
        low, high: its 95 % bootstrap interval; ``None`` if it has none.
        cause: why it has no interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    cause: Cause | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def unchanged(self) -> bool:
        """Whether the two times are indistinguishable, by their ratio and its interval if there is one."""
        return abs(self.value - 1) < NOISE or (self.ends is not None and self.ends[0] <= 1 <= self.ends[1])

    @property
    def conclusion(self) -> Conclusion:
        if self.unchanged:
            return "no difference"
        return "faster" if self.value > 1 else "slower"

    @property
    def interval(self) -> str:
        """``[1.930, 1.980]``, or in parentheses why there is none."""
        return bracketed(self.ends[0], self.ends[1]) if self.ends else f"({cause_text(self.cause)})"

    @property
    def text(self) -> str:
        """``1.953 × faster [1.930, 1.980]``, or that there is no difference."""
        return self.than("")

    def than(self, other: str) -> str:
        """``1.953 × faster than OTHER [1.930, 1.980]``, or that there is no difference."""
        return f"{self.words(other)} {self.interval}"

    def words(self, other: str) -> str:
        """``1.953 × faster than OTHER``, or that there is no difference."""
        if self.unchanged:
            return f"no difference{f' from {other}' * bool(other)}, ratio {self.value:.3f}"
        return faster(self.value, other, f"{self.value:.3f}")


def speedup(before: Time, after: Time) -> Speedup | None:
    """The speedup of ``after`` over ``before``; ``None`` if one is unmeasured, or they have no finite ratio.

    With an interval it is that of their common rounds, else that of their medians.
    """
    return speedups(before, [after])[0]


def speedups(before: Time, times: Sequence[Time]) -> list[Speedup | None]:
    """:func:`speedup` of each of the ``times`` over the same ``before``, faster than separate calls."""
    results = [_of_medians(before, after, no_interval(before, after)) for after in times]
    alternate = [i for i, one in enumerate(results) if one and one.cause is None]
    for i, ratio in zip(
        alternate, intervals.ratios(before.samples, [times[i].samples for i in alternate]), strict=True
    ):
        results[i] = Speedup(ratio.value, ratio.low, ratio.high)
    return results


def _of_medians(before: Time, after: Time, cause: Cause | None) -> Speedup | None:
    if not before.us or not after.us or not 0 < before.us / after.us < inf:
        return None
    return Speedup(before.us / after.us, cause=cause)


def no_interval(one: Time, other: Time) -> Cause | None:
    """Why two times were not taken alternately on one GPU; ``None`` if they were."""
    if one.run != other.run:
        return OTHER_RUNS()
    if one.gpu and other.gpu and one.gpu != other.gpu:
        return OTHER_GPUS()
    # One median of an empty launch is recorded for all cases of the same rounds.
    rounds = [(time.subject.shape, time.mode, time.empty_us) for time in (one, other)]
    if rounds[0] != rounds[1] or not (one.in_turns and other.in_turns):
        return OTHER_ROUNDS()
    return None if one.samples and other.samples else SAMPLES_MISSING()
