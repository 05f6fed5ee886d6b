"""`flashcore watch` in a process of its own, with its answers."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from flashcore.errors import Exit
from flashcore.machine import python_process
from tests import forks
from tests.conftest import LEASED, NO_DISASSEMBLER, TOY

PATIENCE = 120.0

#: The command, without SASS.
START = f"{NO_DISASSEMBLER}\n{LEASED}\nimport sys\nfrom flashcore.cli.main import main\nsys.exit(main())"


class Watched:
    """A watch of one variant of the toy suite, in a folder of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.suite = folder / "suite"
        shutil.copytree(TOY, self.suite)
        self.source = self.suite / "scale.cu"
        self.command = [
            sys.executable, "-P", "-c", START, "watch", "--suite", "suite", "--variant", "plain", *words
        ]  # fmt: skip
        self.folder = folder
        self.env = {
            **python_process.environment(), "PYTHONDONTWRITEBYTECODE": "1", "TERM": "xterm", "COLUMNS": "200",
            "CUDA_ARCH": "sm_90a",
        }  # fmt: skip

    def start(self) -> None:
        """Starts it, forked from a process that has imported most of it."""
        (keys, to_keys), (events, to_events) = os.pipe(), os.pipe()
        words = [*self.command[2:], "--format", "jsonl"]
        with (self.folder / "errors").open("wb") as errors:
            files = [keys, to_events, errors.fileno()]
            pid = forks.of(forks.COMMANDS).start(words, self.folder, self.env, files, session=False)
        os.close(keys)
        os.close(to_events)
        self._process, self._keys = forks.Forked(pid), os.fdopen(to_keys, "wb", 0)
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, args=(os.fdopen(events),), daemon=True).start()

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._events.put(json.loads(line))
        self._events.put({"event": "end of output"})

    def ends(self) -> None:
        """Waits for its end, which is no error."""
        while self._events.get(timeout=PATIENCE)["event"] != "end of output":
            pass
        self._keys.close()
        assert self._process.wait() == Exit.OK, (self.folder / "errors").read_text()

    def interrupt(self) -> None:
        os.kill(self._process.pid, signal.SIGTERM)

    def until(self, event: str) -> list[dict[str, Any]]:
        """The events up to and with the next one of this kind."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["event"] != event:
            events.append(self._events.get(timeout=PATIENCE))
            assert events[-1]["event"] != "end of output", f"the watch ended before {event!r}: {events}"
        return events

    def press(self, key: str) -> None:
        self._keys.write(key.encode())

    def save(self, edit: Callable[[str], str]) -> None:
        self.source.write_text(edit(self.source.read_text()))


def answers(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last answer to each question."""
    return {e["question"]: e for e in events if e["event"] == "answer"}
