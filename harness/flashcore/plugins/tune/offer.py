"""The winner of a study as a variant of the manifest: a table to add, shown as a diff, written only when asked for."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

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
    """The variant's table in a manifest."""
    import tomlkit  # only a proved winner needs it

    config, where = tomlkit.inline_table(), tomlkit.inline_table()
    config.update({**base.config, **grid.point(index)})
    where.update({"archs": base.where.archs, "shapes": base.where.shapes, "unsupported": base.where.unsupported})
    keys = {
        "problem": base.problem,
        "technique": f"{grid.text(index)}: found by search in the space {grid.space.name}",
        **manifest_keys(base.kind),
        "config": config,
        "parent": parent,
        **({"document": base.document} if base.document else {}),
        "roof": base.roof,
        "tolerance": base.tolerance,
        "tolerance_reason": base.tolerance_reason,
        "where": where,
    }
    comment = f"# Found by flashcore tune, study {study}: {gain}."
    return f"{comment}\n{tomlkit.dumps({'variant': {name: keys}})}"
