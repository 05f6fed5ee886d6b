"""Candidates built and gated on the CPUs: what the compiler, the cubin and the launch plan say, before a GPU is used. A
candidate is rejected at ``build`` if it does not compile, at ``static`` if its plan refuses a shape, if it cannot be
launched, or if it breaks a hard budget. Soft budgets that it breaks are recorded with it; it may still win.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

from flashcore.errors import FlashcoreError
from flashcore.gate.expand import excess
from flashcore.gate.judge import judge
from flashcore.measure.build.ninja_graph import OBJECT
from flashcore.measure.machine.gpu_lease import leases
from flashcore.measure.workers.ahead import Ahead
from flashcore.measure.workers.kernel_call import Case
from flashcore.model.record import Artifact, Built, Environment, Facts, Record
from flashcore.model.suite import Budget
from flashcore.model.text import matches_any
from flashcore.pipeline.compile_ahead import compile_all
from flashcore.pipeline.gpu_stages import child_cases
from flashcore.pipeline.state import Job
from flashcore.plugins.tune import trial
from flashcore.plugins.tune.grid import Grid, variant
from flashcore.plugins.tune.study import Result
from flashcore.readers import host_code

#: Static facts recorded of each candidate, and which value counts of several kernels.
FACTS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "registers": max, "smem": max, "spill_store_bytes": sum, "stack_bytes": max, "threads": max,
    "theoretical_occupancy": min, "sass_instructions": sum, "compiler_warnings": max,
}  # fmt: skip


def job_of(job: Job, grid: Grid, indices: Collection[int], more: Collection[str] = (), stage: str = "") -> Job:
    """The job of building these points, and variants of the suite besides, on the space's shapes. The budgets of the
    space's variant are the candidates' too.

    Args:
        job: for one arch.
        stage: the stage whose shapes are added.
    """
    suite, base = job.suite, grid.space.variant
    own = {(v := variant(suite, grid, i)).name: v for i in indices}
    budgets = tuple(
        dataclasses.replace(b, variants=(*b.variants, *own)) if matches_any(base, b.variants) else b
        for b in suite.budgets
    )
    variants = {**own, **{name: suite.variants[name] for name in more}}
    runs = [s for s in suite.shapes.values() if suite.variants[base].runs_on(s)]
    shapes = {s.name: s for s in runs if s.name in grid.space.shapes or stage in s.stages}
    suite = dataclasses.replace(suite, variants=variants, budgets=budgets, shapes=shapes, waivers=())
    return dataclasses.replace(job, suite=suite, variants=tuple(variants.values()), shapes=tuple(shapes.values()))


def prepared(job: Job, grid: Grid, indices: Sequence[int], say: Callable[[str], None]) -> tuple[Built, list[Result]]:
    """Builds the points and gates them.

    Args:
        job: as :func:`job_of` gives it, for one arch.
    """
    built = compile_all(job, say)
    budgets = {b.name: b for b in job.suite.budgets}
    missed: dict[str, dict[str, tuple[float, str]]] = {}  # variant → budget → share of its limit, in words
    for v in judge(_record(job, built), require="static").verdicts:
        if v.status == "fail" and v.budget in budgets and budgets[v.budget].tier == "static":
            own = missed.setdefault(v.subject.variant, {})
            text = f"{v.budget}: {v.value} {v.unit}, promised {v.limit}"
            own[v.budget] = max(own.get(v.budget, (0.0, "")), (_share(budgets[v.budget], v.value), text))
    return built, [_result(i, job, grid, built, missed.get(grid.name(i), {})) for i in indices]


def _share(budget: Budget, value: object) -> float:
    """By what share of its limit a value misses it; if the limit is 0, each unit counts as 1."""
    over = excess(budget, float(value)) if isinstance(value, (int, float)) else 1.0
    limit = budget.maximum if budget.maximum is not None else budget.minimum
    return round(over / abs(limit or 1.0), 4)


def _record(job: Job, built: Built) -> Record:
    """The part of a record that static budgets need."""
    arch = job.options.archs[0]
    machine = Environment(None, "", "", "", "", gpu_arch=arch, nvcc=built.nvcc)
    return Record("", "", "", job.suite, machine, built.artifacts, built.plans, (), (), Facts(built.facts))


def _result(index: int, job: Job, grid: Grid, built: Built, missed: Mapping[str, tuple[float, str]]) -> Result:
    name = grid.name(index)
    artifact = built.artifact(name, job.options.archs[0])
    if artifact is None or artifact.status != "ok":
        return Result(index, "build", artifact.message if artifact else "not built")
    found: dict[str, list[float]] = {}
    notes: list[str] = []
    for fact in built.facts:
        if fact.subject.variant == name:
            if fact.name in FACTS and fact.number is not None:
                found.setdefault(fact.name, []).append(fact.number)
            if fact.name == "blocks_per_sm" and fact.value == 0:
                notes.append(f"cannot be launched: {fact.note}")
    plans = [p for p in built.plans if p.variant == name]
    notes = [p.error for p in plans if p.error] + notes + [missed[b][1] for b in grid.space.hard if b in missed]
    return Result(
        index=index,
        fell="static" if notes else "",
        reason=notes[0] if notes else "",
        broken={budget: share for budget, (share, _) in missed.items()},
        facts={fact: FACTS[fact](values) for fact, values in found.items()},
        code=_code(artifact, name, [dataclasses.astuple(launch) for p in plans for launch in p.launches]),
    )


def _code(artifact: Artifact, name: str, launches: Sequence[object]) -> str:
    """A text that is the same for two candidates if they give a GPU the same work: device and host code (without the
    variant's own name) and launches; for Python callables, the traced calls."""
    if artifact.cubins:
        return hashlib.sha256(json.dumps(sorted(artifact.calls.items())).encode()).hexdigest()[:16]
    host, _ = host_code.read(Path(artifact.cubin or "").with_name(OBJECT), without=name)
    return hashlib.sha256(json.dumps([artifact.code, host, launches]).encode()).hexdigest()[:16]


class Local:
    """Builds on this machine, and measures on a GPU of it.

    Args:
        job: of the suite, for one arch.
        folder: of what the processes that measure write.
        measures: whether candidates are measured on the job's GPUs, leased for a batch; if not, they are only built.
    """

    def __init__(
        self, job: Job, grid: Grid, folder: Path, measures: bool, chosen: trial.Settings, say: Callable[[str], None]
    ) -> None:
        self._job, self._grid, self._folder, self._measures = job, grid, folder, measures
        self._chosen, self._say = chosen, say
        self._of: dict[int, tuple[Job, Built]] = {}
        self._stopped = False
        self._ahead = Ahead()

    def __enter__(self) -> Self:
        self._start_ahead()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._ahead.close()

    def prepare(self, indices: Sequence[int]) -> list[Result]:
        if not indices:
            return []
        job = job_of(self._job, self._grid, indices)
        built, results = prepared(job, self._grid, indices, self._unless_stopped)
        self._of |= dict.fromkeys(indices, (job, built))
        return results

    def measure(self, results: Sequence[Result], told: Callable[[Result], None]) -> None:
        if not self._measures:
            for result in results:
                told(result)
        else:
            cases = [(r, self._cases(r.index)) for r in results]
            with leases(self._job.uuids, self._say):
                trial.run(cases, self._folder, self._chosen, told, self._job.places, self._ahead)
            self._start_ahead()
        for built in {id(b): b for r in results for _, b in [self._of.pop(r.index)]}.values():
            forget(built)

    def _start_ahead(self) -> None:
        """The processes that measure import while the next batch is built."""
        if self._measures:
            trial.start_ahead(self._folder, self._chosen, self._job.places, self._ahead)

    def _cases(self, index: int) -> list[Case]:
        job, built = self._of[index]
        return child_cases(job, built, [(job.suite.variants[self._grid.name(index)], s) for s in job.shapes])

    def _unless_stopped(self, text: str) -> None:
        if self._stopped:
            raise FlashcoreError("the search was stopped")  # at ninja's next output; ends ninja and its compilers


def forget(built: Built) -> None:
    """Removes what was compiled: a finalist is compiled again, and thousands of others would fill the disk."""
    for artifact in built.artifacts:
        for cubin in (artifact.cubin, *artifact.cubins.values()):
            if cubin is not None:
                shutil.rmtree(Path(cubin).parent, ignore_errors=True)
