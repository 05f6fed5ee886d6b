"""Did timed calls do their work? Their answers, and their time on new data.

Timed calls meet the same tensors again and again, so a kernel that caches its result, or finds its output already
right, could be timed while it does nothing. Two proofs, of each case:

- Answers: of each regime one sample at random and the last one are taken right after other inputs were written into
  the tensors and all outputs were poisoned, neither of which is timed. The outputs of such a sample are compared with
  the reference, by the tolerance classes of check.
- New data: calls on inputs that the case has never met, into poisoned outputs, may not take longer than calls on
  known data: in the slower of the regimes that were timed call by call, and in the very circumstances of the new ones,
  that is after as many bytes were written, but into outputs that hold the answers already. At the power limit those
  writes alone make the next call slower: up to 18 % (H200, calls of 1 to 4 ms at D = 128).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flashcore.measure.bench.rotation import Rotation
from flashcore.measure.bench.timing import Timed, Timer
from flashcore.measure.workers.guarded import Outputs, copied, write
from flashcore.measure.workers.kernel_call import Caller, Case
from flashcore.measure.workers.references import References
from flashcore.model.causes import SlowOnNewData, VoidTiming, WrongTimedAnswer

if TYPE_CHECKING:
    from torch import Tensor

#: Seeds of inputs that no warm-up call has used begin so far above the problem's own.
_NEW_SEED = 1000
#: Larger inputs get no other values: those would take several times their memory.
_MOST_BYTES = 1 << 30
#: How much longer a call on new data may take than the slower regime's median, beside the timer's own uncertainty: new
#: data lies in L2, but other kernels ran since, as in the cold regime. Of 87 cases on an H200 the most was 1.013.
_LONGER = 1.1


class Sets:
    """The tensors of one shape that its timed calls rotate through, and other values for them.

    Calls are bound to their tensors, so other values are written in place, while numbers stay as they are. Where
    these change with the seed, or the tensors are very large, there are no others, and each set keeps its own.
    """

    def __init__(self, timer: Timer, case: Case, problem: ModuleType, device: str) -> None:
        self.rotation = Rotation(timer, case, problem, device)
        self.inputs = self.rotation.inputs
        first, params = case.seeds[0], dict(case.params)
        self._seeds = range(first, first + len(self.inputs))
        self._holds = list(self._seeds)
        large = sum(x.nbytes for x in _tensors(self.inputs[0]).values()) > _MOST_BYTES
        new = [] if large else [first + _NEW_SEED + i for i in range(len(self.inputs))]
        self._values = {seed: problem.make_inputs(dict(params), seed, device) for seed in new}
        if not new or not all(_numbers(v) == _numbers(inputs) for v in self._values.values() for inputs in self.inputs):
            new, self._values = [], {}
        else:
            self._values[first] = {name: copied(x) for name, x in _tensors(self.inputs[0]).items()}
        self._new = new
        self._stage = (
            [{name: copied(x) for name, x in _tensors(inputs).items()} for inputs in self.inputs] if new else []
        )
        self._references = References()
        self._where = (problem, device, problem.KINDS[0])

    def renew(self, i: int) -> None:
        """Writes values into set ``i`` that it does not hold, if there are any."""
        if self._new:
            seed = self._new[0] if self._holds[i] != self._new[0] else self._seeds[0]
            _write(self.inputs[i], self._values[seed])
            self._holds[i] = seed

    def restage(self, *, used: bool) -> None:
        """What :meth:`take` is to write from now on: values that every call has used, or new ones. All sets are to take
        it."""
        for i, stage in enumerate(self._stage):
            self._holds[i] = self._seeds[0] if used else self._new[i]
            _write(stage, self._values[self._holds[i]])

    def take(self, i: int) -> None:
        """Writes what is staged into set ``i``: only on the device, so that a graph can hold it."""
        if self._stage:
            _write(self.inputs[i], self._stage[i])

    def complaints(self, case: Case, i: int, outputs: Outputs) -> tuple[int, list[str]]:
        """The seed that set ``i`` holds, and what is wrong with these outputs for it."""
        problem, device, kind = self._where
        seed = self._holds[i]
        expected = self._references.get(case, problem, device, seed, kind)
        return seed, expected.complaints(outputs)


class Proof:
    """Of one case: samples whose answers are looked at, and calls on new data.

    Args:
        outputs: what each call writes, in the order of the calls; call ``i`` reads set ``i`` of the sets in turn.
    """

    def __init__(self, caller: Caller, sets: Sets, timed: Timed, outputs: Sequence[Outputs], dice: random.Random):
        self.caller, self.timed = caller, timed
        self._sets, self._outputs, self._dice = sets, outputs, dice
        self._times: list[float] = []
        self._known_times: list[float] = []
        #: Of each mode the turns whose answers were right; the last one is -1.
        self.turns: dict[str, list[int]] = {}
        self.wrong: WrongTimedAnswer | None = None
        #: us of a call on new data, as the clock of single calls says; unknown where there is none.
        self.new: float | None = None

    def meet_new_data(self) -> None:
        """Times calls on data that the case has never used, before any of it is used otherwise; and then on known data,
        with other outputs poisoned instead of its own."""
        sets, others = self._sets, self.caller.outputs()

        def after(poisoned: Callable[[int], Outputs]) -> Callable[[int], None]:
            def take(i: int) -> None:
                sets.take(i)
                poisoned(i).poison()
                sets.rotation.load(i)

            return take

        sets.restage(used=True)
        poisoning_own = after(lambda i: self._outputs[i])
        self._times = self.timed.anew(poisoning_own, lambda: sets.restage(used=False), len(sets.inputs))
        sets.restage(used=True)
        self._known_times = self.timed.anew(after(lambda i: others), lambda: None, len(sets.inputs))

    def chosen(self, least: int) -> int:
        """The turn of a mode's first ``least`` whose answer is looked at."""
        return self._dice.randrange(least)

    def sample(self, mode: str, turn: int) -> float:
        """A sample of that mode (us), and its answer looked at: of any call of the last ones that wrote different
        outputs; of a peer, which makes its own, of the last call."""
        calls, sets, case = self.timed.calls_in(mode), len(self._sets.inputs), self.caller.case
        peer = case.is_reference
        different = sets if any(a.mutable and not a.inout for a in case.arguments) else len(self._outputs)
        back = 0 if peer else self._dice.randrange(min(calls, different))
        i = (calls - 1 - back) % len(self._outputs)

        def spoil() -> None:
            self._sets.renew(i % sets)
            for outputs in self._outputs:
                outputs.poison()
            if peer and mode != "eager":
                for answer in self.caller.named(self.timed.answer(mode)).values():
                    answer.fill_(float("nan") if answer.is_floating_point() else -1)

        self.timed.before = spoil
        try:
            value: float = getattr(self.timed, mode)()
        finally:
            self.timed.before = None
        outputs = self._outputs[i]
        if peer:
            outputs.update(self.caller.named(self.timed.answer(mode)))
        seed, wrong = self._sets.complaints(case, i % sets, outputs)
        if wrong and not self.wrong:
            self.wrong = WrongTimedAnswer(wrong[0], mode, turn, seed)
        self.turns.setdefault(mode, []).append(turn)
        return value

    def void(self, calls: Mapping[str, Sequence[float]], doubt: float) -> VoidTiming | None:
        """Why what was timed is no measurement; ``None`` if it is one.

        Args:
            calls: us of single calls by regime, less the time of an empty pair of events.
            doubt: us by which the timer's single calls may be off.
        """
        usual = max((statistics.median(c) for c in calls.values() if c), default=None)
        if self.wrong or usual is None:
            return self.wrong
        nothing = statistics.median(self.timed.each("isolated", calls=False))
        self.new = statistics.median(self._times) - nothing
        usual = max(usual, statistics.median(self._known_times) - nothing)
        return None if self.new <= _LONGER * usual + doubt else SlowOnNewData(self.new, usual)


def _tensors(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    import torch

    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def _numbers(inputs: Mapping[str, Any]) -> list[Any]:
    """The parts of inputs that cannot be written in place: numbers, and the layout of the tensors."""
    tensors = _tensors(inputs)
    return [(n, (x.shape, x.stride(), x.dtype) if n in tensors else x) for n, x in inputs.items()]


def _write(into: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name, tensor in _tensors(into).items():
        write(tensor, values[name])
