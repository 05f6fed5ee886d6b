"""The winner of a study as a variant of the manifest: a table to add, shown as a diff, written only when asked for."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashcore.model.files import write_atomically
from flashcore.model.suite import Suite, Variant, manifest_keys
from flashcore.plugins.tune.grid import Grid
from flashcore.suites.parts import MANIFEST


@dataclass(frozen=True, slots=True)
class Offer:
    """A manifest's file as it is and as it would be."""

    file: Path
    before: str
    after: str

    @property
    def diff(self) -> str:
        name = self.file.name
        lines = difflib.unified_diff(
            self.before.splitlines(True), self.after.splitlines(True), f"a/{name}", f"b/{name}"
        )  # fmt: skip
        return "".join(lines)

    def write(self) -> None:
        """Raises:
        WriteError: it cannot be written.
        """
        write_atomically(self.file, self.after.encode())


def offer(suite: Suite, grid: Grid, index: int, parent: str, study: str, gain: str) -> Offer:
    """The winner as a variant of its own, at the end of the suite's manifest.

    Args:
        parent: the variant that it was proved faster than.
        study: the study's name.
        gain: what was measured, in words.
    """
    base = suite.variants[grid.space.variant]
    file = Path(suite.root) / MANIFEST
    before = file.read_text(encoding="utf-8")
    name = next(n for i in range(1, 10_000) if (n := f"{grid.space.name}_tuned_{i}") not in suite.variants)
    return Offer(file, before, before.rstrip("\n") + "\n\n" + _table(name, base, grid, index, parent, study, gain))


def _table(name: str, base: Variant, grid: Grid, index: int, parent: str, study: str, gain: str) -> str:
    config = {**base.config, **grid.point(index)}
    where: dict[str, Any] = {"archs": list(base.where.archs), "shapes": list(base.where.shapes)}
    lines = [
        f"# Found by flashcore tune, study {study}: {gain}.",
        f"[variant.{name}]",
        f"problem = {_toml(base.problem)}",
        f"technique = {_toml(f'{grid.text(index)}: found by search in the space {grid.space.name}')}",
        *(f"{key} = {_toml(value)}" for key, value in manifest_keys(base.kind).items()),
        f"config = {_toml(config)}",
        f"parent = {_toml(parent)}",
        *([f"document = {_toml(base.document)}"] if base.document else []),
        f"roof = {_toml(base.roof)}",
        f"tolerance = {_toml(base.tolerance)}",
        f"tolerance_reason = {_toml(base.tolerance_reason)}",
        f"where = {_toml({**where, 'unsupported': dict(base.where.unsupported)})}",
    ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """TOML's text of a value; a JSON string is one of TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
