"""The sets of inputs and outputs that timed calls rotate through, and other values for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flashcore.runner.guarded import Outputs, write
from flashcore.runner.inputs import NEW_SEED, bytes_of
from flashcore.runner.kernel_call import Caller, KernelCall, initial
from flashcore.runner.references import References
from flashcore.stages.bench.timing import Restored, Timed, Timer

if TYPE_CHECKING:
    from torch import Tensor

#: Limits on the copies of tensors that are both input and output. With this many calls or bytes, a sample is long
#: compared with its fixed cost.
_MOST_COPIES, _BYTES_OF_COPIES = 100, 1 << 28


class Sets:
    """The sets of tensors that the calls of all cases of a shape rotate through.

    ``inputs`` are as many sets as fit in L2 together with their outputs. For a tensor that is both input and output
    they only provide the initial content: each call of a sample writes a different one of ``copies``. The cases share
    these, since all are rewritten before each sample.

    Calls are bound to their tensors, so other values are written in place; numbers and layouts cannot change. If these
    depend on the seed, each set keeps its values.
    """

    def __init__(self, timer: Timer, case: KernelCall, problem: ModuleType, device: str) -> None:
        import torch

        params = dict(case.params)
        self._make: Callable[[int], dict[str, Any]] = lambda seed: problem.make_inputs(dict(params), seed, device)
        self._references, self._where = References(), (problem, device, problem.KINDS[0])
        self._first = case.seeds[0]
        first = self._make(self._first)
        written = {
            a: math.prod(a.sizes(params)) * getattr(torch, a.dtype).itemsize for a in case.arguments if a.mutable
        }
        size = bytes_of(first) + sum(written.values())
        count = timer.sets(size)
        self._seeds = [self._first + i for i in range(count)]  # of each set's values
        self.inputs: list[Mapping[str, Any]] = [first, *map(self._make, self._seeds[1:])]
        self.copies: list[Outputs] = []
        self.restored: Restored | None = None
        self._case = case
        self._inout = [a for a in written if a.inout]
        if self._inout:
            restored = sum(written[a] for a in self._inout)
            copies = max(count, min(_MOST_COPIES, _BYTES_OF_COPIES // restored))
            wanted = {a.name: (a.sizes(params), a.dtype) for a in self._inout}
            self.copies = [Outputs(wanted, device) for _ in range(copies)]
            resident = count * (size - restored)
            self.restored = Restored(self.load, min(copies, timer.copies(restored, resident) or copies))

    def load(self, i: int) -> None:
        """Restores the initial content of the tensors that call ``i`` both reads and writes."""
        inputs = self.inputs[i % len(self.inputs)]
        for a in self._inout:
            write(self.copies[i][a.name], initial(self._case, a, inputs))

    def prepare(self, timer: Timer, caller: Caller, launches: int | None = None) -> Timed:
        """A case's calls, ready to be timed: call ``i`` reads set ``i`` modulo the number of sets."""
        sets = len(self.inputs)
        outputs = [caller.outputs(inout=False) for _ in self.inputs]
        if self.copies:
            outputs = [outputs[i % sets].joined(copy) for i, copy in enumerate(self.copies)]
        calls = [caller.bind(self.inputs[i % sets], one) for i, one in enumerate(outputs)]
        return timer.prepare(calls, launches, self.restored, outputs)

    def renew(self) -> None:
        """Writes values into all sets that none of them had before, the same into all: each seed needs a reference
        answer, which takes up to 0.4 s. Two seeds take turns."""
        new = self._first + NEW_SEED
        seed = self._first if new in self._seeds else new
        values = self._make(seed)
        if all(_unchangeable(inputs) == _unchangeable(values) for inputs in self.inputs):
            for inputs in self.inputs:
                for name, tensor in _tensors(inputs).items():
                    write(tensor, values[name])
            self._seeds = [seed] * len(self.inputs)

    def complaints(self, case: KernelCall, i: int, outputs: Outputs) -> tuple[int, list[str]]:
        """The seed of set ``i``'s values, and the errors in these outputs for it."""
        problem, device, kind = self._where
        seed = self._seeds[i]
        return seed, self._references.get(case, problem, device, seed, kind).complaints(outputs)


def _tensors(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    import torch

    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def _unchangeable(inputs: Mapping[str, Any]) -> list[Any]:
    """The parts of inputs that cannot be written in place: numbers, and the tensors' layouts."""
    tensors = _tensors(inputs)
    return [(n, (x.shape, x.stride(), x.dtype) if n in tensors else x) for n, x in inputs.items()]
