"""Facts that follow from time samples: one definition for measuring them and for checking records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence


def of_samples(samples: Sequence[float]) -> Mapping[str, float | None]:
    """By the end of the fact's name: median, mean, standard deviation (``None`` for one sample), and count."""
    count, mean = len(samples), statistics.fmean(samples)
    squares = math.fsum((x - mean) ** 2 for x in samples)
    std = math.sqrt(squares / (count - 1)) if count > 1 else None
    return {"p50": statistics.median(samples), "mean": mean, "std": std, "samples": count}


def speedup(before: Sequence[float], after: Sequence[float]) -> float:
    """How many times faster ``after`` is: median over median, over the rounds that both have."""
    rounds = min(len(before), len(after))
    return statistics.median(before[:rounds]) / statistics.median(after[:rounds])


def tflops(flop: float, samples: Sequence[float]) -> float:
    """TFLOP/s at the median time."""
    return flop / statistics.median(samples) / 1e6
