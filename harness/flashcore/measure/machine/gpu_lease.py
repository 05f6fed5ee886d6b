"""Leases of this host's GPUs, by UUID: only the process with a GPU's lease measures on it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flashcore.model.files import Lock, writing


@contextmanager
def lease(uuid: str, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Leases a GPU, waiting for the process that has the lease. The operating system releases it when this process
    ends, however it ends.

    Raises:
        WriteError: the lock's folder cannot be written.
    """
    path = _path(uuid)
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


@contextmanager
def leases(uuids: Iterable[str], say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Leases several GPUs, in sorted order so that processes cannot deadlock."""
    with ExitStack() as stack:
        for uuid in sorted(uuids):
            stack.enter_context(lease(uuid, say))
        yield


def is_free(uuid: str) -> bool:
    """Whether no process has the GPU's lease."""
    try:
        lock = Lock(_path(uuid))
    except OSError:
        return True  # it was never leased
    with lock:
        return lock.try_acquire(shared=True)


def _path(uuid: str) -> Path:
    return Path(tempfile.gettempdir()) / "flashcore-gpus" / f"{uuid}.lock"
