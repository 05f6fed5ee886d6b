"""A cache of slow answers that seldom change, in the build folder: a compiler's version, a valid manifest.

Each answer has a JSON file with its key; under another key there is none. A file that cannot be read counts as missing,
and an answer that cannot be written is computed again next time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import WriteError
from flashcore.model import suite
from flashcore.model.files import write_atomically

_TYPE = "\x00"  # the key that names a table's dataclass: no manifest has it


def recall(folder: Path, name: str, key: str) -> Any:
    """The value cached as ``name`` under this key; ``None`` if there is none."""
    try:
        data = json.loads((folder / f"{name}.json").read_bytes(), object_hook=_made)
        return data["value"] if data["key"] == key else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def keep(folder: Path, name: str, key: str, value: Any) -> None:
    """Caches ``value``: JSON's types and the dataclasses of :mod:`flashcore.model.suite`, whose lists are tuples. A
    tuple elsewhere is recalled as a list."""
    text = json.dumps({"key": key, "value": value}, ensure_ascii=False, separators=(",", ":"), default=_table)
    write(folder / f"{name}.json", text.encode())


def write(path: Path, data: bytes) -> None:
    """Writes a file whose content can be computed again, so that a failed write is ignored."""
    with contextlib.suppress(OSError, WriteError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)


def stamp(paths: Sequence[Path]) -> str:
    """A text that differs if one of the files changed: name, size, inode, mtime, and ctime (which moves even if mtime
    was set back).

    Raises:
        OSError: one is not there.
    """
    stats = [(path, path.stat()) for path in paths]
    return " ".join(f"{path}:{s.st_size}:{s.st_ino}:{s.st_mtime_ns}:{s.st_ctime_ns}" for path, s in stats)


def _table(value: Any) -> dict[str, Any]:
    return {_TYPE: type(value).__name__, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}


def _made(table: dict[str, Any]) -> Any:
    if _TYPE not in table:
        return table
    made = getattr(suite, table.pop(_TYPE))
    if not dataclasses.is_dataclass(made):
        raise ValueError(made)
    return made(**{k: tuple(v) if isinstance(v, list) else v for k, v in table.items()})  # type: ignore[operator]
