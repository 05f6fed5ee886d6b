"""A cache in the build folder of results that are slow to compute: compiler versions, validated manifests.

Each result is a JSON file with its key; another key is a miss. So is a file that is unreadable, edited, or writable by
other users. A result that cannot be written is computed again next time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import WriteError
from flashcore.model import suite
from flashcore.model.files import write_atomically
from flashcore.model.groups import with_tuples

_TYPE = "\x00"  # the key of a table's dataclass name; manifests cannot contain it


def recall(folder: Path, name: str, key: str) -> Any:
    """The value cached as ``name`` for this key; ``None`` on a miss."""
    path = folder / f"{name}.json"
    try:
        head, _, text = path.read_bytes().partition(b",")
        if not trusted(path) or head != _head(text):
            return None
        data = json.loads(b"{" + text, object_hook=_from_table)
        return data["value"] if data["key"] == key else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def keep(folder: Path, name: str, key: str, value: Any) -> None:
    """Caches ``value``: JSON types and dataclasses of :mod:`flashcore.model.suite`. Sequences in dataclass fields are
    recalled as tuples, all others as lists."""
    table = {"key": key, "value": value}
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":"), default=_to_table)[1:].encode()
    with contextlib.suppress(OSError, WriteError):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.json"
        write_atomically(path, _head(text) + b"," + text, durable=False)  # a torn file is not recalled
        path.chmod(0o644)  # only its owner can change it, whatever the umask


def trusted(path: Path) -> bool:
    """Whether this user or root owns the file or folder, and it is not world-writable.

    Raises:
        OSError: it does not exist.
    """
    status = path.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


def stamp(paths: Sequence[Path]) -> str:
    """A string that changes with any of the files: path, size, inode, mtime, and ctime (which changes even if mtime is
    reset).

    Raises:
        OSError: one does not exist.
    """
    stats = [(path, path.stat()) for path in paths]
    return " ".join(f"{path}:{s.st_size}:{s.st_ino}:{s.st_mtime_ns}:{s.st_ctime_ns}" for path, s in stats)


def _head(text: bytes) -> bytes:
    return b'{"digest":"%s"' % hashlib.sha256(text).hexdigest().encode()


def _to_table(value: Any) -> dict[str, Any]:
    return {_TYPE: type(value).__name__, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}


def _from_table(table: dict[str, Any]) -> Any:
    if _TYPE not in table:
        return table
    kind = getattr(suite, table.pop(_TYPE))
    if not dataclasses.is_dataclass(kind):
        raise ValueError(kind)
    return kind(**with_tuples(table))  # type: ignore[operator]
