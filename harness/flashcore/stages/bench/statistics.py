"""Statistics of time samples: summaries, when to stop, and ratios with their intervals.

Pure functions of their arguments; numpy is imported where it is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Samples from which on the 99th percentile is more than the largest few.
P99_SAMPLES = 1000
#: Resamples of a bootstrap, and the share of them that its interval holds.
RESAMPLES = 2000
CONFIDENCE = 0.95
_SEED = 20251121  # any fixed number: the same samples give the same interval
_CHUNK = 1 << 21  # resampled values held at once


@dataclass(frozen=True, slots=True)
class Summary:
    """Of samples in one unit. ``p99`` is ``None`` below :data:`P99_SAMPLES`; ``std`` divides by n - 1."""

    count: int
    p50: float
    p90: float
    p99: float | None
    mean: float
    std: float | None


def summarize(samples: Sequence[float]) -> Summary:
    """The summary of at least one sample.

    Raises:
        ValueError: no samples.
    """
    import numpy as np

    if not samples:
        raise ValueError("expected at least one sample, found none")
    values = np.asarray(samples, dtype=np.float64)
    p50, p90, p99 = (float(q) for q in np.percentile(values, (50, 90, 99)))
    count = len(samples)
    return Summary(
        count=count,
        p50=p50,
        p90=p90,
        p99=p99 if count >= P99_SAMPLES else None,
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if count > 1 else None,
    )


def relative_noise(samples: Sequence[float]) -> float:
    """Standard error of the median over the median, from the interquartile range; infinite below 5 samples.

    The range is used rather than the deviation, which one disturbed sample can blow up.
    """
    import numpy as np

    if len(samples) < 5:
        return math.inf
    low, middle, high = (float(q) for q in np.percentile(np.asarray(samples, dtype=np.float64), (25, 50, 75)))
    if middle <= 0:
        return math.inf
    # For normal noise: deviation = range / 1.349, and the median's standard error is 1.2533 deviation / √n.
    return 1.2533 * (high - low) / 1.349 / math.sqrt(len(samples)) / middle


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a case has been sampled enough in one mode.

    At least ``least`` samples; then until the median's relative noise is at most ``noise``, the mode's
    ``seconds`` are over, or there are ``most``. A case so slow that its own samples have taken
    ``slow_seconds`` stops earlier, but not below ``fewest``.
    """

    least: int = 100
    most: int = P99_SAMPLES
    noise: float = 0.002
    seconds: float = 2.0
    slow_seconds: float = 3.0
    fewest: int = 10

    def enough(self, samples: Sequence[float], own_seconds: float, mode_seconds: float) -> bool:
        """``own_seconds`` went into these samples, ``mode_seconds`` into those of all cases."""
        count = len(samples)
        if count < self.least:
            return count >= self.fewest and own_seconds >= self.slow_seconds
        if count >= self.most or mode_seconds >= self.seconds:
            return True
        # Looked at now and then, since it costs about as much as a sample.
        return count % 20 == 0 and relative_noise(samples) <= self.noise


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians and its bootstrap interval."""

    value: float
    low: float
    high: float


def ratio(other: Sequence[float], own: Sequence[float]) -> Ratio:
    """How many times faster ``own`` is than ``other``: median over median, over the rounds that both saw.

    Sample i of both is from the same round, so rounds are drawn, not samples: what disturbed a whole round
    disturbs both sides of its ratio.

    Raises:
        ValueError: no samples, or times that are not positive.
    """
    import numpy as np

    rounds = min(len(other), len(own))
    if rounds == 0:
        raise ValueError("expected samples on both sides, found none")
    a, b = tuple(other[:rounds]), tuple(own[:rounds])
    if min(a) <= 0 or min(b) <= 0:
        raise ValueError("expected positive times")
    drawn = _resampled_medians(a) / _resampled_medians(b)
    value = float(np.median(a) / np.median(b))
    tail = 50 * (1 - CONFIDENCE)
    low, high = (float(q) for q in np.percentile(drawn, (tail, 100 - tail)))
    # With few rounds the draws may all miss the value itself by a rounding error.
    return Ratio(value, min(low, value), max(high, value))


@functools.lru_cache(maxsize=64)
def _resampled_medians(samples: tuple[float, ...]) -> NDArray[np.float64]:
    """Medians of the resamples; the same draw of rounds for every series of one length."""
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    count = len(samples)
    generator = np.random.default_rng(_SEED)
    rows = max(1, _CHUNK // count)
    parts = [
        np.median(values[generator.integers(0, count, (min(rows, RESAMPLES - start), count))], axis=1)
        for start in range(0, RESAMPLES, rows)
    ]
    medians: NDArray[np.float64] = np.concatenate(parts)
    medians.setflags(write=False)
    return medians
