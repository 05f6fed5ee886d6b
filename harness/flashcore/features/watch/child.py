"""The process of ``flashcore watch`` that has the GPU: it checks, times and counts builds until it is ended.

It has imported torch, has a CUDA context, and keeps references. Check and bench share it, since bench voids times that
were taken beside another process's context.
"""

from __future__ import annotations

from typing import Any

from flashcore.machine import python_process
from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import serve
from flashcore.stages.bench import child as bench
from flashcore.stages.check import child as check
from flashcore.stages.profile import cupti_child

#: The command line of this process.
TARGET = python_process.child("flashcore.features.watch.child")


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Times the cases of a shape, counts one case, or checks one."""
    if "metrics" in task.payload:
        return cupti_child.perform(task, log)
    return bench.perform(task, log) if "cases" in task.payload else check.perform(task, log)


def prepare() -> None:
    """Keeps references of many shapes from save to save, in up to an eighth of the GPU's memory."""
    import torch

    check.references.most = torch.cuda.get_device_properties(0).total_memory // 8


if __name__ == "__main__":
    serve(perform, prepare, check.IMPORTS)
