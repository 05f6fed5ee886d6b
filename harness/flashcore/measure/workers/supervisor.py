"""Journaled child processes: one failing case never affects the others.

Kernels run only in child processes, since they may crash, hang or poison the device. The supervisor reads the child's
journal while it grows, names the task in progress when the child dies, ends the child when it hangs, and continues with
a fresh process. The journals are the only state: called again on the same folder, :func:`supervise` runs what is not
answered yet, however the call before ended.

In ``folder``: ``tasks-N.json`` (a line of tasks, and another for each refill), ``journal-N.jsonl`` and
``child-N.log`` (stdout and stderr) of the N-th process, and ``supervisor.jsonl`` with the failures that no child could
write down itself.

With several GPUs (``limits.places``) a shape's tasks are on one GPU at a time, unless ``limits.apart`` says otherwise;
a GPU that has none takes some of those that no GPU has. A GPU on which no child can be started any more is excluded,
and named in ``supervisor.jsonl``. Children that were started before (``limits.ahead``) are given their first tasks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from flashcore.errors import CapabilityError
from flashcore.measure.workers.journal import Journal, Result, Task, answers, child, hung, unwritable
from flashcore.measure.workers.limits import Child, Limits, Place
from flashcore.measure.workers.process import POLL, Process

__all__ = ["Journal", "Result", "Task", "answers", "child", "supervise"]

#: A task in progress when its place was lost is tried on so many places, and then has failed: it may be the cause.
_PLACES_LOST = 3
#: How the reason of a task begins whose processes died before any task.
NEVER_BEGAN = "the process never began a task"


def supervise(
    tasks: Iterable[Task],
    folder: Path,
    command: Callable[[Path, Path], list[str]],
    limits: Limits,
    *,
    on_result: Callable[[Result], None] = lambda result: None,
    environment: Mapping[str, str] | None = None,
) -> list[Result]:
    """Runs every task that ``folder`` holds no answer to; returns the results in the order of tasks. After a task
    ``variant/…`` hung, the other tasks of that variant that no process has yet are skipped with that reason.

    Args:
        command: gives, for a task file and a journal, the argv of the child (or of what wraps it).
        on_result: called with each result of this call as it comes in.
        environment: variables added to the child's environment.

    Raises:
        CapabilityError: the child said that the machine lacks something, or cannot be started at all; with several
            GPUs, the last one's child did.
        FlashcoreError: a journal could not be written.
        KeyboardInterrupt: passed on, after the child's process group was ended.
    """
    tasks = list(tasks)
    names = [t.name for t in tasks]
    if len(set(names)) != len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise ValueError(f"expected every task's name once, found twice: {', '.join(twice)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = Journal(folder / "supervisor.jsonl")
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        known = answers(folder)
        stuck = hung(known.values())
        slots = limits.slots()
        work = _Work(tasks, known.keys(), len(slots), limits)
        running: dict[int, tuple[Child, Iterator[Result | None]]] = {}
        away: dict[int, float] = {}  # slots whose place was lost, and until when it may come back; 0: never
        bad_starts: dict[int, int] = {}
        interrupted: dict[str, int] = {}  # task → how often its place was lost while it was in progress

        def settle(result: Result) -> None:
            known[result.name] = result
            work.done(result.name)
            for variant, why in hung([result]).items():
                stuck.setdefault(variant, why)
            on_result(result)

        def fail(name: str, reason: str, seconds: float = 0.0, step: str = "") -> None:
            own.fail(name, reason, step=step, seconds=seconds)
            settle(Result(name, "failed", reason, None, seconds, step))

        def last_gpu(slot: int) -> bool:
            place = slots[slot]
            return place is None or not any(p and p.gpu != place.gpu for i, p in enumerate(slots) if i not in away)

        def lose(slot: int, reason: str, until: float) -> None:
            place = slots[slot]
            assert place is not None
            own.lost(place.gpu, reason)
            away[slot] = until
            work.give_back(slot)

        def over(slot: int, process: Child) -> None:
            process.kill()
            if process.lost:
                if (name := process.current) is not None:
                    interrupted[name] = interrupted.get(name, 0) + 1
                    if interrupted[name] == _PLACES_LOST:
                        fail(name, f"its worker was lost {_PLACES_LOST} times: {process.lost}", 0.0, process.step)
                bad_starts[slot] = 0 if process.answered else bad_starts.get(slot, 0) + 1
                for_good = bad_starts[slot] == _PLACES_LOST
                lose(slot, process.lost, 0.0 if for_good else time.monotonic() + limits.startup_limit)
                return
            try:
                process.raise_if_hopeless()
            except CapabilityError as error:
                if last_gpu(slot):
                    raise
                lose(slot, str(error).partition("\n")[0], 0.0)
                return
            if process.current is not None:
                fail(process.current, process.reason, round(process.busy, 3), process.step)
            elif not process.answered:
                bad_starts[slot] = bad_starts.get(slot, 0) + 1
                if not last_gpu(slot):
                    if bad_starts[slot] > 1:
                        lose(slot, process.reason, 0.0)
                    return
                # One failed start may be caused by the first task; a second one is not.
                for task in work.of(slot)[: 1 if bad_starts[slot] == 1 else None]:
                    fail(task.name, f"{NEVER_BEGAN}: {process.reason}")
                return
            bad_starts[slot] = 0

        def share(slot: int, most: int) -> list[Task]:
            while True:
                batch = work.take(slot, most, len(slots) - len(away)) if most > 0 else []
                skipped = [t for t in (work.of(slot) if stuck else ()) if t.variant in stuck]
                for task in skipped:
                    own.skip(task.name, stuck[task.variant])
                    settle(Result(task.name, "skipped", stuck[task.variant]))
                if not skipped:
                    return batch

        try:
            while True:
                for slot, place in enumerate(slots):
                    if slot in running:
                        continue
                    if slot in away and not _is_back(place, away, slot):
                        continue
                    if batch := share(slot, max(1, limits.batch)):
                        ahead = None if environment else limits.ahead
                        waiting = ahead.take(place, folder, command) if ahead else None
                        process = waiting or _child(place, folder, batch, command, limits, environment or {})
                        running[slot] = process, process.watch()
                        if waiting:
                            waiting.take_up(batch, limits)
                        else:
                            process.start()
                if not running:
                    if not work.left:
                        break
                    if all(until < time.monotonic() for until in away.values()):
                        raise CapabilityError(
                            f"no GPU is left to run {work.left} tasks on",
                            "see supervisor.jsonl; continue with --resume",
                        )
                for slot, (process, watched) in list(running.items()):
                    for result in watched:
                        if result is None:  # nothing new
                            if process.waits:
                                process.refill(share(slot, limits.batch - len(process.tasks)))
                            break
                        settle(result)
                    else:
                        del running[slot]
                        over(slot, process)
                time.sleep(POLL)
        finally:
            for process, _ in running.values():
                process.kill()
        return [known[name] for name in names]
    finally:
        own.close()


def _child(
    place: Place | None,
    folder: Path,
    tasks: list[Task],
    command: Callable[[Path, Path], list[str]],
    limits: Limits,
    environment: Mapping[str, str],
) -> Child:
    if place is None:
        return Process(folder, tasks, command, limits, environment)
    return place.child(folder, tasks, command, limits, environment)


def _is_back(place: Place | None, away: dict[int, float], slot: int) -> bool:
    """Whether a slot that was lost can be used again, within a time limit."""
    if place is None or not away[slot] or not place.is_back():
        return False
    del away[slot]
    return True


class _Work:
    """The tasks that have no answer yet, and which slot has which.

    With one GPU, and processes that cannot be refilled, the shapes are assigned once. Else a slot that has none takes
    half of its fair share of what is unassigned, by weight: heavy shapes and big shares first, light and small ones at
    the end, so that no slot waits long for another. Of tasks that may go anywhere, to processes that cannot be
    refilled, it takes its whole share, since each further process takes seconds to start: every so many-th task, since
    neighbours take about as long.
    """

    def __init__(self, tasks: Sequence[Task], known: Iterable[str], slots: int, limits: Limits) -> None:
        self._apart, self._known = limits.apart, set(known)
        self._at_once = bool(limits.apart) and not limits.refill
        self._weight = 0  # of what is unassigned
        self._order = {t.name: i for i, t in enumerate(tasks)}
        self._of: list[dict[str, Task]] = [{} for _ in range(slots)]
        self._free: dict[str, list[Task]] = {}  # by shape, or by part of one
        self._count: Counter[str] = Counter()  # tasks of each shape that were ever unassigned
        self._slot: dict[str, int] = {}
        shapes = {shape: i for i, shape in enumerate(dict.fromkeys(t.shape for t in tasks))}
        left = [t for t in tasks if t.name not in self._known]
        self.left = len(left)
        for task in left:
            if limits.places or limits.refill:
                self._add(task)
            else:
                self._slot[task.name] = slot = shapes[task.shape] % slots
                self._of[slot][task.name] = task
        weights = {key: sum(t.weight for t in own) for key, own in self._free.items()}
        self._free = dict(sorted(self._free.items(), key=lambda item: -weights[item[0]]))

    def _add(self, task: Task) -> None:
        part = self._count[task.shape] // self._apart if self._apart else 0
        self._count[task.shape] += 1
        self._free.setdefault(f"{task.shape} {part}", []).append(task)
        self._weight += task.weight

    def of(self, slot: int) -> list[Task]:
        """What this slot has."""
        return list(self._of[slot].values())

    def take(self, slot: int, most: int, sharers: int) -> list[Task]:
        """The next tasks of this slot; some of the unassigned ones, if it has none."""
        own = self._of[slot]
        if not own and self._free:
            parts = self._parts(sharers)
            share = -(-self._weight // parts)
            shapes: list[str] = []
            count = weight = 0
            for shape in islice(self._free, 0, None, parts if self._at_once else 1):
                tasks = self._free[shape]
                if shapes and (weight >= share or count + len(tasks) > most):
                    break
                shapes.append(shape)
                count, weight = count + len(tasks), weight + sum(t.weight for t in tasks)
            self._weight -= weight
            taken = [task for shape in shapes for task in self._free.pop(shape)]
            for task in sorted(taken, key=lambda t: self._order[t.name]):
                own[task.name] = task
                self._slot[task.name] = slot
        return list(islice(own.values(), most))

    def _parts(self, sharers: int) -> int:
        """Into how many shares what is unassigned is divided."""
        if len(self._of) == 1:
            return 1
        return max(1, min(sharers, sum(not own for own in self._of)) if self._at_once else 2 * sharers)

    def done(self, name: str) -> None:
        """A task has its answer."""
        if name in self._slot and self._of[self._slot[name]].pop(name, None) is not None:
            self.left -= 1

    def give_back(self, slot: int) -> None:
        """This slot's tasks become unassigned again."""
        for task in self._of[slot].values():
            self._add(task)
        self._of[slot].clear()
