"""Computes the ratio of two median times and its bootstrap interval, for records and pages alike.

Pure functions of their arguments; numpy is imported where it is used.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Resamples of a bootstrap, and the share of them that its interval holds.
RESAMPLES = 2000
CONFIDENCE = 0.95
_SEED = 20251121  # any fixed number: the same samples give the same interval
_CHUNK = 1 << 21  # resampled values held at once


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians and its bootstrap interval."""

    value: float
    low: float
    high: float


def ratio(before: Sequence[float], after: Sequence[float], *, paired: bool = True) -> Ratio:
    """How many times faster ``after`` is than ``before``: median over median, over the rounds that both have.

    Sample i of both is from the same round, so rounds are drawn, not samples: what disturbed a whole round
    disturbs both sides of its ratio.

    Args:
        paired: whether they were timed in the same rounds. Samples of different runs were not, so their rounds are
            drawn independently.

    Raises:
        ValueError: no samples, or times that are not positive.
    """
    return ratios(before, [after], paired=paired)[0]


def ratios(before: Sequence[float], series: Sequence[Sequence[float]], *, paired: bool = True) -> list[Ratio]:
    """:func:`ratio` of each of the ``series`` against the same ``before``, faster than one by one."""
    import numpy as np

    values, drawn = [], []
    for after in series:
        rounds = min(len(before), len(after))
        if rounds == 0:
            raise ValueError("expected samples on both sides, found none")
        a, b = (tuple(before[:rounds]), tuple(after[:rounds])) if paired else (tuple(before), tuple(after))
        if min(a) <= 0 or min(b) <= 0:
            raise ValueError("expected positive times")
        drawn.append(_resampled_medians(a, _SEED) / _resampled_medians(b, _SEED if paired else _SEED + 1))
        values.append(statistics.median(a) / statistics.median(b))
    if not series:
        return []
    tail = 50 * (1 - CONFIDENCE)
    lows, highs = np.percentile(np.stack(drawn), (tail, 100 - tail), axis=1)
    # With few rounds the draws may all miss the value itself by a rounding error.
    return [Ratio(v, min(float(x), v), max(float(y), v)) for v, x, y in zip(values, lows, highs, strict=True)]


@functools.lru_cache(maxsize=1024)
def _resampled_medians(samples: tuple[float, ...], seed: int) -> NDArray[np.float64]:
    """Medians of the resamples; with one seed the same draw of rounds for every series of one length."""
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    count = len(samples)
    generator = np.random.default_rng(seed)
    rows = max(1, _CHUNK // count)
    parts = []
    for start in range(0, RESAMPLES, rows):
        drawn = values[generator.integers(0, count, (min(rows, RESAMPLES - start), count))]
        drawn.sort(axis=1)  # faster than numpy's median, which looks for NaN, and the same to the bit
        parts.append((drawn[:, (count - 1) // 2] + drawn[:, count // 2]) / 2)
    medians: NDArray[np.float64] = np.concatenate(parts)
    medians.setflags(write=False)
    return medians
