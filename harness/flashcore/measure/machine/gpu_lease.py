"""Only one process at a time measures on a GPU: it holds the GPU's lease, by UUID, on this host."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flashcore.model.files import writing


@dataclass(frozen=True, slots=True)
class Lease:
    """A GPU on which only this process measures."""

    uuid: str


def visible() -> list[str]:
    """The UUIDs of the GPUs that this process may use, in the driver's order; none without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = []
    for number in range(count.value):
        device, own = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), number) == 0 and driver.cuDeviceGetUuid(own, device) == 0:
            text = bytes(own).hex()
            found.append("-".join(("GPU", text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
    return found


@contextmanager
def lease(uuid: str, say: Callable[[str], None] = lambda _: None) -> Iterator[Lease]:
    """Holds a GPU; waits for the process that holds it now. The operating system releases it when this process ends, in
    any way.

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
        handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{uuid} is leased by another process: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield Lease(uuid)
    finally:
        os.close(handle)


@contextmanager
def leases(uuids: Iterable[str], say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Holds several GPUs. All processes take several in the same order, so that no deadlock is possible."""
    with ExitStack() as held:
        for uuid in sorted(uuids):
            held.enter_context(lease(uuid, say))
        yield


def is_free(uuid: str) -> bool:
    """Whether no process holds that GPU now."""
    try:
        handle = os.open(_path(uuid), os.O_RDONLY)
    except OSError:
        return True  # it was never held
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _path(uuid: str) -> Path:
    return Path(tempfile.gettempdir()) / "flashcore-gpus" / f"{uuid}.lock"
