"""What a child process may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds, and how many tasks one process gets. (Without slots, so that a default is ``Limits.batch``.)

    Args:
        time_limit: for a task, or a step that it announces, before it counts as hung.
        startup_limit: from the start of a process to its first task, and between tasks.
        finish_limit: that a process (a profiler writing its report) has once its work is over.
        batch: tasks that one process takes.
    """

    time_limit: float = 60.0
    startup_limit: float = 120.0
    finish_limit: float = 20.0
    batch: int = 64
