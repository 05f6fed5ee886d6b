"""Runs the captured command, alone or under ncu, and ends it with all processes that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flashcore.errors import CapabilityError
from flashcore.model.cause import Cause
from flashcore.model.causes import Hang
from flashcore.model.files import writing
from flashcore.runner.child import has_ended

_MARK = "FLASHCORE_CAPTURED"  # the variable of the command's processes, which ncu's do not have
_GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_POLL = 0.02


class Execution(NamedTuple):
    """``code`` is an exit code, below 0 for a signal (its number, under ncu); ``None`` if the command was ended, with
    the ``cause``."""

    code: int | None
    cause: Cause | None
    seconds: float


def execute(
    command: Sequence[str],
    output: Path,
    *,
    wrapper: Sequence[str] = (),
    environment: Mapping[str, str],
    time_limit: float,
    finish_limit: float,
) -> Execution:
    """Runs ``command`` once; its output goes to a file.

    There is no process between ncu and the command: ncu measures a direct child faster than a grandchild (forty steps
    of a small network on an H200: 20 s instead of more than 40 s).

    Args:
        wrapper: the command that runs ``command`` and ends after it: ncu with its options.
        environment: variables added to this process's.
        time_limit: seconds after which the command is ended.
        finish_limit: seconds that the wrapper then has to write its report.

    Raises:
        CapabilityError: the program, or its wrapper, cannot be started.
        FlashcoreError: the output cannot be written.
    """
    mark = f"{_MARK}={uuid.uuid4().hex}"
    argv = [*wrapper, "env", mark, *command]  # env(1) becomes the command
    began = time.monotonic()
    with writing(output), output.open("wb") as file:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                start_new_session=True,
            )
        except OSError as error:
            raise CapabilityError(
                f"cannot start {argv[0]}: {error.strerror}", "install it, or name it with its full path"
            ) from error
    try:
        code = process.wait(time_limit)
        return Execution(code, None, time.monotonic() - began)
    except subprocess.TimeoutExpired:
        _end(_descendants(_marked(mark)))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(finish_limit)
        return Execution(None, Hang(time_limit), time.monotonic() - began)
    finally:  # also where the user interrupts
        if process.poll() is None:
            _end(_descendants([process.pid, *_marked(mark)]))
            process.wait()


def _end(processes: Sequence[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)
        until = time.monotonic() + _GRACE
        while time.monotonic() < until and not all(map(has_ended, processes)):
            time.sleep(_POLL)


def _marked(mark: str) -> list[int]:
    marked = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                marked.append(int(entry.name))
    return marked


def _descendants(processes: Sequence[int]) -> list[int]:
    """These processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    descendants = list(dict.fromkeys(processes))
    for parent in descendants:
        descendants += [child for child in children.get(parent, []) if child not in descendants]
    return descendants
