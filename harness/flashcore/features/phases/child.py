"""The process that runs a marked kernel and copies its buffer into a file."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.machine import python_process
from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import Caller, serve, synchronize

#: The command line of this process.
TARGET = python_process.child("flashcore.features.phases.child")
_CALLS, _WARM_UPS = 5, 3


def perform(task: Task, journal: Journal) -> dict[str, Any]:
    """Writes what the median of some calls recorded. Gives its time in us, between two events.

    Raises:
        FlashcoreError: the buffer cannot be read.
    """
    import torch

    caller = Caller.of(task)
    case = caller.case
    inputs, outputs = caller.problem.make_inputs(dict(case.params), 0, caller.device), caller.outputs()
    read = ctypes.CDLL(case.library).flashcore_phases  # of the library that the operator is in
    read.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    buffer = ctypes.create_string_buffer(task.payload["size"])

    def copy(to: Any) -> None:
        synchronize(caller.device)
        if code := read(to, len(buffer)):
            raise FlashcoreError(f"the phases' buffer: expected to read it, found CUDA error {code}")

    calls = []
    for _ in range(_CALLS):
        for _ in range(_WARM_UPS):
            caller.call(inputs, outputs)
        caller.load(inputs, outputs)
        call = caller.bind(inputs, outputs)
        copy(None)  # clears it
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        copy(buffer)
        calls.append((1e3 * begin.elapsed_time(end), buffer.raw))
    call_us, recorded = sorted(calls)[_CALLS // 2]
    Path(task.payload["file"]).write_bytes(recorded)
    return {"call_us": call_us}


if __name__ == "__main__":
    serve(perform)
