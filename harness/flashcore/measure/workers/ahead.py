"""Children that are started before their tasks are known, since a start takes seconds, most of them imports.

Such a child imports and then waits for its first tasks. It uses no GPU before it has some, so that it may be started
while something else is compiled, checked or timed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from flashcore.errors import FlashcoreError
from flashcore.measure.workers.limits import Limits, Place
from flashcore.measure.workers.process import Process

_Key = tuple[str, str, tuple[str, ...]]


class Ahead:
    """The children that wait; used as a context, at whose end those that were not taken are ended."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, list[Process]] = {}
        self._lock = threading.Lock()  # GPUs are given their first tasks side by side

    def start(
        self,
        folder: Path,
        command: Callable[[Path, Path], list[str]],
        limits: Limits,
        *,
        most: int | None = None,
    ) -> None:
        """Starts the children that :func:`flashcore.measure.workers.supervisor.supervise` would start with these
        arguments and
        no environment of their own, on this host alone. One that cannot be started is left to it, which says why.

        Args:
            most: at most so many, where there are fewer tasks than children.
        """
        with contextlib.suppress(FlashcoreError, OSError):
            folder.mkdir(parents=True, exist_ok=True)
            for place in limits.slots()[:most]:
                if place is None or place.host is None:
                    gpu = place.gpu if place else ""
                    process = Process(folder, [], command, limits, {}, gpu)
                    process.start()
                    self._waiting.setdefault(_key(place, folder, command), []).append(process)

    def take(self, place: Place | None, folder: Path, command: Callable[[Path, Path], list[str]]) -> Process | None:
        """A child that waits for tasks of this command at this place, if there is one."""
        with self._lock:
            waiting = self._waiting.get(_key(place, folder, command), [])
            while waiting:
                process = waiting.pop(0)
                if not process.has_exited():
                    return process
                process.kill()
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the children that were not taken."""
        for waiting in self._waiting.values():
            for process in waiting:
                process.kill()
        self._waiting.clear()


def _key(place: Place | None, folder: Path, command: Callable[[Path, Path], list[str]]) -> _Key:
    words = tuple(command(folder / "tasks.json", folder / "journal.jsonl"))
    return place.gpu if place else "", str(folder), words
