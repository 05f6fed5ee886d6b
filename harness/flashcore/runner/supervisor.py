"""Supervises journaled child processes, so that one failing case never affects the others.

Kernels run only in child processes, since they may crash, hang or poison the device. The supervisor follows the child's
journal, attributes a crash to the task in progress, ends a child that hangs, and continues with a fresh process. The
journals are the only state: called again on the same folder, :meth:`Supervisor.run` runs the unanswered tasks, however
the previous call ended.

``folder`` contains ``tasks-N.json`` (a line of tasks, and one more per refill), ``journal-N.jsonl`` and ``child-N.log``
(stdout and stderr) of the N-th process, and ``supervisor.jsonl`` with failures that no child could record.

With several GPUs a shape's tasks are on one GPU at a time, unless ``program.chunk`` is set. An idle GPU takes some of
the unassigned tasks. A GPU on which no child can be started is excluded and recorded in ``supervisor.jsonl``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from flashcore.errors import CapabilityError
from flashcore.model.cause import cause_text
from flashcore.model.causes import WORKER_LOST, HungBefore, NeverBegan
from flashcore.runner.journal import Journal, Result, Task, hung, unwritable
from flashcore.runner.process import POLL, Process
from flashcore.runner.program import Child, Place, Program

#: A task in progress when its place is lost fails after this many places, since it may be the cause.
_PLACES_LOST = 3


@dataclass(slots=True)
class Supervisor:
    """Runs tasks in child processes at several slots.

    Args:
        slots: the places of concurrent processes.
        waiting: returns a process that already waits for tasks at a place, if any.
        on_result: called with each result as it arrives.
        results: the answers so far, by task; new ones are added.
        keep: takes over a process that has no tasks left; if it returns false, the process is ended.
        stop: called often; if it raises, the run and its processes end.
    """

    tasks: list[Task]
    program: Program
    folder: Path
    slots: list[Place]
    results: dict[str, Result]
    waiting: Callable[[Place, Path, Program], Process | None]
    on_result: Callable[[Result], None]
    keep: Callable[[Child], bool]
    stop: Callable[[], None]
    _journal: Journal = field(init=False)
    _shares: Shares = field(init=False)
    _hung: dict[str, HungBefore] = field(init=False)  # variants that hung → why their other tasks are not run
    _running: dict[int, tuple[Child, Iterator[Result | None]]] = field(init=False, default_factory=dict)
    #: Slots whose place was lost → until when it may come back; 0: never.
    _away: dict[int, float] = field(init=False, default_factory=dict)
    _bad_starts: Counter[int] = field(init=False, default_factory=Counter)
    _interrupted: Counter[str] = field(init=False, default_factory=Counter)  # task → places lost during it

    def run(self) -> list[Result]:
        """Runs the unanswered tasks; see :meth:`flashcore.runner.pool.Pool.run`."""
        names = [t.name for t in self.tasks]
        if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
            raise ValueError(f"expected unique task names, found more than once: {', '.join(repeated)}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._journal = Journal(self.folder / "supervisor.jsonl")
        except OSError as error:
            raise unwritable(self.folder, error) from error
        try:
            self._hung = hung(self.results.values())
            self._shares = Shares(self.tasks, self.results.keys(), self.slots, self.program)
            try:
                while self._step():
                    self.stop()
                    time.sleep(POLL)
            finally:
                for process, _ in self._running.values():
                    process.kill()
            return [self.results[name] for name in names]
        finally:
            self._journal.close()

    def _step(self) -> bool:
        """Starts processes in idle slots, and handles answers; false when all is done."""
        for slot, place in enumerate(self.slots):
            if slot not in self._running and self._is_usable(slot):
                self._start(slot, place)
        if not self._running:
            if not self._shares.left:
                return False
            if all(until < time.monotonic() for until in self._away.values()):
                raise CapabilityError(
                    f"no GPU is left to run {self._shares.left} tasks on",
                    "see supervisor.jsonl; continue with --resume",
                )
        for slot, (process, watched) in list(self._running.items()):
            for result in watched:
                if result is None:  # nothing new
                    if process.waits:
                        more = self._share(slot, self.program.limits.batch - len(process.tasks))
                        if not more and self.keep(process):
                            del self._running[slot]
                        else:
                            process.refill(more)
                    break
                self._settle(slot, result)
            else:
                del self._running[slot]
                self._end(slot, process)
        return True

    def _start(self, slot: int, place: Place) -> None:
        if not (batch := self._share(slot, max(1, self.program.limits.batch))):
            return
        if waiting := self.waiting(place, self.folder, self.program):
            self._running[slot] = waiting, waiting.watch()
            waiting.program = self.program
            waiting.refill(batch)
        else:
            process = place.child(self.folder, batch, self.program)
            self._running[slot] = process, process.watch()
            process.start()

    def _share(self, slot: int, most: int) -> list[Task]:
        """A slot's next tasks, after skipping those of variants that hung."""
        while True:
            batch = self._shares.take(slot, most, len(self.slots) - len(self._away)) if most > 0 else []
            skipped = [t for t in (self._shares.of(slot) if self._hung else ()) if t.variant in self._hung]
            for task in skipped:
                cause = self._hung[task.variant]
                self._answer(slot, Result(task.name, "skipped", cause))
            if not skipped:
                return batch

    def _settle(self, slot: int, result: Result) -> None:
        self.results[result.name] = result
        self._shares.done(slot, result.name)
        for variant, why in hung([result]).items():
            self._hung.setdefault(variant, why)
        self.on_result(result)

    def _answer(self, slot: int, result: Result) -> None:
        """Answers a task on behalf of its process."""
        self._journal.answer(result)
        self._settle(slot, result)

    def _end(self, slot: int, process: Child) -> None:
        """Handles the end of a process: its task in progress failed, or its place is lost."""
        process.kill()
        if process.lost:
            if (name := process.current) is not None:
                self._interrupted[name] += 1
                if self._interrupted[name] == _PLACES_LOST:
                    cause = WORKER_LOST(_PLACES_LOST, process.lost)
                    self._answer(slot, Result(name, "failed", cause, step=process.step))
            self._bad_starts[slot] = 0 if process.has_answered else self._bad_starts[slot] + 1
            for_good = self._bad_starts[slot] == _PLACES_LOST
            until = 0.0 if for_good else time.monotonic() + self.program.limits.startup_limit
            self._lose(slot, process.lost, until)
            return
        try:
            process.raise_if_unrecoverable()
        except CapabilityError as error:
            if self._is_last_gpu(slot):
                raise
            self._lose(slot, str(error).partition("\n")[0], 0.0)
            return
        if process.current is not None:
            busy = round(process.busy, 3)
            self._answer(slot, Result(process.current, "failed", process.cause, None, busy, process.step))
        elif not process.has_answered:
            self._bad_starts[slot] += 1
            if not self._is_last_gpu(slot):
                if self._bad_starts[slot] > 1:
                    self._lose(slot, cause_text(process.cause), 0.0)
                return
            # The first task may cause one failed start; a second failure is not its fault.
            for task in self._shares.of(slot)[: 1 if self._bad_starts[slot] == 1 else None]:
                self._answer(slot, Result(task.name, "failed", NeverBegan(process.cause)))
            return
        self._bad_starts[slot] = 0

    def _lose(self, slot: int, reason: str, until: float) -> None:
        self._journal.lost(self.slots[slot].gpu, reason)
        self._away[slot] = until
        self._shares.give_back(slot)

    def _is_last_gpu(self, slot: int) -> bool:
        gpu = self.slots[slot].gpu
        return not any(place.gpu != gpu for i, place in enumerate(self.slots) if i not in self._away)

    def _is_usable(self, slot: int) -> bool:
        """Whether a slot was not lost, or is available again."""
        if slot in self._away:
            if not self._away[slot] or not self.slots[slot].is_back():
                return False
            del self._away[slot]
        return True


class Shares:
    """The tasks without an answer, and their assignment to slots.

    With one GPU and processes that cannot be refilled, shapes are assigned once. Otherwise an idle slot takes half of
    its fair share of the unassigned tasks by weight, heavy shapes first, so that shares shrink and no slot waits long
    for another. If tasks may go to any process but processes cannot be refilled, a slot takes its whole share at once,
    since each further process takes seconds to start. It takes every n-th task, since neighbors take similar time.

    Args:
        answered: names of tasks that are not run again.
        slots: the places of concurrent processes.
    """

    def __init__(
        self, tasks: Sequence[Task], answered: Container[str], slots: Sequence[Place], program: Program
    ) -> None:
        self._chunk = program.chunk
        self._at_once = bool(program.chunk) and not program.refill
        self._order = {task.name: i for i, task in enumerate(tasks)}
        self._slots: list[dict[str, Task]] = [{} for _ in slots]
        self._unassigned: dict[str, list[Task]] = {}  # by shape, or by chunk of one
        self._count: Counter[str] = Counter()  # tasks of each shape that were ever unassigned
        shapes = {shape: i for i, shape in enumerate(dict.fromkeys(t.shape for t in tasks))}
        for task in (t for t in tasks if t.name not in answered):
            if program.refill or any(place.gpu for place in slots):
                self._add(task)
            else:
                self._slots[shapes[task.shape] % len(slots)][task.name] = task
        heavy_first = sorted(self._unassigned.items(), key=lambda item: -_weight(item[1]))
        self._unassigned = dict(heavy_first)

    def _add(self, task: Task) -> None:
        chunk = self._count[task.shape] // self._chunk if self._chunk else 0
        self._count[task.shape] += 1
        self._unassigned.setdefault(f"{task.shape} {chunk}", []).append(task)

    @property
    def left(self) -> int:
        """The number of tasks without an answer."""
        return sum(map(len, (*self._slots, *self._unassigned.values())))

    def of(self, slot: int) -> list[Task]:
        """The slot's tasks."""
        return list(self._slots[slot].values())

    def take(self, slot: int, most: int, sharers: int) -> list[Task]:
        """The slot's next tasks, at most ``most``; takes a share of the unassigned tasks if it has none."""
        if not self._slots[slot]:
            parts = self._parts(sharers)
            share = sum(map(_weight, self._unassigned.values())) / parts
            taken: list[Task] = []
            for key in list(self._unassigned)[:: parts if self._at_once else 1]:
                if taken and (_weight(taken) >= share or len(taken) + len(self._unassigned[key]) > most):
                    break
                taken += self._unassigned.pop(key)
            self._slots[slot] = {t.name: t for t in sorted(taken, key=lambda t: self._order[t.name])}
        return list(islice(self._slots[slot].values(), most))

    def _parts(self, sharers: int) -> int:
        """The number of shares into which the unassigned tasks are divided."""
        if len(self._slots) == 1:
            return 1
        idle = sum(not tasks for tasks in self._slots)
        return max(1, min(sharers, idle) if self._at_once else 2 * sharers)

    def done(self, slot: int, name: str) -> None:
        """Removes an answered task from its slot."""
        self._slots[slot].pop(name, None)

    def give_back(self, slot: int) -> None:
        """Makes the slot's tasks unassigned again."""
        for task in self.of(slot):
            self._add(task)
        self._slots[slot].clear()


def _weight(tasks: Iterable[Task]) -> int:
    return sum(t.weight for t in tasks)
