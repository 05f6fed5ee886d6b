"""The journal of a child process: the task in progress, and the outcome of each task.

A child announces every task before starting it and answers it when done, with one JSON line each. So the reader
(:class:`flashcore.runner.program.Child`) knows which task was in progress when a process died, and which tasks
are answered when a run is resumed. Events: ``start`` (with the process id), ``begin`` (with the Unix time), ``step``,
``result``, ``fail``, ``skip``, ``lacks`` (the machine lacks something) and, from a supervisor, ``lost`` (a GPU is
excluded).
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
from flashcore.model.cause import Cause, as_json, cause_text, from_json
from flashcore.model.causes import RAISED, Hang, HungBefore

#: Prefix of the error message that ends a child, to find it in the child's output.
ERROR_PREFIX = "flashcore child: "
#: The exit code of a child that cannot continue (EX_IOERR).
UNRECOVERABLE = 74
#: The environment variable with the id of the process that the child must not outlive.
SUPERVISOR = "FLASHCORE_SUPERVISOR"
#: The environment variable with the path of a pipe, to which a child writes its journal's lines for its supervisor.
PIPE = "FLASHCORE_JOURNAL"
_POLL = 0.005  # seconds between checks for more tasks
_PR_SET_PDEATHSIG = 1

#: CUDA errors after which a process can no longer use its device.
POISON = (
    r"(?i)illegal memory access|illegal address|unspecified launch failure|misaligned address|"
    r"device-side assert|illegal instruction|hardware stack error|invalid address space|"
    r"invalid program counter|launch timed out|uncorrectable (ECC|NVLink)|CUDA error: launch failure"
)


Status = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work. ``name`` is unique in its run; ``payload`` is JSON; ``weight`` is its approximate relative
    time."""

    name: str
    payload: Mapping[str, Any]
    weight: int = 1

    @property
    def variant(self) -> str:
        """The variant in a name ``variant/shape``; empty for other names."""
        return self.name.rpartition("/")[0]

    @property
    def shape(self) -> str:
        """The shape in a name ``variant/shape``; the whole name for others."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Step:
    """A task's current step, and the variant it is for, if the task is about several."""

    what: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.variant} {self.what}".strip()

    def as_json(self) -> dict[str, str]:
        return {"step": self.what, **({"variant": self.variant} if self.variant else {})}

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Step:
        """The step in a journal line."""
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
        return cause_text(self.cause)


# --- the child's side ---------------------------------------------------------------------------


class Journal:
    """Append-only JSON lines, each written completely before the call returns, so that even kill -9 loses none.

    The first line contains the process id, so that the supervisor can signal the working process even under a profiler.

    Raises:
        FlashcoreError: the file cannot be written, for example because the disk is full.
    """

    def __init__(self, path: Path | str) -> None:
        self._began = -math.inf
        self._step = NO_STEP
        self.path = Path(path)
        try:
            self._file = os.open(os.environ.pop(PIPE, path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._write(event="start", pid=os.getpid())

    def move(self, path: str) -> None:
        """Continues in another file, for tasks of another run; whoever reads the pipe writes it."""
        self.path = Path(path)

    def begin(self, name: str) -> None:
        """Records that a task starts; a crash or hang before its answer is attributed to it."""
        self._began, self._step = time.monotonic(), NO_STEP
        self._write(event="begin", name=name, at=round(time.time(), 3))

    def step(self, name: str, what: str, variant: str = "") -> None:
        """Records that the task reached a step: the time limit restarts, and a crash is attributed to the step."""
        self._step = Step(what, variant)
        self._write(event="step", name=name, **self._step.as_json())

    def result(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """Answers the task that began last with this result."""
        self.answer(Result(name, "ok", None, data, self._seconds))

    def fail(self, name: str, cause: Cause, *, poisoned: bool = False) -> None:
        """Answers the task that began last with a failure. ``poisoned``: this process can no longer use the device."""
        self.answer(Result(name, "failed", cause, None, self._seconds, self._step), poisoned=poisoned)

    def answer(self, result: Result, **more: Any) -> None:
        """Records a task's outcome."""
        line = {"event": _EVENTS[result.status], "name": result.name, "seconds": result.seconds, **more}
        if result.cause is None:
            line["data"] = result.data
        else:
            line |= {"cause": as_json(result.cause), **result.step.as_json()}
        self._write(**line)
        self._sync()

    def lacks(self, error: CapabilityError) -> None:
        """Records that the machine lacks something that every task needs."""
        self._write(event="lacks", what=error.what, hint=error.hint)

    def lost(self, gpu: str, reason: str) -> None:
        """Records that a GPU is excluded."""
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
            while data:  # a full disk accepts a part; writing the rest raises
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            if error.errno != errno.EINVAL:  # pipes and devices cannot be synced
                raise unwritable(self.path, error) from error


#: Performs a task; returns its result as JSON.
Perform = Callable[[Task, Journal], Mapping[str, Any] | None]


def next_number(folder: Path) -> str:
    """The next unused process number in a folder."""
    used = [int(m[1]) for p in folder.iterdir() if (m := re.fullmatch(r"\w+-(\d+)\.\w+", p.name))]
    return f"{max(used, default=0) + 1:03d}"


def unwritable(path: Path, error: OSError) -> FlashcoreError:
    return FlashcoreError(
        f"{path}: cannot write the journal: {error.strerror}\n"
        "  hint: free disk space (or give another folder) and continue with --resume"
    )


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
                journal.lacks(error)
                return int(Exit.INCAPABLE)
    except FlashcoreError as error:  # from the journal or prepare: the child cannot continue
        print(f"\n{ERROR_PREFIX}{error}", file=sys.stderr, flush=True)
        return UNRECOVERABLE
    return int(Exit.OK)


def first_share(task_file: Path) -> dict[str, Any]:
    """The first line of a task file: ``tasks``, the selected ``gpu``, and whether ``more`` lines may follow. A later
    line can name another ``journal`` for its tasks' answers."""
    with task_file.open("rb") as lines:
        return dict(json.loads(lines.readline()))


def tasks_of(
    task_file: Path, imports: Sequence[Callable[[], object]] = (), move: Callable[[str], object] = str
) -> Iterator[Task]:
    """The tasks of a task file. If more may follow, waits for further lines until one has no tasks.

    Args:
        imports: called one by one while there are no tasks yet.
        move: called with the path of another journal, before the tasks that it is for.
    """
    share = first_share(task_file)
    more = share.get("more", False) and SUPERVISOR in os.environ  # without a supervisor it would wait forever
    if more and not share["tasks"]:
        size = task_file.stat().st_size
        for one in imports:
            if task_file.stat().st_size == size:
                with contextlib.suppress(Exception):  # the task that needs it reports the error
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
                    time.sleep(_POLL)
                line += part
            share = json.loads(line)
            if not share["tasks"]:
                return


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


def raised(error: BaseException) -> Cause:
    """An exception as a cause: its type, and the first lines of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = " ".join(lines[:3])
    return RAISED("", message) if isinstance(error, FlashcoreError) else RAISED(type(error).__name__, message[:400])


def describe(error: BaseException) -> str:
    """An exception in one line."""
    return cause_text(raised(error))


# --- reading

_EVENTS: dict[Status, str] = {"ok": "result", "failed": "fail", "skipped": "skip"}
_STATUSES = {event: status for status, event in _EVENTS.items()}
#: The required fields of each event, and each field's type.
_REQUIRED = {"start": "pid", "begin": "name", "step": "name step", "result": "name", "fail": "name cause"}
_REQUIRED |= {"skip": _REQUIRED["fail"], "lacks": "what hint", "lost": "name reason"}
_TYPES: dict[str, Any] = dict.fromkeys(("name", "step", "variant", "reason", "what", "hint"), str)
_TYPES |= {"pid": int, "cause": dict, "seconds": int | float, "data": dict | None}


def _is_valid(line: Any) -> bool:
    required = _REQUIRED.get(str(line.get("event"))) if isinstance(line, dict) else None
    return (
        required is not None
        and line.keys() >= set(required.split())
        and all(isinstance(line[key], kind) for key, kind in _TYPES.items() if key in line)
        and -1e15 < line.get("seconds", 0) < 1e15
    )


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The journal's complete lines, without truncated or malformed ones; none of a device, which may have no end."""
    if path.is_file():
        yield from parse(path.read_bytes())


def parse(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if _is_valid(value):
                yield value


def answers(folder: Path) -> dict[str, Result]:
    """Task name → its first answer in the folder's journals."""
    by_name: dict[str, Result] = {}
    for path in [*sorted(folder.glob("journal-*.jsonl")), folder / "supervisor.jsonl"]:
        for line in read_journal(path):
            result = answer_of(line)
            if result is not None:
                by_name.setdefault(result.name, result)
    return by_name


def measured_on(folder: Path, *, below: bool = True) -> dict[str, str]:
    """Task name → the UUID of its GPU, from the journals in ``folder`` (and below it), for tasks whose GPU was
    selected. If a task began twice, the second time counts."""
    gpus: dict[str, str] = {}
    journals = folder.rglob("journal-*.jsonl") if below else folder.glob("journal-*.jsonl")
    for journal in sorted(journals, key=lambda p: [int(n) for n in re.findall(r"\d+", str(p.relative_to(folder)))]):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            task_file = journal.with_name(f"{journal.stem.replace('journal', 'tasks')}.json")
            if gpu := first_share(task_file).get("gpu"):
                gpus |= {line["name"]: str(gpu) for line in read_journal(journal) if line["event"] == "begin"}
    return gpus


def lost_in(folder: Path) -> dict[str, str]:
    """The GPUs lost while the tasks in ``folder`` and below ran: UUID → why."""
    lines = (line for path in sorted(folder.rglob("supervisor.jsonl")) for line in read_journal(path))
    return {line["name"]: line["reason"] for line in lines if line["event"] == "lost"}


def hung(results: Iterable[Result]) -> dict[str, HungBefore]:
    """Variants that hung → why their other cases are skipped, so that a time limit passes only once. The variant comes
    from the task's name, or else from its step."""
    causes: dict[str, HungBefore] = {}
    for r in results:
        variant = r.name.rpartition("/")[0] or r.step.variant
        if variant and isinstance(r.cause, Hang):
            causes.setdefault(variant, HungBefore(r.name.rpartition("/")[2], r.cause))
    return causes


def hung_before(folder: Path) -> dict[str, HungBefore]:
    """The variants that hung so far (see :func:`hung`). Only a supervisor answers for a process that hangs, so the
    processes' journals, which grow with each sample, are not read."""
    return hung(filter(None, map(answer_of, read_journal(folder / "supervisor.jsonl"))))


def answer_of(line: Mapping[str, Any]) -> Result | None:
    """The outcome in a journal line; ``None`` for another event or a malformed cause."""
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
