"""Rounds of samples: the timed calls take turns, so that drift affects all of them equally, in random order: at the
power limit a call's clock depends on the call before it.

Used only by the child processes of bench and of ``bench --against``.
"""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from flashcore.machine.gpu_state import Watch
from flashcore.runner.kernel_call import synchronize
from flashcore.stages.bench.racing import Race
from flashcore.stages.bench.statistics import P90_SAMPLES, StopRule
from flashcore.stages.bench.timing import Timed

#: Turns of calls per turn of empty event pairs.
_TURNS_PER_EMPTY = 4


@dataclass(frozen=True, slots=True)
class Turns:
    """Reports whose turn it is, and sums the time each label took.

    Args:
        announce: called with what is sampled, and the label, before each sample.
        spent: seconds that each label's samples took.
        race: stops cases after their first rounds of a mode, and shortens its remaining time by their share.
        now: the clock of the rule's seconds.
    """

    watch: Watch
    announce: Callable[[str, str], object]
    race: Race = field(default_factory=Race)
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    now: Callable[[], float] = time.monotonic


def sample(
    ready: Mapping[str, Timed],
    mode: str,
    rule: StopRule,
    turns: Turns,
    fillers: Set[str] = frozenset(),
) -> dict[str, list[float]]:
    """Samples of one mode (us): every call once per round, until each has enough.

    Args:
        ready: calls by label; each round has another order.
        fillers: labels sampled only as long as others are: an empty launch is so short that its relative noise stays
            large.
    """
    race = turns.race
    looks = race.looks(mode, rule)
    samples: dict[str, list[float]] = {label: [] for label in ready}
    seconds_of = dict.fromkeys(ready, 0.0)
    active = list(ready)
    began = turns.now()
    turn = 0
    while {*active} - fillers:
        for label in random.Random(turn).sample(active, len(active)):
            turns.announce(mode, label)
            start = turns.now()
            samples[label].append(getattr(ready[label], mode)())
            seconds_of[label] += turns.now() - start
        turns.watch.look()
        elapsed = turns.now() - began
        active = [x for x in active if not race.rule(mode, x, rule).enough(samples[x], seconds_of[x], elapsed)]
        turn += 1
        if turn in looks and active:
            stopped = race.stopped(mode, {label: samples[label] for label in active}, early=turn < looks[-1])
            left = [label for label in active if label not in stopped]
            rule = replace(rule, seconds=elapsed + (rule.seconds - elapsed) * len(left) / len(active))
            active = left
    for label, seconds in seconds_of.items():
        turns.spent[label] += seconds
    return samples


def distributions(
    ready: Mapping[str, Timed], mode: str, rule: StopRule, turns: Turns, most: Mapping[str, int]
) -> dict[str, list[float]]:
    """Times of single calls in a mode (us), ``most`` per label. If these do not fit half of the rule's
    ``slow_seconds``: as many as a 90th percentile needs, and fewer for slow calls.

    The time between events around each call, minus the median of empty event pairs, which are timed in between.
    """
    by_label: dict[str, list[float]] = {label: [] for label in ready}
    limit = rule.slow_seconds / 2
    for label in filter(most.get, ready):
        turns.announce(f"{mode} calls", label)
        start = turns.now()
        calls: list[float] = []
        empty: list[float] = []
        for turn in itertools.count():
            seconds, count = turns.now() - start, len(calls)
            fits = seconds < limit and (count < P90_SAMPLES or seconds / count * most[label] <= limit)
            if turn and (count >= most[label] or not fits):
                break
            if turn % _TURNS_PER_EMPTY == 0:
                empty += ready[label].each(mode, calls=False)
            calls += ready[label].each(mode, first=not turn)  # no other label's calls come between
        offset = statistics.median(empty)
        by_label[label] = [x - offset for x in calls[: most[label]]]
        turns.spent[label] += turns.now() - start
    return by_label


def release(device: str) -> None:
    """Frees the graphs' memory before the next shape; reference cycles keep some graphs alive."""
    if device != "cpu":
        import torch

        synchronize(device)
        gc.collect()
        torch.cuda.empty_cache()
