"""Times a study's fastest candidates against the manifest's fastest variant, and offers a winner as a variant.

Short timings only rank. The finalists are built again, checked as any variant, and timed on one GPU alternately with
the reference, in separate processes; :mod:`flashcore.model.decide` decides.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from flashcore.errors import FlashcoreError, UsageError
from flashcore.measure.bench import time_pairs
from flashcore.measure.cases import child_cases
from flashcore.measure.check import check
from flashcore.measure.context import Context
from flashcore.measure.settings import Check
from flashcore.model import decide
from flashcore.model.files import write_atomically
from flashcore.model.suite import Suite, manifest_keys
from flashcore.suites.parts import MANIFEST
from flashcore_tune.candidates import build
from flashcore_tune.grid import Grid, named_points
from flashcore_tune.study import Result
from flashcore_tune.summary import Table

FILE = "finalists.json"  # in the study's folder


@dataclass(frozen=True, slots=True)
class Final:
    """A finalist at one shape: its time and the reference's (us), and the decision; without one it was not timed, for
    ``reason``."""

    index: int
    shape: str
    reference: str
    before_us: float | None = None
    after_us: float | None = None
    decision: decide.Decision | None = None
    reason: str = ""


class Shortlist(NamedTuple):
    """The variant to beat, and the points that are timed against it."""

    reference: str
    candidates: list[int]


def shortlist(suite: Suite, grid: Grid, results: Mapping[int, Result], count: int) -> Shortlist:
    """Returns the fastest candidates at the first shape that are not yet variants of the suite, one per machine code.

    The variant to beat is the space's ``against``, else the fastest named point by the same short timing, else the
    space's variant.
    """
    names, first = named_points(suite, grid), grid.space.shapes[0]
    ranked = sorted((r for r in results.values() if r.times), key=lambda r: (r.times[first], r.index))
    fastest = next((names[r.index] for r in ranked if r.index in names), grid.space.variant)
    codes = {r.code for r in ranked if r.index in names and r.code}
    fresh = [r.index for r in ranked if r.index not in names and r.twin < 0 and r.code not in codes]
    return Shortlist(grid.space.against or fastest, fresh[:count])


def run(job: Context, grid: Grid, entrants: Shortlist, folder: Path, processes: int) -> list[Final]:
    """Builds, checks and times the finalists.

    Raises:
        FlashcoreError: the reference does not build or is wrong.
    """
    reference, shapes = entrants.reference, grid.space.shapes
    job, results = build(job, grid, entrants.candidates, [reference], "check")
    workers = job.workers.on(*job.workers.places[:1])
    job = replace(job, workers=workers, folder=folder, settings=replace(job.settings, check=Check()))
    rejected = {r.index: r.reason for r in results if r.fell}
    base, variants = job.suite.variants[reference], {r.index: job.suite.variants[grid.name(r.index)] for r in results}
    built = [base, *(v for i, v in variants.items() if i not in rejected)]
    pairs = [(v, shape) for v in built for shape in job.shapes if "check" in shape.stages]
    checked = check.run(job, child_cases(job, pairs))
    wrong = {o.variant: f"{o.shape}: {o.reason}" for o in checked.outcomes if o.status == "failed"}
    if reference in wrong:
        raise FlashcoreError(f"{reference}: expected a variant that is right, found: {wrong[reference]}")
    rejected |= {i: wrong[v.name] for i, v in variants.items() if v.name in wrong}

    contests = []
    for s, i in itertools.product(shapes, [i for i in variants if i not in rejected]):
        before, after = child_cases(job, [(v, job.suite.shapes[s]) for v in (base, variants[i])])
        contests.append(time_pairs.Contest.of(_name(i, s), before, after, folder))

    def say(text: str) -> None:
        job.say(f"finalists: {text}")

    timings = time_pairs.run(contests, folder / "turns", workers, processes=processes, progress=say)
    decisions = decide.decide(timings.processes)

    def final(index: int, shape: str) -> Final:
        if decision := decisions.get(name := _name(index, shape)):
            return Final(index, shape, reference, *timings.levels(name), decision)
        return Final(index, shape, reference, reason=rejected.get(index) or timings.lost[name].reason)

    return [final(index, shape) for index in entrants.candidates for shape in shapes]


def _name(index: int, shape: str) -> str:
    return f"{index}/{shape}"


def save(finals: Sequence[Final], study: Path) -> None:
    """Writes the finalists into the study's folder.

    Raises:
        WriteError: it cannot be written.
    """
    write_atomically(study / FILE, json.dumps([dataclasses.asdict(f) for f in finals], indent=1).encode())


def load(study: Path) -> list[Final]:
    """Returns the finalists in a study's folder; none for a file of results.

    Raises:
        UsageError: they cannot be read.
    """
    file = study / FILE
    try:
        return TypeAdapter(list[Final]).validate_json(file.read_bytes()) if file.is_file() else []
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: expected a study's finalists, found something else ({error})") from error


def table(finals: Sequence[Final], grid: Grid) -> Table:
    """The finalists' times, their changes against the reference, and the largest changes that could be noise."""

    rows: list[list[Any]] = []
    for f in finals:
        shares: tuple[float | None, float | None] = None, None
        verdict = f"not timed: {f.reason}"
        if decided := f.decision:
            shares = decided.change, decided.critical
            verdict = ": ".join(filter(None, (decided.outcome, decided.reason)))
        changes = [share and round(100 * share, 2) for share in shares]
        rows.append([f.index, f.shape, f.before_us, f.after_us, *changes, verdict, grid.text(f.index)])
    times = (f"{finals[0].reference}, µs", "time, µs")
    return Table(("finalist", "shape", *times, "change, %", "noise threshold, %", "verdict", "config"), rows)


def winner(finals: Sequence[Final], shapes: Sequence[str]) -> Final | None:
    """Returns the finalist that is faster by most at the first shape, and slower at no shape; ``None`` without one."""
    unsafe = {f.index for f in finals if f.decision is None or f.decision.outcome in ("slower", "undecided")}
    faster = [
        (f.decision.change or 0.0, f)
        for f in finals
        if f.shape == shapes[0] and f.index not in unsafe and f.decision and f.decision.outcome == "faster"
    ]
    return min(faster, key=lambda pair: pair[0])[1] if faster else None


# --- the winner in the manifest ----------------------------------------------------------------------


class Offer(NamedTuple):
    """A manifest's text, and the text with the winner."""

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
