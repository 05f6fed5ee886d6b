"""The interface of a pool of workers: programs, their limits, and the places where their processes run.

A :class:`Place` is one GPU. Its processes run on this host (:mod:`flashcore.runner.process`) or, through a
plugin's executor, on another.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from flashcore.errors import CapabilityError
from flashcore.model.cause import Cause
from flashcore.model.causes import UNANSWERED
from flashcore.runner.journal import NO_STEP, Result, Step, Task, answer_of

#: (task file, journal) → the argv of the process, including any wrapper.
Command = Callable[[Path, Path], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits in seconds, and the number of tasks per process.

    Args:
        time_limit: for a task, or for each step that it announces; then it counts as hung.
        startup_limit: from the start of a process to its first task, and between tasks.
        finish_limit: for a process to exit after its last task (a profiler writes its report).
        batch: most tasks per process.
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
        lanes: concurrent processes per GPU, if there are enough cores; more than 1 only if no time is measured. The
            tasks of a shape go to the same process.
        chunk: how many tasks of a shape stay together, if a shape's tasks may be split; 0: all.
        refill: whether a process that answered its tasks gets more, up to ``limits.batch``, since starting one takes
            seconds. Not for a process under a profiler, which reports when the process ends.
    """

    command: Command
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] = field(default_factory=dict)
    lanes: int = 1
    chunk: int = 0
    refill: bool = False


@dataclass(slots=True)
class Child(ABC):
    """A process with a batch of tasks: :class:`~flashcore.runner.process.Process`, or one on another host."""

    folder: Path
    tasks: list[Task]
    program: Program
    open: set[str] = field(init=False)  # the tasks without an answer
    current: str | None = None  # the task in progress, also after the process ended
    step: Step = NO_STEP
    busy: float = 0.0  # seconds since the task in progress began
    cause: Cause = UNANSWERED()  # noqa: RUF009  why the process ended
    lacks: CapabilityError | None = None  # what the machine lacks: any other process would fail as well
    lost: str = ""  # why its place was lost: unanswered tasks then go to another
    poisoned: bool = False  # the device is unusable: later results are not trusted
    waits: bool = False  # it answered its tasks and waits for more; given none, it ends
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.open = {t.name for t in self.tasks}

    def follow(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Result]:
        """Processes new lines of the child's journal; yields the first answer to each task."""
        for line in lines:
            event = line["event"]
            if event == "lacks":
                self.lacks = CapabilityError(line["what"], line["hint"])
            elif line.get("name") not in self.open:
                continue  # not an open task of this child
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
        """Yields answers as they arrive, and ``None`` while there is none, until the process ends; then ``cause`` is
        the reason."""

    @abstractmethod
    def kill(self) -> None: ...

    def refill(self, tasks: list[Task]) -> None:
        """Gives more tasks to a waiting process; with none, it ends."""
        raise NotImplementedError

    def raise_if_unrecoverable(self) -> None:
        """Raises an error that any other process would hit as well."""
        if self.lacks:
            raise self.lacks


class Place(Protocol):
    """A GPU on which processes are started."""

    @property
    def gpu(self) -> str:
        """The GPU's UUID; empty: CUDA's default GPU."""
        ...

    @property
    def host(self) -> str | None:
        """The GPU's host; ``None``: this one."""
        ...

    def child(self, folder: Path, tasks: list[Task], program: Program) -> Child:
        """A process for these tasks, not started yet, that writes its journal into ``folder``."""
        ...

    def is_back(self) -> bool:
        """Whether the GPU is usable again after it was lost."""
        ...
