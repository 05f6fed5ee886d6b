"""What a child process gets: a place to run at, and limits.

A :class:`Place` is one GPU and starts a child for a batch of tasks;
:func:`flashcore.measure.workers.supervisor.supervise` hands
the batches out. Places are the GPUs of this host (:mod:`flashcore.measure.workers.gpus`) or of a cluster
(:mod:`flashcore.plugins.cluster.cluster`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from flashcore.measure.workers.journal import Result, Task


class Child(Protocol):
    """A batch of tasks under way: :class:`~flashcore.measure.workers.process.Process`, or its like on another host.

    ``current`` is the task in progress when the process ended, ``reason`` why it ended, ``lost`` why its place was lost
    with it (empty if it was not): unanswered tasks then go to another place. ``waits``: it has answered its tasks and
    asks for more; given none it ends.
    """

    tasks: list[Task]
    current: str | None
    step: str
    busy: float
    reason: str
    lost: str
    answered: set[str]
    waits: bool

    def start(self) -> None: ...

    def refill(self, tasks: list[Task]) -> None: ...

    def watch(self) -> Iterator[Result | None]: ...

    def raise_if_hopeless(self) -> None: ...

    def kill(self) -> None: ...


class Place(Protocol):
    """One GPU that children may be started on, one at a time or several."""

    @property
    def gpu(self) -> str:
        """Its UUID."""
        ...

    @property
    def host(self) -> str | None:
        """The host that it is in; ``None``: this one."""
        ...

    def child(
        self,
        folder: Path,
        tasks: list[Task],
        command: Callable[[Path, Path], list[str]],
        limits: Limits,
        environment: Mapping[str, str],
    ) -> Child:
        """A child for these tasks, not started yet, that writes its journal into ``folder``."""
        ...

    def is_back(self) -> bool:
        """Whether it can be used again after it was lost."""
        ...


class ChildAhead(Child, Protocol):
    """A child that was started without tasks."""

    def take_up(self, tasks: list[Task], limits: Limits) -> None: ...


class StartedAhead(Protocol):
    """Children that wait for tasks: :class:`~flashcore.measure.workers.ahead.Ahead`."""

    def take(self, place: Place | None, folder: Path, command: Callable[[Path, Path], list[str]]) -> ChildAhead | None:
        """One that waits for tasks of this command at this place, if there is one."""
        ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds, and how many tasks one process gets. (Without slots, so that a default is ``Limits.batch``.)

    Args:
        time_limit: for a task, or a step that it announces, before it counts as hung.
        startup_limit: from the start of a process to its first task, and between tasks.
        finish_limit: that a process (a profiler writing its report) has once its work is over.
        batch: tasks that one process takes.
        lanes: processes side by side, where time is not what is measured; on each of the ``places`` if there are
            cores for them. The tasks of a shape go to the same one.
        places: the GPUs that share the tasks, of which each takes the tasks of a shape as a whole; none: whatever GPU
            this process would use itself.
        apart: where it is not 0, tasks of one shape may go to different processes and GPUs, so many together.
        refill: a process that has answered its tasks is given others, up to ``batch``, since a start takes seconds.
            Not for a process below a profiler, which reports when the process ends.
        ahead: where children may wait that were started before.
    """

    time_limit: float = 60.0
    startup_limit: float = 120.0
    finish_limit: float = 20.0
    batch: int = 64
    lanes: int = 1
    places: Sequence[Place] = ()
    apart: int = 0
    refill: bool = False
    ahead: StartedAhead | None = None

    def slots(self) -> list[Place | None]:
        """Where processes run side by side: as many as there are lanes; with several GPUs as many on each, as long as
        each process has two of this host's cores, and at least one on each."""
        if not self.places:
            return [None] * max(1, self.lanes)
        count = min(max(self.lanes, (os.cpu_count() or 1) // 2), self.lanes * len(self.places))
        return [self.places[i % len(self.places)] for i in range(max(len(self.places), count))]
