"""Combines ``suite.toml`` and the files that its ``manifests`` include into one manifest.

An included file may have problems, shapes, variants, budgets, waivers and gate rules. All other keys belong in
``suite.toml``, the only file that can include others. Entries keep the order of the files.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashcore.model import plugin
from flashcore.suites import lines

MANIFEST = "suite.toml"
LISTS = ("budget", "waiver", "gate.rule")


def tables() -> tuple[str, ...]:
    """The tables with named entries, those of plugins last."""
    return ("problem", "shape", "variant", *dict(plugin.entries("tables")))


def included(root: Path, manifests: object) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """The included files by path within the suite, and the mistakes in ``manifests``: keys and messages.

    Files are in the order of ``manifests``; the matches of a glob are sorted, and duplicates dropped.
    """
    files: dict[str, bytes] = {}
    wrong: list[tuple[str, str]] = []
    names = manifests if isinstance(manifests, (list, tuple)) else ()  # the form reports other types
    for i, name in enumerate(n for n in names if isinstance(n, str) and n):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            wrong.append((f"manifests[{i}]", f"expected a file within the suite's folder, found {name!r}"))
            continue
        try:
            paths = sorted(root.glob(name)) if set(name) & set("*?[") else [root / name]
        except ValueError:  # not a valid glob
            paths = []
        paths = [p for p in paths if p.is_file() and p != root / MANIFEST]
        if not paths:
            wrong.append((f"manifests[{i}]", f"expected a file of the suite other than {MANIFEST}, found no {name}"))
        for file in paths:
            files.setdefault(file.relative_to(root).as_posix(), file.read_bytes())
    return files, wrong


def digest(files: Mapping[str, bytes]) -> str:
    """A digest of the included files and their order."""
    digest = hashlib.sha256()
    for file, text in files.items():
        digest.update(f"{file} {len(text)} ".encode())
        digest.update(text)
    return digest.hexdigest()


@dataclass
class CombinedManifest:
    """``suite.toml`` with the files that it includes.

    Args:
        data: the content of ``suite.toml``; included files are merged into it.
        texts: each file's text by name.
    """

    data: dict[str, Any]
    texts: dict[str, bytes]
    mistakes: list[str] = field(default_factory=list)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)  # key → file, key in it

    def add(self, file: str, text: bytes) -> None:
        """Adds an included file."""
        self.texts[file] = text
        try:
            content = tomllib.loads(text.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            self.mistakes.append(lines.invalid(file, error))
            return
        if isinstance(gate := content.get("gate"), dict):
            del content["gate"]
            content |= {f"gate.{key}": value for key, value in gate.items()}
        for key, value in content.items():
            if (key in tables() and isinstance(value, dict)) or (key in LISTS and isinstance(value, list)):
                self._merge(file, key, value)
            else:
                allowed = ", ".join([*(f"[{name}.…]" for name in tables()), *(f"[[{name}]]" for name in LISTS)])
                self._wrong(file, key, f"expected {allowed}, found {repr(value)[:100]}")

    def _merge(self, file: str, key: str, table: dict[str, Any] | list[Any]) -> None:
        outer = self.data.setdefault("gate", {}) if key == "gate.rule" else self.data
        into = outer.setdefault(key.removeprefix("gate."), type(table)()) if isinstance(outer, dict) else None
        if not isinstance(into, type(table)):
            return  # the form reports the wrong type
        places = {name: place for name, place, _ in _entries(into) if name is not None}
        for name, place, entry in _entries(table):
            if name in places:
                other = self._places.get(key + places[name], (MANIFEST,))[0]
                self._wrong(file, f"{key}{place}", f"expected a unique name, found {name!r} in {other} and in {file}")
                continue
            self._places[f"{key}[{len(into)}]" if isinstance(into, list) else key + place] = (file, key + place)
            if isinstance(into, list):
                into.append(entry)
            else:
                into[str(name)] = entry

    def _wrong(self, file: str, *mistake: str) -> None:
        self.mistakes.append(lines.located(file, self.texts[file], *mistake))

    def locate(self, key: str, *message: str) -> str:
        """A mistake prefixed by file and line, with its key as in that file."""
        outer = max((k for k in self._places if f"{key}.".startswith((f"{k}.", f"{k}["))), key=len, default="")
        file, place = self._places.get(outer, (MANIFEST, ""))
        return lines.located(file, self.texts[file], place + key[len(outer) :], *message)


def _entries(table: dict[str, Any] | list[Any]) -> list[tuple[str | None, str, Any]]:
    """Each entry's name, its place as a suffix of the table's key, and the entry. List entries may have no name."""
    if isinstance(table, dict):
        return [(name, f".{name}", entry) for name, entry in table.items()]
    names = (str(e["name"]) if isinstance(e, dict) and "name" in e else None for e in table)
    return [(name, f"[{i}]", entry) for i, (name, entry) in enumerate(zip(names, table, strict=True))]
