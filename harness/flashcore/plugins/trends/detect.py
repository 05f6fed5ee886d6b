"""Finds the nights in which a series of times changed its level, and says whether kernel or machine changed it.

The search is E-divisive (Matteson and James, arXiv 1306.4933) in windows (Fleming et al., arXiv 2301.03034): the split
with the largest energy distance between its sides, tested by permutations, then the same on both sides. A split counts
if the medians of its sides also differ by more than the series' own noise explains. Pure: arrays in, changes out.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, Any]

#: Nights that are searched at once, and the nights by which the next window is shifted.
WINDOW, SHIFT = 50, 25
#: The fewest nights before and after a change.
BEFORE, AFTER = 5, 2
#: A change is more than this many standard errors and this logarithm; so unlikely among this many permutations.
ERRORS, LEAST, ALPHA, PERMUTATIONS = 3.8, 0.006, 0.01, 399
#: Fewest series of unchanged code that tell what a night did to all of them; nights that each is compared with.
WITNESSES, RECENT = 5, 10
#: The share of a change that must be visible while driver and limits stay the same.
AGREEMENT = 0.6

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


def changes(logs: Array, code: Array, machine: Array) -> list[Change]:
    """The changes of one series.

    Args:
        logs: logarithms of its times in the order of nights, without :func:`night_effects`.
        code, machine: its machine code, and driver and limits, as integers.
    """
    starts = range(0, max(1, len(logs) - WINDOW + SHIFT), SHIFT)
    results: dict[int, Change] = {}
    for start in starts:
        end = min(start + WINDOW, len(logs))
        start = max(0, end - WINDOW)
        part = slice(start, end)
        for change in _window(logs[part], code[part], machine[part]):
            results[change.at + start] = change._replace(at=change.at + start)
    return [results[at] for at in sorted(results)]


def _window(logs: Array, code: Array, machine: Array) -> Iterator[Change]:
    moves = [int(n) for n in np.flatnonzero(np.diff(machine)) + 1]
    aligned = logs.copy()
    edges = [0]
    for move in moves:
        shift = _move(aligned, logs, code, machine, move)
        if shift is None:
            edges.append(move)
            yield from _together(aligned, move)
        elif shift.size:
            aligned[move:] -= shift.size
            yield shift
    for first, last in zip(edges, [*edges[1:], len(logs)], strict=True):
        yield from _split(aligned, code, machine, first, last)


def _noise(values: Array) -> float:
    """The standard deviation without the most extreme value of each side, scaled for that of a normal one."""
    ordered = np.sort(values)
    return float(np.std(ordered[1:-1], ddof=1) * 1.12) if len(values) > 5 else float(np.std(values, ddof=1))


def _move(aligned: Array, logs: Array, code: Array, machine: Array, move: int) -> Change | None:
    """What a change of the machine did to unchanged code; ``None`` if the code changed in that night too."""
    if code[move] != code[move - 1]:
        return None
    same = code == code[move]
    before = [n for n in range(max(0, move - 2 * RECENT), move) if same[n]]
    after = [n for n in range(move, len(logs)) if same[n] and machine[n] == machine[move]]
    size = float(np.median(logs[after]) - np.median(aligned[before]))
    around = aligned[max(0, move - WINDOW) : move]
    noise = _noise(np.diff(around)) / np.sqrt(2) if len(around) > 3 else abs(size)
    error = noise * float(np.sqrt(1 / len(before) + 1 / len(after)))
    return Change(move, size if abs(size) > 2.5 * error and abs(size) > LEAST else 0.0, error, "machine")


def _together(logs: Array, move: int) -> Iterator[Change]:
    before, after = logs[max(0, move - RECENT) : move], logs[move : move + RECENT]
    if min(len(before), len(after)) >= AFTER and (change := _measured(before, after, move)):
        yield change._replace(blame="undecided")


def _measured(before: Array, after: Array, at: int) -> Change | None:
    """The change between two sides, if it is beyond the noise. With few nights the less extreme median counts."""
    base = float(np.median(before))
    up = np.median(after) > base
    middle = np.sort(after)[(len(after) - 1) // 2 if up else len(after) // 2]
    size = float(middle - base)
    noise = _noise(np.concatenate([before - base, after - np.median(after)]))
    error = noise * float(np.sqrt(1 / len(before) + 1 / len(after)))
    return Change(at, size, error, "machine") if abs(size) > ERRORS * error + LEAST else None


def _split(logs: Array, code: Array, machine: Array, first: int, last: int) -> Iterator[Change]:
    """The changes in ``logs[first:last]``, by bisection."""
    values = logs[first:last]
    if len(values) < BEFORE + AFTER:
        return
    scores = _energies(np.abs(values[:, None] - values)[None])[0]
    best = int(np.argmax(scores))
    change = _measured(values[:best], values[best:], first + best)
    if change is None:
        # The best split may be one of two sides of a short step: nights that changed the code are tried as well.
        return
    if not _is_significant(values, float(scores[best])):
        return
    rewritten = [n for n in range(max(BEFORE, best - 2), min(best + 3, len(values) - AFTER + 1))
                 if code[first + n] != code[first + n - 1] and scores[n] >= 0.7 * scores[best]]  # fmt: skip
    if rewritten:
        best = max(rewritten, key=lambda n: scores[n])
        if blamed := _blamed(logs, machine, first, first + best, last):
            change = blamed
    yield change
    yield from _split(logs, code, machine, first, change.at)
    yield from _split(logs, code, machine, change.at, last)


def _blamed(logs: Array, machine: Array, first: int, at: int, last: int) -> Change | None:
    """The change of a kernel, if it is visible while the machine stays the same."""
    change = _measured(logs[first:at], logs[at:last], at)
    if change is None:
        return None
    before = [n for n in range(first, at) if machine[n] == machine[at]][-RECENT:]
    after = [n for n in range(at, last) if machine[n] == machine[at]][:RECENT]
    if not before or float(np.median(logs[after]) - np.median(logs[before])) / change.size < AGREEMENT:
        return change
    return change._replace(blame="kernel")


def _energies(distances: Array) -> Array:
    """Energy distance between the two sides of each split of each series; a change is at its index.

    Args:
        distances: between the values of each series, in their order.
    """
    count = distances.shape[1]
    total = np.cumsum(np.cumsum(distances, axis=1), axis=2)
    left = np.arange(1, count)
    right = count - left
    diagonal = np.arange(count - 1)
    first = total[:, diagonal, diagonal]
    strip = total[:, diagonal, -1]
    whole = total[:, -1, -1, None]
    between, second = strip - first, whole - 2 * strip + first
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = first / (left * (left - 1.0))
        outer = second / (right * (right - 1.0))
    energy = left * right / count * (2 * between / (left * right) - inner - outer)
    result = np.full((len(distances), count), -np.inf)
    result[:, BEFORE : count - AFTER + 1] = energy[:, BEFORE - 1 : count - AFTER]
    return result


@functools.lru_cache(maxsize=256)
def _orders(count: int) -> Array:
    """Permutations of so many values, always the same ones, so that the same nights give the same answer."""
    return np.random.default_rng(count).permuted(np.tile(np.arange(count), (PERMUTATIONS, 1)), axis=1)


def _is_significant(values: Array, energy: float) -> bool:
    """Whether few permutations have a split with so large a distance."""
    shuffled = values[_orders(len(values))]
    largest = _energies(np.abs(shuffled[:, :, None] - shuffled[:, None])).max(axis=1)
    return float(np.sum(largest >= energy) + 1) / (PERMUTATIONS + 1) <= ALPHA
