"""Bench: is it faster, and by how much?

All cases of a shape run on one GPU (see :mod:`flashcore.runner.queue`), so no ratio compares two GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

from flashcore.model.record import StageResult
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.bench import case_times
from flashcore.stages.context import Context


def prepare(context: Context) -> None:
    """Starts the first worker processes; see :class:`flashcore.stages.stage.StageModule`."""
    if context.cases("bench"):
        context.workers.prepare(case_times.program(context), context.folder / "bench")


def run(context: Context, cases: Sequence[KernelCall]) -> StageResult:
    """Times every case; see :class:`flashcore.stages.stage.StageModule`."""
    return case_times.run(context, cases, context.folder / "bench")
