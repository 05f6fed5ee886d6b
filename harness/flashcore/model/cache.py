"""A cache of slow answers that seldom change, in the build folder: a compiler's version, a valid manifest.

Each answer has a JSON file with its key; under another key there is none. A file that cannot be read, was edited, or
that other users may write counts as missing, and an answer that cannot be written is computed again next time.
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
from flashcore.model.files import write_atomically, writing

_TYPE = "\x00"  # the key that names a table's dataclass: no manifest has it


def recall(folder: Path, name: str, key: str) -> Any:
    """The value cached as ``name`` under this key; ``None`` if there is none."""
    path = folder / f"{name}.json"
    try:
        head, _, text = path.read_bytes().partition(b",")
        if not trusted(path) or head != _head(text):
            return None
        data = json.loads(b"{" + text, object_hook=_made)
        return data["value"] if data["key"] == key else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def keep(folder: Path, name: str, key: str, value: Any) -> None:
    """Caches ``value``: JSON's types and the dataclasses of :mod:`flashcore.model.suite`, whose lists are tuples. A
    tuple elsewhere is recalled as a list."""
    table = {"key": key, "value": value}
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":"), default=_table)[1:].encode()
    with contextlib.suppress(OSError, WriteError):
        folder.mkdir(parents=True, exist_ok=True)
        write_trusted(folder / f"{name}.json", _head(text) + b"," + text)


def write_trusted(path: Path, data: bytes) -> None:
    """Writes a file that only its owner may change, whatever the umask.

    Raises:
        WriteError: it cannot be written.
    """
    write_atomically(path, data)
    with writing(path):
        path.chmod(0o644)


def trusted(path: Path) -> bool:
    """Whether only this user and root may change the file or folder.

    Raises:
        OSError: it is not there.
    """
    status = path.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


def stamp(paths: Sequence[Path]) -> str:
    """A text that differs if one of the files changed: name, size, inode, mtime, and ctime (which moves even if mtime
    was set back).

    Raises:
        OSError: one is not there.
    """
    stats = [(path, path.stat()) for path in paths]
    return " ".join(f"{path}:{s.st_size}:{s.st_ino}:{s.st_mtime_ns}:{s.st_ctime_ns}" for path, s in stats)


def _head(text: bytes) -> bytes:
    return b'{"digest":"%s"' % hashlib.sha256(text).hexdigest().encode()


def _table(value: Any) -> dict[str, Any]:
    return {_TYPE: type(value).__name__, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}


def _made(table: dict[str, Any]) -> Any:
    if _TYPE not in table:
        return table
    made = getattr(suite, table.pop(_TYPE))
    if not dataclasses.is_dataclass(made):
        raise ValueError(made)
    return made(**{k: tuple(v) if isinstance(v, list) else v for k, v in table.items()})  # type: ignore[operator]
