"""The steps of ``flashcore tune``: begin or resume a study, search, and time the finalists against the suite's
variants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flashcore.chips import devices
from flashcore.errors import CapabilityError, UsageError
from flashcore.explain import roofline
from flashcore.measure.compiling import compile_all
from flashcore.measure.context import Context
from flashcore.measure.machine import gpu_choice
from flashcore.measure.settings import Settings
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.model.suite import CompiledCallable, Suite
from flashcore.pipeline.opening import open_recordable
from flashcore.suites.load import load
from flashcore_tune import finalists, study, tune
from flashcore_tune.candidates import Local
from flashcore_tune.finalists import Final, Offer, offer
from flashcore_tune.grid import Grid, named_points, of_suite
from flashcore_tune.samplers import BIG, Exhaustive, Proposing, Sampler, load_optuna, pace
from flashcore_tune.space import Objective

FOLDER = "tune"  # below the build folder
#: The default number of evaluations: a share of the space, and at least this many.
_SHARE, _FEWEST = 0.1, 32
#: The fields that a resumed study must share with the present space and machine.
_SAME = ("suite", "space", "closure", "gpu", "arch", "nvcc", "compiler")


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options besides the suite.

    Args:
        objective: minimized besides the space's objectives.
        sampler: one of :data:`~flashcore_tune.samplers.SAMPLERS`; empty: grid if all points are within the
            budget, else TPE in small spaces and NSGA-II in big ones.
        until: stop within this many percent of the first shape's floor.
        finalists: the number of fastest candidates to compare with the present variant.
        replay: take each candidate's result from this study, instead of a compiler and a GPU.
        static: only build and gate.
    """

    space: str
    objective: Sequence[Objective]
    sampler: str
    evaluations: int | None
    seconds: float | None
    until: float | None
    batch: int | None
    seed: int
    finalists: int
    processes: int
    studies: str
    replay: str | None
    static: bool
    resume: bool


class Outcome(NamedTuple):
    """A study, its finalists, and the winner's offer if one is proved faster."""

    study: study.Study
    finals: tuple[Final, ...] = ()
    offer: Offer | None = None


def run(settings: Settings, options: Options, say: Callable[[str], None]) -> Outcome:
    """Searches a space of the suite.

    Raises:
        UsageError: no such space, or nothing to resume or replay.
        CapabilityError: no compiler, no GPU, or no Optuna.
    """
    suite = load(settings.suite)
    grid = of_suite(suite, options.space, settings.shapes, options.objective)
    if (sampler_name := _sampler_name(grid, options)) != "grid":
        load_optuna(sampler_name)  # reports a missing package before anything is built
    if options.replay is not None:
        job, (header, recorded) = None, study.read(study.find(Path(options.studies), options.replay))
        if (header.space.axes, header.space.conditions) != (grid.space.axes, grid.space.conditions):
            raise UsageError(
                f"--replay {options.replay}: expected a study of {grid.space.name} as it is now, found another"
            )
        header = dataclasses.replace(header, space=grid.space)
    else:
        job = _job(suite, grid, settings, options, say)
        header = _header(job, grid)
    header = dataclasses.replace(header, sampler=sampler_name, seed=options.seed, command=settings.command)
    with _study(header, options) as opened:
        budget = _budget(grid, opened.header, options)
        sampler: Sampler = Exhaustive(grid, opened.results)
        if opened.header.sampler != "grid":
            first = list(named_points(suite, grid))
            sampler = Proposing(opened.header, grid, opened.results, budget.evaluations, first)
        rate = pace(opened.header.sampler, budget.evaluations)
        rate = rate._replace(batch=options.batch or rate.batch)
        say(
            f"tune: {opened.folder}: {opened.header.sampler}, {len(grid.feasible):,} of {len(grid):,} points meet the "
            f"conditions, {len(opened.results)} known"
        )
        if job is None:
            tune.search(opened, sampler, tune.Replay(recorded.values()), budget, say, rate)
            return Outcome(opened)
        with Local(job, grid, opened.folder / study.WORK, not options.static) as local:
            tune.search(opened, sampler, local, budget, say, rate)
        shortlist = finalists.shortlist(suite, grid, opened.results, options.finalists)
        if options.static or not shortlist.candidates:
            return Outcome(opened)
        with gpu_choice.leases(job.workers.uuids[:1], say):
            finals = finalists.run(job, grid, shortlist, opened.folder / "finalists", options.processes)
        finalists.save(finals, opened.folder)
        winner = finalists.winner(finals, grid.space.shapes)
        made = None if winner is None else offer(suite, grid, winner, opened.folder.name)
        return Outcome(opened, tuple(finals), made)


def _sampler_name(grid: Grid, options: Options) -> str:
    if options.sampler:
        return options.sampler
    if options.static or (options.evaluations or 0) >= len(grid.feasible):
        return "grid"
    return "nsga2" if len(grid.feasible) > BIG else "tpe"


def _job(suite: Suite, grid: Grid, settings: Settings, options: Options, say: Callable[[str], None]) -> Context:
    """Returns the job of building the space's candidates, for one arch."""
    settings = dataclasses.replace(settings, upto=None, build=str(Path(settings.build) / FOLDER))
    job = open_recordable(settings, say)
    if not options.static and job.cannot_measure:
        hint = "--static builds and gates without a GPU, --replay STUDY takes the times of another study"
        raise CapabilityError(job.cannot_measure, hint)
    base = suite.variants[grid.space.variant]
    archs = [a for a in job.archs if a in base.where.archs and job.gpu_arch in (None, a)]
    if not archs:
        raise UsageError(f"{base.name}: expected a variant for {job.gpu_arch or job.archs}, found {base.where.archs}")
    return dataclasses.replace(job, options=dataclasses.replace(job.options, archs=(archs[-1],)))


def _header(job: Context, grid: Grid) -> study.Header:
    """Builds the space's variant, for its source hash and the compiler's release."""
    base, (arch,) = job.suite.variants[grid.space.variant], job.options.archs
    built = compile_all(dataclasses.replace(job, variants=(base,)))
    artifact = built.artifact(base.name, arch)
    if artifact is None or artifact.status != "ok":
        raise UsageError(f"{base.name}: expected a variant that compiles, found: {artifact and artifact.message}")
    return study.Header(
        suite=job.suite.name,
        space=grid.space,
        sampler="",
        seed=0,
        closure=artifact.closure,
        constants=grid.constants,
        gpu=job.gpu.name if job.gpu else None,
        arch=arch,
        nvcc=built.nvcc,
        compiler=artifact.cxx if isinstance(base.kind, CompiledCallable) else "",
        floor=_floor(job, grid),
    )


def _floor(job: Context, grid: Grid) -> float | None:
    """The least time of the first shape by the device's datasheet (us)."""
    device = devices.find(job.gpu.name) if job.gpu else None
    shape = job.suite.shapes[grid.space.shapes[0]]
    problem = load_problem(job.suite.root, job.suite.problems[shape.problem].file)
    roof = job.suite.variants[grid.space.variant].roof
    return roofline.least_us(work_of(problem, shape.params, roof), roof, device)


def _study(header: study.Header, options: Options) -> AbstractContextManager[study.Study]:
    if not options.resume:
        return study.create(Path(options.studies), header)
    folder = study.find(Path(options.studies), None, header.space.name)
    recorded, _ = study.read(folder)
    for name in _SAME:
        if (before := getattr(recorded, name)) != (now := getattr(header, name)):
            raise UsageError(
                f"--resume: {folder}: expected the same {name} as now ({now}), found {before}\n"
                "  hint: leave --resume out, to begin another study"
            )
    return study.resume(folder)


def _budget(grid: Grid, header: study.Header, options: Options) -> tune.Budget:
    evaluations, until = options.evaluations or math.inf, 0.0
    if options.evaluations is None and options.seconds is None and options.until is None:
        size = len(grid.feasible)
        evaluations = size if header.sampler == "grid" else min(size, max(_FEWEST, round(_SHARE * size)))
    if options.until is not None:
        if header.floor is None:
            raise UsageError(
                "--until: expected a GPU in the device table and a problem with FLOP and byte formulas, found none"
            )
        until = header.floor * (1 + options.until / 100)
    return tune.Budget(evaluations, options.seconds or math.inf, until)
