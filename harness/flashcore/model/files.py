"""Atomic writes of files and folders, failed writes as errors with a hint, and locks between processes."""

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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from flashcore.errors import Exit, WriteError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: The ending of a run's folder while the run is under way.
PARTIAL = ".partial"
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failed write into an error that names the path and what to do."""
    try:
        yield
    except OSError as error:
        begun = any(p.suffix == PARTIAL and p.is_dir() for p in (path, *path.parents))
        kept = "; what was measured is kept: continue with --resume" if begun else ""
        failure = WriteError(
            f"{path}: cannot write: {error.strerror or error}\n"
            f"  hint: free space, or name a folder that can be written{kept}"
        )
        if error.errno in _MACHINE:
            failure.exit_code = Exit.INCAPABLE
        raise failure from error


def file_hash(file: Traversable) -> str:
    """The SHA-256 of a file; empty if there is none."""
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file completely or not at all, even if the power fails.

    A link stays, and the file that it names is written. A device, a pipe, a terminal and the file that standard output
    goes to are written in place, since a renamed file would take their name away.

    Raises:
        WriteError: it cannot be written.
    """
    with writing(path):
        if (target := _in_place(path)) is not None:
            with open(target, "wb") as stream:
                stream.write(data)
            return
        path = path.resolve()
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _in_place(path: Path) -> int | Path | None:
    """What to open instead of replacing the file: a descriptor of this process, or anything but a regular file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or has no descriptor
            if os.path.samestat(os.fstat(stream.fileno()), status):
                stream.flush()
                return os.dup(stream.fileno())
    return None if stat.S_ISREG(status.st_mode) else path


def replace_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Replaces a folder of texts at once: a reader meets the old folder or the new one, never a part of either.

    Args:
        files: text by path within the folder; nothing else is kept.

    Raises:
        WriteError: it cannot be written; the old one is still there.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        _fill(fresh, folder, files)


def _fill(fresh: Path, folder: Path, files: Mapping[str, str]) -> None:
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


def _swap(fresh: Path, folder: Path, attempts: Sequence[int] = range(5)) -> None:
    """Renames ``fresh`` to ``folder``; two writers at once each leave a whole folder, the last one wins."""
    for attempt in attempts:
        try:
            os.rename(fresh, folder)  # onto nothing, or an empty folder
            return
        except OSError:
            if attempt == attempts[-1] or not folder.exists():
                raise
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
        try:
            os.rename(folder, old)
        except FileNotFoundError:
            pass  # the other writer took it away first
        finally:
            shutil.rmtree(old, ignore_errors=True)


class Lock:
    """An advisory lock (``flock``) on an existing file or folder, which is neither written nor changed.

    The operating system releases it when the process ends, in any way; child processes do not inherit it.

    Args:
        flags: how the file is opened; NFS gives an exclusive lock only to ``O_RDWR``.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self._handle = os.open(path, flags)

    def taken(self, *, shared: bool = False) -> bool:
        """Takes the lock unless another process has it; returns whether it did.

        Args:
            shared: only asks, without locking out others that ask.
        """
        try:
            fcntl.flock(self._handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Takes the lock, after every process that has it."""
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
