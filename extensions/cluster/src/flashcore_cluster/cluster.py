"""Uses the GPUs of a Ray cluster as places, each with an actor that supervises children like the local host.

Ray finds the hosts, assigns one GPU to each actor, restarts an actor whose worker or host died, and transports the
files. An actor holds its GPU's lease on its host. The files that a batch needs from this host (the suite's folder,
libraries) are sent by content hash; the children's output is streamed back into journals of the stage's folder here.
A host that dies costs the tasks in progress on it, and under ncu those of its whole batch, since ncu's reports arrive
when a batch ends. This process may be ended and its run resumed like any other.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import platform
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import ray

from flashcore import __version__
from flashcore.errors import CapabilityError, Exit, UsageError
from flashcore.machine import gpu_choice
from flashcore.machine.gpu import Gpu, uuids
from flashcore.model.causes import NeverBegan
from flashcore.runner.journal import Share, Started, Task, TaskResult, messages, next_number, unwritable
from flashcore.runner.process import Child, LocalGpu, Program
from flashcore.runner.queue import Pool

_PATIENCE = 120.0  # seconds for the first actor of a cluster to answer
_MOST_BYTES = 256 * 2**20  # of one folder or file that is sent
_NOT_SENT = (".*", "__pycache__", "build", "profiles", "reports")
_PATHS = ("root", "library")  # the keys of a case's payload that are paths
_LOOK = 0.002  # seconds between two polls for answers to send: unsent answers are lost with their worker
_SENT = "flashcore-sent:"  # in a payload: the prefix of a path on the receiver


class Description(NamedTuple):
    """An actor's report about its GPU. ``gpu`` is ``None`` without a driver."""

    uuid: str
    host: str
    gpu: Gpu | None
    version: str
    pid: int


# --- this side ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cluster:
    """The free GPUs of a Ray cluster, as an executor (:class:`flashcore.runner.executor.Executor`)."""

    address: str

    def places(self, requested: str, say: Callable[[str], None]) -> tuple[dict[str, Gpu], Pool]:
        """The requested GPUs by UUID, of one kind, and workers on them; the others are given back to the cluster."""
        places = connect(self.address)
        gpus = gpu_choice.chosen(requested, {p.gpu: gpu for p in places if (gpu := p.description.gpu)}, say)
        for place in [p for p in places if p.gpu not in gpus]:  # others may want them
            place.release()
            places.remove(place)
        return gpus, Pool(sorted(places, key=lambda p: list(gpus).index(p.gpu)))


@functools.cache
def connect(address: str) -> list[RayGpu]:
    """Returns a place for each free GPU of the cluster. A later call returns the remaining ones of the same list.

    Args:
        address: as Ray takes it: ``auto``, ``host:6379``.

    Raises:
        CapabilityError: no cluster answers there, or there is no GPU.
        UsageError: flashcore has another version there.
    """
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise CapabilityError(
            f"no Ray cluster at {address}: {first}", "ray start --head, then --cluster auto"
        ) from None
    free = int(ray.available_resources().get("GPU", 0))
    if not free:
        raise CapabilityError(f"the Ray cluster at {address} has no free GPU", "see: ray status")
    # Ray must not repeat a task: the journals here decide which tasks are repeated.
    kind = ray.remote(num_cpus=0, num_gpus=1, max_restarts=-1, max_task_retries=0)(_Actor)
    actors = [kind.remote() for _ in range(free)]
    ready, _ = ray.wait([actor.describe.remote() for actor in actors], num_returns=free, timeout=_PATIENCE)
    if len(ready) < free:
        raise CapabilityError(f"{free - len(ready)} of {free} GPUs of the cluster did not answer", "see: ray status")
    places = [RayGpu(actor, ray.get(actor.describe.remote())) for actor in actors]
    for place in places:
        if place.description.version != __version__:
            raise UsageError(
                f"{place.host}: expected flashcore {__version__}, as here, found {place.description.version}"
            )
    return places


@dataclass(slots=True)
class RayGpu:
    """An actor with a GPU. Ray may restart a lost actor with another GPU or on another host."""

    actor: Any
    description: Description
    _answer: Any = None

    @property
    def gpu(self) -> str:
        return self.description.uuid

    @property
    def host(self) -> str:
        return self.description.host

    def child(self, folder: Path, tasks: list[Task], program: Program) -> _RemoteChild:
        return _RemoteChild(folder, tasks, program, place=self)

    def is_back(self) -> bool:
        self._answer = self._answer or self.actor.describe.remote()
        if not ray.wait([self._answer], timeout=0)[0]:
            return False
        try:
            self.description = ray.get(self._answer)
        except ray.exceptions.RayError:
            return False
        finally:
            self._answer = None
        return True

    def release(self) -> None:
        """Gives the GPU back to the cluster."""
        ray.kill(self.actor)


def _is_hosts_own(line: bytes) -> bool:
    """Whether a line of the supervisor there is about that host rather than about a task."""
    return any(
        isinstance(message, Started) or (isinstance(message, TaskResult) and isinstance(message.cause, NeverBegan))
        for message in messages(line)
    )


@dataclass(slots=True, kw_only=True)
class _RemoteChild(Child):
    """Tasks on an actor: the content of its files is written here as it arrives. The actor keeps its processes for the
    next tasks of their program."""

    place: RayGpu
    _stream: Any = None
    _numbers: dict[str, str] = field(default_factory=dict)  # of a file there → of the file here
    _started: float = 0.0

    def start(self) -> None:
        self._started = time.monotonic()
        sent: dict[str, Any] = {}
        tasks = [replace(t, payload=_outgoing(dict(t.payload), sent)) for t in self.tasks]
        run = self.place.actor.run.options(num_returns="streaming")
        with contextlib.suppress(ray.exceptions.RayError):
            self._stream = run.remote(tasks, replace(self.program, children=1), sent)

    def poll(self) -> list[TaskResult]:
        results: list[TaskResult] = []
        try:
            if self._stream is None:
                raise ray.exceptions.RayError("it could not be asked")
            while ray.wait([self._stream], timeout=0)[0]:
                results += self._receive(*ray.get(next(self._stream)))
                if self.lost:
                    break
        except StopIteration:
            self._stream, self.ended = None, True
        except ray.exceptions.RayError as error:
            self._stream = None
            # The text of an error raised there is a traceback, whose first line names only the actor.
            reason = repr(error.cause) if isinstance(error, ray.exceptions.RayTaskError) else str(error)
            self.lost = f"{self.place.host}: {type(error).__name__}: {reason.strip().partition(chr(10))[0]}"
        limit = self.program.limits.startup_limit
        if not (self.ended or self.lost or self._numbers) and time.monotonic() - self._started > limit:
            self.lost = f"no task started within {limit:g} s"
        self.ended = self.ended or bool(self.lost)
        return results

    def _receive(self, name: str, content: Any) -> list[TaskResult]:
        """The answers in an addition to a file there; or what ended the work, which has no name."""
        if name == "":
            if content[0] == Exit.INCAPABLE:
                self.lacks = CapabilityError(f"{self.place.host}: {content[1]}", content[2])
            else:
                self.lost = f"{self.place.host}: {content[1]}"
            return []
        if name == "supervisor.jsonl":
            content = b"".join(line for line in content.splitlines(True) if not _is_hosts_own(line))
        if content:
            self._write(name, content)
        return self.follow(messages(content)) if name.endswith(".jsonl") else []

    def _write(self, name: str, content: bytes) -> None:
        """Adds to a journal, or writes another file, under this folder's numbers."""
        stem, _, ending = name.partition(".")
        kind, _, number = stem.rpartition("-")
        if name == "supervisor.jsonl":  # events that no child could report; this folder's file has another writer
            kind, number = "journal", "supervisor"
        try:
            if number not in self._numbers:
                local = self._numbers[number] = next_number(self.folder)
                (self.folder / f"tasks-{local}.json").write_bytes(Share(gpu=self.place.gpu).encode())
            path = self.folder / f"{kind}-{self._numbers[number]}.{ending}"
            with path.open("ab" if ending == "jsonl" else "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def kill(self) -> None:
        if self._stream is not None or self.lost:
            self._stream = None
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(self.place.actor, no_restart=False)  # its children end with it


def _outgoing(value: Any, sent: dict[str, Any]) -> Any:
    """A payload with the paths of this host's files replaced by their contents' hashes; these are put into ``sent``."""
    if isinstance(value, list | tuple):
        return [_outgoing(v, sent) for v in value]
    if not isinstance(value, dict):
        return value
    payload = {k: _outgoing(v, sent) for k, v in value.items()}
    for key, path in ((k, Path(payload[k])) for k in _PATHS if payload.get(k)):
        if not path.exists():
            continue  # the child reports what is missing
        digest, reference = _put(path, path.stat().st_mtime_ns)
        sent[digest] = reference
        payload[key] = f"{_SENT}{digest}/{path.name}"
    return payload


@functools.cache
def _put(path: Path, changed: int) -> tuple[str, Any]:
    """The hash of a file or folder, and its archive in Ray's object store."""
    packed = _archive(path)
    return hashlib.sha256(packed).hexdigest()[:32], ray.put(packed)


def _archive(path: Path) -> bytes:
    """A file or folder as a tar archive that depends only on names and contents."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    files = (
        [path]
        if path.is_file()
        else [
            p
            for p in sorted(path.rglob("*"))
            if p.is_file() and not any(Path(part).match(n) for part in p.relative_to(path).parts for n in _NOT_SENT)
        ]
    )
    if (size := sum(p.stat().st_size for p in files)) > _MOST_BYTES:
        raise UsageError(f"{path}: expected at most {_MOST_BYTES >> 20} MiB to send, found {size >> 20} MiB")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for p in files:
            archive.add(p, str(Path(path.name) / p.relative_to(path)), recursive=False, filter=plain)
    return packed.getvalue()


# --- the other side -----------------------------------------------------------------------------


class _Actor:
    """In a process of Ray's that it gave a GPU to."""

    def __init__(self) -> None:
        seen = uuids()
        node = ray.get_runtime_context().get_node_id()
        number = next(iter(ray.get_gpu_ids()), 0)
        uuid = seen[0] if seen else f"GPU-{node[:8]}-{number}"
        self._lease = gpu_choice.lease(uuid)
        self._lease.__enter__()  # until this process ends
        self._pool = Pool([LocalGpu(uuid)])
        self._pool.stays = True  # these end with this process
        self._thread = ThreadPoolExecutor(1)  # Linux ends a process with the thread that started it
        self._folder = tempfile.mkdtemp(prefix="flashcore-")
        self._description = Description(uuid, platform.node(), Gpu.find(), __version__, os.getpid())

    def describe(self) -> Description:
        return self._description

    def run(
        self,
        tasks: Sequence[Task],
        program: Program,
        sent: Mapping[str, Any],
    ) -> Iterator[tuple[str, Any]]:
        """Runs the tasks; yields additions to the children's files, by name, and at the end ``""`` with an error."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))  # it stays: kept processes read and write in it
        there = [replace(t, payload=_incoming(t.payload, sent)) for t in tasks]
        errors: list[tuple[int, str, str]] = []

        def tell(result: TaskResult) -> None:
            if isinstance(result.cause, NeverBegan):  # caused by this host, not by the task
                raise CapabilityError(result.reason, "see that flashcore's extra `run` is installed there")

        def work() -> None:
            try:
                self._pool.run(there, program, folder, tell)
            except CapabilityError as error:
                errors.append((int(Exit.INCAPABLE), error.what, error.hint))
            except Exception as error:
                errors.append((int(Exit.FAILED), str(error), ""))

        working = self._thread.submit(work)
        offsets: dict[str, int] = {}
        while True:
            over = working.done()  # looked at before the files, so that no last line is missed
            yield from _grown(folder, offsets)
            if over:
                break
            time.sleep(_LOOK)
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.suffix != ".jsonl" and not path.name.startswith("tasks-"):
                yield path.name, path.read_bytes()
                if path.suffix != ".log":
                    path.unlink()
        if errors:
            yield "", errors[0]


def _grown(folder: Path, offsets: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    """The complete lines added to the journals in ``folder`` since the last look."""
    for path in sorted(folder.glob("*.jsonl")):
        offset = offsets.setdefault(path.name, 0)
        if path.stat().st_size == offset:
            continue
        with path.open("rb") as file:
            file.seek(offset)
            lines = file.read().rpartition(b"\n")[0]
        if lines:
            offsets[path.name] += len(lines) + 1
            yield path.name, lines + b"\n"


def _incoming(value: Any, sent: Mapping[str, Any]) -> Any:
    """The payload with the local paths of the sent files."""
    if isinstance(value, dict):
        return {k: _incoming(v, sent) for k, v in value.items()}
    if isinstance(value, list):
        return [_incoming(v, sent) for v in value]
    if isinstance(value, str) and value.startswith(_SENT):
        digest, _, name = value.removeprefix(_SENT).partition("/")
        return str(_unpacked(digest, sent[digest]) / name)
    return value


def _unpacked(digest: str, reference: Any) -> Path:
    """The folder with the files of this hash; fetched once for each host and user."""
    folder = Path(tempfile.gettempdir()) / f"flashcore-sent-{os.getuid()}" / digest
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        with tarfile.open(fileobj=io.BytesIO(ray.get(reference))) as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.4
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(made)
        try:
            made.rename(folder)
        except OSError:  # another actor of this host was first
            shutil.rmtree(made)
    return folder
