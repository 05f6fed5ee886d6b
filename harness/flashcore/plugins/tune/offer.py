"""The winner of a study as a variant of the manifest: a table to add, shown as a diff, written only when asked for."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from pathlib import Path

from flashcore.model.files import write_atomically
from flashcore.model.suite import Suite, manifest_keys
from flashcore.plugins.tune.finalists import Final
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
        before, after = self.before.splitlines(True), self.after.splitlines(True)
        return "".join(difflib.unified_diff(before, after, f"a/{self.file.name}", f"b/{self.file.name}"))

    def write(self) -> None:
        """Raises:
        WriteError: it cannot be written.
        """
        write_atomically(self.file, self.after.encode())


def offer(suite: Suite, grid: Grid, winner: Final, study: str) -> Offer:
    """The winner as a new variant at the end of the suite's manifest. ``study`` is the study's name."""
    import tomlkit  # only a proved winner needs it

    assert winner.decision is not None and winner.decision.change is not None
    base = suite.variants[grid.space.variant]
    file = Path(suite.root) / MANIFEST
    before = file.read_text(encoding="utf-8")
    name = next(n for i in range(1, 10_000) if (n := f"{grid.space.name}_tuned_{i}") not in suite.variants)
    gain = f"{-100 * winner.decision.change:.1f} % faster than {winner.reference} at {winner.shape}"
    config, where = tomlkit.inline_table(), tomlkit.inline_table()
    config.update({**base.config, **grid.point(winner.index)})
    where.update(dataclasses.asdict(base.where))
    keys = {
        "problem": base.problem,
        "technique": f"{grid.text(winner.index)}: found by search in the space {grid.space.name}",
        **manifest_keys(base.kind),
        "config": config,
        "parent": winner.reference,
        **({"document": base.document} if base.document else {}),
        "roof": base.roof,
        "tolerance": base.tolerance,
        "tolerance_reason": base.tolerance_reason,
        "where": where,
    }
    comment = f"# Found by flashcore tune, study {study}: {gain}."
    return Offer(file, before, f"{before.rstrip()}\n\n{comment}\n{tomlkit.dumps({'variant': {name: keys}})}")
