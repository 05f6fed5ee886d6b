"""A child of bench that times the variant ``SELECTED`` alone, and says that each other takes 1000 us more."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from flashcore.runner.kernel_call import serve
from flashcore.stages.bench.selection import Entrant, perform


class One:
    fewest, most = 5, 7

    def __init__(self, variant: str) -> None:
        self._variant, self._others = variant, list[str]()

    def choose(self, entrants: Sequence[Entrant], step: Callable[[str], None]) -> Sequence[Entrant]:
        step("choose")
        self._others = [one.variant for one in entrants if one.variant != self._variant]
        return [one for one in entrants if one.variant == self._variant and one.is_right]

    def is_enough(self, samples: Mapping[str, Sequence[float]]) -> bool:
        return self._variant == "right"

    def times(self, samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
        return {one: statistics.median(samples[self._variant]) + 1000.0 for one in self._others}


serve(partial(perform, selection=partial(One, os.environ["SELECTED"])))
