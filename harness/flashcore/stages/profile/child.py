"""The process that ncu profiles: calls each case once in its NVTX range.

ncu profiles only ranges of the domain ``flashcore``. The setup, making inputs and a warm-up call that loads modules and
initializes libraries, is outside the range and runs at full speed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from flashcore.machine.capabilities import lacking
from flashcore.runner.guarded import Outputs
from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import Caller, serve, synchronize

DOMAIN = "flashcore"
SEED = 0
_inputs: dict[str, Any] = {}


def prepare() -> None:
    """Checks that nvtx, which names the ranges, is installed.

    Raises:
        CapabilityError: no nvtx.
    """
    if importlib.util.find_spec("nvtx") is None:
        raise lacking("nvtx")


def perform(task: Task, journal: Journal) -> None:
    """Runs one case: inputs, a warm-up call, and the profiled call.

    The call is bound to its arguments before the range begins, so that the range contains only the operator's launches.
    """
    import nvtx

    caller, inputs, outputs, call = warmed_up(task, journal)
    journal.step(task.name, "profiled call")
    with nvtx.annotate(task.name, domain=DOMAIN):
        answer = call()
    device = caller.device
    synchronize(device)
    # ncu saves and restores all allocated memory around every pass: free it before the next case.
    del inputs, outputs, call, caller, answer
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def warmed_up(task: Task, journal: Journal) -> tuple[Caller, dict[str, Any], Outputs, Callable[[], Any]]:
    """A case's caller, inputs, outputs and bound call, after a first call: the next one loads and allocates nothing."""
    caller = Caller.of(task)
    case = caller.case
    if case.shape not in _inputs:  # a shape's variants share inputs and run consecutively
        _inputs.clear()
        _inputs[case.shape] = caller.problem.make_inputs(dict(case.params), SEED, caller.device)
    inputs = _inputs[case.shape]
    outputs = caller.outputs()
    call = caller.bind(inputs, outputs)
    journal.step(task.name, "warm-up")
    caller.load(inputs, outputs)
    call()
    caller.load(inputs, outputs)
    synchronize(caller.device)
    return caller, inputs, outputs, call


if __name__ == "__main__":
    serve(perform, prepare)
