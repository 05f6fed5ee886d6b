"""Writes a recorded run as one file, to gate it on another machine, and reads such files.

The file is a zip of the run's folder. ``<id>/pack.json`` names the format, the run and the SHA-256 of every other
file. A packed run is read in place and never unpacked, so that no path in it can leave a folder. A damaged file, or one
whose entries differ from the list, is refused. The same run gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.errors import RecordError
from flashcore.records import store

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

FORMAT = "flashcore run"
VERSION = 1
LIST = "pack.json"
#: Most bytes of a run's files together, uncompressed. With ncu's reports a run has some 100 MB.
MOST = 1 << 30
_HEAD = 1 << 22  # the list itself
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")  # of a path: never "..", hidden, or an option
#: The errors of zipfile and json for foreign, damaged, encrypted or malicious files.
_WRONG = (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, RuntimeError)


def packed(folder: Path) -> bytes:
    """The run in ``folder`` as one file.

    Raises:
        RecordError: it is no complete run, or holds a link or more than :data:`MOST` bytes.
    """
    run = store.read(folder).id
    paths = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_symlink() or not p.is_dir()}
    paths.pop(LIST, None)  # left by unpacking a packed run by hand
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
    files = {name: p.read_bytes() for name, p in paths.items()}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    head = json.dumps({"format": FORMAT, "version": VERSION, "run": run, "files": sums}, indent=1)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in {LIST: head.encode(), **files}.items():
            entry = zipfile.ZipInfo(f"{run}/{name}")  # with no time of its own
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".gz") else zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)
    return out.getvalue()


def opened(file: Path) -> Traversable:
    """The run's folder in a packed file, after checking all files against its list.

    Raises:
        RecordError: it is damaged, no packed run, or of a newer version.
    """
    try:
        with file.open("rb") as packed:  # read at once: forked processes would share an open file's position
            content = packed.read(MOST + _HEAD)
        if content.startswith(b"version https://git-lfs"):
            raise _refused(file, "found a pointer of Git LFS\n  hint: git lfs pull")
        archive = zipfile.ZipFile(io.BytesIO(content))
        archive.filename = str(file)  # for messages
        run = _checked(file, archive)
    except _WRONG as error:
        raise _refused(file, f"found {error}") from error
    return zipfile.Path(archive, f"{run}/")


def _checked(file: Path, archive: zipfile.ZipFile) -> str:
    """The run's id. Requires every entry to be listed once, and to be a plain file with the listed hash."""
    entries = archive.infolist()
    runs = [run for e in entries if (run := e.filename.removesuffix(f"/{LIST}")) != e.filename]
    if len(runs) != 1 or not store.RUN_ID.fullmatch(runs[0]):
        raise _refused(file, f"found no <run>/{LIST} in it")
    if (size := sum(e.file_size for e in entries)) > MOST + _HEAD:
        raise _refused(file, f"found {size >> 20:,} MiB in it; expected at most {MOST >> 20:,}")
    run = runs[0]
    listed = _listed(file, archive, run)
    names = [e.filename for e in entries]
    expected = [f"{run}/{name}" for name in (LIST, *listed)]
    if sorted(names) != sorted(expected):
        other = next(iter(set(names) ^ set(expected)), "one of them twice")
        raise _refused(file, f"found other files than it lists: {other[:100]!r}")
    for entry in entries:
        name = entry.filename.removeprefix(f"{run}/")
        # More packed than plain bytes: an entry that understates its size.
        if not _is_plain(name) or entry.compress_size > entry.file_size + (1 << 14):
            raise _refused(file, f"found {name[:100]!r}, no file of a run")
        if name != LIST and _sum(archive, entry) != listed[name]:
            raise _refused(file, f"found {name} changed since it was packed")
    return run


def _listed(file: Path, archive: zipfile.ZipFile, run: str) -> dict[str, str]:
    entry = archive.getinfo(f"{run}/{LIST}")
    if entry.file_size > _HEAD:
        raise _refused(file, f"found a {LIST} of {entry.file_size >> 20} MiB")
    with archive.open(entry) as stream:
        head: Any = json.loads(stream.read(_HEAD))
    if not isinstance(head, dict) or head.get("format") != FORMAT or head.get("run") != run:
        raise _refused(file, f"found a {LIST} of something else")
    if head.get("version") != VERSION:
        raise _refused(file, f"found format version {head.get('version')!r}, expected {VERSION}: update flashcore")
    files = head.get("files")
    if not isinstance(files, dict) or not all(isinstance(v, str) for v in files.values()):
        raise _refused(file, f"found a {LIST} without a list of files")
    return files


def _sum(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    with archive.open(entry) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def _is_plain(name: str) -> bool:
    return all(_PART.fullmatch(part) for part in name.split("/"))


def _refused(file: Path, mistake: str) -> RecordError:
    return RecordError(
        f"{file}: expected a run that `flashcore runs pack` wrote, {mistake}\n  hint: pack and copy it again"
    )
