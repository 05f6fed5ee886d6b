"""The child process of bench with looks first: cases far from a shape's fastest are dropped before they are set up.

In each round of looks the cases take turns in random order. A case that is slower than the fastest right one of the
same rounds, also in a second look, is timed no further: its time is that of its looks, less what the looks of the other
cases exceed their times by, and its answer is not checked. The others and the dispatchers are timed as in bench, with
fewer samples; if a dispatcher is then behind, which may be chance, they get more. Without a race it is bench's child.

Run as ``python -m flashcore_map.looks TASKFILE JOURNAL [DISPATCHER...]``, this module is that process.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median, median_low

from flashcore.runner.kernel_call import serve
from flashcore.stages.bench.selection import Entrant, perform

#: A dispatcher is behind if it takes more than this multiple of the fastest's time. Of 334 dispatchers that ran the
#: fastest variant's kernel, 7 took 1.02 to 1.08 times that variant's time (H100).
_BEHIND = 1.02
#: By how much of the fastest case's time, or of these us if that is shorter, a case may be slower after each round. In
#: a replay of the recorded samples of 96 points, more rounds and smaller steps found no more winners.
_SHARES, _SHORTEST_US = (0.3, 0.1, 0.04, 0.02, 0.01, 0.005), 30.0
#: us by which a case may be slower in any round, since looks at short calls are less exact.
_LEAST_US = 0.3


class Nearest:
    """Selects the cases of a shape that are near its fastest, and the dispatchers.

    A choice is neither a reference nor a dispatcher.
    """

    #: The more if a dispatcher is behind.
    fewest, most = 5, 20

    def __init__(self, dispatchers: Sequence[str]) -> None:
        self._dispatchers = dispatchers
        self._near, self._far = list[Entrant](), list[Entrant]()

    def _is_choice(self, one: Entrant) -> bool:
        return not (one.is_reference or one.variant in self._dispatchers)

    def choose(self, entrants: Sequence[Entrant], step: Callable[[str], None]) -> Sequence[Entrant]:
        """See :class:`flashcore.stages.bench.selection.Selection`."""
        self._near += entrants
        for share in _SHARES:
            step(f"look {share}")
            for one in self.dropped(self._near, share):
                self._near.remove(one)
                self._far.append(one)
            for one in random.sample(self._near, len(self._near)):
                one.look()
        return self._near

    def dropped(self, entrants: Sequence[Entrant], share: float) -> list[Entrant]:
        """The cases far from the fastest right choice, also after another look, but no dispatchers, nor any whose last
        look the host disturbed."""
        order = sorted(entrants, key=lambda one: (not self._is_choice(one), median(one.warm)))
        fastest = next((one for one in order if one.is_right), None)
        if not fastest:
            return []
        most = max(share * max(median(fastest.warm), _SHORTEST_US), _LEAST_US)

        def far(one: Entrant) -> bool:
            behind = median_low(x - y for x, y in zip(one.warm, fastest.warm, strict=True))
            return behind > most and not (one.variant in self._dispatchers or one.is_late)

        slow = [one for one in entrants if far(one)]
        for one in slow:  # something may have disturbed a look
            one.look()
            one.us.append(min(one.us.pop(), one.us.pop()))
        return [one for one in slow if far(one)]

    def is_enough(self, samples: Mapping[str, Sequence[float]]) -> bool:
        """Whether no dispatcher is behind."""
        us = self._medians(samples)
        choices = [us[one] for one in us if self._is_choice(one)]
        dispatched = [us[one] for one in us if one.variant in self._dispatchers]
        return not (choices and dispatched) or max(dispatched) <= _BEHIND * min(choices)

    def times(self, samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The us of the dropped cases, as they would be among the others' samples."""
        us = self._medians(samples)
        least = min((us[one] for one in us if self._is_choice(one)), default=0.0)
        excess = median([median(one.warm) - us[one] for one in us] or [0.0])
        # More than the fastest choice, which won in the same rounds: later the clock may have fallen.
        return {one.variant: max(median_low(one.warm) - excess, least + 1e-4) for one in self._far}

    def _medians(self, samples: Mapping[str, Sequence[float]]) -> dict[Entrant, float]:
        return {one: median(samples[one.variant]) for one in self._near if one.variant in samples}


if __name__ == "__main__":
    serve(partial(perform, selection=partial(Nearest, sys.argv[3:])))
