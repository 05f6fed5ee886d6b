"""The files of a manifest: ``suite.toml`` and those that its ``manifests`` name, put together as if they were one.

An included file may hold problems, shapes, variants, budgets, waivers and rules of the gate. What is about the
suite as a whole stands in ``suite.toml``, which alone includes others. Tables follow each other as the files do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "suite.toml"
TABLES = ("problem", "shape", "variant")
LISTS = ("budget", "waiver", "gate.rule")


def included(root: Path, named: object) -> tuple[dict[str, bytes], list[str]]:
    """The files that ``manifests`` names, by their paths within the suite, and what is wrong with it.

    They come in the order of ``named``, those of one glob sorted; a file named twice counts where it is named first.
    """
    found: dict[str, bytes] = {}
    wrong: list[str] = []
    names = named if isinstance(named, (list, tuple)) else ()  # the form says what else is wrong with it
    for i, name in enumerate(n for n in names if isinstance(n, str) and n):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            wrong.append(f"manifests[{i}]: expected a file within the suite's folder, found {name!r}")
            continue
        try:
            paths = sorted(root.glob(name)) if set(name) & set("*?[") else [root / name]
        except ValueError as error:
            wrong.append(f"manifests[{i}]: expected a file or a glob, found {name!r} ({error})")
            continue
        files = [p for p in paths if p.is_file() and p != root / MANIFEST]
        if not files:
            wrong.append(f"manifests[{i}]: expected a file of the suite other than {MANIFEST}, found no {name}")
        for file in files:
            found.setdefault(file.relative_to(root).as_posix(), file.read_bytes())
    return found, wrong


def digest(files: Mapping[str, bytes]) -> str:
    """Says of included files whether they are the same, in the same order."""
    found = hashlib.sha256()
    for file, text in files.items():
        found.update(f"{file} {len(text)} ".encode())
        found.update(text)
    return found.hexdigest()


@dataclass
class Whole:
    """A manifest put together.

    Args:
        data: what ``suite.toml`` holds; what is included is added to it.
    """

    data: dict[str, Any]
    mistakes: list[str] = field(default_factory=list)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)  # key → file, key in it

    def add(self, file: str, text: bytes, known: Sequence[str]) -> None:
        """Adds an included file; ``known`` are the keys that a manifest may have at its top level."""
        import tomllib  # a manifest that is remembered is not parsed

        try:
            tables = tomllib.loads(text.decode("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.mistakes.append(f"{file}: not valid TOML: {error}")
            return
        for key, value in _opened(tables):
            if key in TABLES and isinstance(value, dict):
                self._add_table(file, key, value)
            elif key in LISTS and isinstance(value, list):
                self._add_list(file, key, value)
            else:
                top = key.split(".")[0]
                kind = "a table" if key in TABLES else "a list" if key in LISTS else f"it in {MANIFEST} alone"
                expected = kind if top in known else "no such key (is it misspelt?)"
                self.mistakes.append(f"{file}: {key}: expected {expected}, found {repr(value)[:100]}")

    def _add_table(self, file: str, key: str, entries: Mapping[str, Any]) -> None:
        table = self.data.setdefault(key, {})
        for name, entry in entries.items() if isinstance(table, dict) else ():
            if name in table:
                self._twice(f"{key}.{name}", file, self._places.get(f"{key}.{name}", (MANIFEST,))[0])
                continue
            table[name] = entry
            self._places[f"{key}.{name}"] = (file, f"{key}.{name}")

    def _add_list(self, file: str, key: str, entries: Sequence[Any]) -> None:
        outer = self.data.setdefault("gate", {}) if "." in key else self.data
        listed = outer.setdefault(key.split(".")[-1], []) if isinstance(outer, dict) else None
        if not isinstance(listed, list):
            return
        names = {n: i for i, e in enumerate(listed) if isinstance(e, dict) and isinstance(n := e.get("name"), str)}
        for i, entry in enumerate(entries):
            name = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(name, str) and name in names:
                self._twice(f"{key} {name}", file, self._places.get(f"{key}[{names[name]}]", (MANIFEST,))[0])
            self._places[f"{key}[{len(listed)}]"] = (file, f"{key}[{i}]")
            listed.append(entry)

    def _twice(self, what: str, file: str, other: str) -> None:
        self.mistakes.append(f"{what}: expected a name of its own, found it in {other} and in {file}")

    def placed(self, mistake: str) -> str:
        """A mistake, or a key alone, with the file that it stands in where that is not ``suite.toml``."""
        keys = [k for k in self._places if mistake.startswith(k) and mistake[len(k) :][:1] in ("", *".: [")]
        if not keys:
            return mistake
        key = max(keys, key=len)
        file, own = self._places[key]
        return f"{file}: {own}{mistake[len(key) :]}"


def _opened(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The top-level keys; of ``gate`` those within it."""
    for key, value in tables.items():
        if key == "gate" and isinstance(value, dict):
            yield from ((f"gate.{k}", v) for k, v in value.items())
        else:
            yield key, value
