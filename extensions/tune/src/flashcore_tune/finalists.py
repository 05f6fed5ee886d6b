"""Times a study's fastest candidates against the manifest's fastest variant, and offers a winner as a variant.

Short timings only rank. The finalists are built again, checked on every shape that the suite checks, and timed in turns
with the reference in one run, which stays in the study's folder.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from flashcore.errors import FlashcoreError
from flashcore.explain import comparison
from flashcore.explain.comparison import Change, Comparison, Difference, Side
from flashcore.explain.times import Speedup
from flashcore.model.case import Case
from flashcore.model.files import write_atomically
from flashcore.model.intervals import ratio
from flashcore.model.record import CaseSubject, Record
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


def run(candidates: Candidates, entrants: Shortlist) -> Comparison:
    """Builds, checks and times the finalists.

    Raises:
        FlashcoreError: the reference does not build, or is wrong.
    """
    settings = dataclasses.replace(candidates.full, profiles=str(candidates.folder / "finalists"))
    record = candidates.record(entrants.points, [entrants.reference], settings, check=True)
    return finals(record, candidates.grid, entrants, candidates.modes)


def finals(record: Record, grid: Grid, entrants: Shortlist, modes: Mapping[str, str]) -> Comparison:
    """The reference compared with each finalist at each shape. One that failed on any shape was timed on none.

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

    def final(index: int, shape: str, mode: str) -> Difference:
        name, text = grid.name(index), grid.text(index)
        before, after = (record.samples.get((Case(v, shape), mode), ()) for v in (reference, name))
        subject = CaseSubject(Case(name, shape))
        if name in failed or not before or not after:
            return Difference(subject, "failed", reason=f"not timed: {failed.get(name, 'the timing is void')}")
        of = ratio(before, after)
        speedup, outcome = Speedup(of.value, of.low, of.high), judged(of.low, of.high)
        change = Change(subject, f"{mode}_p50", "us", median(before), median(after), outcome, "one run", speedup)
        return Difference(subject, outcome, (change,), text)

    side = Side.of(record)
    rows = [final(index, shape, mode) for index in entrants.points for shape, mode in modes.items()]
    return Comparison(side._replace(name=reference), side._replace(name=f"finalists of {grid.space.name}"), rows)


def judged(low: float, high: float) -> comparison.Outcome:
    """``faster`` or ``slower`` if the whole interval is, by more than 1 %; ``no difference`` if all of it is within."""
    if low > 1 + EFFECT or high < 1 - EFFECT:
        return "faster" if low > 1 else "slower"
    return "no difference" if low > 1 - EFFECT and high < 1 + EFFECT else "undecided"


def winner(finals: Comparison, first: str) -> Difference | None:
    """Returns the finalist that is faster by most at the first shape and not slower by 1 % at any; ``None`` without
    one."""
    unsafe = {
        row.subject.variant
        for row in finals.rows
        if not (row.lead and row.lead.low is not None and row.lead.low > 1 - EFFECT)
    }
    faster = (row for row in finals.rows if row.outcome == "faster" and row.subject.shape == first)
    return next((row for row in faster if row.subject.variant not in unsafe), None)


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


def offer(suite: Suite, grid: Grid, entrants: Shortlist, winner: Difference, study: str) -> Offer:
    """Returns the winner as a new variant at the end of the suite's manifest. ``study`` is the study's name."""
    import tomlkit  # only a proved winner needs it

    assert winner.lead is not None and winner.lead.ratio is not None
    point = next(i for i in entrants.points if grid.name(i) == winner.subject.variant)
    base = suite.variants[grid.space.variant]
    file = Path(suite.root) / MANIFEST
    before = file.read_text(encoding="utf-8")
    name = next(n for i in range(1, 10_000) if (n := f"{grid.space.name}_tuned_{i}") not in suite.variants)
    config, where = tomlkit.inline_table(), tomlkit.inline_table()
    config.update({**base.config, **grid.point(point)})
    where.update(dataclasses.asdict(base.where))
    keys = {
        "problem": base.problem,
        "technique": f"{grid.text(point)}: found by search in the space {grid.space.name}",
        **manifest_keys(base.kind),
        "config": config,
        "parent": entrants.reference,
        **({"document": base.document} if base.document else {}),
        "roof": base.roof,
        "tolerance": base.tolerance,
        "tolerance_reason": base.tolerance_reason,
        "where": where,
    }
    gain = f"{winner.lead.ratio:.3f} × as fast as {entrants.reference} at {winner.subject.shape}"
    comment = f"# Found by flashcore tune, study {study}: {gain}."
    return Offer(file, before, f"{before.rstrip()}\n\n{comment}\n{tomlkit.dumps({'variant': {name: keys}})}")
