"""The limits of a child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashcore.worker.gpus import Place


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds, and how many tasks one process gets. (Without slots, so that a default is ``Limits.batch``.)

    Args:
        time_limit: for a task, or a step that it announces, before it counts as hung.
        startup_limit: from the start of a process to its first task, and between tasks.
        finish_limit: that a process (a profiler writing its report) has once its work is over.
        batch: tasks that one process takes.
        lanes: processes side by side, where time is not what is measured. The tasks of a shape go to the same one.
        places: the GPUs that share the tasks, of which each takes the tasks of a shape as a whole; none: whatever GPU
            this process would use itself.
        apart: with several GPUs, tasks of one shape may go to different ones.
    """

    time_limit: float = 60.0
    startup_limit: float = 120.0
    finish_limit: float = 20.0
    batch: int = 64
    lanes: int = 1
    places: Sequence[Place] = ()
    apart: bool = False
