"""Only one process at a time measures on a GPU: the one that holds its lease, by UUID, on this host."""

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
    """Leases a GPU; waits for the process that holds the lease. The operating system releases it when this process
    ends, in any way.

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
    """Leases several GPUs. All processes take several in the same order, so that no deadlock is possible."""
    with ExitStack() as stack:
        for uuid in sorted(uuids):
            stack.enter_context(lease(uuid, say))
        yield


def is_free(uuid: str) -> bool:
    """Whether no process leases that GPU now."""
    try:
        lock = Lock(_path(uuid))
    except OSError:
        return True  # it was never leased
    with lock:
        return lock.try_acquire(shared=True)


def _path(uuid: str) -> Path:
    return Path(tempfile.gettempdir()) / "flashcore-gpus" / f"{uuid}.lock"
