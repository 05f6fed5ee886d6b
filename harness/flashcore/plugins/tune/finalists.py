"""The finalists of a study against the fastest variant in the manifest, by the rule of ``bench --against``.

Short timings only rank. So the few fastest are built again, checked as any variant is, and timed on
one GPU in turns with the reference, in processes of their own (:mod:`flashcore.plugins.against.decide`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.errors import FlashcoreError, UsageError
from flashcore.measure.check import check
from flashcore.measure.settings import Check
from flashcore.model.files import write_atomically
from flashcore.pipeline.gpu_stages import child_cases
from flashcore.pipeline.state import Job
from flashcore.plugins.against import decide, time_pairs
from flashcore.plugins.against.against import copied
from flashcore.plugins.against.comparison import level
from flashcore.plugins.tune.candidates import job_of, prepared
from flashcore.plugins.tune.grid import Grid, ancestors
from flashcore.plugins.tune.study import Result

KEPT = "finalists.json"  # in the study's folder


@dataclass(frozen=True, slots=True)
class Final:
    """A finalist at one shape: its time and the reference's (us), and what was decided. Without a decision it was not
    timed, and ``reason`` says why."""

    index: int
    shape: str
    reference: str
    before_us: float | None = None
    after_us: float | None = None
    decision: decide.Decision | None = None
    reason: str = ""


def chosen(job: Job, grid: Grid, results: Mapping[int, Result], count: int) -> tuple[str, list[int]]:
    """The variant to beat, and the fastest candidates that are no variant of the suite yet: one of each machine code,
    and with several shapes the fastest of each shape in turn.

    The variant is the one that the space names, else the fastest in the space by the same short timing, else its own.
    """
    named = ancestors(job.suite, grid)
    timed = [r for r in results.values() if r.times]
    ranked = [sorted(timed, key=lambda r: (r.times[shape], r.index)) for shape in grid.space.shapes]
    first = next((named[r.index] for r in ranked[0] if r.index in named), grid.space.variant)
    known = {r.code for r in timed if r.index in named and r.code}
    fresh = [[r.index for r in own if r.index not in named and r.twin < 0 and r.code not in known] for own in ranked]
    in_turn = [i for place in zip(*fresh, strict=True) for i in place]
    return grid.space.against or first, list(dict.fromkeys(in_turn))[:count]


def run(
    job: Job, grid: Grid, reference: str, finalists: Sequence[int], folder: Path, processes: int,
    say: Callable[[str], None],
) -> list[Final]:  # fmt: skip
    """Builds, checks and times the finalists.

    Raises:
        FlashcoreError: the reference does not build or is wrong: there is nothing to compare them with.
    """
    job = job_of(job, grid, finalists, [reference], "check")
    built, results = prepared(job, grid, finalists, say)
    fell = {r.index: r.reason for r in results if r.fell}
    variants = {i: job.suite.variants[grid.name(i)] for i in finalists if i not in fell}
    base = job.suite.variants[reference]
    pairs = [(v, s) for v in (base, *variants.values()) for s in job.shapes if "check" in s.stages]
    checked = check.run(
        child_cases(job, built, pairs),
        folder / "check",
        Check(progress=lambda text: say(f"check: {text}"), places=job.places[:1]),
    )
    wrong = {o.variant: f"{o.shape}: {o.reason}" for o in checked.outcomes if o.status == "failed"}
    if reference in wrong:
        raise FlashcoreError(f"{reference}: expected a variant that is right, found: {wrong[reference]}")
    fell |= {i: wrong[v.name] for i, v in variants.items() if v.name in wrong}
    contests = []
    for shape in (job.suite.shapes[s] for s in grid.space.shapes):
        (before,) = child_cases(job, built, [(base, shape)])
        again = replace(before, build="again", library=copied(before.library, folder / "again"))
        for index in (i for i in variants if i not in fell):
            (after,) = child_cases(job, built, [(variants[index], shape)])
            sides = {"before": replace(before, build="before"), "after": replace(after, build="after"), "again": again}
            contests.append(time_pairs.Contest(name=f"{index}/{shape.name}", **sides))
    found = time_pairs.run(
        contests, folder / "turns", processes=processes, progress=lambda text: say(f"finalists: {text}"),
        places=job.places[:1],
    )  # fmt: skip
    return [_final(grid, reference, i, s, found, fell) for i in finalists for s in grid.space.shapes]


def _final(
    grid: Grid, reference: str, index: int, shape: str, found: time_pairs.Found, fell: Mapping[int, str]
) -> Final:
    name = f"{index}/{shape}"
    if index in fell or name in found.lost:
        return Final(index, shape, reference, reason=fell.get(index) or found.lost[name].reason)
    cases = {n: [decide.Process.of(t.before, t.after, t.again) for t in times] for n, times in found.times.items()}
    times = found.times[name]
    before, after = level([t.before + t.again for t in times]), level([t.after for t in times])
    return Final(index, shape, reference, before, after, decide.decide(cases)[name])


def keep(finals: Sequence[Final], study: Path) -> None:
    """Writes them into the study's folder.

    Raises:
        WriteError: it cannot be written.
    """
    write_atomically(study / KEPT, json.dumps([dataclasses.asdict(f) for f in finals], indent=1).encode())


def kept(study: Path) -> list[Final]:
    """The finalists of a study's folder; none if it has none, or is a file of results.

    Raises:
        UsageError: they cannot be read.
    """
    file = study / KEPT
    if not file.is_file():
        return []
    try:
        rows = json.loads(file.read_bytes())
        return [Final(**{**row, "decision": (d := row["decision"]) and decide.Decision(**d)}) for row in rows]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{file}: expected a study's finalists, found something else ({error})") from error


def winner(finals: Sequence[Final], shapes: Sequence[str]) -> int | None:
    """The finalist that is proved faster at the first shape, by most, and slower at none; ``None`` if none is."""
    of: dict[int, dict[str, decide.Decision | None]] = {}
    for final in finals:
        of.setdefault(final.index, {})[final.shape] = final.decision
    right = {
        i: own[shapes[0]]
        for i, own in of.items()
        if (first := own.get(shapes[0])) and first.outcome == "faster"
        and all(d and d.outcome not in ("slower", "undecided") for d in own.values())
    }  # fmt: skip
    return min(right, key=lambda i: getattr(right[i], "change", 0.0), default=None)
