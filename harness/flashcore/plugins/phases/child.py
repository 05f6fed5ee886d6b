"""The process that runs a marked kernel and copies its buffer into files."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.measure.machine import python_process
from flashcore.measure.workers.journal import Journal, Task
from flashcore.measure.workers.kernel_call import Caller, Case, leave, serve, synchronize
from flashcore.measure.workers.problem_file import load_problem

#: The command line of this process.
TARGET = python_process.child("flashcore.plugins.phases.child")
_WARM_UPS = 3
_SEED = 0


def perform(task: Task, journal: Journal) -> dict[str, Any]:
    """Writes ``call-N.bin`` for each of some calls into a folder. Gives the time of each in us, between two events.

    Raises:
        FlashcoreError: the buffer cannot be read.
    """
    import torch

    case, size = Case.from_json(task.payload["case"]), task.payload["size"]
    problem = load_problem(case.root, case.problem_file)
    caller = Caller(case, problem)
    inputs, outputs = problem.make_inputs(dict(case.params), _SEED, caller.device), caller.outputs()
    read = ctypes.CDLL(case.library).flashcore_phases  # of the library that the operator is in
    read.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    buffer = ctypes.create_string_buffer(size)
    call_us = []
    for number in range(task.payload["calls"]):
        for _ in range(_WARM_UPS):
            caller.call(inputs, outputs)
        caller.load(inputs, outputs)
        call = caller.bind(inputs, outputs)
        synchronize(caller.device)
        _require(read(None, size))
        events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        events[0].record()
        call()
        events[1].record()
        synchronize(caller.device)
        _require(read(buffer, size))
        Path(task.payload["folder"], f"call-{number}.bin").write_bytes(buffer.raw)
        call_us.append(1e3 * events[0].elapsed_time(events[1]))
    return {"call_us": call_us}


def _require(code: int) -> None:
    if code:
        raise FlashcoreError(f"the phases' buffer: expected to read it, found CUDA error {code}")


if __name__ == "__main__":
    leave(serve(sys.argv[1:], perform))
