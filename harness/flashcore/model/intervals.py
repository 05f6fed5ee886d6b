"""Computes the facts of time samples, ratios of medians with bootstrap intervals, and the two levels of a bimodal time.

Measurement, record checks, pages, README and gate all use these definitions. Times are in us.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashcore.model.text import UNMEASURED, bracketed, percentage, significant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Number of bootstrap resamples, and the share of them inside the interval; a case that is timed no further needs more.
RESAMPLES = 2000
CONFIDENCE, FINAL = 0.95, 0.99
#: Relative difference below which two times are equal.
NOISE = 0.02
_SEED = 20251121  # fixed, so that the same samples give the same interval
_CHUNK = 1 << 21  # resampled values in memory at once

#: For two levels: least number of samples, least share of each level, least relative gap between them.
_LEVEL_SAMPLES, _LEVEL_SHARE, _LEVEL_GAP = 20, 0.2, 0.02
#: Least Ashman's D for two levels. A split normal distribution has 2.7, a split uniform one 3.5.
_LEVEL_D = 4.5


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians, or a quantile, and its bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """``1.031 [1.012, 1.040]``; ``unmeasured`` for NaN."""
        return UNMEASURED if math.isnan(self.value) else f"{self.value:.3f} {bracketed(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class Levels:
    """The two levels of a time: their medians, and the lower one's share of the samples."""

    low: float
    high: float
    share: float

    @property
    def text(self) -> str:
        """``two levels: 3.24 µs in 76 % of the samples, 3.58 µs in the others``."""
        low, high = significant(self.low, 3), significant(self.high, 3)
        return f"two levels: {low} µs in {percentage(100 * self.share)} of the samples, {high} µs in the others"


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


def levels(samples: Sequence[float]) -> Levels | None:
    """The two levels that a time alternates or jumps between; ``None`` if it has one.

    The split minimizes the variance within the parts (W. D. Fisher, On Grouping for Maximum Homogeneity, 1958). The
    parts are levels if their means are far apart relative to their spreads (D of K. Ashman, C. Bird and S. Zepf,
    Detecting Bimodality in Astronomical Datasets, 1994).
    """
    ordered, count = sorted(samples), len(samples)
    if count < _LEVEL_SAMPLES:
        return None
    total = math.fsum(ordered)
    sums = list(itertools.accumulate(ordered))
    # The variance within the parts is least where the variance between them is largest.
    at = max(range(1, count), key=lambda n: (total * n / count - sums[n - 1]) ** 2 / (n * (count - n)))
    low, high = ordered[:at], ordered[at:]
    result = Levels(statistics.median(low), statistics.median(high), at / count)
    spread = math.sqrt((statistics.pvariance(low) + statistics.pvariance(high)) / 2)
    distant = statistics.fmean(high) - statistics.fmean(low) > _LEVEL_D * spread
    enough = _LEVEL_SHARE <= result.share <= 1 - _LEVEL_SHARE
    return result if enough and distant and result.high - result.low >= _LEVEL_GAP * result.low else None


def ratio(before: Sequence[float], after: Sequence[float], *, paired: bool = True) -> Ratio:
    """Speedup of ``after`` over ``before``: the ratio of medians over their common rounds, with its interval.

    Sample i of both is from the same round. The bootstrap resamples rounds, because a disturbance of a whole round
    affects both sides of the ratio.

    Args:
        paired: whether both were timed in the same rounds. Samples of different runs are resampled independently.

    Raises:
        ValueError: no samples, or times that are not positive.
    """
    return ratios(before, [after], paired=paired)[0]


def median(samples: Sequence[float]) -> Ratio:
    """The median of positive samples, with its interval."""
    return ratio(samples, [1.0] * len(samples))


def is_decided(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether more rounds would not change which of two times is lower, or that they are equal."""
    result = ratios(before, [after], confidence=FINAL)[0]
    return result.low > 1 + NOISE or result.high < 1 - NOISE or 1 - NOISE < result.low <= result.high < 1 + NOISE


def outpaced(series: Mapping[str, Sequence[float]], first: int, far: float = 1.0) -> set[str]:
    """The series whose median is neither among the ``first`` lowest nor equal to one of them, nor less than ``far``
    times the last of these, at confidence :data:`FINAL`, over the rounds that all of them have."""
    import numpy as np

    if len(series) <= first:
        return set()
    rounds = min(map(len, series.values()))
    medians = np.stack([_resampled_medians(tuple(times[:rounds]), _SEED) for times in series.values()])
    among = medians <= far * (1 + NOISE) * np.partition(medians, first - 1, axis=0)[first - 1]
    return {name for name, share in zip(series, among.mean(axis=1), strict=True) if share <= 1 - FINAL}


def ratios(
    before: Sequence[float],
    series: Sequence[Sequence[float]],
    *,
    paired: bool = True,
    confidence: float = CONFIDENCE,
) -> list[Ratio]:
    """:func:`ratio` of each of the ``series`` against the same ``before``, faster than separate calls."""
    import numpy as np

    values, resamples = [], []
    for after in series:
        rounds = min(len(before), len(after))
        if rounds == 0:
            raise ValueError("expected samples on both sides, found none")
        a, b = (tuple(before[:rounds]), tuple(after[:rounds])) if paired else (tuple(before), tuple(after))
        if min(a) <= 0 or min(b) <= 0:
            raise ValueError("expected positive times")
        resamples.append(_resampled_medians(a, _SEED) / _resampled_medians(b, _SEED if paired else _SEED + 1))
        values.append(speedup(a, b) if paired else statistics.median(a) / statistics.median(b))
    if not series:
        return []
    # Bit-identical to numpy.percentile, which also looks for NaN.
    tail = (1 - confidence) / 2
    places = (RESAMPLES - 1) * np.array((tail, 1 - tail))
    below = places.astype(int)
    part, table = places - below, np.stack(resamples)
    table.sort(axis=1)
    low, high = table[:, below], table[:, below + 1]
    ends = np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part)).tolist()
    # With few rounds, all resamples may miss the value by a rounding error.
    return [Ratio(v, min(x, v), max(y, v)) for v, (x, y) in zip(values, ends, strict=True)]


def quantiles(weighted: Sequence[tuple[float, float]], shares: Mapping[str, float]) -> dict[str, Ratio]:
    """The quantiles of weighted values, such as ratios at points of a map, with bootstrap intervals over the values.

    A quantile is the least value that has at least this share of the weight at or below it.

    Args:
        weighted: values and their weights, at least one; a value may be infinite.
        shares: the name of each quantile, and its share of the weight.
    """
    import numpy as np

    values, weights = np.array(sorted(weighted)).T
    count = len(values)
    drawn = np.random.default_rng(_SEED).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    sums = np.cumsum(np.vstack([np.ones(count), drawn]) * weights, axis=1)
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    results = {}
    for name, share in shares.items():
        below = sums < share * sums[:, -1:] * (1 - 1e-12)
        value, *resampled = values[below.sum(axis=1)].tolist()
        resampled.sort()
        results[name] = Ratio(value, min(value, resampled[tail]), max(value, resampled[-1 - tail]))
    return results


@functools.lru_cache(maxsize=4096)  # a large run compares each time with many others
def _resampled_medians(samples: tuple[float, ...], seed: int) -> NDArray[np.float64]:
    """Medians of the resamples. One seed draws the same rounds for all series of one length."""
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    count = len(samples)
    parts = []
    for rounds in (_cached_draws if RESAMPLES * count <= _CHUNK else _draws)(count, seed):
        resamples = values[rounds]
        resamples.sort(axis=1)  # bit-identical to numpy.median, but faster: no check for NaN
        parts.append((resamples[:, (count - 1) // 2] + resamples[:, count // 2]) / 2)
    medians: NDArray[np.float64] = np.concatenate(parts)
    medians.setflags(write=False)
    return medians


def _draws(count: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """The rounds of each resample, in chunks."""
    import numpy as np

    generator = np.random.default_rng(seed)
    rows = max(1, _CHUNK // count)
    for start in range(0, RESAMPLES, rows):
        yield generator.integers(0, count, (min(rows, RESAMPLES - start), count))


@functools.lru_cache(maxsize=4)  # drawing takes longer than the medians
def _cached_draws(count: int, seed: int) -> list[NDArray[np.int64]]:
    return list(_draws(count, seed))
