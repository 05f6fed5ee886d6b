"""The folder where a build makes its files, before complete ones are moved to their place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flashcore.model.files import writing


@contextlib.contextmanager
def made_in(root: Path) -> Iterator[Path]:
    """A folder for this build only. It is removed when the build ends; the folder of a killed build, when the next
    begins."""
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix=".building-", dir=root))
        hold = os.open(own, os.O_RDONLY)
        fcntl.flock(hold, fcntl.LOCK_EX)
    try:
        for other in root.glob(".building-*"):
            with contextlib.suppress(OSError):
                handle = os.open(other, os.O_RDONLY)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while its build lives
                    if time.time() - other.stat().st_mtime > 1:  # else it may be about to take hold
                        shutil.rmtree(other, ignore_errors=True)
                finally:
                    os.close(handle)
        yield own
    finally:
        os.close(hold)
        shutil.rmtree(own, ignore_errors=True)
