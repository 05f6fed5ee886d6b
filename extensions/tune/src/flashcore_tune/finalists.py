"""Times a study's fastest candidates against the manifest's fastest variant, and offers a winner as a variant.

Short timings only rank. The finalists are built again, checked on every shape that the suite checks, and timed in turns
with the reference in one run, which stays in the study's folder.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flashcore.errors import FlashcoreError
from flashcore.model.case import Case
from flashcore.model.files import write_atomically
from flashcore.model.intervals import Ratio, ratio
from flashcore.model.record import Record
from flashcore.model.suite import Suite, manifest_keys
from flashcore.suites.parts import MANIFEST
from flashcore_tune.candidates import Candidates
from flashcore_tune.search import Outcome, ranked
from flashcore_tune.space import Grid

#: A smaller change does not matter.
EFFECT = 0.01


class Shortlist(NamedTuple):
    """The variant to beat, and the points that are timed against it."""

    reference: str
    points: list[int]


@dataclass(frozen=True)
class Final:
    """A finalist at one shape: its speedup over the reference, with the interval over the rounds of the run; without
    one it was not timed, for ``reason``."""

    point: int
    shape: str
    reference: str
    speedup: Ratio | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """``faster`` or ``slower`` if the whole interval is so by more than 1 %."""
        if self.speedup is None:
            return f"not timed: {self.reason}"
        if self.speedup.low > 1 + EFFECT:
            return "faster"
        if self.speedup.high < 1 - EFFECT:
            return "slower"
        return "no slower" if self.speedup.low > 1 - EFFECT else "undecided"


def shortlist(suite: Suite, grid: Grid, outcomes: Mapping[int, Outcome], count: int) -> Shortlist:
    """Returns the fastest candidates at the first shape that are not yet variants of the suite, one per machine code.

    The variant to beat is the space's ``against``, else the fastest named point by the same short timing, else the
    space's variant.
    """
    names, order = grid.named(suite), ranked(outcomes, grid.space.shapes[0])
    fastest = next((names[i] for i in order if i in names), grid.space.variant)
    codes = {outcomes[i].code for i in order if i in names}
    fresh = []
    for index in order:
        if index not in names and outcomes[index].code not in codes:
            codes.add(outcomes[index].code)
            fresh.append(index)
    return Shortlist(grid.space.against or fastest, fresh[:count])


def run(candidates: Candidates, entrants: Shortlist) -> list[Final]:
    """Builds, checks and times the finalists.

    Raises:
        FlashcoreError: the reference does not build, or is wrong.
    """
    settings = dataclasses.replace(candidates.full, profiles=str(candidates.folder / "finalists"))
    record = candidates.record(entrants.points, [entrants.reference], settings, check=True)
    return finals(record, candidates.grid, entrants, candidates.modes)


def finals(record: Record, grid: Grid, entrants: Shortlist, modes: Mapping[str, str]) -> list[Final]:
    """The finalists in a record: each at each shape. One that failed on any shape was timed on none.

    Args:
        modes: shape → the timing mode that ranks there.

    Raises:
        FlashcoreError: the reference failed.
    """
    failed: dict[str, str] = {}
    for outcome in record.outcomes:
        if outcome.status != "ok":
            failed.setdefault(outcome.variant, f"{outcome.shape}: {outcome.reason}")
    reference = entrants.reference
    if reference in failed:
        raise FlashcoreError(f"{reference}: expected a variant that is right, found: {failed[reference]}")

    def final(index: int, shape: str, mode: str) -> Final:
        name = grid.name(index)
        before, after = (record.samples.get((Case(v, shape), mode), ()) for v in (reference, name))
        if name in failed or not before or not after:
            return Final(index, shape, reference, reason=failed.get(name, "the timing is void"))
        return Final(index, shape, reference, ratio(before, after))

    return [final(index, shape, mode) for index in entrants.points for shape, mode in modes.items()]


def winner(finals: Sequence[Final], first: str) -> Final | None:
    """Returns the finalist that is faster by most at the first shape and slower at none; ``None`` without one."""
    unsafe = {f.point for f in finals if f.verdict not in ("faster", "no slower")}
    faster = [
        (f.speedup.value, f)
        for f in finals
        if f.speedup and f.verdict == "faster" and f.shape == first
        if f.point not in unsafe
    ]
    return max(faster, key=lambda pair: pair[0])[1] if faster else None


class Offer(NamedTuple):
    """A manifest's text, and the text with the winner as a new variant."""

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
    """Returns the winner as a new variant at the end of the suite's manifest. ``study`` is the study's name."""
    import tomlkit  # only a proved winner needs it

    assert winner.speedup is not None
    base = suite.variants[grid.space.variant]
    file = Path(suite.root) / MANIFEST
    before = file.read_text(encoding="utf-8")
    name = next(n for i in range(1, 10_000) if (n := f"{grid.space.name}_tuned_{i}") not in suite.variants)
    config, where = tomlkit.inline_table(), tomlkit.inline_table()
    config.update({**base.config, **grid.point(winner.point)})
    where.update(dataclasses.asdict(base.where))
    keys = {
        "problem": base.problem,
        "technique": f"{grid.text(winner.point)}: found by search in the space {grid.space.name}",
        **manifest_keys(base.kind),
        "config": config,
        "parent": winner.reference,
        **({"document": base.document} if base.document else {}),
        "roof": base.roof,
        "tolerance": base.tolerance,
        "tolerance_reason": base.tolerance_reason,
        "where": where,
    }
    gain = f"{winner.speedup.value:.3f} × as fast as {winner.reference} at {winner.shape}"
    comment = f"# Found by flashcore tune, study {study}: {gain}."
    return Offer(file, before, f"{before.rstrip()}\n\n{comment}\n{tomlkit.dumps({'variant': {name: keys}})}")
