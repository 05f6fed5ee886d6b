"""Assigns tasks to processes, in shares of the remaining tasks by weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from itertools import islice

from flashcore.measure.workers.journal import Task
from flashcore.measure.workers.program import Place, Program


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
