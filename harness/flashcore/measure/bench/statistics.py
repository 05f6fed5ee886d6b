"""Statistics of time samples: percentiles, noise, and when to stop. Ratios are :mod:`flashcore.model.intervals`'.

Pure functions of their arguments; numpy is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Samples from which on the 90th and the 99th percentile are more than the largest few.
P90_SAMPLES, P99_SAMPLES = 100, 1000


def percentiles(calls: Sequence[float]) -> tuple[float | None, float | None]:
    """The 90th and the 99th percentile of so many single calls; ``None`` of too few."""
    import numpy as np

    quantiles = np.percentile(np.asarray(calls), (90, 99)) if len(calls) >= P90_SAMPLES else (0.0, 0.0)
    least = (P90_SAMPLES, P99_SAMPLES)
    p90, p99 = (float(q) if len(calls) >= n else None for q, n in zip(quantiles, least, strict=True))
    return p90, p99


def relative_noise(samples: Sequence[float]) -> float:
    """Standard error of the median over the median, from the interquartile range; infinite below 5 samples.

    The range is used rather than the deviation, which one disturbed sample can inflate.
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

    least: int = 30
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
        # Evaluated now and then, since it costs about as much as a sample.
        return count % 10 == 0 and relative_noise(samples) <= self.noise
