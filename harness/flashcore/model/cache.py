"""Answers that take long to find and seldom change, kept beside what was built: a compiler's version, a
manifest that was found right.

Each lies in a JSON file of its own with the key that it was found under; another key is another
question. What cannot be read counts as unknown, and what cannot be written is asked again next time.
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
    """What was kept as ``name`` under this very key; ``None`` if nothing was."""
    try:
        data = json.loads((folder / f"{name}.json").read_bytes())
        return _unpacked(data[1]) if data[0] == key else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def keep(folder: Path, name: str, key: str, value: Any) -> None:
    """Keeps ``value``: JSON's own types, tuples and the dataclasses of :mod:`flashcore.model.suite`."""
    text = json.dumps([key, _packed(value)], ensure_ascii=False, separators=(",", ":"))
    write(folder / f"{name}.json", text.encode())


def write(path: Path, data: bytes) -> None:
    """Writes a file that can be found out again; what cannot be written is."""
    with contextlib.suppress(OSError, WriteError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)


def stamp(paths: Sequence[Path]) -> str:
    """Says of files whether they are the same as before: name, size, which file it is, time of the last change (also
    of one that left the time of writing as it was).

    Raises:
        OSError: one is not there.
    """
    found = [(str(p), p.stat()) for p in paths]
    return " ".join(f"{name}:{s.st_size}:{s.st_ino}:{s.st_mtime_ns}:{s.st_ctime_ns}" for name, s in found)


def _packed(value: Any) -> Any:
    """Lists stand for what JSON has no form for; their first item says what they are."""
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
