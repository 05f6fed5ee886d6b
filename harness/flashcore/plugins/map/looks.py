"""The child process of bench with looks first: cases far from a shape's fastest are dropped before they are set up.

A look is some calls back to back, enqueued while the device waits, and takes far less time than the graphs of a case.
In each round of looks the cases take turns in random order. A case that is slower than the fastest right one in most
rounds is timed no further: its times are its looks, less what the looks of the other cases exceed their times by, and
its answer is not checked. The others and the dispatchers are timed as in bench, with fewer samples. Without a race it
is bench's child.

Run as ``python -m flashcore.plugins.map.looks TASKFILE JOURNAL [DISPATCHER...]``, this module is that process.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property, partial
from statistics import median, median_low
from typing import Any

from flashcore.measure.bench import child as bench_child
from flashcore.measure.bench.message import CaseTimes
from flashcore.measure.bench.proof import Sets
from flashcore.measure.bench.statistics import StopRule
from flashcore.measure.bench.timing import timer_for
from flashcore.measure.workers.journal import Journal, Task
from flashcore.measure.workers.kernel_call import Caller, Case, is_poisoned, serve

#: The samples of each case that is left. By 10 samples in a row of 200 points timed in full, a dispatcher that runs the
#: fastest variant's kernel takes more than 1.02 times its time in 0.7 % of draws, by 5 in 1.5 % (H100).
_RULE = StopRule(least=10, seconds=0.0)
#: us of a look's calls, and of the shortest call by which their number is chosen.
_LOOK_US, _LEAST_US = 120.0, 15.0
#: By how much of the fastest case's time, or of these us if that is shorter, a case may be slower after each round. In
#: a replay of the recorded samples of 96 points, more rounds and smaller steps found no more winners; looks are no more
#: exact than the last step.
_SHARES, _SHORTEST_US = (0.3, 0.1, 0.04, 0.02, 0.01, 0.01), 30.0
#: us that a launch takes longer than in a graph (H100: 1.3 to 1.7).
_LAUNCH_US = 1.5
#: Cycles that the device waits for the host at least, and in addition for each us of a call that the host took before;
#: those us before the first call, and the most, since it may load or compile. At the highest clock: cycles per us.
_COVER, _CLOCKS, _HOST_US, _MOST_HOST_US, _CLOCK = 100_000, 3_000, 50.0, 200.0, 2_000


class Entrant:
    """A case that can be called, its variant's ``name``, and the ``us`` of a call, less its launches, in each round. In
    the first, clocks still rise.

    A choice is neither a reference nor a dispatcher. If it ``is_late``, its last look has a part of the host's time.
    """

    def __init__(self, case: Case, sets: Sets, device: str, is_dispatcher: bool) -> None:
        self.name = case.variant
        self.is_dispatcher, self.is_choice = is_dispatcher, not (is_dispatcher or case.is_reference)
        caller = Caller(case, device=device)
        self.case, self._sets, self._outputs = case, sets, caller.outputs()
        self._call = partial(caller.call, sets.inputs[0], self._outputs)
        self._timer, self._calls, self._host_us = timer_for(device), 1, _HOST_US
        self.us = list[float]()
        self.look()

    @cached_property
    def is_right(self) -> bool:
        return not self._sets.complaints(self.case, 0, self._outputs)[1]

    def look(self) -> None:
        cover = _COVER + round(_CLOCKS * self._calls * min(self._host_us, _MOST_HOST_US))
        us = self._timer.between(self._enqueue, cover=cover) / self._calls
        self.is_late = self._calls * self._host_us * _CLOCK > cover
        self.us.append(us - _LAUNCH_US * (self.case.launches or 1))
        self._calls = round(_LOOK_US / max(us, _LEAST_US)) or 1

    def _enqueue(self) -> None:
        began = time.perf_counter()
        for _ in range(self._calls):
            self._call()
        self._host_us = (time.perf_counter() - began) * 1e6 / self._calls


def perform(task: Task, log: Journal, dispatchers: Sequence[str]) -> dict[str, Any]:
    """Times the cases of one shape."""
    if not task.payload["race"]:
        return bench_child.perform(task, log)
    device, (mode,) = task.payload["device"], task.payload["modes"]
    near, far = list[Entrant](), dict[str, Entrant]()

    def choose(cases: Sequence[Case], sets: Sets) -> tuple[Sequence[Case], StopRule]:
        for case in cases:
            log.step(task.name, "first look", case.variant)
            try:
                near.append(Entrant(case, sets, device, case.variant in dispatchers))
            except Exception:  # bench reports it
                if is_poisoned(device):
                    raise
        for share in _SHARES:
            log.step(task.name, f"look {share}")
            for one in random.sample(near, len(near)):
                one.look()
            for one in dropped(near, share):
                near.remove(one)
                far[one.name] = one
        return [c for c in cases if c.variant not in far], _RULE

    times = bench_child.perform(task, log, choose)
    variants = times["variants"]
    us = {one: median(variants[one.name]["samples"][mode]) for one in near if one.name in variants}
    least = min((us[one] for one in us if one.is_choice), default=0.0)
    excess = median([median(one.us[1:]) - us[one] for one in us] or [0.0])
    for name, one in far.items():
        variants[name] = asdict(
            CaseTimes(
                # More than the fastest choice, which won in the same rounds: later the clock may have fallen. Rounded.
                samples={mode: [round(max(x - excess, least + 1e-4), 4) for x in one.us[1:]]},
                calls={},
                kernel_clock={},
                kernels=None,
                copies=0,
                launches=1,
                eager_calls=1,
                seconds=0.0,
                proved={},
                stopped=[mode],
            )
        )
    return times


def dropped(entrants: Sequence[Entrant], share: float) -> list[Entrant]:
    """The cases far from the fastest right choice in most rounds, but no dispatchers, nor any whose last look the host
    disturbed; of two rounds, in both."""
    order = sorted(entrants, key=lambda one: (not one.is_choice, median(one.us[1:])))
    fastest = next((one for one in order if one.is_right), None)
    if not fastest:
        return []
    most = share * max(median(fastest.us[1:]), _SHORTEST_US)
    return [
        one
        for one in entrants
        if median_low(x - y for x, y in zip(one.us, fastest.us, strict=True)) > most
        and not (one.is_dispatcher or one.is_late)
    ]


if __name__ == "__main__":
    serve(partial(perform, dispatchers=sys.argv[3:]))
