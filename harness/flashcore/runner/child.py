"""The program of a child process: performs the tasks that its supervisor gives it, and ends with it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError, Exit, FlashcoreError
from flashcore.runner.journal import Journal, Lacks, Share, Task, raised

#: Prefix of the error message that ends a child, to find it in the child's output.
ERROR_PREFIX = "flashcore child: "
#: The exit code of a child that cannot continue (EX_IOERR).
UNRECOVERABLE = 74
#: The environment variable with the id of the process that the child must not outlive.
SUPERVISOR = "FLASHCORE_SUPERVISOR"
_POLL = 0.005  # seconds between checks for more tasks
_PR_SET_PDEATHSIG = 1

#: CUDA errors after which a process can no longer use its device.
POISON = (
    r"(?i)illegal memory access|illegal address|unspecified launch failure|misaligned address|"
    r"device-side assert|illegal instruction|hardware stack error|invalid address space|"
    r"invalid program counter|launch timed out|uncorrectable (ECC|NVLink)|CUDA error: launch failure"
)

#: Performs a task; returns its result as JSON.
Perform = Callable[[Task, Journal], Mapping[str, Any] | None]


def child(
    arguments: Sequence[str],
    perform: Perform,
    *,
    prepare: Callable[[Task], object] = lambda first: None,
    imports: Sequence[Callable[[], object]] = (),
    is_poisoned: Callable[[], bool] = lambda: False,
) -> int:
    """Runs a child with the arguments ``TASKFILE JOURNAL``: performs every task, returns the exit code.

    An exception in ``perform`` fails its task; the child continues unless ``is_poisoned``. ``prepare`` runs before the
    first task, which names the device; it may raise a :class:`FlashcoreError`. ``imports`` run earlier, one by one,
    while there are no tasks.
    """
    follow_supervisor()
    task_file, journal_file = map(Path, arguments)
    try:
        with contextlib.closing(Journal(journal_file)) as journal:
            try:
                for number, task in enumerate(tasks_of(task_file, imports, journal.move)):
                    if number == 0:
                        prepare(task)
                    if not _perform(task, journal, perform, is_poisoned):
                        return int(Exit.FAILED)
            except CapabilityError as error:  # from prepare
                print(error, file=sys.stderr, flush=True)
                journal.write(Lacks(error.what, error.hint))
                return int(Exit.INCAPABLE)
    except FlashcoreError as error:  # from the journal or prepare: the child cannot continue
        print(f"\n{ERROR_PREFIX}{error}", file=sys.stderr, flush=True)
        return UNRECOVERABLE
    return int(Exit.OK)


def tasks_of(
    task_file: Path, imports: Sequence[Callable[[], object]] = (), move: Callable[[str], object] = str
) -> Iterator[Task]:
    """The tasks of a task file; waits for further shares until one is the last.

    Args:
        imports: called one by one while there are no tasks yet.
        move: called with the path of another journal, before the tasks that it is for.
    """
    with task_file.open("rb") as lines:
        share = Share.decode(lines.readline())
        waits = SUPERVISOR in os.environ  # without a supervisor it would wait forever
        if waits and share.more and not share.tasks:
            size = lines.tell()
            for one in imports:
                if task_file.stat().st_size == size:
                    with contextlib.suppress(Exception):  # the task that needs it reports the error
                        one()
        while True:
            if share.journal:
                move(share.journal)
            yield from share.tasks
            if not (waits and share.more):
                return
            line = b""
            while not line.endswith(b"\n"):
                if not (part := lines.readline()):
                    time.sleep(_POLL)
                line += part
            share = Share.decode(line)


def _perform(task: Task, journal: Journal, perform: Perform, is_poisoned: Callable[[], bool]) -> bool:
    """Performs and answers one task; False if the process cannot run another."""
    journal.begin(task.name)
    try:
        data = perform(task, journal)
        json.dumps(data, allow_nan=False)  # invalid data fails the task, not the journal
    except Exception as error:
        traceback.print_exc()
        poisoned = bool(re.search(POISON, str(error))) or is_poisoned()
        journal.fail(task.name, raised(error), poisoned=poisoned)
        return not poisoned
    journal.result(task.name, data)
    return True


def follow_supervisor() -> None:
    """Ends this process when its supervisor has ended, so that a killed supervisor leaves no orphan on the GPU.

    For a direct child the operating system does it (``PR_SET_PDEATHSIG``). Under a profiler that signal would arrive
    when the profiler's *thread* that started this process ends, so this process polls instead.
    """
    supervisor = int(os.environ.get(SUPERVISOR, "0"))
    if not supervisor:
        return
    if supervisor == os.getppid() and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if supervisor == os.getppid():  # otherwise it ended before prctl
            return

    def watch() -> None:
        while not has_ended(supervisor):
            time.sleep(1.0)
        os._exit(UNRECOVERABLE)

    if has_ended(supervisor):  # before this process started; another may have the tasks by now
        os._exit(UNRECOVERABLE)
    threading.Thread(target=watch, name="follow-supervisor", daemon=True).start()


def has_ended(pid: int) -> bool:
    """Whether a process has ended, including one that is not reaped yet."""
    try:
        os.kill(pid, 0)
        return sys.platform == "linux" and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True
    except PermissionError:
        return False
