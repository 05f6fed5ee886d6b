"""Writes a recorded run as one file, to gate it on another machine, and reads such files.

The file is a zip of the run's folder. A packed run is read in place and never unpacked, so that no path in it can leave
a folder. Damaged files are refused here; :mod:`flashcore.records.store` compares the record with its ``SHA256SUMS``.
The same run gives the same bytes.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.errors import RecordError
from flashcore.records import store

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: Most bytes of a run's files together, uncompressed. With ncu's reports a run has some 100 MB.
MOST = 1 << 30
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")  # of a path: never "..", hidden, or an option
#: The errors of zipfile for foreign, damaged, encrypted or malicious files.
_WRONG = (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, RuntimeError)


def packed(folder: Path) -> bytes:
    """The run in ``folder`` as one file.

    Raises:
        RecordError: it is no complete run, or holds a link or more than :data:`MOST` bytes.
    """
    run = store.read(folder).id
    paths = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_symlink() or not p.is_dir()}
    odd = [name for name, p in paths.items() if p.is_symlink() or not p.is_file() or not _is_plain(name)]
    if odd:
        raise RecordError(
            f"{folder}: expected plain files in a run, found {odd[0]!r}\n  hint: remove it, or record again"
        )
    if (size := sum(p.stat().st_size for p in paths.values())) > MOST:
        raise RecordError(
            f"{folder}: expected at most {MOST >> 20:,} MiB, found {size >> 20:,}\n"
            "  hint: record it without --keep-report, or remove its .ncu-rep"
        )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, path in paths.items():
            entry = zipfile.ZipInfo(f"{run}/{name}")  # with no time of its own
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".gz") else zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes(), compresslevel=9)
    return out.getvalue()


def opened(file: Path) -> Traversable:
    """The run's folder in a packed file.

    Raises:
        RecordError: it is damaged, or no packed run.
    """
    try:
        with file.open("rb") as packed:  # read at once: forked processes would share an open file's position
            content = packed.read(MOST)
        if content.startswith(b"version https://git-lfs"):
            raise _refused(file, "found a pointer of Git LFS\n  hint: git lfs pull")
        archive = zipfile.ZipFile(io.BytesIO(content))
        archive.filename = str(file)  # for messages
        run = _checked(file, archive)
    except _WRONG as error:
        raise _refused(file, f"found {error}") from error
    return zipfile.Path(archive, f"{run}/")


def _checked(file: Path, archive: zipfile.ZipFile) -> str:
    """The run's id. Requires undamaged plain files in its folder, each once."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    run = names[0].partition("/")[0] if names else ""
    if not store.RUN_ID.fullmatch(run) or f"{run}/{store.HEADER}" not in names or len({*names}) < len(names):
        raise _refused(file, f"found no <run>/{store.HEADER} in it, or a file twice")
    if (size := sum(e.file_size for e in entries)) > MOST:
        raise _refused(file, f"found {size >> 20:,} MiB in it; expected at most {MOST >> 20:,}")
    for entry in entries:
        name = entry.filename.removeprefix(f"{run}/")
        # More packed than plain bytes: an entry that understates its size.
        odd = entry.compress_size > entry.file_size + (1 << 14)
        if odd or name == entry.filename or not _is_plain(name):
            raise _refused(file, f"found {name[:100]!r}, no file of a run")
    if damaged := archive.testzip():
        raise _refused(file, f"found {damaged} damaged")
    return run


def _is_plain(name: str) -> bool:
    return all(_PART.fullmatch(part) for part in name.split("/"))


def _refused(file: Path, mistake: str) -> RecordError:
    return RecordError(
        f"{file}: expected a run that `flashcore runs pack` wrote, {mistake}\n  hint: pack and copy it again"
    )
