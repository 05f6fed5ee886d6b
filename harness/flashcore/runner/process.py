"""One child process of this host: starts it, writes its journal, ends it if it hangs, and reports its death.

The child sends the journal's lines through a pipe, whose name is removed when it has opened it. So code in a child can
invent answers to its tasks, but not change those of other processes or earlier ones, which are not read back.

:class:`LocalGpu` is the place where it runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import capabilities, python_process
from flashcore.model.causes import CRASH, NO_START, Hang
from flashcore.runner.journal import (
    ERROR_PREFIX,
    PIPE,
    SUPERVISOR,
    UNRECOVERABLE,
    Result,
    Task,
    has_ended,
    next_number,
    parse,
    unwritable,
)
from flashcore.runner.program import Child, Program

POLL = 0.02  # seconds between reads of the pipe
#: Bytes of a pipe, if the system allows as many: a shape's times, so that the child does not wait for this process.
_PIPE_BYTES = 1 << 20
#: Least seconds between syncs, which take milliseconds; a power failure loses the answers of at most this time.
_SYNC = 1.0
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL


@dataclass(slots=True, kw_only=True)
class Process(Child):
    """One child of this host, and its journal.

    Args:
        gpu: the UUID of the only GPU that the child sees; empty: the same GPUs as this process.
    """

    gpu: str = ""
    code: int | None = None
    _popen: subprocess.Popen[bytes] | None = None
    _log: Path = Path()
    _journal: Path = Path()
    _task_file: Path = Path()
    _refillable: bool = False
    _head: dict[str, Any] = field(default_factory=dict)
    _fifo: Path = Path()
    _pipe: int = -1
    _part: bytes = b""  # of a line
    _synced: float = -math.inf
    _target: int = 0

    def move(self, folder: Path) -> None:
        """Directs the answers of the next tasks to a journal in another folder."""
        self.folder, self.tasks = folder, []
        self._journal = folder / f"journal-{next_number(folder)}.jsonl"
        self._head = {"journal": str(self._journal)}

    def start(self) -> None:
        number = next_number(self.folder)
        self._task_file = self.folder / f"tasks-{number}.json"
        self._journal = self.folder / f"journal-{number}.jsonl"
        self._log = self.folder / f"child-{number}.log"
        self._refillable = self.program.refill or not self.tasks
        head: dict[str, Any] = {"gpu": self.gpu} if self.gpu else {}
        self._give(self.tasks, **head, **({"more": True} if self._refillable else {}))
        argv = self.program.command(self._task_file, self._journal)
        environment = {**python_process.environment(), **self.program.environment, SUPERVISOR: str(os.getpid())}
        if gpu := self.gpu or os.environ.get("CUDA_VISIBLE_DEVICES"):
            environment |= {"CUDA_VISIBLE_DEVICES": gpu, "TMPDIR": _temporary(gpu)}
        try:
            log = self._log.open("wb")
            self._fifo = Path(tempfile.mkdtemp(prefix="flashcore-"), "journal")
            os.mkfifo(self._fifo, 0o600)
            self._pipe = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK)
            with contextlib.suppress(OSError):  # beyond the user's limit
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        with log:
            try:
                self._popen = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a separate process group, which can be killed as a whole
                    env={**environment, PIPE: str(self._fifo)},
                )
            except OSError as error:
                raise CapabilityError(
                    f"cannot start {argv[0]}: {error.strerror}", "install it, or give its full path"
                ) from error

    def refill(self, tasks: list[Task]) -> None:
        self.tasks += tasks
        self.open.update(t.name for t in tasks)
        self._refillable, self.waits = bool(tasks) and self.program.refill, False
        self._give(tasks, **self._head)
        self._head = {}
        if tasks and not self._refillable:
            self._give([])

    def _give(self, tasks: Sequence[Task], **head: Any) -> None:
        line = {**head, "tasks": [{"name": t.name, "payload": dict(t.payload)} for t in tasks]}
        try:
            with self._task_file.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def watch(self) -> Iterator[Result | None]:
        limits = self.program.limits
        mark = time.monotonic()
        while True:
            over = self.has_exited()  # checked before the pipe is read, so that no last line is missed
            if lines := self._new_lines():
                mark = time.monotonic()
            for line in lines:
                self._target = line.get("pid", self._target)
            yield from self.follow(lines)
            self.waits = self._refillable and not self.poisoned and not self.open
            if over:
                code = self.code or 0
                self.cause = CRASH(code, self._tail() if code >= 0 or code == -signal.SIGABRT else "")
                return
            waited = time.monotonic() - mark
            if self.poisoned or (not self._refillable and not self.open):
                if waited > limits.finish_limit:
                    return
            elif waited > (limits.startup_limit if self.current is None else limits.time_limit):
                if self.current is None:
                    self.cause = NO_START(limits.startup_limit, self._tail())
                else:
                    self.cause = Hang(limits.time_limit, str(self.step))
                self._end()
                return
            yield None

    def raise_if_unrecoverable(self) -> None:
        log = self._text()
        if self.code == UNRECOVERABLE:
            raise FlashcoreError(
                log.rpartition(ERROR_PREFIX)[2].strip()
                if ERROR_PREFIX in log
                else f"{self._journal}: expected a journal, but the child could not write it\n"
                "  hint: free disk space (or give another folder) and continue with --resume"
            )
        if self.open and (missing := self.lacks or capabilities.reported_in(log)):
            raise missing

    def kill(self) -> None:
        """Kills the rest of the process group and session, and reaps the child."""
        if self._pipe >= 0:
            shutil.rmtree(self._fifo.parent, ignore_errors=True)
            os.close(self._pipe)
            self._pipe = -1
        if self._popen is None or self._popen.returncode is not None:
            return
        # The leader is not reaped yet, so its process id still identifies this group and session. A profiler may have
        # put the target into another group, but it is in the same session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == self._popen.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
        self._popen.wait()

    def _end(self) -> None:
        """Ends the working process first, so that a profiler around it can still write its results."""
        assert self._popen is not None
        target = self._target or self._popen.pid
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(target) == self._popen.pid:  # not another process with a reused id
                    os.kill(target, number)
            until = time.monotonic() + _GRACE
            while time.monotonic() < until and not has_ended(target):
                time.sleep(POLL)
        until = time.monotonic() + self.program.limits.finish_limit
        while time.monotonic() < until and not self.has_exited():
            time.sleep(POLL)

    def has_exited(self) -> bool:
        """Whether the child has ended. Does not reap it, so that its group id stays reserved."""
        assert self._popen is not None
        ended = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        signalled = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        self.code = -ended.si_status if signalled else ended.si_status
        return True

    def _new_lines(self) -> list[dict[str, Any]]:
        """The child's new complete lines, which are added to the journal."""
        try:
            content = os.read(self._pipe, _PIPE_BYTES)
        except BlockingIOError:
            return []
        lines, end, self._part = (self._part + content).rpartition(b"\n")
        if not end:
            return []
        shutil.rmtree(self._fifo.parent, ignore_errors=True)
        try:
            with self._journal.open("ab") as file:
                file.write(lines + end)
                if time.monotonic() - self._synced >= _SYNC:
                    file.flush()
                    os.fsync(file.fileno())
                    self._synced = time.monotonic()
        except OSError as error:
            raise unwritable(self._journal, error) from error
        return list(parse(lines))

    def _text(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - 64 * 1024))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def _tail(self) -> str:
        lines = [line.strip() for line in self._text().splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-500:]


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """A GPU of this host. A lost one stays lost, since the driver needs a reset first.

    Args:
        gpu: its UUID; empty: CUDA's default GPU.
    """

    gpu: str
    host: None = None

    def child(self, folder: Path, tasks: list[Task], program: Program) -> Child:
        return Process(folder, tasks, program, gpu=self.gpu)

    def is_back(self) -> bool:
        return False


def _temporary(gpu: str) -> str:
    """A folder for temporary files of processes on one GPU: ncu locks a file in TMPDIR for each kernel, so that ncu
    processes that share the folder wait for each other (Nsight Compute, Profiling Guide, "Serialization"). Falls back
    to the common folder if the path belongs to another user."""
    common = Path(tempfile.gettempdir())
    folder = common / f"flashcore-{os.getuid()}-{gpu}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            return str(folder)
    return str(common)
