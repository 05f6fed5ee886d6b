"""The process that runs under compute-sanitizer: calls each case once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import Caller, KernelCall, serve, synchronize
from flashcore.runner.problem_file import load_problem

if TYPE_CHECKING:
    from torch import Tensor

SEED = 0


def perform(task: Task, journal: Journal) -> None:
    """Makes a case's inputs, calls it once, and waits for its end."""
    case, device = KernelCall.from_json(task.payload["case"]), task.payload["device"]
    problem = load_problem(case.root, case.problem_file)
    caller = Caller(case, problem, device)
    inputs = problem.make_inputs(dict(case.params), SEED, device)
    outputs = _outputs(case, device)
    call = caller.bind(inputs, outputs)
    caller.load(inputs, outputs)
    journal.step(task.name, "call")
    call()
    synchronize(device)


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
