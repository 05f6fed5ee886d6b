"""The pool of workers, which owns every process that runs a suite's code.

It starts processes, also before their tasks are known, leases this host's GPUs, hands out tasks, replaces failed
processes and keeps the journals (:mod:`flashcore.runner.supervisor`). It can outlive a stage and a command.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from flashcore.errors import FlashcoreError
from flashcore.machine import gpu_choice
from flashcore.runner.journal import Result, Task, answers
from flashcore.runner.process import LocalGpu, Process
from flashcore.runner.program import Child, Place, Program
from flashcore.runner.supervisor import Supervisor


class Pool:
    """A context manager; at its end, processes that wait for tasks are ended.

    Args:
        places: the GPUs that share the tasks. All tasks of a shape go to one GPU unless ``program.chunk`` is set.
            Empty: CUDA's default GPU.
        uuids: this host's GPUs to lease while measuring.

    Attributes:
        stays: whether refillable processes wait for the next :meth:`run` of their program, in any folder.
        stop: called often during :meth:`run`; if it raises, the run and its processes end.
    """

    stays = False
    stop: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, places: Sequence[Place] = (), uuids: Iterable[str] = ()) -> None:
        self.places = tuple(places)
        self.uuids = tuple(uuids)
        self._waiting: dict[int, Process] = {}  # processes that wait for tasks, by id
        self._answers: tuple[Path, dict[str, Result]] = Path(), {}  # those in the folder of the last run

    def on(self, *places: Place) -> Pool:
        """This pool restricted to some places; waiting processes are shared."""
        pool = Pool(places)
        pool._waiting = self._waiting
        return pool

    def prepare(self, program: Program, folder: Path, *, most: int | None = None) -> None:
        """Starts this host's processes ahead of :meth:`run`.

        They import, then wait, and use no GPU before they have tasks, so they can start while other work is compiled,
        checked or timed. If one cannot be started, :meth:`run` reports it. If processes stay, those that already wait
        are not started again.

        Args:
            most: the largest number of processes, if there are fewer tasks.
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
        """Runs every task without an answer in ``folder``; returns all results in task order. After a task
        ``variant/…`` hung, that variant's unassigned tasks are skipped with that reason.

        Args:
            on_result: called with each new result as it arrives.

        Raises:
            CapabilityError: a process reported that the machine lacks something, or could not be started; with several
                GPUs, on the last one left.
            FlashcoreError: a journal could not be written.
            KeyboardInterrupt: passed on, after the processes were ended.
        """
        if self._answers[0] != folder:  # else code of a task may have changed the files
            self._answers = folder, answers(folder)
        slots, results = self.slots(program), self._answers[1]
        try:
            return Supervisor(
                list(tasks), program, folder, slots, results, self._take, on_result, self._keep, lambda: self.stop()
            ).run()
        finally:
            if not self.stays:  # those that had tasks keep a context on the GPU, which would void what is timed next
                self._kill(lambda process: bool(process.tasks))

    def slots(self, program: Program) -> list[Place]:
        """The places of concurrent processes: one per lane and GPU; with several GPUs, limited to one process per two
        cores of this host, but at least one per GPU."""
        places = self.places
        if not places:
            return [LocalGpu("")] * max(1, program.lanes)
        count = min(max(program.lanes, (os.cpu_count() or 1) // 2), program.lanes * len(places))
        return [places[i % len(places)] for i in range(max(len(places), count))]

    def leased(self, say: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Leases this host's GPUs; ``say`` reports GPUs leased by another process."""
        return gpu_choice.leases(self.uuids, say)

    def close(self) -> None:
        """Ends the processes that wait for tasks."""
        self._kill(lambda process: True)

    def _kill(self, ended: Callable[[Process], bool]) -> None:
        for key in [key for key, process in list(self._waiting.items()) if ended(process)]:
            if process := self._waiting.pop(key, None):  # another GPU's thread may be faster
                process.kill()

    def _take(self, place: Place, folder: Path, program: Program) -> Process | None:
        """A process waiting at this place for tasks of this program, or ``None``."""
        for key in self._waits(place, folder, program):
            if process := self._waiting.pop(key, None):  # another GPU's thread may be faster
                if not process.has_exited():
                    if process.folder != folder:
                        process.move(folder)
                    return process
                process.kill()
        return None

    def _waits(self, place: Place, folder: Path, program: Program) -> list[int]:
        """The keys of the processes waiting at this place for tasks of this program."""
        wanted = _identity(place.gpu, program)
        return [
            key
            for key, process in list(self._waiting.items())
            if _identity(process.gpu, process.program) == wanted and (program.refill or process.folder == folder)
        ]

    def _keep(self, process: Child) -> bool:
        """Keeps a process without tasks for the next run, if ``stays``; returns whether it did."""
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
