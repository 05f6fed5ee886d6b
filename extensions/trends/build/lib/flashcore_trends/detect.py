"""Finds the nights in which a series of times changed its level, and says whether kernel or machine changed it.

The search is E-divisive (Matteson and James, arXiv 1306.4933) in windows (Fleming et al., arXiv 2301.03034): the split
with the largest energy distance between its sides, tested by permutations, then the same on both sides. A new night of
new machine code is also tried by itself. A split counts if another level explains the nights better than noise with
heavy tails does: a ratio of likelihoods (Student's t), with the noise of all levels in the window. Pure: arrays in,
changes out.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    Array = np.ndarray[Any, Any]
else:

    class _Numpy:
        """NumPy, imported at its first use: loading plugins does without it."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            return getattr(numpy, name)

    np = _Numpy()

#: Nights that are searched at once, and the nights by which the next window is shifted.
WINDOW, SHIFT = 60, 30
#: Changes of so little distance are one, reported in different nights.
SAME = 2
#: The fewest nights before and after a change.
BEFORE, AFTER = 5, 2
#: The fewest nights before a change in a window that does not begin with the series: an earlier window has those.
CUT = 15
#: False changes that are permitted for each night that could be one, as a ratio of likelihoods; the least size of a
#: change; degrees of freedom of the assumed noise.
RATE, LEAST, TAIL = 2e-3, 0.01, 10.0
#: The least noise: times that are all the same show the resolution of their clock.
TICK = 1e-4
#: Nights of a new level after which it should be reported, nights after which the noise is known, and the share of
#: false changes that is permitted before.
NEWS, SETTLED, EARLY = 3, 32, 0.01
#: The share of permutations that may have so large a distance, and their number.
ALPHA, PERMUTATIONS = 0.02, 399
#: Fewest series of unchanged code that tell what a night did to all of them; nights that each is compared with.
WITNESSES, RECENT = 5, 10
#: Fewest such series that tell how far a machine moves any.
MANY = 100
#: How far a machine moves few of the series, over what a normal distribution of moves would give.
WIDE = 1.2
#: Standard errors from which another machine counts as one that moved a series.
ALIGN = 1.0
#: The fewest nights of one machine code before another machine that tell what that one did.
WARY = 3
#: A night of new machine code explains a split if it gives this share of the largest distance.
SHARE = 0.7
#: The share of a change, and the number of standard errors, that must remain after what machines may have done.
AGREEMENT, VISIBLE = 0.4, 3.6

Blame = Literal["kernel", "machine", "undecided"]


class Change(NamedTuple):
    """A change of level.

    Args:
        at: index of the first time of the new level.
        size: logarithm of the new level over the old one.
        error: one standard error of ``size``.
        blame: ``undecided``: code and machine changed in the same night.
    """

    at: int
    size: float
    error: float
    blame: Blame


def night_effects(logs: Array, code: Array) -> Array:
    """What each night did to all series alike: temperature, clocks, another GPU. 0 where too few series tell.

    Only series whose machine code did not change tell, each by its recent nights with the same code. Each night's
    effect depends on the nights before it, not on later ones.

    Args:
        logs: logarithms of times by series and night; NaN: not timed.
        code: machine code by series and night, as integers.
    """
    levelled, effects = logs.copy(), np.zeros(logs.shape[1])
    for night in range(1, logs.shape[1]):
        first = max(0, night - RECENT)
        before = np.where(code[:, first:night] == code[:, night, None], levelled[:, first:night], np.nan)
        witnesses = np.isfinite(before).any(axis=1) & np.isfinite(logs[:, night])
        if witnesses.sum() >= WITNESSES:
            effects[night] = np.median(logs[witnesses, night] - np.nanmedian(before[witnesses], axis=1))
            levelled[:, night] -= effects[night]
    return effects


def spreads(logs: Array, code: Array, machine: Array) -> Array:
    """How far each night's new GPU, driver or limits moved unchanged code, beyond the noise: the root of the mean
    square. Infinite in other nights, and where too few series tell.

    Args:
        logs: without :func:`night_effects`.
        machine: GPU, driver and limits of each night, as integers.
    """
    result = np.full(logs.shape[1], np.inf)
    for night in np.flatnonzero(np.diff(machine)) + 1:
        same = [np.where(code[:, part] == code[:, night, None], logs[:, part], np.nan)
                for part in (slice(max(0, night - RECENT), night), slice(night, night + WARY))]  # fmt: skip
        fewest = WARY, min(WARY, same[1].shape[1])
        witnesses = np.all([np.isfinite(s).sum(axis=1) >= n for s, n in zip(same, fewest, strict=True)], axis=0)
        if witnesses.sum() >= MANY:
            before, after = (side[witnesses] for side in same)
            moves = np.nanmean(after, axis=1) - np.nanmean(before, axis=1)
            counts = (1 / np.isfinite(side).sum(axis=1) for side in (before, after))
            noise = np.nanvar(before, axis=1, ddof=1) * sum(counts)
            result[night] = WIDE * math.sqrt(max(float(np.mean(moves**2 - noise)), 1e-8))
    return result


def changes(logs: Array, code: Array, machine: Array, spread: Array) -> list[Change]:
    """The changes of one series.

    Args:
        logs: logarithms of its times in the order of nights, without :func:`night_effects`.
        code, machine: its machine code, and GPU, driver and limits, as integers.
        spread: the :func:`spreads` of each night.
    """
    results: dict[int, Change] = {}
    for start in range(0, max(1, len(logs) - WINDOW + SHIFT), SHIFT):
        end = min(start + WINDOW, len(logs))
        part = slice(max(0, end - WINDOW), end)
        for change in window(logs[part], code[part], machine[part], spread[part], cut=part.start > 0):
            at = change.at + part.start
            results[at] = change._replace(at=at)
    return [results[at] for at in sorted(results)]


class _Aligned(NamedTuple):
    """A window: times as they are, and without the machines' moves; machine code, machines and their spreads."""

    raw: Array
    logs: Array
    code: Array
    machine: Array
    spread: Array


def window(logs: Array, code: Array, machine: Array, spread: Array, *, cut: bool) -> Iterator[Change]:
    """The changes in one window; ``cut``: the series begins before it."""
    aligned = logs.copy()
    met = {machine[0]} if len(machine) else set()
    for night in range(1, len(logs)):
        same = code == code[night]
        before = aligned[:night][same[:night] & (machine[:night] != machine[night])][-RECENT:]
        if machine[night] not in met and len(before) >= WARY and code[night - 1] == code[night]:
            met.add(machine[night])
            move = _move(aligned, before, aligned[same & (machine == machine[night])], night, spread[night])
            if move is not None:
                aligned[machine == machine[night]] -= move.size
                yield move
    series = _Aligned(logs, aligned, code, machine, spread)
    yield from _split(series, 0, len(logs), np.empty(0), CUT if cut else BEFORE)


def _move(aligned: Array, before: Array, after: Array, night: int, spread: float) -> Change | None:
    """What another GPU, driver or limit did to unchanged code, if it is beyond the noise."""
    size = _level(after - _middle(before))
    noise = _noise(np.diff(aligned[:night])) / math.sqrt(2) if night > BEFORE else abs(size)
    error = noise * math.sqrt(1 / len(before) + 1 / len(after))
    size /= 1 + (error / spread) ** 2
    return Change(night, size, error, "machine") if abs(size) > max(ALIGN * error, LEAST) else None


def _noise(values: Array) -> float:
    """The standard deviation; of many values without the most extreme one of each side, scaled for that of a normal
    distribution. At least :data:`TICK`."""
    deviation = np.std(values, ddof=1) if len(values) <= 20 else np.std(np.sort(values)[1:-1], ddof=1) * 1.12
    return max(float(deviation), TICK)


def _middle(values: Array) -> float:
    """The median of the means of all pairs (Hodges and Lehmann)."""
    first, second = _pairs(len(values))
    return float(np.median(values[first] + values[second]) / 2)


def _level(rise: Array) -> float:
    """The less extreme of two estimates: a few outliers are no level."""
    middle, last, ordered = _middle(rise), len(rise) - 1, np.sort(rise)
    return max(middle, float(ordered[-(last // 2) - 1])) if middle < 0 else min(middle, float(ordered[last // 2]))


@functools.cache
def _pairs(count: int) -> tuple[Array, Array]:
    first, second = np.triu_indices(count)
    return first, second


def _measured(before: Array, after: Array, others: Array, at: int, tries: int) -> Change | None:
    """The change between two sides, if the noise explains none so large in so many tries.

    Args:
        others: the noise of other levels.
    """
    base = _middle(before)
    rise = after - base
    size = _level(rise)
    noise = _noise(np.concatenate([before - base, rise - _middle(rise), others]))
    scale = noise * math.sqrt(1 + len(after) / len(before))  # the old level has an error too
    gain = np.sum(np.log1p((rise / scale) ** 2 / TAIL) - np.log1p(((rise - size) / scale) ** 2 / TAIL))
    share = _share(len(before) + len(others), len(after)) / tries
    if abs(size) < LEAST or (TAIL + 1) / 2 * gain < -math.log(RATE * share):
        return None
    return Change(at, size, scale / math.sqrt(len(after)), "machine")


def _share(before: int, after: int) -> float:
    """The share of the permitted false changes that is spent with so many nights: a change is tested every night, and
    the shares of all nights have a small sum. It is less in a short history, whose noise is hardly known."""
    return (EARLY if after < NEWS else (NEWS / after) ** 6) * (1 if before + after >= SETTLED else EARLY)


def _split(series: _Aligned, first: int, last: int, others: Array, fewest: int) -> Iterator[Change]:
    """The changes in ``first:last``, by bisection. ``others``: the noise of the nights around."""
    change = _kernels(series, first, last, others, fewest)
    if change is not None:
        yield change
        left, right = series.logs[first : change.at], series.logs[change.at : last]
        yield from _split(series, first, change.at, np.concatenate([others, right - _middle(right)]), fewest)
        yield from _split(series, change.at, last, np.concatenate([others, left - _middle(left)]), BEFORE)


def _kernels(series: _Aligned, first: int, last: int, others: Array, fewest: int) -> Change | None:
    values = series.logs[first:last]
    every = np.arange(fewest, last - first - AFTER + 1)
    if not len(every):
        return None
    scores = _energies(values[None], every)[0]
    best = int(every[np.argmax(scores)])
    named = np.isin(every, np.flatnonzero(np.diff(series.code)) + 1 - first)
    if named.any():
        splits = every[named]
        likely = int(splits[np.argmax(scores[named])])
        # A few new nights do not outweigh older, lesser differences: they are also tried by themselves. The older
        # ones were tried on earlier mornings.
        fresh = [int(n) for n in splits if len(values) - n <= NEWS + 1]
        explains = scores[every == likely][0] >= SHARE * scores.max() or abs(likely - best) <= 2
        for at in dict.fromkeys([likely, *fresh] if explains else fresh):
            change = _measured(values[:at], values[at:], others, first + at, len(fresh if at in fresh else splits))
            if change and (at in fresh or _is_significant(values, splits, float(scores[every == at][0]))):
                return change._replace(blame=_blamed(series, change, first, last))
    change = _measured(values[:best], values[best:], others, first + best, len(every))
    return change if change and _is_significant(values, every, float(scores.max())) else None


def _blamed(series: _Aligned, change: Change, first: int, last: int) -> Blame:
    """``kernel`` if the change remains after what its machines may have done: least squares of the step and an offset
    of each machine, which is about as large as that machine's spread."""
    part = slice(first, last)
    logs, machine, spread = series.raw[part], series.machine[part].tolist(), series.spread[part]
    step = np.arange(first, last) >= change.at
    noise = change.error / math.sqrt(1 / np.sum(step) + 1 / np.sum(~step))
    arrivals: dict[int, tuple[int, ...]] = {machine[0]: ()}  # first nights of each machine and of those before it
    for night in range(1, len(machine)):
        arrivals.setdefault(machine[night], (*arrivals[machine[night - 1]], night))
    nights = [line[-1] for line in arrivals.values() if line]
    offsets = ([night in arrivals[m] for m in machine] for night in nights)
    design = np.column_stack([np.ones(len(logs)), step, *offsets]).astype(float)
    prior = [0, 0, *((noise / spread[nights]) ** 2)]
    covariance = np.linalg.inv(design.T @ design + np.diag(prior) + 1e-6 * np.eye(len(prior)))
    size = float((covariance @ design.T @ (logs - logs[0]))[1]) * math.copysign(1, change.size)
    error = noise * math.sqrt(covariance[1, 1])
    return "kernel" if size > max(AGREEMENT * abs(change.size), VISIBLE * error) else "undecided"


def _energies(values: Array, splits: Array) -> Array:
    """The energy distance between the two sides of each row at each split, the index of the second side."""
    count = values.shape[1]
    distances = np.abs(values[:, :, None] - values[:, None])
    earlier = np.einsum("rij,ij->ri", distances, np.tri(count, k=-1))  # of each value to those before it
    later = distances.sum(axis=2) - earlier
    first, second = np.cumsum(earlier, axis=1)[:, splits - 1], np.cumsum(later[:, ::-1], axis=1)[:, count - splits - 1]
    between = earlier.sum(axis=1)[:, None] - first - second
    left, right = splits, count - splits
    inside = 2 * (first / (left * (left - 1.0)) + second / (right * (right - 1.0)))
    energies: Array = 2 * between / count - left * right / count * inside
    return energies


@functools.lru_cache(maxsize=256)
def _orders(count: int, orders: int) -> Array:
    """Permutations of so many values, always the same ones, so that the same nights give the same answer."""
    return np.random.default_rng(count).permuted(np.tile(np.arange(count), (orders, 1)), axis=1)


def _is_significant(values: Array, splits: Array | list[int], energy: float) -> bool:
    """Whether few permutations have so large a distance at one of the splits."""
    largest = _energies(values[_orders(len(values), PERMUTATIONS)], np.array(splits)).max(axis=1)
    return float(np.sum(largest >= energy) + 1) / (PERMUTATIONS + 1) <= ALPHA
