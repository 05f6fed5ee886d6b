"""Times only some of a shape's cases: those that an extension's selection leaves after looks at all of them.

A look is some calls back to back, enqueued while the device waits, and takes far less time than the graphs of a case.
A module with a selection is a child process of bench if it ends with ``serve(partial(perform, selection=…))``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Protocol

from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import Caller, KernelCall, is_poisoned
from flashcore.stages.bench import child
from flashcore.stages.bench.message import CaseTimes, Series
from flashcore.stages.bench.racing import Race
from flashcore.stages.bench.sets import Sets
from flashcore.stages.bench.statistics import StopRule
from flashcore.stages.bench.timing import timer_for

#: us of a look's calls, and of the shortest call by which their number is chosen.
_LOOK_US, _SHORT_US = 120.0, 15.0
#: us that a launch takes longer than in a graph (H100: 1.3 to 1.7).
_LAUNCH_US = 1.5
#: Cycles that the device waits for the host at least, and in addition for each us of a call that the host took before;
#: those us before the first call, and the most, since it may load or compile. At the highest clock: cycles per us.
_COVER, _CLOCKS, _HOST_US, _MOST_HOST_US, _CLOCK = 100_000, 3_000, 50.0, 200.0, 2_000


class Entrant:
    """A case that can be looked at; it has been once.

    Attributes:
        us: of a call, less its launches, in each look.
        is_late: whether the last look has a part of the host's time.
    """

    def __init__(self, case: KernelCall, sets: Sets, device: str) -> None:
        self.variant, self.is_reference = case.variant, case.is_reference
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
        """Whether the last call's answer is right."""
        return not self._complaints()[1]

    def look(self) -> None:
        """Times as many calls as take about 120 us."""
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


class Selection(Protocol):
    """Which of a shape's cases are timed, and how long; one for each shape."""

    #: How many samples each of them gets, and how many if these are not enough.
    fewest: int
    most: int

    def choose(self, entrants: Sequence[Entrant], step: Callable[[str], None]) -> Sequence[Entrant]:
        """The entrants that are timed. ``step`` announces what is done next, for which the time limit starts again."""
        ...

    def is_enough(self, samples: Series) -> bool:
        """Whether the fewest samples are enough: us, by variant."""
        ...

    def times(self, samples: Series) -> dict[str, float]:
        """us of a call of each entrant that was not chosen. ``samples``: of the others, us, by variant."""
        ...


@dataclass(slots=True, kw_only=True)
class _Selected(Race):
    """All cases stop after the fewest samples, if these are enough."""

    selection: Selection

    def stopped(self, mode: str, samples: Series, *, early: bool = False) -> set[str]:
        return {*samples} if self.selection.is_enough(samples) else set()


def perform(task: Task, log: Journal, selection: Callable[[], Selection]) -> dict[str, Any]:
    """Times the cases of one shape in one mode; without a race, all of them as bench does."""
    if not task.payload["race"]:
        return child.perform(task, log)
    device, (mode,), selected = task.payload["device"], task.payload["modes"], selection()

    def choose(cases: Sequence[KernelCall], sets: Sets) -> tuple[Sequence[KernelCall], StopRule, Race]:
        entrants = list[Entrant]()
        for case in cases:
            log.step(task.name, "first look", case.variant)
            try:
                entrants.append(Entrant(case, sets, device))
            except Exception:  # bench reports it
                if is_poisoned(device):
                    raise
        chosen = selected.choose(entrants, partial(log.step, task.name))
        left_out = {one.variant for one in entrants if one not in chosen}
        rule = StopRule(fewest=selected.fewest, least=selected.most, seconds=0.0)
        return [c for c in cases if c.variant not in left_out], rule, _Selected(mode, 1, selection=selected)

    times = child.perform(task, log, choose)
    timed = times["variants"]
    for variant, us in selected.times({name: one["samples"][mode] for name, one in timed.items()}).items():
        timed[variant] = asdict(
            CaseTimes(
                samples={mode: [round(us, 4)]},
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
