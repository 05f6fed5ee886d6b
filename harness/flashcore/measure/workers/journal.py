"""The journal of a child process: the task in progress, and the outcome of each task.

A child announces every task before it starts it and answers it when it is done, one JSON line each. The reader
(:mod:`flashcore.measure.workers.supervisor`) knows which task was in progress when the process dies, and which are
answered when
a run is continued. Lines are ``start`` (with the process id), ``begin``, ``step``, ``result``, ``fail`` and ``skip``; a
supervisor's also ``lost``, with the GPU that children can no longer be started on.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import math
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flashcore.errors import Exit, FlashcoreError
from flashcore.model.cause_text import text
from flashcore.model.causes import Cause, Hang, HungBefore, Raised, as_json, from_json

#: What a child prints before the error that ends it, so that it is found among other output.
SAYS = "flashcore child: "
#: The exit code of a child that cannot go on at all (EX_IOERR).
HOPELESS = 74
#: The variable that names the process with which the child is to end.
SUPERVISOR = "FLASHCORE_SUPERVISOR"
#: Seconds of answers that a host which loses power may cost.
SYNC = 1.0
_LOOK = 0.005  # seconds between two looks for more tasks
_PR_SET_PDEATHSIG = 1

#: CUDA errors after which a process can do nothing more with its device.
POISON = re.compile(
    r"illegal memory access|illegal address|unspecified launch failure|misaligned address|"
    r"device-side assert|illegal instruction|hardware stack error|invalid address space|"
    r"invalid program counter|launch timed out|uncorrectable (ECC|NVLink)|CUDA error: launch failure",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work. ``name`` is unique among its siblings; ``payload`` is JSON; ``weight`` is about how long it
    takes beside its siblings."""

    name: str
    payload: Mapping[str, Any]
    weight: int = 1

    @property
    def variant(self) -> str:
        """Of a name ``variant/shape``; empty for any other."""
        return self.name.rpartition("/")[0]

    @property
    def shape(self) -> str:
        """Of such a name; any other is its own."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Step:
    """What a task does at a time, and for which variant, if the task is about several."""

    what: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.variant} {self.what}".strip()

    def as_json(self) -> dict[str, str]:
        return {"step": self.what, **({"variant": self.variant} if self.variant else {})}

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Step:
        """The step that a journal's line names."""
        return cls(line.get("step", ""), line.get("variant", ""))


NO_STEP = Step()


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a task. ``step`` is the step at which it failed, if the task announced steps."""

    name: str
    status: Literal["ok", "failed", "skipped"]
    cause: Cause | None = None
    data: dict[str, Any] | None = None
    seconds: float = 0.0
    step: Step = NO_STEP

    @property
    def reason(self) -> str:
        """The cause in words, for people."""
        return text(self.cause)


# --- the child's side ---------------------------------------------------------------------------


class Journal:
    """Append-only JSON lines, each written whole before the call returns: not even kill -9 loses one.

    An answer is also synced to the disk, unless one was less than :data:`SYNC` seconds before it: a sync takes
    milliseconds and several processes wait for one disk. So a host that loses power costs at most so many seconds of
    work and the task in progress. The first line holds the process id, so that the supervisor can signal the working
    process even when a profiler wraps it.

    Raises:
        FlashcoreError: the file cannot be written (a full disk), naming it.
    """

    def __init__(self, path: Path | str, **head: Any) -> None:
        self.path = Path(path)
        self._began: dict[str, float] = {}
        self._step: dict[str, Step] = {}
        self._answered: set[str] = set()
        self._synced = -math.inf
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._write({"event": "start", "pid": os.getpid(), **head})

    def begin(self, name: str) -> None:
        """The task is started now; a crash or hang until its answer is attributed to it."""
        self._began[name] = time.monotonic()
        self._write({"event": "begin", "name": name})

    def step(self, name: str, what: str, variant: str = "") -> None:
        """The task has come to a step: the time limit starts anew, and a crash is attributed to it."""
        self._step[name] = Step(what, variant)
        self._write({"event": "step", "name": name, **self._step[name].as_json()})

    def result(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """The task is done, with this result."""
        self._answer({"event": "result", "name": name, "data": None if data is None else dict(data)})

    def fail(
        self,
        name: str,
        cause: Cause,
        *,
        poisoned: bool = False,
        step: Step = NO_STEP,
        seconds: float | None = None,
    ) -> None:
        """The task failed. ``poisoned``: this process can no longer use the device.

        ``step`` and ``seconds`` are known from ``step()`` and ``begin()`` unless given.
        """
        line: dict[str, Any] = {"event": "fail", "name": name, "cause": as_json(cause)}
        line |= (step if step.what else self._step.get(name, step)).as_json()
        line["poisoned"] = poisoned
        if seconds is not None:
            line["seconds"] = seconds
        self._answer(line)

    def skip(self, name: str, cause: Cause) -> None:
        """The task is not run."""
        self._answer({"event": "skip", "name": name, "cause": as_json(cause)})

    def lost(self, gpu: str, reason: str) -> None:
        """No more children are started on this GPU."""
        self._write({"event": "lost", "name": gpu, "reason": reason})

    def end(self, name: str) -> None:
        """The task has ended; without an answer so far it counts as done, without data."""
        if name not in self._answered:
            self.result(name)

    def close(self) -> None:
        try:
            self._sync()
        finally:
            os.close(self._file)

    def _answer(self, line: dict[str, Any]) -> None:
        name = line["name"]
        self._answered.add(name)
        began = self._began.get(name)
        line.setdefault("seconds", 0.0 if began is None else round(time.monotonic() - began, 6))
        self._write(line)
        if time.monotonic() - self._synced >= SYNC:
            self._sync()

    def _write(self, line: Mapping[str, Any]) -> None:
        data = (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode()
        try:
            while data:  # a disk that fills up accepts a part, and refuses the rest with the reason
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a pipe or device: nothing to sync
                raise unwritable(self.path, error) from error
        self._synced = time.monotonic()


def unwritable(path: Path, error: OSError) -> FlashcoreError:
    return FlashcoreError(
        f"{path}: expected to write the journal, found: {error.strerror}\n"
        "  hint: make room (or give another folder) and continue with --resume"
    )


def child(
    arguments: Sequence[str],
    perform: Callable[[Task, Journal], Mapping[str, Any] | None],
    *,
    prepare: Callable[[Task], None] | None = None,
    imports: Sequence[Callable[[], object]] = (),
    is_poisoned: Callable[[], bool] = lambda: False,
) -> int:
    """The main of a child: ``TASKFILE JOURNAL``. Performs every task, returns the exit code.

    An exception in ``perform`` fails its task; the child goes on unless ``is_poisoned``. ``prepare`` runs once the
    first task is known (the device) and may raise a :class:`FlashcoreError`; ``imports`` before, one by one as long as
    no task has come.
    """
    follow_supervisor()
    task_file, journal_file = arguments
    try:
        with contextlib.closing(Journal(journal_file)) as journal:
            for task in tasks_of(Path(task_file), imports):
                if prepare is not None:
                    prepare(task)
                    prepare = None
                if not _perform(task, journal, perform, is_poisoned):
                    return int(Exit.FAILED)
    except FlashcoreError as error:  # of the journal or of prepare: nothing more can be done here
        print(f"\n{SAYS}{error}", file=sys.stderr, flush=True)
        return int(error.exit_code) if error.exit_code is Exit.INCAPABLE else HOPELESS
    return int(Exit.OK)


def first_share(task_file: Path) -> dict[str, Any]:
    """The first line of a task file: ``tasks``, the ``gpu`` that was chosen, and whether ``more`` lines may follow."""
    with task_file.open("rb") as lines:
        return dict(json.loads(lines.readline()))


def tasks_of(task_file: Path, imports: Sequence[Callable[[], object]] = ()) -> Iterator[Task]:
    """The tasks of a file as the supervisor writes it: where more may follow, until a further line has no tasks.

    Args:
        imports: called one by one before it waits for the first tasks, as long as there are none.
    """
    share = first_share(task_file)
    more = share.get("more", False) and SUPERVISOR in os.environ  # nothing else would end the waiting
    if more and not share["tasks"]:
        size = task_file.stat().st_size
        for one in imports:
            if task_file.stat().st_size == size:
                one()
    with task_file.open("rb") as lines:
        lines.readline()
        while True:
            yield from (Task(t["name"], t["payload"]) for t in share["tasks"])
            if not more:
                return
            line = b""
            while not line.endswith(b"\n"):
                if not (part := lines.readline()):
                    time.sleep(_LOOK)
                line += part
            share = json.loads(line)
            if not share["tasks"]:
                return


def _perform(
    task: Task,
    journal: Journal,
    perform: Callable[[Task, Journal], Mapping[str, Any] | None],
    is_poisoned: Callable[[], bool],
) -> bool:
    """Performs and answers one task; False if the process cannot run another."""
    journal.begin(task.name)
    try:
        data = perform(task, journal)
        json.dumps(data, allow_nan=False)  # data that is no JSON is the task's failure, not the journal's
    except Exception as error:
        traceback.print_exc()
        poisoned = bool(POISON.search(str(error))) or is_poisoned()
        journal.fail(task.name, raised(error), poisoned=poisoned)
        return not poisoned
    journal.result(task.name, data)
    return True


def follow_supervisor() -> None:
    """Ends this process when its supervisor has ended: a killed supervisor leaves no orphan on the GPU.

    For a direct child the operating system does it (``PR_SET_PDEATHSIG``). Below a profiler that signal would come when
    the *thread* that started this process ends, which may be any of the profiler's: there this process polls instead.
    """
    supervisor = int(os.environ.get(SUPERVISOR, "0"))
    if not supervisor:
        return
    if supervisor == os.getppid() and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if supervisor == os.getppid():  # else it ended before the signal was asked for
            return

    def watch() -> None:
        while not _has_ended(supervisor):
            time.sleep(1.0)
        os._exit(HOPELESS)

    if _has_ended(supervisor):  # while this process started, and another may have taken the tasks since
        os._exit(HOPELESS)
    threading.Thread(target=watch, name="follow-supervisor", daemon=True).start()


def _has_ended(pid: int) -> bool:
    """Whether a process is over, also if its exit code was not asked for yet."""
    try:
        os.kill(pid, 0)
        return sys.platform == "linux" and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True
    except PermissionError:
        return False


def raised(error: BaseException) -> Raised:
    """An exception as a cause: its type, and the first lines of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = " ".join(lines[:3])
    return Raised("", message) if isinstance(error, FlashcoreError) else Raised(type(error).__name__, message[:400])


def describe(error: BaseException) -> str:
    """An exception in one line."""
    return text(raised(error))


# --- reading

#: The fields of each event's line, with their types.
_SAID = {"start": "pid", "begin": "name", "step": "name step", "result": "name", "skip": "name cause"}
_SAID |= {"fail": _SAID["skip"], "lost": "name reason"}
_IS = {
    "pid": int,
    "name": str,
    "step": str,
    "variant": str,
    "reason": str,
    "cause": dict,
    "seconds": int | float,
    "data": dict | None,
}


def _is_whole(line: Any) -> bool:
    needed = _SAID.get(str(line.get("event"))) if isinstance(line, dict) else None
    return (
        needed is not None
        and set(needed.split()) <= line.keys()
        and all(isinstance(line[key], kind) for key, kind in _IS.items() if key in line)
        and -1e15 < line.get("seconds", 0) < 1e15
    )


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a journal; a line cut by the end of its process, or of another form, is left out."""
    with contextlib.suppress(FileNotFoundError):
        yield from parse(path.read_bytes())


def parse(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if _is_whole(value):
                yield value


def answers(folder: Path) -> dict[str, Result]:
    """Every answer in the folder's journals, by task name. The first answer to a task counts."""
    by_name: dict[str, Result] = {}
    for path in [*sorted(folder.glob("journal-*.jsonl")), folder / "supervisor.jsonl"]:
        for line in read_journal(path):
            result = answer_of(line)
            if result is not None:
                by_name.setdefault(result.name, result)
    return by_name


def hung(results: Iterable[Result]) -> dict[str, HungBefore]:
    """Variants that hung, with why their other cases are not run: one time limit is enough. Where the task's name
    tells none, its step does."""
    causes: dict[str, HungBefore] = {}
    for r in results:
        variant = r.name.rpartition("/")[0] or r.step.variant
        if variant and isinstance(r.cause, Hang):
            causes.setdefault(variant, HungBefore(r.name.rpartition("/")[2], r.cause))
    return causes


_FAILED: dict[str, Literal["failed", "skipped"]] = {"fail": "failed", "skip": "skipped"}


def answer_of(line: Mapping[str, Any]) -> Result | None:
    seconds = float(line.get("seconds", 0.0))
    if line.get("event") == "result":
        return Result(line["name"], "ok", None, line.get("data"), seconds)
    if status := _FAILED.get(str(line.get("event"))):
        with contextlib.suppress(ValueError, RecursionError):  # of another form
            cause = from_json(line["cause"])
            if isinstance(cause, Cause):
                return Result(line["name"], status, cause, None, seconds, Step.of_line(line))
    return None
