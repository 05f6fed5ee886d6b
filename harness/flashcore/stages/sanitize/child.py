"""The process that runs under compute-sanitizer: calls each case once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import Caller, KernelCall, serve, synchronize

if TYPE_CHECKING:
    from torch import Tensor

SEED = 0


def perform(task: Task, journal: Journal) -> None:
    """Makes a case's inputs, calls it once, and waits for its end."""
    caller = Caller.of(task)
    inputs = caller.problem.make_inputs(dict(caller.case.params), SEED, caller.device)
    outputs = _outputs(caller.case, caller.device)
    call = caller.bind(inputs, outputs)
    caller.load(inputs, outputs)
    journal.step(task.name, "call")
    call()
    synchronize(caller.device)


def _outputs(case: KernelCall, device: str) -> dict[str, Tensor]:
    """Outputs without guard bands, in which the tool would not notice a write beside an output."""
    import torch

    return {
        a.name: torch.empty(a.sizes(case.params), dtype=getattr(torch, a.dtype), device=device)
        for a in case.arguments
        if a.mutable
    }


if __name__ == "__main__":
    serve(perform, end=sys.exit)  # compute-sanitizer reports at the process's exit
