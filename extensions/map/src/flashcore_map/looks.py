"""The child process of bench with looks first: cases far from a shape's fastest are dropped before they are set up.

A look is some calls back to back, enqueued while the device waits, and takes far less time than the graphs of a case.
In each round of looks the cases take turns in random order. A case that is slower than the fastest right one of the
same rounds, also in a second look, is timed no further: its time is that of its looks, less what the looks of the other
cases exceed their times by, and its answer is not checked. The others and the dispatchers are timed as in bench, with
fewer samples; if a dispatcher is then behind, which may be chance, they get more. Without a race it is bench's child.

Run as ``python -m flashcore_map.looks TASKFILE JOURNAL [DISPATCHER...]``, this module is that process.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from statistics import median, median_low
from typing import Any

from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import Caller, KernelCall, is_poisoned, serve
from flashcore.stages.bench import child as bench_child
from flashcore.stages.bench.message import CaseTimes, Series
from flashcore.stages.bench.racing import Race
from flashcore.stages.bench.sets import Sets
from flashcore.stages.bench.statistics import StopRule
from flashcore.stages.bench.timing import timer_for

#: Samples of the cases that are left: the more if a dispatcher takes more than this multiple of the fastest's time.
#: Of 334 dispatchers that ran the fastest variant's kernel, 7 took 1.02 to 1.08 times that variant's time (H100).
_RULE, _BEHIND = StopRule(fewest=5, least=20, seconds=0.0), 1.02
#: us of a look's calls, and of the shortest call by which their number is chosen.
_LOOK_US, _SHORT_US = 120.0, 15.0
#: By how much of the fastest case's time, or of these us if that is shorter, a case may be slower after each round. In
#: a replay of the recorded samples of 96 points, more rounds and smaller steps found no more winners.
_SHARES, _SHORTEST_US = (0.3, 0.1, 0.04, 0.02, 0.01, 0.005), 30.0
#: us by which a case may be slower in any round, since looks at short calls are less exact.
_LEAST_US = 0.3
#: us that a launch takes longer than in a graph (H100: 1.3 to 1.7).
_LAUNCH_US = 1.5
#: Cycles that the device waits for the host at least, and in addition for each us of a call that the host took before;
#: those us before the first call, and the most, since it may load or compile. At the highest clock: cycles per us.
_COVER, _CLOCKS, _HOST_US, _MOST_HOST_US, _CLOCK = 100_000, 3_000, 50.0, 200.0, 2_000


class Entrant:
    """A case that can be called, its variant's ``name``, and the ``us`` of a call, less its launches, in each round.

    A choice is neither a reference nor a dispatcher. If it ``is_late``, its last look has a part of the host's time.
    """

    def __init__(self, case: KernelCall, sets: Sets, device: str, is_dispatcher: bool) -> None:
        self.name = case.variant
        self.is_dispatcher, self.is_choice = is_dispatcher, not (is_dispatcher or case.is_reference)
        caller = Caller(case, device=device)
        outputs = caller.outputs()
        self._call = partial(caller.call, sets.inputs[0], outputs)
        self._complaints = partial(Sets.complaints, sets, case, 0, outputs)
        self._launch_us = _LAUNCH_US * (case.launches or 1)
        self._timer, self._calls, self._host_us = timer_for(device), 1, _HOST_US
        self.us = list[float]()
        self.look()

    @property
    def warm(self) -> list[float]:
        """us of the looks after the first, in which clocks still rise; of the first while there is no other."""
        return self.us[1:] or self.us

    @cached_property
    def is_right(self) -> bool:
        return not self._complaints()[1]

    def look(self) -> None:
        cover = _COVER + round(_CLOCKS * self._calls * min(self._host_us, _MOST_HOST_US))
        us = self._timer.between(self._enqueue, cover=cover) / self._calls
        self.is_late = self._calls * self._host_us * _CLOCK > cover
        self.us.append(us - self._launch_us)
        self._calls = round(_LOOK_US / max(us, _SHORT_US)) or 1

    def _enqueue(self) -> None:
        began = time.perf_counter()
        for _ in range(self._calls):
            self._call()
        self._host_us = (time.perf_counter() - began) * 1e6 / self._calls


@dataclass(slots=True)
class Finals(Race):
    """The race of the cases that are left, which ends after the fewest samples unless a dispatcher is then behind."""

    near: Sequence[Entrant] = ()

    def stopped(self, mode: str, samples: Series, *, early: bool = False) -> set[str]:
        us = medians(self.near, samples)
        is_behind = any(us[a] > _BEHIND * us[b] for a in us if a.is_dispatcher for b in us if b.is_choice)
        return set() if is_behind else {*samples}


def medians(entrants: Sequence[Entrant], samples: Series) -> dict[Entrant, float]:
    """us of each case that has samples."""
    return {one: median(samples[one.name]) for one in entrants if one.name in samples}


def perform(task: Task, log: Journal, dispatchers: Sequence[str] = ()) -> dict[str, Any]:
    """Times the cases of one shape."""
    if not task.payload["race"]:
        return bench_child.perform(task, log)
    device, (mode,) = task.payload["device"], task.payload["modes"]
    near, far = list[Entrant](), dict[str, Entrant]()

    def choose(cases: Sequence[KernelCall], sets: Sets) -> tuple[Sequence[KernelCall], StopRule, Race]:
        for case in cases:
            log.step(task.name, "first look", case.variant)
            try:
                near.append(Entrant(case, sets, device, case.variant in dispatchers))
            except Exception:  # bench reports it
                if is_poisoned(device):
                    raise
        for share in _SHARES:
            log.step(task.name, f"look {share}")
            for one in dropped(near, share):
                near.remove(one)
                far[one.name] = one
            for one in random.sample(near, len(near)):
                one.look()
        return [c for c in cases if c.variant not in far], _RULE, Finals(mode, 1, near=near)

    times = bench_child.perform(task, log, choose)
    variants = times["variants"]
    us = medians(near, {name: one["samples"][mode] for name, one in variants.items()})
    least = min((us[one] for one in us if one.is_choice), default=0.0)
    excess = median([median(one.warm) - us[one] for one in us] or [0.0])
    for name, one in far.items():
        variants[name] = asdict(
            CaseTimes(
                # More than the fastest choice, which won in the same rounds: later the clock may have fallen. Rounded.
                samples={mode: [round(max(median_low(one.warm) - excess, least + 1e-4), 4)]},
                calls={},
                kernel_clock={},
                kernels=None,
                copies=0,
                launches=1,
                eager_calls=1,
                seconds=0.0,
                stopped=[mode],
            )
        )
    return times


def dropped(entrants: Sequence[Entrant], share: float) -> list[Entrant]:
    """The cases far from the fastest right choice, also after another look, but no dispatchers, nor any whose last look
    the host disturbed."""
    order = sorted(entrants, key=lambda one: (not one.is_choice, median(one.warm)))
    fastest = next((one for one in order if one.is_right), None)
    if not fastest:
        return []
    most = max(share * max(median(fastest.warm), _SHORTEST_US), _LEAST_US)

    def far(one: Entrant) -> bool:
        behind = median_low(x - y for x, y in zip(one.warm, fastest.warm, strict=True))
        return behind > most and not (one.is_dispatcher or one.is_late)

    slow = [one for one in entrants if far(one)]
    for one in slow:  # something may have disturbed a look
        one.look()
        one.us.append(min(one.us.pop(), one.us.pop()))
    return [one for one in slow if far(one)]


if __name__ == "__main__":
    serve(partial(perform, dispatchers=sys.argv[3:]))
