"""Selects this host's GPUs for a run from ``--gpus`` (``all``, a number, or UUIDs), and leases them.

Only the process with a GPU's lease measures on it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.machine import gpu
from flashcore.machine.gpu import Gpu
from flashcore.model.files import Lock, writing
from flashcore.model.progress import Say, silent
from flashcore.model.settings import ALL


def visible() -> dict[str, Gpu]:
    """The GPUs that this process may use, by UUID in the driver's order."""
    if Gpu.find() is None:
        return {}
    gpus = ((uuid, Gpu.numbered(number)) for number, uuid in enumerate(gpu.uuids()))
    return {uuid: gpu for uuid, gpu in gpus if gpu is not None}


def by_kind(requested: str, available: Mapping[str, Gpu]) -> list[dict[str, Gpu]]:
    """The requested GPUs, grouped by model, since a run is about one model; empty without a GPU.

    Args:
        requested: ``all``; a number of GPUs of the first GPU's model, unleased ones first; or comma-separated UUIDs or
            UUID prefixes.

    Raises:
        UsageError: there are no such GPUs, or fewer than requested.
    """
    kinds: dict[object, dict[str, Gpu]] = {}
    everything = requested == ALL or requested.isdigit() or not available
    for uuid in available if everything else _named(requested, available):
        gpu = available[uuid]
        kinds.setdefault((gpu.name, gpu.capability, gpu.memory_bytes), {})[uuid] = gpu
    groups = list(kinds.values())
    if requested.isdigit() and groups:
        first = groups[0]
        if not 0 < int(requested) <= len(first):
            raise UsageError(f"--gpus {requested}: expected 1 to {len(first)}, the number of GPUs of the first model")
        free_first = sorted(first, key=lambda uuid: not is_free(uuid))
        return [{uuid: first[uuid] for uuid in free_first[: int(requested)]}]
    return groups


def chosen(requested: str, available: Mapping[str, Gpu], say: Say = silent) -> dict[str, Gpu]:
    """The GPUs of a run, all of one model: with ``all``, the first GPU's. ``say`` reports the others.

    Raises:
        UsageError: see :func:`by_kind`; or the requested GPUs are of several models.
    """
    kinds = by_kind(requested, available)
    if requested != ALL and len(kinds) > 1:
        raise UsageError(
            f"--gpus {requested}: expected GPUs of one model, found {listed(*kinds)}\n"
            "  hint: run the command once for each model"
        )
    for other in kinds[1:]:
        say(f"left out, of another model than {listed(kinds[0])}: {listed(other)}; to use: --gpus {','.join(other)}")
    return kinds[0] if kinds else {}


def listed(*kinds: Mapping[str, Gpu]) -> str:
    """GPUs by UUID and name."""
    return ", ".join(f"{uuid} ({gpu.name})" for kind in kinds for uuid, gpu in kind.items())


def _named(requested: str, available: Mapping[str, Gpu]) -> list[str]:
    """The UUIDs that match the comma-separated prefixes."""
    uuids: dict[str, None] = {}
    for word in filter(None, map(str.strip, requested.split(","))):
        matching = [uuid for uuid in available if uuid.startswith((word, f"GPU-{word}"))]
        if len(matching) != 1:
            problem = "several match" if matching else "none matches"
            raise UsageError(f"--gpus {word}: expected one GPU's UUID; {problem} among {listed(available)}")
        uuids[matching[0]] = None
    if not uuids:
        raise UsageError(f"--gpus {requested!r}: expected all, a number, or comma-separated UUIDs")
    return list(uuids)


# --- leases -------------------------------------------------------------------------------------


@contextlib.contextmanager
def lease(uuid: str, say: Say = silent) -> Iterator[None]:
    """Leases a GPU, waiting for the process that has the lease. The operating system releases it when this process
    ends, however it ends.

    Raises:
        WriteError: the lock's folder cannot be written.
    """
    path = _lock_path(uuid)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):
            path.parent.chmod(0o1777)  # other users lease GPUs too
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644))
        lock = Lock(path)
    with lock:
        if not lock.try_acquire():
            say(f"{uuid} is leased by another process: waiting for it")
            lock.wait()
        yield


@contextlib.contextmanager
def leases(uuids: Iterable[str], say: Say = silent) -> Iterator[None]:
    """Leases several GPUs, in sorted order so that processes cannot deadlock."""
    with contextlib.ExitStack() as stack:
        for uuid in sorted(uuids):
            stack.enter_context(lease(uuid, say))
        yield


def is_free(uuid: str) -> bool:
    """Whether no process has the GPU's lease."""
    try:
        lock = Lock(_lock_path(uuid))
    except OSError:
        return True  # it was never leased
    with lock:
        return lock.try_acquire(shared=True)


def _lock_path(uuid: str) -> Path:
    return Path(tempfile.gettempdir()) / "flashcore-gpus" / f"{uuid}.lock"
