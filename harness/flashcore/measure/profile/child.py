"""What ncu wraps: calls each case once in its NVTX range.

ncu profiles only ranges of the domain ``flashcore``. Everything else of a case, making its inputs and a
first call that loads modules and initialises libraries, stays outside of the range and runs at full speed.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.workers.journal import Journal, Task
from flashcore.measure.workers.kernel_call import Caller, Case, serve, synchronize
from flashcore.measure.workers.problem_file import load_problem

DOMAIN = "flashcore"
SEED = 0
_inputs: dict[str, Any] = {}


def prepare() -> None:
    """Finds nvtx, which names the ranges.

    Raises:
        CapabilityError: no nvtx.
    """
    if importlib.util.find_spec("nvtx") is None:
        raise lacking("nvtx")


def perform(task: Task, journal: Journal) -> None:
    """One case: inputs, a call to warm up, and the call that is profiled.

    The call is bound to its arguments before the range is opened, so that nothing but the operator's own
    launches fall into it.
    """
    import nvtx

    case, device = Case.from_json(task.payload["case"]), task.payload["device"]
    problem = load_problem(case.root, case.problem_file)
    caller = Caller(case, problem, device)
    if case.shape not in _inputs:  # those of a shape are the same for all its variants, and follow each other
        _inputs.clear()
        _inputs[case.shape] = problem.make_inputs(dict(case.params), SEED, device)
    inputs = _inputs[case.shape]
    outputs = caller.outputs()
    call = caller.bind(inputs, outputs)
    journal.step(task.name, "warm-up")
    caller.load(inputs, outputs)
    call()
    caller.load(inputs, outputs)
    synchronize(device)
    journal.step(task.name, "profiled call")
    with nvtx.annotate(task.name, domain=DOMAIN):
        answer = call()
    synchronize(device)
    # ncu saves and restores the memory it finds allocated around every pass: leave none to the next case.
    del inputs, outputs, call, caller, answer
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], perform, prepare))
