"""The sets of inputs and outputs that timed calls rotate through."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from flashcore.runner.guarded import Outputs, write
from flashcore.runner.kernel_call import Caller, KernelCall, initial
from flashcore.stages.bench.timing import Restored, Timed, Timer

#: Limits on the copies of tensors that are both input and output. With this many calls or bytes, a sample is long
#: compared with its fixed cost.
_MOST_COPIES, _BYTES_OF_COPIES = 100, 1 << 28


class Rotation:
    """The sets of tensors that the calls of all cases of a shape rotate through.

    ``inputs`` are as many sets as fit in L2 together with their outputs. For a tensor that is both input and output
    they only provide the initial content: each call of a sample writes a different one of ``copies``. The cases share
    these, since all are rewritten before each sample. ``make`` makes inputs of a seed.
    """

    def __init__(self, timer: Timer, case: KernelCall, problem: ModuleType, device: str) -> None:
        import torch

        params = dict(case.params)
        self.make: Callable[[int], dict[str, Any]] = lambda seed: problem.make_inputs(dict(params), seed, device)
        first = self.make(case.seeds[0])
        input_bytes = sum(getattr(value, "nbytes", 0) for value in first.values())
        written = {
            a: math.prod(a.sizes(params)) * getattr(torch, a.dtype).itemsize for a in case.arguments if a.mutable
        }
        count = timer.sets(input_bytes + sum(written.values()))
        self.inputs: list[Mapping[str, Any]] = [first, *(self.make(case.seeds[0] + i) for i in range(1, count))]
        self.copies: list[Outputs] = []
        self.restored: Restored | None = None
        self._case = case
        self._inout = [a for a in written if a.inout]
        if self._inout:
            restored = sum(written[a] for a in self._inout)
            copies = max(count, min(_MOST_COPIES, _BYTES_OF_COPIES // restored))
            wanted = {a.name: (a.sizes(params), a.dtype) for a in self._inout}
            self.copies = [Outputs(wanted, device) for _ in range(copies)]
            resident = count * (input_bytes + sum(written.values()) - restored)
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
