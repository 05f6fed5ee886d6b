"""What a pool of workers runs: a program, its limits, and the places where its processes run.

A :class:`Place` is one GPU. Its processes are started here (:mod:`flashcore.measure.workers.gpus`) or on another host,
by a plugin's executor.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from flashcore.errors import CapabilityError
from flashcore.measure.workers.journal import NO_STEP, Result, Step, Task, answer_of
from flashcore.model.causes import Cause, Unanswered

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


@dataclass(slots=True)
class Child(ABC):
    """A batch of tasks under way: :class:`~flashcore.measure.workers.process.Process`, or its like on another host."""

    folder: Path
    tasks: list[Task]
    program: Program
    open: set[str] = field(init=False)  # the tasks without an answer
    current: str | None = None  # the task in progress, also when the process has ended
    step: Step = NO_STEP
    busy: float = 0.0  # seconds since the task in progress began
    cause: Cause = Unanswered()  # noqa: RUF009  why the process has ended
    lacks: CapabilityError | None = None  # of the machine: every other process would fail the same way
    lost: str = ""  # why its place was lost with it: unanswered tasks then go to another
    poisoned: bool = False  # what it begins now is not to be trusted
    waits: bool = False  # it has answered its tasks, and asks for more; given none it ends
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.open = {t.name for t in self.tasks}

    def follow(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Result]:
        """Takes in further lines of its journal; yields the first answer to each task."""
        for line in lines:
            event = line["event"]
            if event == "lacks":
                self.lacks = CapabilityError(line["what"], line["hint"])
            elif line.get("name") not in self.open:
                continue  # not ours to wait for
            elif event == "begin":
                self.current, self.step, self._began = line["name"], NO_STEP, time.monotonic()
            elif event == "step":
                self.step = Step.of_line(line)
            elif (result := answer_of(line)) is not None:
                self.current = None
                self.poisoned |= line.get("poisoned", False)
                self.open.remove(result.name)
                yield result
        self.busy = time.monotonic() - self._began

    @property
    def has_answered(self) -> bool:
        return len(self.open) < len(self.tasks)

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def watch(self) -> Iterator[Result | None]:
        """Yields answers as they come, and nothing where there is none yet, until the process is over; then
        ``cause`` says why."""

    @abstractmethod
    def kill(self) -> None: ...

    def refill(self, tasks: list[Task]) -> None:
        """Gives more tasks to a process that waits for them; none: it ends."""
        raise NotImplementedError

    def raise_if_hopeless(self) -> None:
        """Raises if every other process would fail the same way."""
        if self.lacks:
            raise self.lacks


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
