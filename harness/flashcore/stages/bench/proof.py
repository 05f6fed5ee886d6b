"""Proves that timed calls do their work, by their answers and by their time on new data.

Timed calls use the same tensors again and again, so a kernel that caches its result or checks for a correct output
could skip the work. Two proofs per case:

- Answers: in each regime, a random sample and the last one run right after new inputs were written and all outputs
  poisoned, untimed. The sample's outputs are compared with the reference, in check's tolerance classes. So are those of
  all calls between spacers, at random places (:mod:`flashcore.stages.bench.looks`), also of a sample before that one.
- New data: calls on unseen inputs, into poisoned outputs, may not take longer than calls on seen data under the same
  conditions, that is after writing as many bytes, but into outputs that contain the answers already. At the power limit
  those writes alone slow the next call by up to 18 % (H200, calls of 1 to 4 ms at D = 128). Other regimes are no
  measure: a call that saves work only back to back, or when its data is in L2, takes as long in the cold regime. One
  look is a few calls, which a disturbance can slow (twice 10 us on an H100), so only a call that is slower in every
  look reuses results. Answers on new data are compared too.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flashcore.model.cause import Reason
from flashcore.model.causes import SLOW_ON_NEW_DATA, WRONG_TIMED_ANSWER
from flashcore.runner.guarded import Outputs, write
from flashcore.runner.inputs import NEW_SEED
from flashcore.runner.kernel_call import Caller, KernelCall
from flashcore.runner.references import References
from flashcore.stages.bench.looks import DICE
from flashcore.stages.bench.rotation import Rotation
from flashcore.stages.bench.timing import Timed, Timer

if TYPE_CHECKING:
    from torch import Tensor

#: Larger inputs are not replaced: that would take several times their memory.
_MOST_BYTES = 1 << 30
#: Allowed ratio of a call's time on new data to that on seen data, beyond the timer's uncertainty. In 80 looks at 39
#: cases of attention it was 0.96 to 1.035 (H100). One of them has two speeds: in one run it took 692 us isolated and
#: 781 back to back, in another 783 on new data and 711 on seen data. So the looks' extremes are compared.
_LONGER = 1.1
#: Looks at new data before a case is void.
_LOOKS = 3


class Sets(Rotation):
    """Sets of tensors, and other values for them.

    Calls are bound to their tensors, so new values are written in place; numbers cannot change. If numbers depend on
    the seed, or the tensors exceed :data:`_MOST_BYTES`, each set keeps its values.
    """

    def __init__(self, timer: Timer, case: KernelCall, problem: ModuleType, device: str) -> None:
        super().__init__(timer, case, problem, device)
        self._references, self._where = References(), (problem, device, problem.KINDS[0])
        self._first, count = case.seeds[0], len(self.inputs)
        self._holds = [self._first + i for i in range(count)]  # the seed of each set's values
        self._new: list[int] = []
        self.judged = DICE.randrange(count)  # the set whose answers on new data are judged
        self._values: dict[int, dict[str, Any]] = {}
        self._stage: list[dict[str, Any]] = []
        if sum(x.nbytes for x in _tensors(self.inputs[0]).values()) > _MOST_BYTES:
            return
        values = {seed: self.make(seed) for seed in (self._first, *(seed + NEW_SEED for seed in self._holds))}
        if all(_numbers(each) == _numbers(inputs) for each in values.values() for inputs in self.inputs):
            self._values, self._new = values, [*values][1:]
            self._stage = [self.make(seed) for seed in self._holds]

    def renew(self, i: int) -> None:
        """Writes other values into set ``i``, if there are any."""
        if self._new:
            new = self._new[self.judged]  # the only one with a reference answer, which takes up to 0.4 s
            seed = new if self._holds[i] != new else self._first
            _write(self.inputs[i], self._values[seed])
            self._holds[i] = seed

    def draw(self) -> None:
        """Makes other new values, which no call has read."""
        for seed in self._new:
            del self._values[seed]
        self._new = [seed + len(self.inputs) for seed in self._new]
        self._values.update({seed: self.make(seed) for seed in self._new})

    def restage(self, *, used: bool) -> None:
        """Stages values for :meth:`take`, either seen by every call or new. Every set must then take them."""
        for i, stage in enumerate(self._stage):
            self._holds[i] = self._first if used else self._new[i]
            _write(stage, self._values[self._holds[i]])

    def take(self, i: int) -> None:
        """Writes the staged values into set ``i``, on the device only, so that a graph can capture it."""
        if self._stage:
            _write(self.inputs[i], self._stage[i])

    def complaints(self, case: KernelCall, i: int, outputs: Outputs) -> tuple[int, list[str]]:
        """The seed of set ``i``'s values, and the errors in these outputs for it."""
        problem, device, kind = self._where
        seed = self._holds[i]
        expected = self._references.get(case, problem, device, seed, kind)
        return seed, expected.complaints(outputs)


class Proof:
    """One case's proofs: samples whose answers are checked, and calls on new data."""

    def __init__(self, caller: Caller, sets: Sets, timed: Timed) -> None:
        self.caller, self.timed, self._sets = caller, timed, sets
        #: us of single calls, on new and on seen data.
        self._times: tuple[list[float], ...] = ()
        #: Mode → the turns whose answers were right; -1 is the last turn.
        self.turns: dict[str, list[int]] = {}
        self.wrong: Reason | None = None

    def meet_new_data(self) -> None:
        """Times calls on unseen data, before anything else uses it, then on seen data, with other outputs poisoned
        instead of the call's."""
        sets, count, others = self._sets, len(self._sets.inputs), self.caller.outputs()

        def times(outputs: Sequence[Outputs], *, used: bool) -> list[float]:
            """us of calls right after these outputs were poisoned."""

            def take(i: int) -> None:
                sets.take(i)
                outputs[i].poison()
                sets.load(i)

            sets.restage(used=True)
            return self.timed.anew(take, lambda: sets.restage(used=used), count)

        new = times(self.timed.outputs, used=False)
        if not self.caller.case.is_reference:
            self._judge("new data", 0, sets.judged)
        self._times = new, times([others] * count, used=True)

    def sample(self, mode: str, turn: int) -> float:
        """Takes a sample of that mode (us) and judges answers: of all calls that wrote the same randomly chosen
        outputs, if spacers separate the calls, else of a random call among the last that wrote different outputs. A
        reference allocates its outputs: of its last call.

        Two samples: calls between spacers are judged first on inputs and outputs that they met before, so that nothing
        shows that they will be.
        """
        calls, sets, case = self.timed.calls_in(mode), len(self._sets.inputs), self.caller.case
        different = sets if any(a.mutable and not a.inout for a in case.arguments) else len(self.timed.outputs)
        back = 0 if case.is_reference else DICE.randrange(min(calls, different))
        i = (calls - 1 - back) % len(self.timed.outputs)

        looks = self.timed.looks(mode)

        def spoil() -> None:
            if looks:
                looks.draw()
            self._sets.renew(i % sets)
            for outputs in self.timed.outputs:
                outputs.poison()
            if case.is_reference and mode != "eager":
                for answer in self.caller.named(self.timed.answer(mode)).values():
                    answer.fill_(float("nan") if answer.is_floating_point() else -1)

        values: list[float] = []
        for self.timed.before in (None, spoil) if looks else (spoil,):
            try:
                values.append(getattr(self.timed, mode)())
            finally:
                self.timed.before = None
            if looks:
                looks.restore(i, mode, calls)
            if case.is_reference:
                self.timed.outputs[i].update(self.caller.named(self.timed.answer(mode)))
            self._judge(mode, turn, i)
        self.turns.setdefault(mode, []).append(turn)
        return values[0]

    def _judge(self, mode: str, turn: int, i: int) -> None:
        seed, wrong = self._sets.complaints(self.caller.case, i % len(self._sets.inputs), self.timed.outputs[i])
        if wrong:
            self.wrong = self.wrong or WRONG_TIMED_ANSWER(wrong[0], mode, turn, seed)

    def void(self, doubt: float) -> Reason | None:
        """Why the case's times are void; ``None`` if they are valid. Looks again if a call was slow on new data.

        Args:
            doubt: uncertainty of the timer's single calls, us.
        """
        if self.wrong or not self._times:
            return self.wrong
        slow, news, seens = None, list[float](), list[float]()
        for look in range(_LOOKS):
            if look:
                self._sets.draw()
                self.meet_new_data()
            empty = statistics.median(self.timed.each("isolated", calls=False))
            for of_looks, times in zip((news, seens), self._times, strict=True):
                of_looks.append(statistics.median(times) - empty)
            new, seen = min(news), max(seens)
            if new <= _LONGER * seen + doubt:
                return self.wrong
            slow = SLOW_ON_NEW_DATA(new, seen)
        return slow


def _tensors(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    import torch

    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def _numbers(inputs: Mapping[str, Any]) -> list[Any]:
    """The parts of inputs that cannot be written in place: numbers, and the tensors' layouts."""
    tensors = _tensors(inputs)
    return [(n, (x.shape, x.stride(), x.dtype) if n in tensors else x) for n, x in inputs.items()]


def _write(into: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name, tensor in _tensors(into).items():
        write(tensor, values[name])
