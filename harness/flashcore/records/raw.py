"""Stores the tools' raw output in a run's folder: the compilers' logs in one archive, the rest compressed."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterable
from pathlib import Path

from flashcore.model.files import writing
from flashcore.model.record import Artifact

#: Archive of the ptxas logs, ``VARIANT-ARCH.log``; ninja does not print them again.
LOGS = "ptxas.zip"
_COMPRESSED = (".gz", ".xz", ".zip", ".ncu-rep")
_DAY = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same logs give the same bytes


def keep(folder: Path, artifacts: Iterable[Artifact]) -> None:
    """Adds the compilers' logs to a complete run, and compresses its journals and logs, which nothing reads any more.

    Raises:
        FlashcoreError: they cannot be written.
    """
    logs = {f"{a.variant}-{a.arch}.log": Path(a.log) for a in artifacts if a.log is not None}
    with writing(folder):
        if logs:
            with zipfile.ZipFile(folder / LOGS, "w") as archive:
                for name, path in sorted(logs.items()):
                    archive.writestr(zipfile.ZipInfo(name, _DAY), path.read_bytes(), zipfile.ZIP_DEFLATED)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.parent != folder and path.suffix not in _COMPRESSED:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
                path.unlink()
