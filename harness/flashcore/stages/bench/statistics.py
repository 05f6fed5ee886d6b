"""Statistics of time samples: percentiles, noise, and when to stop. Ratios are in :mod:`flashcore.model.intervals`.

Pure functions; numpy is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: The fewest samples for a 90th and a 99th percentile: fewer would make them one of the largest few samples.
P90_SAMPLES, P99_SAMPLES = 100, 1000


def percentiles(calls: Sequence[float]) -> tuple[float | None, float | None]:
    """The 90th and 99th percentiles of single calls; ``None`` if there are too few calls."""
    import numpy as np

    count = len(calls)
    p90, p99 = (float(q) for q in np.percentile(calls or (0.0,), (90, 99)))
    return p90 if count >= P90_SAMPLES else None, p99 if count >= P99_SAMPLES else None


def relative_noise(samples: Sequence[float]) -> float:
    """Standard error of the median over the median, from the interquartile range; infinite below 5 samples.

    The range is used instead of the deviation because one disturbed sample can inflate the deviation.
    """
    import numpy as np

    if len(samples) < 5:
        return math.inf
    low, middle, high = (float(q) for q in np.percentile(samples, (25, 50, 75)))
    if middle <= 0:
        return math.inf
    # For normal noise: deviation = range / 1.349, and the median's standard error is 1.2533 deviation / √n.
    return 1.2533 * (high - low) / 1.349 / math.sqrt(len(samples)) / middle


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a case has enough samples in one mode.

    At least ``least`` samples; then until the median's relative noise is at most ``noise``, the mode has taken
    ``seconds``, or there are ``most``. A slow case, whose samples took ``slow_seconds``, stops earlier, but not below
    ``fewest``.
    """

    least: int = 30
    most: int = P99_SAMPLES
    noise: float = 0.002
    seconds: float = 2.0
    slow_seconds: float = 3.0
    fewest: int = 10

    def enough(self, samples: Sequence[float], case_seconds: float, mode_seconds: float) -> bool:
        """Whether to stop, after ``case_seconds`` for these samples and ``mode_seconds`` for those of all cases."""
        count = len(samples)
        if count < self.least:
            return count >= self.fewest and case_seconds >= self.slow_seconds
        if count >= self.most or mode_seconds >= self.seconds:
            return True
        # Only every tenth sample: it costs about as much as a sample.
        return count % 10 == 0 and relative_noise(samples) <= self.noise
