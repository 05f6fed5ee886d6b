"""Facts derived from time samples (us). Measurement and record checks share these definitions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence


def of_samples(samples: Sequence[float]) -> Mapping[str, float | None]:
    """Median, mean, sample standard deviation (``None`` for one sample) and count, by suffix of the fact's name."""
    count, mean = len(samples), statistics.fmean(samples)
    squares = math.fsum((x - mean) ** 2 for x in samples)
    std = math.sqrt(squares / (count - 1)) if count > 1 else None
    return {"p50": statistics.median(samples), "mean": mean, "std": std, "samples": count}


def speedup(before: Sequence[float], after: Sequence[float]) -> float:
    """Speedup of ``after`` over ``before``: the ratio of medians over their common rounds."""
    rounds = min(len(before), len(after))
    return statistics.median(before[:rounds]) / statistics.median(after[:rounds])


def tflops(flop: float, samples: Sequence[float]) -> float:
    """TFLOP/s at the median of ``samples`` (us)."""
    return flop / statistics.median(samples) / 1e6
