"""What ncu wraps where a command is captured: starts it, and answers with its exit code.

It runs between ncu and the command, so that the command can be ended before ncu, which then still writes what it
measured; and so that its exit code and output are separate from ncu's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from flashcore.measure.workers.journal import SUPERVISOR, Journal, Task, child

_GRACE = 1.0  # seconds between SIGTERM and SIGKILL; the supervisor waits two for all of it


def perform(task: Task, journal: Journal) -> Mapping[str, Any]:
    """Runs the command of a task: ``argv``, the variables of its ``environment`` that differ from this process's, and
    the file for its ``output``. Its exit code is below 0 where a signal ended it."""
    environment = {**os.environ, **task.payload["environment"]}
    for name in (*task.payload["unset"], SUPERVISOR):
        environment.pop(name, None)
    signal.signal(signal.SIGTERM, _end)
    with open(task.payload["output"], "wb") as output:
        code = subprocess.call(
            task.payload["argv"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    return {"code": code}


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the command with all that it started, and then this process, without an answer."""
    processes = _descendants(os.getpid())
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal_number)
        until = time.monotonic() + _GRACE
        while signal_number == signal.SIGTERM and time.monotonic() < until and any(map(_runs, processes)):
            time.sleep(0.02)
    os._exit(128 + number)


def _descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children.setdefault(_status(entry)[1], []).append(int(entry.name))
    descendants = [process]
    for parent in descendants:
        descendants += children.get(parent, [])
    return descendants[1:]


def _status(entry: Path) -> tuple[str, int]:
    """The state of a process, as one letter, and its parent."""
    state, parent = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
    return state, int(parent)


def _runs(process: int) -> bool:
    try:
        return _status(Path("/proc", str(process)))[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:], perform))
