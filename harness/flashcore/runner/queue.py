"""The queue of tasks, and the processes that pull them: one for each GPU, or several where nothing is timed.

Kernels run only in child processes, since they may crash, hang or poison the device. A free GPU pulls the next group of
tasks, a shape's, so that what is compared is on one GPU. A crash is attributed to the task in progress, a child that
hangs is ended, and a fresh process continues. After a task ``variant/…`` hung, that variant's other tasks are skipped.
A GPU on which no child can be started is excluded.

The journals are the only state: called again on the same folder, :meth:`Pool.run` runs the unanswered tasks, however
the previous call ended. A folder contains ``tasks-N.json`` (a line for each share of tasks), ``journal-N.jsonl`` and
``child-N.log`` (stdout and stderr) of the N-th process, and ``supervisor.jsonl`` with what no child could record.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Self

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import gpu_choice
from flashcore.model.cause import cause_text
from flashcore.model.causes import WORKER_LOST, HungBefore, NeverBegan
from flashcore.model.groups import grouped
from flashcore.runner.hung_variants import hung
from flashcore.runner.journal import Journal, Lost, Task, TaskResult, answers, unwritable
from flashcore.runner.process import POLL, Child, LocalGpu, Place, Process, Program

#: A task in progress when its place is lost fails after this many places, since it may be the cause.
_PLACES_LOST = 3
#: Processes in a row that begin no task, after which their place is lost.
_BAD_STARTS = 2


class Pool:
    """The GPUs, and the processes that run a suite's code on them. It can outlive a stage and a command.

    A context manager; at its end, processes that wait for tasks are ended.

    Args:
        places: the GPUs that share the tasks. Empty: CUDA's default GPU.
        uuids: this host's GPUs to lease while measuring.

    Attributes:
        stays: whether processes that pull tasks wait for the next :meth:`run` of their program, in any folder.
        stop: called often during :meth:`run`; if it raises, the run and its processes end.
    """

    stays = False
    stop: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, places: Sequence[Place] = (), uuids: Iterable[str] = ()) -> None:
        self.places = tuple(places)
        self.uuids = tuple(uuids)
        self._waiting: list[Process] = []

    def prepare(self, program: Program, folder: Path, *, most: int | None = None, runs: int = 1) -> None:
        """Starts this host's processes ahead of :meth:`run`.

        They import, then wait, and use no GPU before they have tasks, so they can start while other work is compiled,
        checked or timed. If one cannot be started, :meth:`run` reports it. Where one waits already, none is started.

        Args:
            most: the largest number of processes, if there are fewer tasks.
            runs: prepare for so many calls of :meth:`run`, each with new processes; at most one per two cores waits.
        """
        with contextlib.suppress(FlashcoreError, OSError):
            folder.mkdir(parents=True, exist_ok=True)
            places = self.children(program)[:most]
            runs = min(runs, max(1, (os.cpu_count() or 1) // 2 // max(1, len(places))))
            wanted = Counter(place.gpu for place in places if place.host is None)
            for gpu, count in wanted.items():
                for _ in range(runs * count - len(self._fit(gpu, folder, program))):
                    process = Process(folder, [], program, gpu=gpu)
                    process.start()
                    self._waiting.append(process)

    def run(
        self,
        tasks: Iterable[Task],
        program: Program,
        folder: Path,
        on_result: Callable[[TaskResult], None] = lambda result: None,
    ) -> list[TaskResult]:
        """Runs every task without an answer in ``folder``; returns all results in task order.

        Args:
            on_result: called with each new result as it arrives.

        Raises:
            CapabilityError: a process reported that the machine lacks something, or could not be started; with several
                GPUs, on the last one left.
            FlashcoreError: a journal could not be written.
            KeyboardInterrupt: passed on, after the processes were ended.
        """
        tasks = list(tasks)
        names = [t.name for t in tasks]
        if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
            raise ValueError(f"expected unique task names, found more than once: {', '.join(repeated)}")
        # Those of other programs that had tasks keep a context on the GPU, which would void what is timed next.
        self._end([p for p in self._waiting if p.tasks and _identity(p.gpu, program) != _identity(p.gpu, p.program)])
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, error) from error
        with contextlib.closing(Journal(folder / "supervisor.jsonl")) as journal:
            results = _Run(self, tasks, program, folder, journal, on_result).results()
        return [results[name] for name in names]

    def children(self, program: Program) -> list[Place]:
        """The place of each concurrent process: as many for each GPU as the program has; with several GPUs, at most one
        process per two cores of this host, but at least one per GPU."""
        if len(self.places) < 2:
            return [*(self.places or (LocalGpu(""),))] * program.children
        most = max(1, (os.cpu_count() or 1) // 2 // len(self.places))
        return [*self.places] * min(program.children, most)

    def leased(self, say: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Leases this host's GPUs; ``say`` reports GPUs leased by another process."""
        return gpu_choice.leases(self.uuids, say)

    def close(self) -> None:
        """Ends the processes that wait for tasks."""
        self._end(list(self._waiting))

    def child(self, place: Place, folder: Path, tasks: list[Task], program: Program) -> Child:
        """A process with these tasks: one that waits at the place, or a new one."""
        for process in self._fit(place.gpu, folder, program):
            self._waiting.remove(process)
            if process.has_exited():
                process.kill()
                continue
            if process.folder != folder:
                process.move(folder)
            process.program = program
            process.give(tasks)
            return process
        child = place.child(folder, tasks, program)
        child.start()
        return child

    def keep(self, child: Child) -> bool:
        """Keeps a process without tasks for the next run, if ``stays``; returns whether it did."""
        if not (self.stays and isinstance(child, Process)):
            return False
        self._waiting.append(child)
        return True

    def _fit(self, gpu: str, folder: Path, program: Program) -> list[Process]:
        """The processes that wait on a GPU for tasks of a program. One that gets its tasks at once stays in its
        folder, where the tool around it reports."""
        wanted = _identity(gpu, program)
        return [
            p
            for p in self._waiting
            if _identity(p.gpu, p.program) == wanted and (p.folder == folder or not program.at_once)
        ]

    def _end(self, processes: Iterable[Process]) -> None:
        for process in processes:
            self._waiting.remove(process)
            process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _identity(gpu: str, program: Program) -> tuple[object, ...]:
    return gpu, [*program.command(Path("tasks.json"), Path("journal.jsonl"))], {**program.environment}


@dataclass(slots=True)
class _Slot:
    """The place of a process, the tasks that it has pulled and not answered, and its failures.

    ``until``: when a lost place may come back; ``None``: never.
    """

    place: Place
    child: Child | None = None
    tasks: dict[str, Task] = field(default_factory=dict)
    bad_starts: int = 0
    is_lost: bool = False
    until: float | None = None


@dataclass(slots=True)
class _Run:
    """One call of :meth:`Pool.run`."""

    pool: Pool
    tasks: list[Task]
    program: Program
    folder: Path
    journal: Journal
    on_result: Callable[[TaskResult], None]
    _results: dict[str, TaskResult] = field(init=False)
    _queue: list[list[Task]] = field(init=False)  # groups that no slot has pulled
    _slots: list[_Slot] = field(init=False)
    _hung: dict[str, HungBefore] = field(init=False)  # variants that hung → why their other tasks are not run
    _interrupted: Counter[str] = field(default_factory=Counter)  # task → places lost during it

    def results(self) -> dict[str, TaskResult]:
        """Runs the tasks without an answer; the results by name."""
        self._results = answers(self.folder)
        self._hung = hung(self._results.values())
        self._slots = [_Slot(place) for place in self.pool.children(self.program)]
        self._queue = self._groups(t for t in self.tasks if t.name not in self._results)
        try:
            while self._step():
                self.pool.stop()
                time.sleep(POLL)
        finally:
            for slot in self._slots:
                if slot.child:
                    slot.child.kill()
        return self._results

    def _groups(self, tasks: Iterable[Task]) -> list[list[Task]]:
        if self.program.at_once:
            return [[task] for task in tasks]
        return list(grouped((t.group or t.shape, t) for t in tasks).values())

    def _step(self) -> bool:
        """Starts processes in free slots, and handles answers; false when all is done."""
        most = max(1, self.program.limits.batch)
        for slot in self._slots:
            if slot.child is None and self._is_usable(slot) and (tasks := self._pull(slot, most)):
                slot.child = self.pool.child(slot.place, self.folder, tasks, self.program)
        busy = [(slot, slot.child) for slot in self._slots if slot.child]
        if not busy:
            left = sum(map(len, (*self._queue, *(slot.tasks for slot in self._slots))))
            if left and not any(slot.until and slot.until > time.monotonic() for slot in self._slots):
                raise CapabilityError(
                    f"no GPU is left to run {left} tasks on", "see supervisor.jsonl; continue with --resume"
                )
            return left > 0
        for slot, child in busy:
            self._follow(slot, child)
        return True

    def _follow(self, slot: _Slot, child: Child) -> None:
        """Takes in a child's answers, and gives it more tasks."""
        for result in child.poll():
            self._settle(slot, result)
        if child.ended:
            slot.child = None
            self._end(slot, child)
        elif child.waits:
            tasks = self._pull(slot, self.program.limits.batch - len(child.tasks))
            if not tasks and self.pool.keep(child):
                slot.child = None
            else:
                child.give(tasks)

    def _pull(self, slot: _Slot, most: int) -> list[Task]:
        """A slot's next tasks, at most ``most``; those of variants that hung are skipped."""
        while most > 0:
            if not slot.tasks and self._queue:
                chosen = range(1)
                if self.program.at_once:  # an even share: of every few tasks one, since neighbors take similar time
                    idle = sum(other.child is None and not other.is_lost for other in self._slots)
                    chosen = range(0, len(self._queue), idle)[:most]
                slot.tasks = {task.name: task for i in chosen for task in self._queue[i]}
                for i in reversed(chosen):
                    del self._queue[i]
            skipped = [t for t in slot.tasks.values() if t.variant in self._hung]
            for task in skipped:
                self._answer(slot, TaskResult(task.name, "skipped", self._hung[task.variant]))
            if slot.tasks or not self._queue:
                return list(islice(slot.tasks.values(), most))
        return []

    def _settle(self, slot: _Slot, result: TaskResult) -> None:
        self._results[result.name] = result
        slot.tasks.pop(result.name, None)
        for variant, why in hung([result]).items():
            self._hung.setdefault(variant, why)
        self.on_result(result)

    def _answer(self, slot: _Slot, result: TaskResult) -> None:
        """Answers a task on behalf of its process."""
        self.journal.write(result)
        self._settle(slot, result)

    def _end(self, slot: _Slot, child: Child) -> None:
        """Handles the end of a process: its task in progress failed, or its place is lost."""
        child.kill()
        slot.bad_starts = 0 if child.has_answered or child.current else slot.bad_starts + 1
        if child.lost:
            self._interrupt(slot, child)
            is_for_good = slot.bad_starts == _PLACES_LOST
            self._lose(slot, child.lost, None if is_for_good else time.monotonic() + self.program.limits.startup_limit)
            return
        try:
            child.raise_if_unrecoverable()
        except CapabilityError as error:
            if not self._has_others(slot):
                raise
            self._lose(slot, str(error).partition("\n")[0])
            return
        if child.current is not None:
            busy = round(child.busy, 3)
            self._answer(slot, TaskResult(child.current, "failed", child.cause, None, busy, child.step))
        elif slot.bad_starts == _BAD_STARTS:
            if self._has_others(slot):
                self._lose(slot, cause_text(child.cause))
                return
            for task in [*slot.tasks.values(), *(task for group in self._queue for task in group)]:
                self._answer(slot, TaskResult(task.name, "failed", NeverBegan(child.cause)))
            self._queue = []

    def _has_others(self, slot: _Slot) -> bool:
        """Whether another slot can do this one's tasks: one on another GPU, or with a process."""
        return any((s.place.gpu != slot.place.gpu or s.child) and not s.is_lost for s in self._slots)

    def _interrupt(self, slot: _Slot, child: Child) -> None:
        """Counts a task whose place was lost meanwhile; it fails after several places."""
        if child.current is not None:
            self._interrupted[child.current] += 1
            if self._interrupted[child.current] == _PLACES_LOST:
                cause = WORKER_LOST(_PLACES_LOST, child.lost)
                self._answer(slot, TaskResult(child.current, "failed", cause, step=child.step))

    def _lose(self, slot: _Slot, reason: str, until: float | None = None) -> None:
        """Excludes a slot; its tasks go to another."""
        self.journal.write(Lost(slot.place.gpu, reason))
        slot.is_lost, slot.until = True, until
        self._queue[:0] = self._groups(slot.tasks.values())
        slot.tasks = {}

    def _is_usable(self, slot: _Slot) -> bool:
        """Whether a slot was not lost, or is available again."""
        if slot.is_lost and slot.until is not None and slot.place.is_back():
            slot.is_lost = False
        return not slot.is_lost
