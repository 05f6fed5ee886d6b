"""Files and folders that are there whole or not at all, and a failed write as an error that says what to do."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flashcore.errors import WriteError

#: The ending of a run's folder while the run is under way.
PARTIAL = ".partial"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failed write into an error that names the path and what to do."""
    try:
        yield
    except OSError as error:
        begun = any(p.suffix == PARTIAL and p.is_dir() for p in (path, *path.parents))
        kept = "; what was measured is kept: continue with --resume" if begun else ""
        raise WriteError(
            f"{path}: cannot write: {error.strerror or error}\n"
            f"  hint: free space, or name a folder that can be written{kept}"
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file so that it is there whole or not at all, also after a power cut.

    Raises:
        WriteError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def replace_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Writes a folder of texts so that a reader meets the old one or the new one whole: beside it, then swapped in.

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
