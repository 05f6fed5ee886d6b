"""One child process: starts it, follows its journal, ends it if it hangs, and tells why it ended.

A :class:`Place` is a GPU with its processes: on this host (:class:`LocalGpu`) or, through a plugin's executor, on
another. A :class:`Program` is what they run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import capabilities, python_process
from flashcore.model.cause import Cause
from flashcore.model.causes import CRASH, NO_START, UNANSWERED, Hang
from flashcore.model.settings import Limits
from flashcore.runner.child import ERROR_PREFIX, SUPERVISOR, UNRECOVERABLE, has_ended
from flashcore.runner.journal import (
    NO_STEP,
    Begun,
    Lacks,
    Message,
    Reached,
    Share,
    Started,
    Task,
    TaskResult,
    TaskStep,
    messages,
    next_number,
    unwritable,
)

POLL = 0.005  # seconds between looks at the journals
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL

#: (task file, journal) → the argv of the process, including any wrapper.
Command = Callable[[Path, Path], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that performs tasks.

    Args:
        environment: variables added to this process's environment.
        children: concurrent processes for each GPU, if there are enough cores; more than 1 only if no time is measured.
        at_once: whether a process gets all its tasks when it starts, any of them, since the tool around it reports when
            it ends. Otherwise it pulls one group of tasks after the other.
    """

    command: Command
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] = field(default_factory=dict)
    children: int = 1
    at_once: bool = False


@dataclass(slots=True)
class Child(ABC):
    """A process with tasks: a :class:`Process`, or one on another host.

    Attributes:
        current: the task in progress, also after the process ended.
        busy: seconds since the task in progress began.
        cause: why the process ended.
        lacks: what the machine lacks: any other process would fail as well.
        lost: why its place was lost: unanswered tasks then go to another.
        poisoned: the device is unusable: later results are not trusted.
        waits: it answered its tasks and waits for more.
        ended: nothing more comes of it.
    """

    folder: Path
    tasks: list[Task]
    program: Program
    open: set[str] = field(init=False)  # the tasks without an answer
    current: str | None = None
    step: TaskStep = NO_STEP
    busy: float = 0.0
    cause: Cause = UNANSWERED()  # noqa: RUF009
    lacks: CapabilityError | None = None
    lost: str = ""
    poisoned: bool = False
    waits: bool = False
    ended: bool = False
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.open = {t.name for t in self.tasks}

    def follow(self, news: Iterable[Message]) -> list[TaskResult]:
        """Takes in new messages of the child; returns the first answer to each task."""
        results = []
        for message in news:
            if isinstance(message, Lacks):
                self.lacks = CapabilityError(message.what, message.hint)
            elif not isinstance(message, Begun | Reached | TaskResult) or message.name not in self.open:
                continue
            elif isinstance(message, Begun):
                self.current, self.step, self._began = message.name, NO_STEP, time.monotonic()
            elif isinstance(message, Reached):
                self.step = message.step
            else:
                self.current = None
                self.poisoned |= message.poisoned
                self.open.remove(message.name)
                results.append(message)
        self.busy = time.monotonic() - self._began
        return results

    @property
    def has_answered(self) -> bool:
        """Whether any of its tasks has an answer."""
        return len(self.open) < len(self.tasks)

    @abstractmethod
    def start(self) -> None:
        """Starts the process with its tasks."""

    @abstractmethod
    def poll(self) -> list[TaskResult]:
        """The answers since the last call; ``ended`` is then true if no more will come."""

    @abstractmethod
    def kill(self) -> None:
        """Ends the process and all that it started."""

    def give(self, tasks: Sequence[Task]) -> None:
        """Gives more tasks to a waiting process; with none, it ends."""
        raise NotImplementedError

    def raise_if_unrecoverable(self) -> None:
        """Raises an error that any other process would hit as well."""
        if self.lacks:
            raise self.lacks


class Place(Protocol):
    """A GPU on which processes are started."""

    @property
    def gpu(self) -> str:
        """The GPU's UUID; empty: CUDA's default GPU."""
        ...

    @property
    def host(self) -> str | None:
        """The GPU's host; ``None``: this one."""
        ...

    def child(self, folder: Path, tasks: list[Task], program: Program) -> Child:
        """A process for these tasks, not started yet, that writes its journal into ``folder``."""
        ...

    def is_back(self) -> bool:
        """Whether the GPU is usable again after it was lost."""
        ...


@dataclass(slots=True, kw_only=True)
class Process(Child):
    """One child of this host.

    Args:
        gpu: the UUID of the only GPU that the child sees; empty: the same GPUs as this process.
    """

    gpu: str = ""
    code: int | None = None
    _popen: subprocess.Popen[bytes] | None = None
    _log: Path = Path()
    _journal: Path = Path()
    _task_file: Path = Path()
    _more: bool = False  # it waits for a further share
    _moved: str = ""  # the journal that the next share names
    _read: int = 0  # bytes of the journal
    _heard: float = 0.0  # when its last message came, or its last tasks went
    _target: int = 0

    def start(self) -> None:
        number = next_number(self.folder)
        self._task_file = self.folder / f"tasks-{number}.json"
        self._journal = self.folder / f"journal-{number}.jsonl"
        self._log = self.folder / f"child-{number}.log"
        self._send(self.tasks, more=not (self.tasks and self.program.at_once))
        argv = self.program.command(self._task_file, self._journal)
        environment = {**python_process.environment(), **self.program.environment, SUPERVISOR: str(os.getpid())}
        if gpu := self.gpu or os.environ.get("CUDA_VISIBLE_DEVICES"):
            environment |= {"CUDA_VISIBLE_DEVICES": gpu, "TMPDIR": _temporary(gpu)}
        try:
            log = self._log.open("wb")
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
                    env=environment,
                )
            except OSError as error:
                raise CapabilityError(
                    f"cannot start {argv[0]}: {error.strerror}", "install it, or give its full path"
                ) from error

    def move(self, folder: Path) -> None:
        """Directs the answers of the next tasks to a journal in another folder."""
        self.folder, self.tasks = folder, []
        self._journal = folder / f"journal-{next_number(folder)}.jsonl"
        self._moved, self._read = str(self._journal), 0

    def give(self, tasks: Sequence[Task]) -> None:
        self.tasks += tasks
        self.open.update(t.name for t in tasks)
        self.waits = False
        self._send(tasks, more=bool(tasks) and not self.program.at_once)

    def _send(self, tasks: Sequence[Task], *, more: bool) -> None:
        self._more, self._heard = more, time.monotonic()
        share = Share(tuple(tasks), self.gpu, more, self._moved)
        self._moved = ""
        try:
            with self._task_file.open("ab") as file:
                file.write(share.encode())
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def poll(self) -> list[TaskResult]:
        limits = self.program.limits
        over = self.has_exited()  # before the journal is read, so that no last line is missed
        if news := self._news():
            self._heard = time.monotonic()
        results = self.follow(news)
        self.waits = self._more and not self.poisoned and not self.open
        silent = time.monotonic() - self._heard
        if over:
            code = self.code or 0
            self.cause = CRASH(code, self._tail() if code >= 0 or code == -signal.SIGABRT else "")
            self.ended = True
        elif self.poisoned or not (self._more or self.open):
            self.ended = silent > limits.finish_limit
        elif not self.waits and silent > (limits.startup_limit if self.current is None else limits.time_limit):
            if self.current is None:
                self.cause = NO_START(limits.startup_limit, self._tail())
            else:
                self.cause = Hang(limits.time_limit, str(self.step))
            self._end()
            self.ended = True
        return results

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

    def _news(self) -> list[Message]:
        """The messages of the lines that the child has added to its journal."""
        try:
            if self._journal.stat().st_size == self._read:
                return []
            with self._journal.open("rb") as file:
                file.seek(self._read)
                lines, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:  # the child has not begun it yet
            return []
        self._read += len(lines + end)
        news = list(messages(lines))
        for message in news:
            if isinstance(message, Started):
                self._target = message.pid
        return news

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
