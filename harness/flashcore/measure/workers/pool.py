"""The pool of workers: it owns every process that runs a suite's code.

It starts processes, also before their tasks are known, leases this host's GPUs, hands out tasks, replaces what failed
and keeps the journals (:mod:`flashcore.measure.workers.supervisor`). A pool can outlive a stage and a command.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from flashcore.errors import FlashcoreError
from flashcore.measure.machine import gpu_lease
from flashcore.measure.workers.gpus import LocalGpu
from flashcore.measure.workers.journal import Result, Task
from flashcore.measure.workers.process import Process
from flashcore.measure.workers.program import Child, Place, Program
from flashcore.measure.workers.supervisor import Supervisor


class Pool:
    """Used as a context, at whose end processes that still wait for tasks are ended.

    Args:
        places: the GPUs that share the tasks, of which each takes the tasks of a shape as a whole unless the program
            says otherwise; none: the GPU that CUDA gives.
        uuids: the GPUs of this host to lease while anything is measured.

    Attributes:
        stays: whether processes that can be refilled wait for the next :meth:`run` of their program, in any folder.
        stop: called often during :meth:`run`; an exception of it ends the run and the processes that have tasks.
    """

    stays = False
    stop: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, places: Sequence[Place] = (), uuids: Iterable[str] = ()) -> None:
        self.places = tuple(places)
        self.uuids = tuple(uuids)
        self._waiting: dict[int, Process] = {}  # started without tasks

    def on(self, *places: Place) -> Pool:
        """This pool on some of its places; processes that wait there are shared."""
        pool = Pool(places)
        pool._waiting = self._waiting
        return pool

    def prepare(self, program: Program, folder: Path, *, most: int | None = None) -> None:
        """Starts the processes that :meth:`run` will give their first tasks, on this host alone.

        They import, then wait, and use no GPU before they have tasks: so they can start while something else is
        compiled, checked or timed. One that cannot be started is left to :meth:`run`, which says why. Where processes
        stay, those that wait already are not started again.

        Args:
            most: at most so many, where there are fewer tasks than processes.
        """
        with contextlib.suppress(FlashcoreError, OSError):
            folder.mkdir(parents=True, exist_ok=True)
            for place in self.slots(program)[:most]:
                if place.host is None and not (self.stays and self._waits(place, folder, program)):
                    process = Process(folder, [], program, gpu=place.gpu)
                    process.start()
                    self._waiting[id(process)] = process

    def run(
        self,
        tasks: Iterable[Task],
        program: Program,
        folder: Path,
        on_result: Callable[[Result], None] = lambda result: None,
    ) -> list[Result]:
        """Runs every task that ``folder`` holds no answer to; returns the results in the order of tasks. After a task
        ``variant/…`` hung, the other tasks of that variant that no process has yet are skipped with that reason.

        Args:
            on_result: called with each result of this call as it comes in.

        Raises:
            CapabilityError: the process said that the machine lacks something, or cannot be started at all; with
                several GPUs, the last one's did.
            FlashcoreError: a journal could not be written.
            KeyboardInterrupt: passed on, after the processes were ended.
        """
        slots = self.slots(program)
        return Supervisor(
            list(tasks), program, folder, slots, self._take, on_result, self._keep, lambda: self.stop()
        ).run()

    def slots(self, program: Program) -> list[Place]:
        """Where processes run side by side: as many as there are lanes; with several GPUs as many on each, as long as
        each process has two of this host's cores, and at least one on each."""
        places = self.places
        if not places:
            return [LocalGpu("")] * max(1, program.lanes)
        count = min(max(program.lanes, (os.cpu_count() or 1) // 2), program.lanes * len(places))
        return [places[i % len(places)] for i in range(max(len(places), count))]

    @contextlib.contextmanager
    def leased(self, say: Callable[[str], None]) -> Iterator[None]:
        """Holds this host's GPUs; ``say`` is called with those that another process has."""
        with gpu_lease.leases(self.uuids, say):
            yield

    def close(self) -> None:
        """Ends the processes that still wait for tasks."""
        for process in self._waiting.values():
            process.kill()
        self._waiting.clear()

    def _take(self, place: Place, folder: Path, program: Program) -> Process | None:
        """A process that waits there for tasks of this program, if there is one."""
        for key in self._waits(place, folder, program):
            if process := self._waiting.pop(key, None):  # else another GPU's thread was first
                if not process.has_exited():
                    if process.folder != folder:
                        process.move(folder)
                    return process
                process.kill()
        return None

    def _waits(self, place: Place, folder: Path, program: Program) -> list[int]:
        """The keys of the processes that wait there for tasks of this program."""
        wanted = _identity(place.gpu, program)
        return [
            key
            for key, process in list(self._waiting.items())
            if _identity(process.gpu, process.program) == wanted and (program.refill or process.folder == folder)
        ]

    def _keep(self, process: Child) -> bool:
        """Keeps a process without tasks for the next run, if this pool does that."""
        if self.stays and isinstance(process, Process):
            self._waiting[id(process)] = process
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _identity(gpu: str, program: Program) -> tuple[object, ...]:
    return gpu, [*program.command(Path("tasks.json"), Path("journal.jsonl"))], {**program.environment}
