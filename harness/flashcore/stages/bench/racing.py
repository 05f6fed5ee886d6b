"""Which cases of a shape are timed no further after a first round, because they cannot be among its first.

In the mode that ranks, every case gets the fewest samples of the stop rule, or half of them if it is far slower than
the first. A variant stops there if it cannot be among the first variants, a reference if it can be neither among the
first cases nor the fastest reference. In the modes after it these get fewer samples still, and the others a third if
those agree. A case goes on in a mode whose times a budget or a prediction needs, and a variant and its parent go on
until it is decided whether one is faster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from flashcore.model.catalogue import FACTS
from flashcore.model.intervals import is_decided, outpaced
from flashcore.model.suite import Suite
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.always_measured import always_measured
from flashcore.stages.bench.statistics import P90_SAMPLES, StopRule

#: Samples in the modes that do not rank of a case that stops after the first round; it has no single calls.
_FEWEST = 3
#: The samples after which a case stops that takes this multiple of the last of the first: a second test at the same
#: confidence would double the chance of an error, a test for so much more does not. Also the cold calls of the others.
_FEW, _FAR = 5, 1.5


def full_modes(suite: Suite, gpu: str | None, case: KernelCall, modes: Sequence[str]) -> dict[str, list[str]]:
    """By variant, the modes that a budget or a prediction needs in full at the shape of a case."""
    facts, rank = always_measured(suite, gpu, case.shape), case.rank_by
    of_rank = {"tflops", *(fact for fact in FACTS if fact.startswith("speedup_"))}
    if any(name.startswith("speedup_vs_baseline") for names in facts.values() for name in names):
        facts[suite.baseline].add("speedup_vs_baseline")
    return {
        variant: [
            mode
            for mode in modes
            if any(name.startswith(f"{mode}_") or (mode == rank and name in of_rank) for name in names)
        ]
        for variant, names in facts.items()
    }


@dataclass(slots=True)
class Race:
    """The race of one shape's cases.

    Args:
        mode: the one that ranks, timed first.
        first: how many ranks must be right; 0: no race, so that no case stops.
        full: variant → the modes that it is always timed in fully; of every case.
        parents: variant → its parent.
        slow: the cases that cannot be among the first, once that is known.
    """

    mode: str = ""
    first: int = 0
    full: Mapping[str, Collection[str]] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    references: Collection[str] = ()
    slow: Set[str] = frozenset()

    def looks(self, mode: str, rule: StopRule) -> tuple[int, ...]:
        """The rounds of a mode after which cases stop."""
        if not self.first:
            return (rule.least,)
        last = min(rule.least, rule.fewest if mode == self.mode else _FEWEST)
        return tuple(sorted({min(_FEW, last), last}))

    def rule(self, mode: str, name: str, rule: StopRule) -> StopRule:
        """When a case stops in a mode; a mode that is only shown needs a third of the samples."""
        third = min(rule.least, max(rule.fewest, rule.least // 3))
        return replace(rule, least=third) if self._is_shown(mode, name) else rule

    def calls(self, mode: str, name: str, most: int) -> int:
        """How many single calls are timed, at most ``most``: none of a case that stopped; calls that are only shown get
        no 99th percentile, and cold ones none, since no page shows it; nor do references without a race."""
        if name in self.short(mode):
            return 0
        if not self.first:
            return P90_SAMPLES if name in self.references else most
        return min(most, _FEW if mode == "cold" else P90_SAMPLES) if self._is_shown(mode, name) else most

    def _is_shown(self, mode: str, name: str) -> bool:
        """Whether the mode does not rank and no budget or prediction on the case needs all its samples."""
        return mode != self.mode and mode not in self.full.get(name, (mode,))

    def stopped(self, mode: str, samples: Mapping[str, Sequence[float]], *, early: bool = False) -> set[str]:
        """The cases that are timed no further in a mode after these rounds of those that were until now. ``early``: not
        the last look."""
        if mode == self.mode:
            timed = {name: times for name, times in samples.items() if name in self.full}
            self.slow = self.slow | self._slow(timed, _FAR if early else 1.0)
        return self.short(mode)

    def short(self, mode: str) -> set[str]:
        """The cases that stop, or stopped, in a mode."""
        return {name for name in self.slow if mode not in self.full[name]}

    def _slow(self, samples: Mapping[str, Sequence[float]], far: float) -> set[str]:
        references = {name: times for name, times in samples.items() if name in self.references}
        variants = {name: times for name, times in samples.items() if name not in references}
        slow = outpaced(variants, self.first, far)
        slow |= outpaced(samples, self.first, far) & outpaced(references, 1, far)
        open_steps = {
            (name, parent)
            for name, parent in self.parents.items()
            if name in variants and parent in variants and not is_decided(samples[parent], samples[name])
        }
        return slow.difference(*open_steps)
