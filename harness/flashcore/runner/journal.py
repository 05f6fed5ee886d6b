"""The journal of a child process: typed messages, one line of JSON each, which lines it writes and who reads them.

A child announces every task before starting it and answers it when done. So its parent
(:class:`flashcore.runner.process.Child`) knows which task was in progress when a process died, and which tasks are
answered when a run is resumed. The parent gives tasks in lines of another file, each a :class:`Share`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from flashcore.errors import FlashcoreError
from flashcore.model.cause import Cause, as_json, cause_text, from_json
from flashcore.model.causes import RAISED

#: Least seconds between syncs, which take milliseconds; a power failure loses the answers of at most this time.
_SYNC = 1.0
_MOST_SECONDS = 1e15

TaskStatus = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work. ``name`` is unique in its run; ``payload`` is JSON.

    Args:
        group: the tasks of a group are given to one GPU, one after the other; empty: those of its shape.
    """

    name: str
    payload: Mapping[str, Any]
    group: str = ""

    @property
    def variant(self) -> str:
        """The variant in a name ``variant/shape``; empty for other names."""
        return self.name.rpartition("/")[0]

    @property
    def shape(self) -> str:
        """The shape in a name ``variant/shape``; the whole name for others."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class TaskStep:
    """A task's current step, and the variant it is for, if the task is about several."""

    what: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.variant} {self.what}".strip()


NO_STEP = TaskStep()


# --- messages -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """Tasks for a child.

    Args:
        gpu: the UUID of the only GPU that the child sees; empty: the same GPUs as its parent.
        more: whether another share follows; otherwise the child ends after these tasks.
        journal: the path of another journal, for the answers from here on.
    """

    tasks: tuple[Task, ...] = ()
    gpu: str = ""
    more: bool = False
    journal: str = ""

    def encode(self) -> bytes:
        """The line of this share."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """The inverse of :meth:`encode`.

        Raises:
            ValueError, LookupError, TypeError: it is no such line.
        """
        values = json.loads(line)
        return cls(**{**values, "tasks": tuple(Task(**task) for task in values["tasks"])})


@dataclass(frozen=True, slots=True)
class Started:
    """The process began: its id, by which it is signalled also under a profiler."""

    pid: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A task begins, at a Unix time."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class Reached:
    """The task reached a step: the time limit restarts, and a crash is attributed to the step."""

    name: str
    step: TaskStep


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The outcome of a task.

    Args:
        step: the step at which it failed, if the task announced steps.
        poisoned: the process can no longer use the device.
    """

    name: str
    status: TaskStatus
    cause: Cause | None = None
    data: Mapping[str, Any] | None = None
    seconds: float = 0.0
    step: TaskStep = NO_STEP
    poisoned: bool = False

    @property
    def reason(self) -> str:
        """The cause in words, for people."""
        return cause_text(self.cause)


@dataclass(frozen=True, slots=True)
class Lacks:
    """The machine lacks something that every task needs."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A GPU is excluded; a parent writes this."""

    gpu: str
    reason: str


Message = Started | Begun | Reached | TaskResult | Lacks | Lost
_EVENTS: dict[str, type[Message]] = {
    "start": Started,
    "begin": Begun,
    "step": Reached,
    "answer": TaskResult,
    "lacks": Lacks,
    "lost": Lost,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}
_TYPES: dict[str, Any] = dict.fromkeys(("name", "gpu", "reason", "what", "hint"), str)
_TYPES |= {"pid": int, "data": dict | None, **dict.fromkeys(("at", "seconds"), int | float)}


def encode(message: Message) -> bytes:
    """The line of a message.

    Raises:
        ValueError, TypeError: its data is no JSON.
    """
    values: dict[str, Any] = {name: getattr(message, name) for name in message.__slots__}
    if isinstance(message, Reached | TaskResult):
        values["step"] = (message.step.what, message.step.variant)
    if isinstance(message, TaskResult):
        values["cause"] = message.cause and as_json(message.cause)
    line = {"event": _NAMES[type(message)], **values}
    return json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """The message of a line; ``None`` if it is torn, or of another version."""
    try:
        values = json.loads(line)
        kind = _EVENTS[values.pop("event")]
        if not all(isinstance(values[name], form) for name, form in _TYPES.items() if name in values):
            return None
        if "step" in values:
            values["step"] = TaskStep(*map(str, values["step"]))
        if values.get("cause") is not None:
            values["cause"] = from_json(values["cause"])
            if not isinstance(values["cause"], Cause):
                return None
        if values.get("status", "ok") not in get_args(TaskStatus) or abs(values.get("seconds", 0)) >= _MOST_SECONDS:
            return None
        return kind(**values)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None


def messages(data: bytes) -> Iterator[Message]:
    """The messages of whole lines."""
    for line in data.split(b"\n"):
        if (message := decode(line)) is not None:
            yield message


# --- writing ------------------------------------------------------------------------------------


class Journal:
    """An append-only file. Each line is written before the call returns, so that even kill -9 loses none.

    Raises:
        FlashcoreError: the file cannot be written, for example because the disk is full.
    """

    def __init__(self, path: Path | str) -> None:
        self._began = self._synced = -math.inf
        self._step = NO_STEP
        self._open(path)
        self.write(Started(os.getpid()))

    def _open(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def move(self, path: str) -> None:
        """Continues in another file, for tasks of another run."""
        self.close()
        self._open(path)

    def begin(self, name: str) -> None:
        """Records that a task starts; a crash or hang before its answer is attributed to it."""
        self._began, self._step = time.monotonic(), NO_STEP
        self.write(Begun(name, round(time.time(), 3)))

    def step(self, name: str, what: str, variant: str = "") -> None:
        """Records that the task reached a step."""
        self._step = TaskStep(what, variant)
        self.write(Reached(name, self._step))

    def result(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """Answers the task that began last with this result."""
        self.write(TaskResult(name, "ok", None, data, self._seconds))

    def fail(self, name: str, cause: Cause, *, poisoned: bool = False) -> None:
        """Answers the task that began last with a failure. ``poisoned``: this process can no longer use the device."""
        self.write(TaskResult(name, "failed", cause, None, self._seconds, self._step, poisoned))

    def write(self, message: Message) -> None:
        """Appends a message."""
        line = encode(message)
        try:
            while line:  # a full disk accepts a part; writing the rest raises
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise unwritable(self.path, error) from error
        if isinstance(message, TaskResult) and time.monotonic() - self._synced >= _SYNC:
            self._sync()

    def close(self) -> None:
        """Syncs and closes the file."""
        try:
            self._sync()
        finally:
            os.close(self._file)

    @property
    def _seconds(self) -> float:
        return round(time.monotonic() - self._began, 6)

    def _sync(self) -> None:
        self._synced = time.monotonic()
        try:
            os.fsync(self._file)
        except OSError as error:
            if error.errno != errno.EINVAL:  # devices cannot be synced
                raise unwritable(self.path, error) from error


def next_number(folder: Path) -> str:
    """The next unused process number in a folder."""
    used = [int(m[1]) for p in folder.iterdir() if (m := re.fullmatch(r"\w+-(\d+)\.\w+", p.name))]
    return f"{max(used, default=0) + 1:03d}"


def unwritable(path: Path, error: OSError) -> FlashcoreError:
    """The error that says that a journal's file or folder cannot be written."""
    return FlashcoreError(
        f"{path}: cannot write the journal: {error.strerror}\n"
        "  hint: free disk space (or give another folder) and continue with --resume"
    )


def raised(error: BaseException) -> Cause:
    """An exception as a cause: its type, and the first lines of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = " ".join(lines[:3])
    return RAISED("", message) if isinstance(error, FlashcoreError) else RAISED(type(error).__name__, message[:400])


def describe(error: BaseException) -> str:
    """An exception in one line."""
    return cause_text(raised(error))


# --- reading ------------------------------------------------------------------------------------


def read_journal(path: Path) -> Iterator[Message]:
    """The journal's messages, without truncated or malformed lines; none of a device, which may have no end."""
    if path.is_file():
        yield from messages(path.read_bytes())


def answers(folder: Path) -> dict[str, TaskResult]:
    """Task name → its first answer in the folder's journals."""
    by_name: dict[str, TaskResult] = {}
    for path in [*sorted(folder.glob("journal-*.jsonl")), folder / "supervisor.jsonl"]:
        for message in read_journal(path):
            if isinstance(message, TaskResult):
                by_name.setdefault(message.name, replace(message, poisoned=False))
    return by_name


def begun(path: Path) -> list[str]:
    """The tasks that began in a journal."""
    return [message.name for message in read_journal(path) if isinstance(message, Begun)]


def measured_on(folder: Path) -> dict[str, str]:
    """Task name → the UUID of its GPU, from the journals in ``folder`` and below it, for tasks whose GPU was selected.
    If a task began twice, the second time counts."""
    gpus: dict[str, str] = {}
    journals = folder.rglob("journal-*.jsonl")
    for journal in sorted(journals, key=lambda p: [int(n) for n in re.findall(r"\d+", str(p.relative_to(folder)))]):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            task_file = journal.with_name(f"{journal.stem.replace('journal', 'tasks')}.json")
            with task_file.open("rb") as lines:
                share = Share.decode(lines.readline())
            if share.gpu:
                gpus |= dict.fromkeys(begun(journal), share.gpu)
    return gpus


def lost_in(folder: Path) -> dict[str, str]:
    """The GPUs lost while the tasks in ``folder`` and below ran: UUID → why."""
    written = (message for path in sorted(folder.rglob("supervisor.jsonl")) for message in read_journal(path))
    return {message.gpu: message.reason for message in written if isinstance(message, Lost)}
