"""One child process and its journal: it is started, its journal is read, it is ended if it hangs, and reported if it
dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError, Exit, FlashcoreError
from flashcore.measure.machine import capabilities, python_process
from flashcore.measure.workers.journal import (
    HOPELESS,
    NO_STEP,
    SAYS,
    SUPERVISOR,
    Result,
    Step,
    Task,
    answer_of,
    parse,
    unwritable,
)
from flashcore.measure.workers.program import Program
from flashcore.model.causes import Cause, Crash, Hang, NoStart, Unanswered

POLL = 0.02  # seconds between two looks at the journal
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL


@dataclass(slots=True)
class Process:
    """One child of this host and the journal it writes.

    Args:
        gpu: the UUID of the only GPU that it is to see; empty: whatever this process sees.
    """

    folder: Path
    tasks: list[Task]
    program: Program
    gpu: str = ""
    waits: bool = False  # it has answered all its tasks, and asks for more
    lost: str = ""  # of a child elsewhere: why its place was lost
    current: str | None = None  # the task in progress
    step: Step = NO_STEP
    busy: float = 0.0  # seconds since the task in progress began
    cause: Cause = Unanswered()  # noqa: RUF009  why the process is over
    code: int | None = None
    _popen: subprocess.Popen[bytes] | None = None
    _log: Path = Path()
    _journal: Path = Path()
    _task_file: Path = Path()
    _wanted: set[str] = field(default_factory=set)
    _open: bool = False  # it may be given more tasks
    _offset: int = 0
    _rest: bytes = b""
    _target: int = 0
    answered: set[str] = field(default_factory=set)

    def start(self) -> None:
        used = [int(m[1]) for p in self.folder.iterdir() if (m := re.fullmatch(r"\w+-(\d+)\.\w+", p.name))]
        number = f"{max(used, default=0) + 1:03d}"
        self._task_file = self.folder / f"tasks-{number}.json"
        self._open = self.program.refill or not self.tasks
        self._journal = self.folder / f"journal-{number}.jsonl"
        self._log = self.folder / f"child-{number}.log"
        try:
            head: dict[str, Any] = {"gpu": self.gpu} if self.gpu else {}
            self._give({**head, "more": True} if self._open else head, self.tasks)
            log = self._log.open("wb")
        except OSError as error:
            raise unwritable(self.folder, error) from error
        argv = self.program.command(self._task_file, self._journal)
        environment = {**python_process.environment(), **self.program.environment, SUPERVISOR: str(os.getpid())}
        if self.gpu:
            environment |= {"CUDA_VISIBLE_DEVICES": self.gpu, "TMPDIR": _temporary(self.gpu)}
        with log:
            try:
                self._popen = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a group of its own, which can be ended as a whole
                    env=environment,
                )
            except OSError as error:
                raise CapabilityError(
                    f"cannot start {argv[0]}: {error.strerror}", "install it, or name it with its full path"
                ) from error

    def take_up(self, tasks: list[Task], program: Program) -> None:
        """Gives its first tasks to a process that was started without any."""
        self.program = program
        self.refill(tasks)
        if not program.refill:
            self.refill([])

    def refill(self, tasks: list[Task]) -> None:
        """Gives more tasks to a process that waits for them; none: it ends."""
        self.tasks += tasks
        self._wanted.update(t.name for t in tasks)
        self._open, self.waits = bool(tasks), False
        try:
            self._give({}, tasks)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def _give(self, head: Mapping[str, Any], tasks: Sequence[Task]) -> None:
        line = {**head, "tasks": [{"name": t.name, "payload": dict(t.payload)} for t in tasks]}
        with self._task_file.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")

    def watch(self) -> Iterator[Result | None]:
        """Yields answers as they come, and nothing where there is none yet, until the process is over; then
        ``cause`` says why."""
        limits = self.program.limits
        self._wanted = {t.name for t in self.tasks}
        mark = began = time.monotonic()
        poisoned = finishing = False
        while True:
            over = self.has_exited()  # looked at before the journal, so that no last line is missed
            for line in self._new_lines():
                mark = time.monotonic()
                event = line.get("event")
                if event == "start":
                    self._target = int(line.get("pid", 0))
                elif line.get("name") not in self._wanted:
                    continue  # not ours to wait for
                elif event == "begin" and not finishing:
                    self.current, self.step, began = line["name"], NO_STEP, mark
                elif event == "step" and line.get("name") == self.current:
                    self.step = Step.of_line(line)
                elif (result := answer_of(line)) is not None:
                    self.current = None
                    if result.name not in self.answered:
                        self.answered.add(result.name)
                        yield result
                    if line.get("poisoned"):
                        poisoned = finishing = True  # what it begins after this is not to be trusted
            self.waits = self._open and not poisoned and len(self.answered) == len(self.tasks)
            finishing = poisoned or (not self._open and len(self.answered) == len(self.tasks))
            self.busy = time.monotonic() - began
            if over:
                self.cause = self._death()
                return
            waited = time.monotonic() - mark
            if finishing:
                if waited > limits.finish_limit:
                    return
            elif self.current is not None and waited > limits.time_limit:
                self.cause = Hang(limits.time_limit, str(self.step))
                self._end()
                return
            elif self.current is None and waited > limits.startup_limit:
                self.cause = NoStart(limits.startup_limit, self._tail())
                self._end()
                return
            yield None

    def raise_if_hopeless(self) -> None:
        """Raises if every other process would fail the same way."""
        message = self._text().rpartition(SAYS)[2].strip() if SAYS in self._text() else ""
        if self.code == HOPELESS:
            raise FlashcoreError(
                message
                or f"{self._journal}: expected a journal, but the child could not write there\n"
                "  hint: make room (or give another folder) and continue with --resume"
            )
        if len(self.answered) == len(self.tasks):
            return
        if self.code == Exit.INCAPABLE and message:
            what, _, mend = message.partition("\n  hint: ")
            raise CapabilityError(what, mend or "see: flashcore doctor")
        if missing := capabilities.reported_in(self._text()):
            raise missing

    def kill(self) -> None:
        """Ends whatever is left of the process group, and reaps the child."""
        if self._popen is None or self._popen.returncode is not None:
            return
        # The leader is not reaped yet, so its process id still names this group and session. A profiler may have put
        # the target into a group of its own; it is still in the session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == self._popen.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
        self._popen.wait()

    def _end(self) -> None:
        """First ends the working process, so that the profiler around it can still write its results."""
        assert self._popen is not None
        target = self._target or self._popen.pid
        for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(target) == self._popen.pid:  # not another process with a reused id
                    os.kill(target, number)
            until = time.monotonic() + patience
            while time.monotonic() < until and not self.has_exited():
                if target != self._popen.pid and not _alive(target):
                    break
                time.sleep(POLL)
        until = time.monotonic() + self.program.limits.finish_limit
        while time.monotonic() < until and not self.has_exited():
            time.sleep(POLL)

    def has_exited(self) -> bool:
        """Whether the child has ended, without reaping it: its group's id stays in use."""
        assert self._popen is not None
        ended = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        signalled = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        self.code = -ended.si_status if signalled else ended.si_status
        return True

    def _new_lines(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError), self._journal.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
            self._offset += len(data)
            whole, _, self._rest = (self._rest + data).rpartition(b"\n")
            yield from parse(whole)

    def _death(self) -> Crash:
        code = self.code or 0
        return Crash(code, self._tail() if code >= 0 or code == -signal.SIGABRT else "")

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


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _temporary(gpu: str) -> str:
    """A folder for temporary files of processes on one GPU. Those under ncu that share one wait for each other: it
    locks a file there, for each case (NVIDIA, Nsight Compute, Profiling Guide, "Serialization"). It is the common one
    where somebody else has made something of that name."""
    common = Path(tempfile.gettempdir())
    folder = common / f"flashcore-{os.getuid()}-{gpu}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            return str(folder)
    return str(common)
