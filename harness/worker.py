"""Journaled child processes: one failing case never takes the others along.

Whatever runs kernels runs in a child, since crashes, hangs and poisoned devices strike there. The child
announces every task in a journal before it starts it and answers it there when it is done; the
supervisor reads along, names the culprit when the child dies, ends it when it hangs, and goes on with a
fresh process. The journals are the only truth: called again on the same folder, :func:`supervise` runs
what is not answered yet, whatever ended the call before.

In ``folder``: ``tasks-N.json``, ``journal-N.jsonl`` and ``child-N.log`` (stdout and stderr) of the N-th
process, and ``supervisor.jsonl`` with the failures that no child could write down itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.errors import CapabilityError, Exit, FlashcoreError

#: CUDA errors after which a process can do nothing more with its device.
POISON = re.compile(
    r"illegal memory access|illegal address|unspecified launch failure|misaligned address|"
    r"device-side assert|illegal instruction|hardware stack error|invalid address space|"
    r"invalid program counter|launch timed out|uncorrectable (ECC|NVLink)|CUDA error: launch failure",
    re.IGNORECASE,
)

_LACKS = (
    (
        re.compile(r"ERR_NVGPUCTRPERM"),
        "no permission to read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "load the driver with `options nvidia NVreg_RestrictProfilingToAdminUsers=0`, run as root, or start "
        "the container with --cap-add=SYS_ADMIN",
    ),
    (
        re.compile(r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|needs a CUDA GPU"),
        "no CUDA GPU that this process can use",
        "run on a machine with an NVIDIA GPU, its driver and a CUDA build of torch (see: flashcore doctor)",
    ),
)

_EXIT_JOURNAL = 74  # EX_IOERR: the child could not write its journal
_POLL = 0.02  # seconds between two looks at the journal
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work. ``name`` is unique among its siblings; ``payload`` is JSON."""

    name: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a task. ``step`` is what it was at when it failed, if it said so."""

    name: str
    status: Literal["ok", "failed"]
    reason: str = ""
    data: dict[str, Any] | None = None
    seconds: float = 0.0
    step: str = ""


def lacking(text: str) -> CapabilityError | None:
    """The missing capability that a child's output speaks of, if it is one we know."""
    for pattern, what, mend in _LACKS:
        if pattern.search(text):
            return CapabilityError(what, mend)
    return None


# --- the child's side ---------------------------------------------------------------------------


class Journal:
    """Append-only JSON lines, each written whole and synced before the call returns.

    The first line holds the process id, so that the supervisor can reach the process that works even
    when a profiler stands between.

    Raises:
        FlashcoreError: the file cannot be written (a full disk), naming it.
    """

    def __init__(self, path: Path | str, **head: Any) -> None:
        self.path = Path(path)
        self._began: dict[str, float] = {}
        self._step: dict[str, str] = {}
        self._answered: set[str] = set()
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._write({"event": "start", "pid": os.getpid(), **head})

    def begin(self, name: str) -> None:
        """The task is started now; until its answer, whatever happens is its doing."""
        self._began[name] = time.monotonic()
        self._write({"event": "begin", "name": name})

    def step(self, name: str, step: str) -> None:
        """The task has come to ``step``: the time limit starts anew, and a crash is laid at its door.

        Survives the end of the process; not synced, so that it costs microseconds.
        """
        self._step[name] = step
        self._write({"event": "step", "name": name, "step": step}, sync=False)

    def result(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """The task is done and this came out of it."""
        self._answer({"event": "result", "name": name, "data": None if data is None else dict(data)})

    def fail(self, name: str, reason: str, *, poisoned: bool = False) -> None:
        """The task failed. ``poisoned``: the device is of no more use to this process."""
        self._answer(
            {"event": "fail", "name": name, "reason": reason, "step": self._step.get(name, ""),
             "poisoned": poisoned or bool(POISON.search(reason))}
        )  # fmt: skip

    def end(self, name: str) -> None:
        """The task is over; one that was not answered yet is done, without data."""
        if name not in self._answered:
            self.result(name)

    def close(self) -> None:
        os.close(self._file)

    def _answer(self, line: dict[str, Any]) -> None:
        name = line["name"]
        self._answered.add(name)
        began = self._began.get(name)
        line.setdefault("seconds", 0.0 if began is None else round(time.monotonic() - began, 6))
        self._write(line)

    def _write(self, line: Mapping[str, Any], *, sync: bool = True) -> None:
        data = (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode()
        try:
            written = os.write(self._file, data)
            if written != len(data):  # a disk that fills up takes a part: the rest tells why
                os.write(self._file, data[written:])
            if sync:
                os.fsync(self._file)
        except OSError as error:
            # Devices and pipes cannot be synced, and need not be.
            if error.errno not in (22, 95):
                raise _unwritable(self.path, error) from error


def _unwritable(path: Path, error: OSError) -> FlashcoreError:
    return FlashcoreError(
        f"{path}: expected to write the journal, found: {error.strerror}\n"
        "  to mend: make room (or give another folder) and continue with --resume"
    )


def child(
    arguments: Sequence[str],
    perform: Callable[[Task, Journal], Mapping[str, Any] | None],
    *,
    prepare: Callable[[], None] | None = None,
    is_poisoned: Callable[[], bool] = lambda: False,
) -> int:
    """The main of a child: ``TASKFILE JOURNAL``. Performs every task, returns the exit code.

    An exception in ``perform`` fails its task; the child goes on unless ``is_poisoned``. ``prepare``
    runs before the first task (imports, the device) and may raise a :class:`FlashcoreError`.
    """
    _die_with_parent()
    task_file, journal_file = arguments
    tasks = [Task(t["name"], t["payload"]) for t in json.loads(Path(task_file).read_text("utf-8"))["tasks"]]
    try:
        journal = Journal(journal_file)
        if prepare is not None:
            prepare()
    except FlashcoreError as error:
        print(error, file=sys.stderr, flush=True)
        return _EXIT_JOURNAL if error.exit_code is Exit.USAGE else int(error.exit_code)
    try:
        for task in tasks:
            journal.begin(task.name)
            try:
                data = perform(task, journal)
            except Exception as error:
                traceback.print_exc()
                poisoned = bool(POISON.search(str(error))) or is_poisoned()
                journal.fail(task.name, describe(error), poisoned=poisoned)
                if poisoned:
                    return int(Exit.FAILED)
            else:
                journal.result(task.name, data)
    except FlashcoreError as error:  # of the journal: those of perform were answered above
        print(error, file=sys.stderr, flush=True)
        return _EXIT_JOURNAL
    return int(Exit.OK)


def describe(error: BaseException) -> str:
    """An exception in one line: its type, and the first lines of what it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:3])
    kind = type(error).__name__
    if isinstance(error, FlashcoreError):
        return text
    return f"{kind}: {text[:400]}" if text else kind


# --- the supervisor's side ----------------------------------------------------------------------


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal; a line torn by the end of its process is left out."""
    with contextlib.suppress(FileNotFoundError):
        yield from _parse(path.read_bytes())


def _parse(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def answers(folder: Path) -> dict[str, Result]:
    """Every answer in the folder's journals, by task name. The first answer to a task counts."""
    found: dict[str, Result] = {}
    for path in [*sorted(folder.glob("journal-*.jsonl")), folder / "supervisor.jsonl"]:
        for line in read_journal(path):
            result = _answer_of(line)
            if result is not None:
                found.setdefault(result.name, result)
    return found


def _answer_of(line: Mapping[str, Any]) -> Result | None:
    seconds = float(line.get("seconds", 0.0))
    if line.get("event") == "result":
        return Result(line["name"], "ok", "", line.get("data"), seconds)
    if line.get("event") == "fail":
        return Result(line["name"], "failed", line["reason"], None, seconds, line.get("step", ""))
    return None


def supervise(
    tasks: Iterable[Task],
    folder: Path,
    command: Callable[[Path, Path], list[str]],
    *,
    time_limit: float,
    startup_limit: float = 120.0,
    batch: int = 64,
    on_progress: Callable[[Result], None] | None = None,
    poison: re.Pattern[str] = POISON,
    finish_limit: float = 20.0,
    environment: Mapping[str, str] | None = None,
) -> list[Result]:
    """Runs every task that ``folder`` holds no answer to; returns the results in the order of tasks.

    Args:
        command: gives, for a task file and a journal, the argv of the child (or of what wraps it).
        time_limit: seconds a task (or a step that it announces) may take.
        startup_limit: seconds from the start of a process to its first task, and between tasks.
        batch: tasks that one process takes.
        on_progress: called with each result of this call as it comes in.
        poison: failures after which the process is given up and a fresh one started.
        finish_limit: seconds that a process (a profiler writing its report) has once its work is over.
        environment: variables added to the child's environment.

    Raises:
        CapabilityError: the child said that the machine lacks something, or cannot be started at all.
        FlashcoreError: a journal could not be written.
        KeyboardInterrupt: passed on, after the child's process group was ended.
    """
    tasks = list(tasks)
    names = [t.name for t in tasks]
    if len(set(names)) != len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise ValueError(f"expected every task's name once, found twice: {', '.join(twice)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = Journal(folder / "supervisor.jsonl")
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        known = answers(folder)
        report = on_progress or (lambda _: None)
        bad_starts = 0

        def fail(name: str, reason: str, seconds: float = 0.0, step: str = "") -> None:
            known[name] = Result(name, "failed", reason, None, seconds, step)
            own._write({"event": "fail", "name": name, "reason": reason, "seconds": seconds, "step": step})
            report(known[name])

        while pending := [t for t in tasks if t.name not in known]:
            process = _Process(folder, pending[: max(1, batch)], command, environment or {})
            try:
                process.start()
                for result in process.watch(time_limit, startup_limit, finish_limit, poison):
                    known[result.name] = result
                    report(result)
            finally:
                process.kill()
            why = process.reason
            process.raise_if_hopeless()
            if process.current is not None:
                fail(process.current, why, round(process.busy, 3), process.step)
            elif process.begun == 0:
                bad_starts += 1
                # One bad start may be the first task's own doing; a second one is not.
                for task in pending[:1] if bad_starts == 1 else pending:
                    fail(task.name, f"the process never began a task: {why}")
                continue
            bad_starts = 0
        return [known[name] for name in names]
    finally:
        own.close()


@dataclass(slots=True)
class _Process:
    """One child and the journal it writes."""

    folder: Path
    tasks: list[Task]
    command: Callable[[Path, Path], list[str]]
    environment: Mapping[str, str]
    current: str | None = None  # the task in progress
    step: str = ""
    begun: int = 0
    busy: float = 0.0  # seconds since the task in progress began
    reason: str = ""  # why the process is over
    code: int | None = None
    _popen: subprocess.Popen[bytes] | None = None
    _log: Path = Path()
    _journal: Path = Path()
    _offset: int = 0
    _rest: bytes = b""
    _target: int = 0
    _answered: set[str] = field(default_factory=set)

    def start(self) -> None:
        used = [int(m[1]) for p in self.folder.iterdir() if (m := re.fullmatch(r"\w+-(\d+)\.\w+", p.name))]
        number = f"{max(used, default=0) + 1:03d}"
        task_file = self.folder / f"tasks-{number}.json"
        self._journal = self.folder / f"journal-{number}.jsonl"
        self._log = self.folder / f"child-{number}.log"
        try:
            content = {"tasks": [{"name": t.name, "payload": dict(t.payload)} for t in self.tasks]}
            task_file.write_text(json.dumps(content), encoding="utf-8")
            log = self._log.open("wb")
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        argv = self.command(task_file, self._journal)
        with log:
            try:
                self._popen = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a group of its own, which can be ended as a whole
                    preexec_fn=_die_with_parent,
                    env={**os.environ, **self.environment},
                )
            except OSError as error:
                raise CapabilityError(
                    f"cannot start {argv[0]}: {error.strerror}", "install it, or name it with its full path"
                ) from error

    def watch(
        self, time_limit: float, startup_limit: float, finish_limit: float, poison: re.Pattern[str]
    ) -> Iterator[Result]:
        """Yields answers as they come, until the process is over; then ``reason`` says why."""
        mark = began = time.monotonic()
        finishing = False
        while True:
            over = self._exited()  # looked at before the journal, so that no last line is missed
            for line in self._new_lines():
                mark = time.monotonic()
                event = line.get("event")
                if event == "start":
                    self._target = int(line.get("pid", 0))
                elif event == "begin" and not finishing:
                    self.current, self.step, began = line["name"], "", mark
                    self.begun += 1
                elif event == "step" and line.get("name") == self.current:
                    self.step = line["step"]
                elif (result := _answer_of(line)) is not None:
                    self.current = None
                    if result.name not in self._answered:
                        self._answered.add(result.name)
                        yield result
                    if line.get("poisoned") or (result.reason and poison.search(result.reason)):
                        finishing = True  # what it begins after this is not to be trusted
            finishing = finishing or len(self._answered) == len(self.tasks)
            self.busy = time.monotonic() - began
            if over:
                self.reason = self._death()
                return
            waited = time.monotonic() - mark
            if finishing:
                if waited > finish_limit:
                    return
            elif self.current is not None and waited > time_limit:
                at = f" in step {self.step}" if self.step else ""
                self.reason = f"no answer within {time_limit:g} s{at}: hang?"
                self._end(finish_limit)
                return
            elif self.current is None and waited > startup_limit:
                self.reason = f"no task begun within {startup_limit:g} s{self._tail()}"
                self._end(finish_limit)
                return
            time.sleep(_POLL)

    def raise_if_hopeless(self) -> None:
        """Raises when no other process would fare better."""
        if self.code == _EXIT_JOURNAL:
            said = self._text().strip()
            raise FlashcoreError(said or f"{self._journal}: expected to write the journal, the child could not")
        if len(self._answered) == len(self.tasks):
            return
        error = lacking(self._text())
        if error is None and self.code == Exit.INCAPABLE and self.begun == 0:
            what, _, mend = self._text().strip().partition("\n  to mend: ")
            error = CapabilityError(what, mend or "see: flashcore doctor")
        if error is not None:
            raise error

    def kill(self) -> None:
        """Ends whatever is left of the process group, and reaps the child."""
        if self._popen is None or self._popen.returncode is not None:
            return
        # The leader is not reaped yet, so the number still means this group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def _end(self, finish_limit: float) -> None:
        """Ends the process that works first, so that what wraps it can still write what it has."""
        assert self._popen is not None
        target = self._target or self._popen.pid
        for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(target) == self._popen.pid:  # not a stranger with a reused number
                    os.kill(target, number)
            until = time.monotonic() + patience
            while time.monotonic() < until and not self._exited():
                if target != self._popen.pid and not _alive(target):
                    break
                time.sleep(_POLL)
        until = time.monotonic() + finish_limit
        while time.monotonic() < until and not self._exited():
            time.sleep(_POLL)

    def _exited(self) -> bool:
        """Whether the child is over, without reaping it: its group's number stays taken."""
        assert self._popen is not None
        found = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return False
        signalled = found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        self.code = -found.si_status if signalled else found.si_status
        return True

    def _new_lines(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError), self._journal.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
            self._offset += len(data)
            whole, _, self._rest = (self._rest + data).rpartition(b"\n")
            yield from _parse(whole)

    def _death(self) -> str:
        code = self.code or 0
        if code >= 0:
            return f"exit code {code}{self._tail()}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}{self._tail() if name == 'SIGABRT' else ''}"

    def _text(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - 64 * 1024))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def _tail(self) -> str:
        lines = [line.strip() for line in self._text().splitlines() if line.strip()]
        return f": {' | '.join(lines[-3:])[-500:]}" if lines else ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


try:
    _libc: ctypes.CDLL | None = ctypes.CDLL(None)  # loaded here: nothing is to be loaded between fork and exec
except OSError:  # pragma: no cover
    _libc = None


def _die_with_parent() -> None:
    """Has the kernel end this process when its parent goes: a killed supervisor leaves no orphan."""
    if _libc is not None and sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
