"""Shows that timed calls do their work, by the answer of a mode's last call.

Timed calls use the same tensors again and again, so the times of a kernel that keeps its result, or of a launcher that
stops after some calls, would look usual. After the other calls of each mode, other inputs are written and all outputs
poisoned, untimed. Then the mode's last sample is taken, and what its last call wrote is compared with the reference, in
check's tolerance classes. Calls before it are not looked at: work that is saved on purpose is what the extension judge
finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flashcore.model.cause import Reason
from flashcore.model.causes import WRONG_TIMED_ANSWER
from flashcore.runner.guarded import Outputs, write
from flashcore.runner.inputs import NEW_SEED
from flashcore.runner.kernel_call import Caller, KernelCall
from flashcore.runner.references import References
from flashcore.stages.bench.rotation import Rotation
from flashcore.stages.bench.timing import Timed, Timer

if TYPE_CHECKING:
    from torch import Tensor


class Sets(Rotation):
    """Sets of tensors, and other values for them.

    Calls are bound to their tensors, so new values are written in place; numbers and layouts cannot change. If these
    depend on the seed, each set keeps its values.
    """

    def __init__(self, timer: Timer, case: KernelCall, problem: ModuleType, device: str) -> None:
        super().__init__(timer, case, problem, device)
        self._references, self._where = References(), (problem, device, problem.KINDS[0])
        self._first = case.seeds[0]
        self._seeds = [self._first + i for i in range(len(self.inputs))]  # of each set's values

    def renew(self) -> None:
        """Writes values into all sets that none of them had before, the same into all: each seed needs a reference
        answer, which takes up to 0.4 s. Two seeds take turns."""
        new = self._first + NEW_SEED
        seed = self._first if new in self._seeds else new
        values = self.make(seed)
        if all(_unchangeable(inputs) == _unchangeable(values) for inputs in self.inputs):
            for inputs in self.inputs:
                for name, tensor in _tensors(inputs).items():
                    write(tensor, values[name])
            self._seeds = [seed] * len(self.inputs)

    def complaints(self, case: KernelCall, i: int, outputs: Outputs) -> tuple[int, list[str]]:
        """The seed of set ``i``'s values, and the errors in these outputs for it."""
        problem, device, kind = self._where
        seed = self._seeds[i]
        expected = self._references.get(case, problem, device, seed, kind)
        return seed, expected.complaints(outputs)


def last_sample(mode: str, caller: Caller, sets: Sets, timed: Timed) -> tuple[float, Reason | None]:
    """A sample of the mode into poisoned outputs, us per call, and what is wrong with its last call's answer."""
    i = (timed.calls_in(mode) - 1) % len(timed.outputs)
    is_reference = caller.case.is_reference

    def poison() -> None:
        for outputs in timed.outputs:
            outputs.poison()
        if is_reference and mode != "eager":  # whose graph writes to memory of its own
            for answer in caller.named(timed.answer(mode)).values():
                answer.fill_(float("nan") if answer.is_floating_point() else -1)

    timed.before = poison
    try:
        us: float = getattr(timed, mode)()
    finally:
        timed.before = None
    if is_reference:
        timed.outputs[i].update(caller.named(timed.answer(mode)))
    seed, wrong = sets.complaints(caller.case, i % len(sets.inputs), timed.outputs[i])
    return us, WRONG_TIMED_ANSWER(wrong[0], mode, seed) if wrong else None


def _tensors(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    import torch

    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def _unchangeable(inputs: Mapping[str, Any]) -> list[Any]:
    """The parts of inputs that cannot be written in place: numbers, and the tensors' layouts."""
    tensors = _tensors(inputs)
    return [(n, (x.shape, x.stride(), x.dtype) if n in tensors else x) for n, x in inputs.items()]
