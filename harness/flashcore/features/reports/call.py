"""The process under ncu of a Python function's capture: imports the caller's modules, and calls the function in its
range."""

from __future__ import annotations

import base64
import inspect
import os
import pickle
import sys

from flashcore.features.reports.script import rerun
from flashcore.machine import python_process
from flashcore.runner.child import child
from flashcore.runner.journal import Journal, Task
from flashcore.stages.profile.child import DOMAIN, prepare

TARGET = python_process.child("flashcore.features.reports.call")
#: Set in the process under ncu.
INSIDE = "FLASHCORE_CAPTURING"


def perform(task: Task, journal: Journal) -> None:
    """Calls a function a few times, and once more in its range."""
    import nvtx

    call = task.payload["case"]
    journal.step(task.name, "import")
    if INSIDE not in os.environ:  # once
        os.environ[INSIDE] = "1"
        rerun(call["main"])
    function, arguments, more = pickle.loads(base64.b64decode(call["call"]))
    function = inspect.unwrap(function)
    journal.step(task.name, "warm-up")
    for _ in range(call["warm_up"]):
        function(*arguments, **more)
    _synchronize()
    journal.step(task.name, "profiled call")
    with nvtx.annotate(task.name, domain=DOMAIN):
        function(*arguments, **more)
        _synchronize()


def _synchronize() -> None:
    """Waits for the GPU, if torch launched something; a function without torch waits for itself."""
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.synchronize()


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:], perform, prepare=lambda first: prepare()))
