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


def recall(folder: Path, name: str, key: str) -> Any:
    """The value cached as ``name`` under this key; ``None`` if there is none."""
    try:
        data = json.loads((folder / f"{name}.json").read_bytes())
        return _unpacked(data[1]) if data[0] == key else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def keep(folder: Path, name: str, key: str, value: Any) -> None:
    """Caches ``value``: JSON's own types, tuples and the dataclasses of :mod:`flashcore.model.suite`."""
    text = json.dumps([key, _packed(value)], ensure_ascii=False, separators=(",", ":"))
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


def _packed(value: Any) -> Any:
    """Lists encode the types that JSON lacks; the first item names the type."""
    if isinstance(value, dict):
        return {k: _packed(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return ["tuple", *map(_packed, value)]
    if isinstance(value, list):
        return ["list", *map(_packed, value)]
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, *(_packed(getattr(value, f.name)) for f in dataclasses.fields(value))]
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _unpacked(v) for k, v in value.items()}
    if not isinstance(value, list):
        return value
    items = [_unpacked(v) if isinstance(v, (list, dict)) else v for v in value[1:]]
    if value[0] == "tuple":
        return tuple(items)
    if value[0] == "list":
        return items
    made = getattr(suite, value[0])
    if not dataclasses.is_dataclass(made):
        raise ValueError(value[0])
    return made(*items)  # type: ignore[operator]
