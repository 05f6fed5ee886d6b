"""Builds candidates and gates them on the CPU, by the compiler, the cubin and the launch plan.

A candidate is rejected at ``build`` if it does not compile, and at ``static`` if its plan refuses a shape, it cannot be
launched, or it fails a hard budget. Failed soft budgets are recorded; the candidate may still win.
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
from flashcore.measure.cases import child_cases
from flashcore.measure.compiling import compile_all
from flashcore.measure.context import Context
from flashcore.measure.workers.kernel_call import Case
from flashcore.model import plugin
from flashcore.model.groups import grouped
from flashcore.model.record import Artifact, Environment, Facts, Record
from flashcore.model.suite import Budget
from flashcore.model.text import matches_any
from flashcore.readers import host_code
from flashcore_tune import trial
from flashcore_tune.grid import Grid, candidate
from flashcore_tune.study import Result

#: The static facts of a candidate, and how to combine the values of several kernels.
FACTS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "registers": max,
    "smem": max,
    "spill_store_bytes": sum,
    "stack_bytes": max,
    "threads": max,
    "theoretical_occupancy": min,
    "sass_instructions": sum,
    "compiler_warnings": max,
}


def build(
    job: Context, grid: Grid, indices: Sequence[int], more: Collection[str] = (), stage: str = ""
) -> tuple[Context, list[Result]]:
    """Builds points and gates them. Returns the job of these variants, with what was built.

    Args:
        job: for one arch.
        more: names of variants to build too.
        stage: the stage whose shapes are added to the space's.
    """
    job = narrowed(job, grid, indices, more, stage)
    built = compile_all(job)
    budgets = {b.name: b for b in job.suite.budgets if b.tier == "static"}
    machine = Environment(None, "", "", "", "", gpu_arch=job.options.archs[0], nvcc=built.nvcc)
    record = Record("", "", job.suite, machine, built.artifacts, built.plans, (), (), Facts(built.facts))
    missed = grouped(
        (v.subject.variant, (v.budget, _share(budgets[v.budget], v.value), f"{v.value} {v.unit}, expected {v.limit}"))
        for v in judge(record, require="static").verdicts
        if v.status == "fail" and v.budget in budgets
    )
    job = dataclasses.replace(job, built=built)
    return job, [_result(i, job, grid, missed.get(grid.name(i), [])) for i in indices]


def narrowed(job: Context, grid: Grid, indices: Collection[int], more: Collection[str], stage: str) -> Context:
    """The job of building these points. The budgets of the space's variant also apply to them."""
    suite, base = job.suite, job.suite.variants[grid.space.variant]
    variants = {v.name: v for v in (candidate(suite, grid, i) for i in indices)}
    budgets = tuple(
        dataclasses.replace(b, variants=(*b.variants, *variants)) if matches_any(base.name, b.variants) else b
        for b in suite.budgets
    )
    variants |= {name: suite.variants[name] for name in more}
    shapes = {
        s.name: s
        for s in suite.shapes.values()
        if base.runs_on(s) and (s.name in grid.space.shapes or stage in s.stages)
    }
    suite = dataclasses.replace(suite, variants=variants, budgets=budgets, shapes=shapes, waivers=())
    return dataclasses.replace(job, suite=suite, variants=tuple(variants.values()), shapes=tuple(shapes.values()))


def _share(budget: Budget, value: object) -> float:
    """A value's miss as a share of the limit; if the limit is 0, each unit counts as 1."""
    over = excess(budget, float(value)) if isinstance(value, (int, float)) else 1.0
    limit = budget.maximum if budget.maximum is not None else budget.minimum
    return round(over / abs(limit or 1.0), 4)


def _result(index: int, job: Context, grid: Grid, missed: Sequence[tuple[str, float, str]]) -> Result:
    """A built candidate's result. ``missed``: failed budgets, the miss as a share of the limit, and in words."""
    name, built = grid.name(index), job.built
    artifact = built.artifact(name, job.options.archs[0])
    if artifact is None or artifact.status != "ok":
        return Result(index, "build", artifact.message if artifact else "not built")
    facts = [f for f in built.facts if f.subject.variant == name]
    values = {n: [f.number for f in facts if f.name == n and f.number is not None] for n in FACTS}
    plans = [p for p in built.plans if p.variant == name]
    largest = {budget: (share, text) for budget, share, text in sorted(missed)}  # over the kernels
    reasons = [
        *(p.error for p in plans if p.error),
        *(f"cannot be launched: {f.note}" for f in facts if f.name == "blocks_per_sm" and f.value == 0),
        *(f"{budget}: {largest[budget][1]}" for budget in grid.space.hard if budget in largest),
    ]
    return Result(
        index=index,
        fell="static" if reasons else "",
        reason=reasons[0] if reasons else "",
        broken={budget: share for budget, (share, _) in largest.items()},
        facts={n: combine(values[n]) for n, combine in FACTS.items() if values[n]},
        code=_code(artifact, name, [dataclasses.astuple(launch) for p in plans for launch in p.launches]),
    )


def _code(artifact: Artifact, name: str, launches: Sequence[object]) -> str:
    """The hash of a candidate's work for a GPU: device and host code (without the variant's name) and launches; for
    Python callables, the traced calls."""
    work: Sequence[object] = sorted(artifact.calls.items())
    if not artifact.cubins:
        host, _ = host_code.read(Path(artifact.cubin or "").with_name(OBJECT), without=name)
        work = [artifact.code, host, launches]
    return hashlib.sha256(json.dumps(work).encode()).hexdigest()[:16]


class Local:
    """Builds on this machine, and measures on its GPUs.

    Args:
        job: the suite's, for one arch.
        folder: for the files of the measuring processes.
        measures: whether candidates are measured on the job's GPUs, leased per batch; else they are only built.
    """

    def __init__(self, job: Context, grid: Grid, folder: Path, measures: bool) -> None:
        self._job, self._grid, self._folder, self._measures = job, grid, folder, measures
        self._energy = "energy" in grid.space.objectives
        if self._energy and measures:
            plugin.find("measurements", "energy")  # here: its absence would fail every candidate
        self._jobs: dict[int, Context] = {}  # point → the job that built it, with others
        self._stopped = False

    def __enter__(self) -> Self:
        self._start_ahead()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._job.workers.close()

    def prepare(self, indices: Sequence[int]) -> list[Result]:
        if not indices:
            return []
        job, results = build(dataclasses.replace(self._job, say=self._unless_stopped), self._grid, indices)
        self._jobs |= dict.fromkeys(indices, job)
        return results

    def measure(self, results: Sequence[Result], report: Callable[[Result], None]) -> None:
        if self._measures:
            cases = [(r, self._cases(r.index)) for r in results]
            with self._job.workers.leased(self._job.say):
                trial.run(cases, self._folder, report, self._job.workers, energy=self._energy)
            self._start_ahead()
        else:
            for result in results:
                report(result)
        jobs = {id(job): job for job in [self._jobs.pop(result.index) for result in results]}
        for artifact in (artifact for job in jobs.values() for artifact in job.built.artifacts):
            # A finalist is compiled again, and thousands of others would fill the disk.
            for cubin in filter(None, (artifact.cubin, *artifact.cubins.values())):
                shutil.rmtree(Path(cubin).parent, ignore_errors=True)

    def _start_ahead(self) -> None:
        """Starts the processes that measure, which import while the next batch is built."""
        if self._measures:
            trial.prepare(self._folder, self._job.workers)

    def _cases(self, index: int) -> list[Case]:
        job = self._jobs[index]
        return child_cases(job, [(job.suite.variants[self._grid.name(index)], s) for s in job.shapes])

    def _unless_stopped(self, text: str) -> None:
        if self._stopped:
            raise FlashcoreError("the search was stopped")  # at ninja's next output; ends ninja and its compilers
