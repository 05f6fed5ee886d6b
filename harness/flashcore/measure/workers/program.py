"""What a pool of workers runs: a program, its limits, and the places where its processes run.

A :class:`Place` is one GPU. Its processes are started here (:mod:`flashcore.measure.workers.gpus`) or on another host,
by a plugin's executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flashcore.measure.workers.journal import Result, Step, Task
from flashcore.model.causes import Cause

#: Gives, for a task file and a journal, the argv of the process (or of what wraps it).
Command = Callable[[Path, Path], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, and the number of tasks that one process gets.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that performs tasks, and how its processes share them.

    Args:
        environment: variables added to this process's environment.
        lanes: processes side by side, where time is not what is measured; on each of several GPUs if there are cores
            for them. The tasks of a shape go to the same one.
        chunk: how many tasks of a shape stay together, if they may go to different processes and GPUs; 0: all.
        refill: a process that has answered its tasks is given others, up to ``limits.batch``, since a start takes
            seconds. Not for a process below a profiler, which reports when the process ends.
    """

    command: Command
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] = field(default_factory=dict)
    lanes: int = 1
    chunk: int = 0
    refill: bool = False


class Child(Protocol):
    """A batch of tasks under way: :class:`~flashcore.measure.workers.process.Process`, or its like on another host.

    ``current`` is the task in progress when the process ended, ``cause`` why it ended, ``lost`` why its place was lost
    with it (empty if it was not): unanswered tasks then go to another place. ``waits``: it has answered its tasks and
    asks for more; given none it ends.
    """

    tasks: list[Task]
    current: str | None
    step: Step
    busy: float
    cause: Cause
    lost: str
    answered: set[str]
    waits: bool

    def start(self) -> None: ...

    def refill(self, tasks: list[Task]) -> None: ...

    def watch(self) -> Iterator[Result | None]: ...

    def raise_if_hopeless(self) -> None: ...

    def kill(self) -> None: ...


class Place(Protocol):
    """One GPU that processes may be started on, one at a time or several."""

    @property
    def gpu(self) -> str:
        """Its UUID; empty: the GPU that CUDA gives."""
        ...

    @property
    def host(self) -> str | None:
        """The host that it is in; ``None``: this one."""
        ...

    def child(self, folder: Path, tasks: list[Task], program: Program) -> Child:
        """A process for these tasks, not started yet, that writes its journal into ``folder``."""
        ...

    def is_back(self) -> bool:
        """Whether it can be used again after it was lost."""
        ...
