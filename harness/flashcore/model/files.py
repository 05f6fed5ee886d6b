"""Atomic writes of files and folders, write errors with a hint, and locks between processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from flashcore.errors import Exit, WriteError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: Suffix of a run's folder while the run is in progress.
PARTIAL = ".partial"
_MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Converts a failed write into a :class:`WriteError` with the path and a hint."""
    try:
        yield
    except OSError as error:
        resumable = any(p.suffix == PARTIAL and p.is_dir() for p in (path, *path.parents))
        resume = "; measurements are kept: continue with --resume" if resumable else ""
        failure = WriteError(
            f"{path}: cannot write: {error.strerror or error}\n"
            f"  hint: free space, or choose an existing, writable folder{resume}"
        )
        if error.errno in _MACHINE_ERRORS:
            failure.exit_code = Exit.INCAPABLE
        raise failure from error


def text_hash(text: str) -> str:
    """The text's SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_hash(file: Traversable) -> str:
    """The file's SHA-256 in hex; empty if it does not exist."""
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def content_hash(path: str) -> str:
    """The hash of a file, or of the names in a folder, without hidden ones; ``absent`` if it is neither or cannot be
    read."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            names = sorted(name for name in os.listdir(path) if name[0] != "." and name != "__pycache__")
            return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
        return file_hash(Path(path)) or "absent"
    return "absent"


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents where they are missing.

    Raises:
        WriteError: it cannot be created.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Writes a file completely or not at all; if ``durable``, even on a power failure.

    A symbolic link stays; its target is written. Devices, pipes, terminals and the file behind standard output are
    written in place, because a rename would replace them.

    Raises:
        WriteError: it cannot be written.
    """
    with writing(path):
        if (target := _in_place(path)) is not None:
            with open(target, "wb") as stream:
                stream.write(data)
            return
        path = path.resolve()
        temporary = path.with_name(f".{path.name}.{threading.get_native_id()}.tmp")
        try:
            with temporary.open("wb") as stream:
                stream.write(data)
                if durable:
                    stream.flush()
                    os.fsync(stream.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _in_place(path: Path) -> int | Path | None:
    """What to write in place: a descriptor of this process, or a path that is no regular file; else ``None``."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or without a descriptor
            if os.path.samestat(os.fstat(stream.fileno()), status):
                stream.flush()
                return os.dup(stream.fileno())
    return None if stat.S_ISREG(status.st_mode) else path


def replace_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Replaces a folder of texts atomically: readers see the old folder or the new one.

    Args:
        files: text by path within the folder; other files are removed.

    Raises:
        WriteError: it cannot be written; the old folder remains.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            os.chmod(fresh, 0o755)
            for name, text in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            _swap(fresh, folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


def _swap(fresh: Path, folder: Path) -> None:
    """Renames ``fresh`` to ``folder``. Of concurrent writers, the last one wins; the folder is always complete."""
    for attempt in reversed(range(5)):
        try:
            os.rename(fresh, folder)  # fails if the folder exists and is not empty
            return
        except OSError:
            if not attempt or not folder.exists():
                raise
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
        try:
            os.rename(folder, old)
        except FileNotFoundError:
            pass  # another writer removed it first
        finally:
            shutil.rmtree(old, ignore_errors=True)


class Lock:
    """An advisory lock (``flock``) on an existing file or folder, which it does not change.

    The operating system releases it when the process ends, even after a crash; child processes do not inherit it.

    Args:
        flags: for ``os.open``; NFS grants an exclusive lock only with ``O_RDWR``.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self._handle = os.open(path, flags)

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Acquires the lock unless another process has it; returns whether it did.

        Args:
            shared: a shared lock, which tests for an exclusive one without blocking other tests.
        """
        try:
            fcntl.flock(self._handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Acquires the lock; blocks until it is free."""
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
