"""The child process of bench with first looks: cases far from a shape's fastest are dropped before they are set up.

A look is some calls back to back, enqueued while the device waits, and takes far less time than the graphs of a case.
Cases take turns. A case that is farther from the fastest right one than looks at one case are from each other, also in
a second look, is timed no further: its times are its looks, less what the looks of the other cases exceed their times
by, and its answer is not checked. The others race as in bench, with fewer samples; the dispatcher gets as many as the
fastest. Without a race it is bench's child.

Run as ``python -m flashcore.plugins.map.looks TASKFILE JOURNAL [DISPATCHER...]``, this module is that process.
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from flashcore.measure.bench import child as bench_child
from flashcore.measure.bench.message import CaseTimes
from flashcore.measure.bench.proof import Sets
from flashcore.measure.bench.statistics import StopRule
from flashcore.measure.bench.timing import rotated, timer_for
from flashcore.measure.workers.journal import Journal, Task
from flashcore.measure.workers.kernel_call import Caller, Case, is_poisoned, serve

#: Samples of the cases that are left, and the most us of a call for so few; samples of longer calls, whose clock varies
#: more: after the first few, bench's race drops the slower ones.
_FEW, _SHORT_US, _MORE = 5, 1000.0, 10
#: us of a look's calls, and their most.
_LOOK_US, _MOST_CALLS = 120.0, 8
#: How far a case may be from the fastest, relative and in us: by its first call, and after each round of looks; or this
#: many times the median spread of a case's looks.
_FAR, _SPREADS = ((0.3, 50.0), (0.1, 3.0), (0.02, 0.5), (0.012, 0.3)), 2.0
#: us that a launch takes longer than in a graph (H100: 1.3 to 1.7).
_LAUNCH_US = 1.5
#: Cycles that the device waits for the host at least, and in addition for each us of a call that the host took before;
#: most such us, since a first call may load or compile.
_COVER, _CLOCKS, _MOST_HOST_US = 100_000, 3_000, 200.0


class Entrant:
    """A case that can be called: us of its ``first`` call after a warm-up, and per call of each look."""

    def __init__(self, case: Case, sets: Sets, device: str) -> None:
        caller = Caller(case, device=device)
        self.case, self._sets, self._outputs = case, sets, caller.outputs()
        self._call = functools.partial(caller.call, sets.inputs[0], self._outputs)
        self._timer, self._calls, self._host_us = timer_for(device), 1, 0.0
        self._enqueue()
        self.us: list[float] = []
        self.first = self._look()
        self._calls = max(1, min(_MOST_CALLS, round(_LOOK_US / self.first)))

    @property
    def least(self) -> float:
        """us of a call in the fastest look, less its launches."""
        return min(self.us, default=self.first) - _LAUNCH_US * max(self.case.launches, 1)

    @functools.cached_property
    def is_right(self) -> bool:
        return not self._sets.complaints(self.case, 0, self._outputs)[1]

    def look(self) -> None:
        self.us.append(self._look())

    def _look(self) -> float:
        cover = _COVER + round(_CLOCKS * self._calls * min(self._host_us, _MOST_HOST_US))
        return max(self._timer.between(self._enqueue, cover=cover), 1e-3) / self._calls

    def _enqueue(self) -> None:
        began = time.perf_counter()
        for _ in range(self._calls):
            self._call()
        self._host_us = (time.perf_counter() - began) * 1e6 / self._calls


def perform(task: Task, log: Journal, dispatchers: Collection[str] = ()) -> dict[str, Any]:
    """Times the cases of one shape."""
    payload, race = task.payload, task.payload["race"]
    if not race:
        return bench_child.perform(task, log)
    (mode,), ran = payload["modes"], [name for name in dispatchers if name in race["full"]]
    choices: list[str] = []
    near: dict[str, list[float]] = {}
    far: dict[str, list[float]] = {}

    def choose(cases: Sequence[Case], sets: Sets) -> tuple[Sequence[Case], StopRule]:
        choices.extend(c.variant for c in cases if not c.is_reference and c.variant not in dispatchers)
        entrants: list[Entrant] = []
        for case in cases:
            log.step(task.name, "first look", case.variant)
            try:
                entrants.append(Entrant(case, sets, payload["device"]))
            except Exception:  # bench reports it
                if is_poisoned(payload["device"]):
                    raise
        for number in range(len(_FAR)):
            log.step(task.name, f"look {number}")
            lost = look(entrants, number, choices, ran)
            far.update((one.case.variant, one.us) for one in lost)
            entrants = [one for one in entrants if one not in lost]
        near.update((one.case.variant, one.us) for one in entrants)
        samples = _FEW if min((one.least for one in entrants), default=0.0) <= _SHORT_US else _MORE
        rule = StopRule(least=samples, fewest=_FEW, seconds=0.0)
        return [case for case in cases if case.variant not in far], rule

    race = {**race, "full": {**race["full"], **dict.fromkeys(ran, payload["modes"])}}
    times = bench_child.perform(Task(task.name, {**payload, "race": race}), log, choose)
    us = {name: statistics.median(one["samples"][mode]) for name, one in times["variants"].items()}
    excess = statistics.median([statistics.median(near[name]) - us[name] for name in us if name in near] or [0.0])
    # More than the fastest choice, which won in the same rounds: later the clock may have fallen. Times are rounded.
    least = min((us[name] for name in choices if name in us), default=0.0) + 1e-4
    for name, looked in far.items():
        dropped = CaseTimes(
            samples={mode: [round(max(x - excess, least), 4) for x in looked]},
            calls={},
            kernel_clock={},
            kernels=None,
            copies=0,
            launches=1,
            eager_calls=1,
            seconds=0.0,
            proved={},
            new=None,
            stopped=[mode],
        )
        times["variants"][name] = asdict(dropped)
    return times


def look(entrants: Sequence[Entrant], number: int, choices: Collection[str], ran: Collection[str]) -> list[Entrant]:
    """Looks at each case, but not in round 0, and returns those far from the fastest of the ``choices``, without
    ``ran``."""
    for one in rotated(entrants, number) if number else ():
        one.look()
    fastest = sorted(entrants, key=lambda one: one.least)
    chosen = [one for one in fastest if one.case.variant in choices] or fastest
    spreads = [max(one.us) / min(one.us) for one in entrants if one.us]
    most = next((limit(one.least, number, spreads) for one in chosen if one.is_right), math.inf)

    def far() -> list[Entrant]:
        return [one for one in entrants if one.least > most and one.case.variant not in ran]

    for one in far():
        one.look()  # the host may have disturbed a look
    return far()


def limit(best: float, number: int, spreads: Collection[float]) -> float:
    """us that a case may take after a round, given the fastest one's and each case's slowest look over its fastest."""
    share, us = _FAR[number]
    return best + max(best * max(share, _SPREADS * (statistics.median(spreads or (1.0,)) - 1)), us)


if __name__ == "__main__":
    serve(functools.partial(perform, dispatchers=sys.argv[3:]))
