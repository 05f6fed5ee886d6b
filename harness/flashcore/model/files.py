"""Files that are there whole or not at all, and a failed write as an error that says what to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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
        kept = "; what was measured is kept: go on with --resume" if PARTIAL in str(path) else ""
        raise WriteError(
            f"{path}: cannot write: {error.strerror or error}\n"
            f"  to mend: free space, or name a folder that can be written{kept}"
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
