"""A temporary folder in which a build makes its files, before complete ones are moved to their final folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flashcore.model.files import Lock, writing


@contextlib.contextmanager
def made_in(root: Path) -> Iterator[Path]:
    """A new folder in ``root`` for one build, removed at its end. Folders of killed builds are removed by the next."""
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".building-", dir=root))
        lock = Lock(folder)
    try:
        with lock:
            lock.wait()
            for other in root.glob(".building-*"):
                with contextlib.suppress(OSError):
                    _remove_abandoned(other)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    with Lock(folder) as lock:
        # A folder less than a second old may not be locked yet.
        if lock.try_acquire() and time.time() - folder.stat().st_mtime > 1:
            shutil.rmtree(folder, ignore_errors=True)
