"""The journal of a child process: the task in progress, and the outcome of each task.

A child announces every task before it starts it and answers it when it is done, one JSON line each. The reader
(:class:`flashcore.measure.workers.program.Child`) knows which task was in progress when the process dies, and which are
answered when a run is continued. Lines are ``start`` (with the process id), ``begin``, ``step``, ``result``, ``fail``,
``skip`` and ``lacks`` (what the machine lacks); a supervisor's also ``lost``, with the GPU that children can no longer
be started on.
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

from flashcore.errors import CapabilityError, Exit, FlashcoreError
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
POISON = (
    r"(?i)illegal memory access|illegal address|unspecified launch failure|misaligned address|"
    r"device-side assert|illegal instruction|hardware stack error|invalid address space|"
    r"invalid program counter|launch timed out|uncorrectable (ECC|NVLink)|CUDA error: launch failure"
)


Status = Literal["ok", "failed", "skipped"]


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
    status: Status
    cause: Cause | None = None
    data: Mapping[str, Any] | None = None
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

    def __init__(self, path: Path | str) -> None:
        self._began = self._synced = -math.inf
        self._step = NO_STEP
        self._open(Path(path))

    def _open(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise unwritable(path, error) from error
        self._write(event="start", pid=os.getpid())

    def move(self, path: str) -> None:
        """Goes on in another file: the next tasks are of another run."""
        self.close()
        self._open(Path(path))

    def begin(self, name: str) -> None:
        """The task is started now; a crash or hang until its answer is attributed to it."""
        self._began, self._step = time.monotonic(), NO_STEP
        self._write(event="begin", name=name)

    def step(self, name: str, what: str, variant: str = "") -> None:
        """The task has come to a step: the time limit starts anew, and a crash is attributed to it."""
        self._step = Step(what, variant)
        self._write(event="step", name=name, **self._step.as_json())

    def result(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """The task that was begun last is done, with this result."""
        self.answer(Result(name, "ok", None, data, self._seconds))

    def fail(self, name: str, cause: Cause, *, poisoned: bool = False) -> None:
        """The task that was begun last failed. ``poisoned``: this process can no longer use the device."""
        self.answer(Result(name, "failed", cause, None, self._seconds, self._step), poisoned=poisoned)

    def answer(self, result: Result, **more: Any) -> None:
        """A task has this outcome."""
        line = {"event": _EVENTS[result.status], "name": result.name, "seconds": result.seconds, **more}
        if result.cause is None:
            line["data"] = result.data
        else:
            line |= {"cause": as_json(result.cause), **result.step.as_json()}
        self._write(**line)
        if time.monotonic() - self._synced >= SYNC:
            self._sync()

    def lacks(self, error: CapabilityError) -> None:
        """The machine lacks something that every task needs."""
        self._write(event="lacks", what=error.what, hint=error.hint)

    def lost(self, gpu: str, reason: str) -> None:
        """No more children are started on this GPU."""
        self._write(event="lost", name=gpu, reason=reason)

    def close(self) -> None:
        try:
            self._sync()
        finally:
            os.close(self._file)

    @property
    def _seconds(self) -> float:
        return round(time.monotonic() - self._began, 6)

    def _write(self, **line: Any) -> None:
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


def next_number(folder: Path) -> str:
    """The number of the next process whose files are in a folder."""
    used = [int(m[1]) for p in folder.iterdir() if (m := re.fullmatch(r"\w+-(\d+)\.\w+", p.name))]
    return f"{max(used, default=0) + 1:03d}"


def unwritable(path: Path, error: OSError) -> FlashcoreError:
    return FlashcoreError(
        f"{path}: expected to write the journal, found: {error.strerror}\n"
        "  hint: make room (or give another folder) and continue with --resume"
    )


def child(
    arguments: Sequence[str],
    perform: Callable[[Task, Journal], Mapping[str, Any] | None],
    *,
    prepare: Callable[[Task], object] = lambda first: None,
    imports: Sequence[Callable[[], object]] = (),
    is_poisoned: Callable[[], bool] = lambda: False,
) -> int:
    """The main of a child: ``TASKFILE JOURNAL``. Performs every task, returns the exit code.

    An exception in ``perform`` fails its task; the child goes on unless ``is_poisoned``. ``prepare`` runs once the
    first task is known (the device) and may raise a :class:`FlashcoreError`; ``imports`` before, one by one as long as
    no task has come.
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
            except CapabilityError as error:  # of prepare
                print(error, file=sys.stderr, flush=True)
                journal.lacks(error)
                return int(Exit.INCAPABLE)
    except FlashcoreError as error:  # of the journal or of prepare: nothing more can be done here
        print(f"\n{SAYS}{error}", file=sys.stderr, flush=True)
        return HOPELESS
    return int(Exit.OK)


def first_share(task_file: Path) -> dict[str, Any]:
    """The first line of a task file: ``tasks``, the ``gpu`` that was chosen, and whether ``more`` lines may follow. A
    later line can name another ``journal`` for its tasks' answers."""
    with task_file.open("rb") as lines:
        return dict(json.loads(lines.readline()))


def tasks_of(
    task_file: Path, imports: Sequence[Callable[[], object]] = (), move: Callable[[str], object] = str
) -> Iterator[Task]:
    """The tasks of a file as the supervisor writes it: where more may follow, until a further line has no tasks.

    Args:
        imports: called one by one before it waits for the first tasks, as long as there are none.
        move: called with the path of another journal, before the tasks that it is for.
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
            if "journal" in share:
                move(share["journal"])
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
        poisoned = bool(re.search(POISON, str(error))) or is_poisoned()
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
        while not has_ended(supervisor):
            time.sleep(1.0)
        os._exit(HOPELESS)

    if has_ended(supervisor):  # while this process started, and another may have taken the tasks since
        os._exit(HOPELESS)
    threading.Thread(target=watch, name="follow-supervisor", daemon=True).start()


def has_ended(pid: int) -> bool:
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

_EVENTS: dict[Status, str] = {"ok": "result", "failed": "fail", "skipped": "skip"}
_STATUSES = {event: status for status, event in _EVENTS.items()}
#: The fields of each event's line, and the type of each field.
_NEEDED = {"start": "pid", "begin": "name", "step": "name step", "result": "name", "fail": "name cause"}
_NEEDED |= {"skip": _NEEDED["fail"], "lacks": "what hint", "lost": "name reason"}
_TYPES: dict[str, Any] = dict.fromkeys(("name", "step", "variant", "reason", "what", "hint"), str)
_TYPES |= {"pid": int, "cause": dict, "seconds": int | float, "data": dict | None}


def _is_whole(line: Any) -> bool:
    needed = _NEEDED.get(str(line.get("event"))) if isinstance(line, dict) else None
    return (
        needed is not None
        and line.keys() >= set(needed.split())
        and all(isinstance(line[key], kind) for key, kind in _TYPES.items() if key in line)
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


def answer_of(line: Mapping[str, Any]) -> Result | None:
    """The outcome that a journal's line states; ``None`` for another line, or a cause of another form."""
    if (status := _STATUSES.get(line["event"])) is None:
        return None
    cause: Cause | None = None
    if status != "ok":
        try:
            detail = from_json(line["cause"])
        except (ValueError, RecursionError):
            return None
        if not isinstance(detail, Cause):
            return None
        cause = detail
    return Result(line["name"], status, cause, line.get("data"), float(line.get("seconds", 0.0)), Step.of_line(line))
