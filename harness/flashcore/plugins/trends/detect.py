"""Finds the nights in which a series of times changed its level, and says whether kernel or machine changed it.

The search is E-divisive (Matteson and James, arXiv 1306.4933) in windows (Fleming et al., arXiv 2301.03034): the split
with the largest energy distance between its sides, tested by permutations, then the same on both sides. A split counts
if the medians of its sides also differ by more than the series' own noise explains. Pure: arrays in, changes out.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flashcore.plugins.against.decide import student_quantile

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
#: False changes for each night that could be one, if noise were normal; what a change exceeds besides; its least size.
RATE, RANKS, CLEAR, LEAST = 1e-5, 4e-4, 2.8, 0.01
#: Nights of a new level after which it should be reported, nights after which the noise is known, and the share of
#: false changes that is permitted before.
NEWS, SETTLED, EARLY = 3, 32, 0.05
#: The most permutations that may have so large a distance, and their number.
ALPHA, PERMUTATIONS, DRAWS = 0.02, 399, 20000
#: Fewest series of unchanged code that tell what a night did to all of them; nights that each is compared with.
WITNESSES, RECENT = 5, 10
#: Fewest such series that tell how far a machine moves any.
MANY = 100
#: Standard errors from which another machine counts as one that moved a series.
ALIGN = 1.0
#: The fewest nights of one machine code before another machine that tell what that one did.
WARY = 3
#: A night of new machine code explains a split if it gives this share of the largest distance.
SHARE = 0.7
#: The share of a change that must be visible on one machine.
AGREEMENT, VISIBLE = 0.6, 3.0

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


def reach(logs: Array, code: Array, machine: Array) -> Array:
    """How far each night's new GPU, driver or limits moved unchanged code: one series in a hundred moved further.
    Infinite in other nights, and where too few series tell.

    Args:
        logs: without :func:`night_effects`.
        machine: GPU, driver and limits of each night, as integers.
    """
    result = np.full(logs.shape[1], np.inf)
    for night in np.flatnonzero(np.diff(machine)) + 1:
        same = [np.where(code[:, part] == code[:, night, None], logs[:, part], np.nan)
                for part in (slice(max(0, night - RECENT), night), slice(night, night + WARY))]  # fmt: skip
        witnesses = np.all([np.isfinite(side).sum(axis=1) >= min(WARY, side.shape[1]) for side in same], axis=0)
        if witnesses.sum() >= MANY:
            before, after = (np.nanmedian(side[witnesses], axis=1) for side in same)
            result[night] = np.quantile(np.abs(after - before), 1 - 0.5 / MANY)
    return result


def changes(logs: Array, code: Array, machine: Array, far: Array) -> list[Change]:
    """The changes of one series.

    Args:
        logs: logarithms of its times in the order of nights, without :func:`night_effects`.
        code, machine: its machine code, and GPU, driver and limits, as integers.
        far: the :func:`reach` of each night.
    """
    results: dict[int, Change] = {}
    for start in range(0, max(1, len(logs) - WINDOW + SHIFT), SHIFT):
        end = min(start + WINDOW, len(logs))
        part = slice(max(0, end - WINDOW), end)
        for change in window(logs[part], code[part], machine[part], far[part], cut=part.start > 0):
            at = change.at + part.start
            results[at] = change._replace(at=at)
    return [results[at] for at in sorted(results)]


def window(logs: Array, code: Array, machine: Array, far: Array, *, cut: bool) -> Iterator[Change]:
    """The changes in one window; ``cut``: the series begins before it."""
    aligned = logs.copy()
    met = {machine[0]} if len(machine) else set()
    for night in range(1, len(logs)):
        same = code == code[night]
        before = aligned[:night][same[:night] & (machine[:night] != machine[night])][-RECENT:]
        if machine[night] not in met and len(before) >= WARY and code[night - 1] == code[night]:
            met.add(machine[night])
            move = _move(aligned, before, aligned[same & (machine == machine[night])], night)
            if move is not None:
                aligned[machine == machine[night]] -= move.size
                yield move
    rewritten = np.flatnonzero(np.diff(code)) + 1
    yield from _split(aligned, rewritten, machine, far, 0, len(logs), CUT if cut else BEFORE)


def _move(aligned: Array, before: Array, after: Array, night: int) -> Change | None:
    """What another GPU, driver or limit did to unchanged code, if it is beyond the noise."""
    size = _middle(after) - _middle(before)
    noise = _noise(np.diff(aligned[:night])) / math.sqrt(2) if night > BEFORE else abs(size)
    error = noise * math.sqrt(1 / len(before) + 1 / len(after))
    return Change(night, size, error, "machine") if abs(size) > max(ALIGN * error, LEAST) else None


def _noise(values: Array) -> float:
    """The standard deviation; of many values without the most extreme one of each side, scaled for that of a normal
    distribution."""
    if len(values) <= 20:
        return float(np.std(values, ddof=1))
    return float(np.std(np.sort(values)[1:-1], ddof=1) * 1.12)


def _middle(values: Array) -> float:
    """The median of the means of all pairs (Hodges and Lehmann)."""
    first, second = _pairs(len(values))
    return float(np.median(values[first] + values[second]) / 2)


@functools.cache
def _pairs(count: int) -> tuple[Array, Array]:
    first, second = np.triu_indices(count)
    return first, second


def _contrast(before: Array, after: Array) -> tuple[float, float]:
    """The difference of two levels, and its standard error. Of the new level, the less extreme estimate counts: a few
    outliers are no level."""
    base = _middle(before)
    rise = np.sort(after - base)
    if _middle(rise) < 0:
        size = max(_middle(rise), float(rise[len(rise) // 2]))
    else:
        size = min(_middle(rise), float(rise[(len(rise) - 1) // 2]))
    noise = _noise(np.concatenate([before - base, rise - _middle(rise)]))
    return size, noise * math.sqrt(1 / len(before) + 1 / len(after))


def _measured(before: Array, after: Array, at: int, tries: int) -> Change | None:
    """The change between two sides, if the noise explains none so large in so many tries."""
    size, error = _contrast(before, after)
    if abs(size) < max(LEAST, CLEAR * error):
        return None
    share = _share(len(before), len(after)) / tries
    beyond = abs(size) > student_quantile(1 - RATE * share, len(before) + len(after) - 2) * error
    return Change(at, size, error, "machine") if beyond or _is_rare(before, after, RANKS * share) else None


def _share(before: int, after: int) -> float:
    """The share of the permitted false changes that is spent with so many nights: a change is tested every night, and
    the shares of all nights have a small sum. It is less in a short history, whose noise is hardly known."""
    return (EARLY if after < NEWS else (NEWS / after) ** 6) * (1 if before + after >= SETTLED else EARLY)


def _is_rare(before: Array, after: Array, rate: float) -> bool:
    """Whether few choices of so many nights have so different a mean, whatever the distribution of the noise."""
    values, count = np.concatenate([before, after]), len(after)
    if max(1 / math.comb(len(values), count), 1 / DRAWS) > rate:
        return False
    means = values[_orders(len(values), DRAWS)[:, :count]].mean(axis=1)
    middle = values.mean()
    return float(np.mean(np.abs(means - middle) >= abs(after.mean() - middle) - 1e-12)) + 1 / DRAWS <= rate


def _split(
    logs: Array, rewritten: Array, machine: Array, far: Array, first: int, last: int, fewest: int
) -> Iterator[Change]:
    """The changes in ``logs[first:last]``, by bisection."""
    change = _kernels(logs, rewritten, machine, far, first, last, fewest)
    if change is not None:
        yield change
        yield from _split(logs, rewritten, machine, far, first, change.at, fewest)
        yield from _split(logs, rewritten, machine, far, change.at, last, BEFORE)


def _kernels(
    logs: Array, rewritten: Array, machine: Array, far: Array, first: int, last: int, fewest: int
) -> Change | None:
    values = logs[first:last]
    every = np.arange(fewest, last - first - AFTER + 1)
    if not len(every):
        return None
    scores = _energies(values[None], every)[0]
    best = int(every[np.argmax(scores)])
    named = np.isin(every, rewritten - first)
    if named.any():
        splits = every[named]
        likely = int(splits[np.argmax(scores[named])])
        # A few new nights do not outweigh older, lesser differences: they are also tried by themselves. The older
        # ones were tried on earlier mornings.
        fresh = [int(n) for n in splits if len(values) - n <= NEWS + 1]
        explains = scores[every == likely][0] >= SHARE * scores.max() or abs(likely - best) <= 2
        for at in ([likely] if explains else []) + [n for n in fresh if n != likely]:
            change = _measured(values[:at], values[at:], first + at, len(fresh if at in fresh else splits))
            if change and _is_significant(values, splits if at == likely else [at], float(scores[every == at][0])):
                return change._replace(blame=_blamed(logs, machine, far, change, first, last))
    change = _measured(values[:best], values[best:], first + best, len(every))
    return change if change and _is_significant(values, every, float(scores.max())) else None


def _blamed(logs: Array, machine: Array, far: Array, change: Change, first: int, last: int) -> Blame:
    """``kernel`` if the change is visible on one machine."""
    sides = logs[first : change.at], logs[change.at : last]
    machines = machine[first : change.at], machine[change.at : last]
    counts = {m: min(int(np.sum(side == m)) for side in machines) for m in set(machines[0]) & set(machines[1])}
    if not counts:
        return "kernel" if abs(change.size) > far[change.at] else "undecided"
    usual = max(counts, key=lambda m: counts[m])
    before, after = (side[on == usual] for side, on in zip(sides, machines, strict=True))
    noise = change.error / math.sqrt(1 / len(sides[0]) + 1 / len(sides[1]))
    error = noise * math.sqrt(1 / len(before) + 1 / len(after))
    visible = (_middle(after) - _middle(before)) * math.copysign(1, change.size)
    return "kernel" if visible > max(AGREEMENT * abs(change.size), VISIBLE * error) else "undecided"


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
