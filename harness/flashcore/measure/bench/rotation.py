"""The sets of a case's inputs and outputs that timed calls rotate through."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from flashcore.measure.bench.timing import Restored, Timed, Timer
from flashcore.measure.workers.guarded import Outputs, write
from flashcore.measure.workers.kernel_call import Caller, Case, initial

#: Copies of tensors that are input and output: with so many calls, or calls on so many bytes, a sample is long compared
#: with its fixed cost.
_MOST_COPIES, _BYTES_OF_COPIES = 100, 1 << 28


class Rotation:
    """The tensors of one shape that the calls of all its cases rotate through.

    ``inputs`` are as many sets as stay in L2 together, with their outputs. Of a tensor that is input and output, their
    content is only what it holds before a call: each call of a sample writes another one of ``copies``, which the cases
    share, since all are written anew before each sample.
    """

    def __init__(self, timer: Timer, case: Case, problem: ModuleType, device: str) -> None:
        import torch

        params = dict(case.params)
        first = problem.make_inputs(params, case.seeds[0], device)
        given = sum(getattr(value, "nbytes", 0) for value in first.values())
        written = {
            a: math.prod(a.sizes(params)) * getattr(torch, a.dtype).itemsize for a in case.arguments if a.mutable
        }
        count = timer.sets(given + sum(written.values()))
        self.inputs: list[Mapping[str, Any]] = [
            first,
            *(problem.make_inputs(params, case.seeds[0] + i, device) for i in range(1, count)),
        ]
        self.copies: list[Outputs] = []
        self.restored: Restored | None = None
        self._case = case
        self._inout = [a for a in written if a.inout]
        if self._inout:
            restored = sum(written[a] for a in self._inout)
            copies = max(count, min(_MOST_COPIES, _BYTES_OF_COPIES // restored))
            wanted = {a.name: (a.sizes(params), a.dtype) for a in self._inout}
            self.copies = [Outputs(wanted, device) for _ in range(copies)]
            resident = count * (given + sum(written.values()) - restored)
            self.restored = Restored(self._restore, min(copies, timer.copies(restored, resident) or copies))

    def load(self, i: int) -> None:
        """Writes into the tensors of call ``i`` that are inputs too what they hold before it."""
        inputs = self.inputs[i % len(self.inputs)]
        for a in self._inout:
            write(self.copies[i][a.name], initial(self._case, a, inputs))

    def _restore(self, calls: int) -> None:
        for i in range(calls):
            self.load(i)

    def prepare(self, timer: Timer, caller: Caller, launches: int | None = None) -> tuple[Timed, list[Outputs]]:
        """A case's calls, ready to be timed, and what each of them writes."""
        sets = len(self.inputs)
        outputs = [caller.outputs(inout=False) for _ in self.inputs]
        if self.copies:
            outputs = [outputs[i % sets].joined(copy) for i, copy in enumerate(self.copies)]
        calls = [caller.bind(self.inputs[i % sets], one) for i, one in enumerate(outputs)]
        return timer.prepare(calls, launches, self.restored), outputs
