"""What ``flashcore tune`` does: begins or resumes a study, searches, and compares the finalists with the present
variant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from flashcore.chips import devices
from flashcore.errors import CapabilityError, UsageError
from flashcore.explain import roofline
from flashcore.measure.machine import gpu_lease
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.model.suite import CompiledCallable, Suite
from flashcore.pipeline import run as run_module
from flashcore.pipeline.compile_ahead import compile_all
from flashcore.pipeline.state import Job, Settings
from flashcore.plugins.against import decide
from flashcore.plugins.tune import finalists, grid, study, trial, tune
from flashcore.plugins.tune.candidates import Local
from flashcore.plugins.tune.finalists import Final
from flashcore.plugins.tune.offer import Offer, offer
from flashcore.plugins.tune.samplers import BIG, SAMPLERS, Exhaustive, Proposing, Sampler, pace
from flashcore.suites.load import load

FOLDER = "tune"  # below the build folder
#: Evaluations unless the user says otherwise: a share of the space, and at least so many.
_SHARE, _FEWEST = 0.1, 32


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose besides the suite.

    Args:
        sampler: one of :data:`SAMPLERS`; empty: grid where all points are within the budget, else TPE in small
            spaces and NSGA-II in big ones.
        until: stop within so many percent of the first shape's floor.
        finalists: how many of the fastest are compared with the present variant; 0: none.
        replay: take the outcome of each candidate from this study, instead of a compiler and a GPU.
        static: only build and gate.

    Raises:
        UsageError: one of them makes no sense.
    """

    space: str
    sampler: str = ""
    evaluations: int | None = None
    seconds: float | None = None
    until: float | None = None
    batch: int | None = None
    seed: int = 0
    finalists: int = 3
    processes: int = decide.PROCESSES
    studies: str = "studies"
    replay: str | None = None
    static: bool = False
    resume: bool = False
    trial: trial.Settings = field(default_factory=trial.Settings)

    def __post_init__(self) -> None:
        if self.sampler and self.sampler not in SAMPLERS:
            raise UsageError(f"--sampler {self.sampler}: expected one of {', '.join(SAMPLERS)}")
        for name in ("evaluations", "seconds", "batch", "processes"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise UsageError(f"--{name} {value:g}: expected a number above 0")
        if self.finalists < 0:
            raise UsageError(f"--finalists {self.finalists}: expected 0 or more")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A study, and the outcome of its finalists: ``offer`` is the winner's, if one is proved faster."""

    study: study.Study
    grid: grid.Grid
    finals: tuple[Final, ...] = ()
    offer: Offer | None = None


def run(settings: Settings, chosen: Options, say: Callable[[str], None]) -> Outcome:
    """Searches a space of the suite.

    Raises:
        UsageError: no such space, or nothing to resume or replay.
        CapabilityError: no compiler, no GPU, or no Optuna.
    """
    suite = load(settings.suite)
    points = grid.of(suite, chosen.space, settings.shapes)
    if _kind(points, chosen) != "grid":
        import optuna  # noqa: F401  what is missing is said before anything is built
    job, header, evaluator = _prepared(suite, points, settings, chosen, say)
    with _study(header, chosen) as own:
        budget = _budget(points, own.header, chosen)
        sampler = _sampler(own, points, grid.ancestors(suite, points), budget)
        batch, ahead = pace(own.header.sampler, budget.evaluations)
        batch = chosen.batch or batch
        say(f"tune: {own.folder}: {own.header.sampler}, {len(points.feasible):,} of {len(points):,} points meet the "
            f"conditions, {len(own.results)} known")  # fmt: skip
        if job is None:
            assert isinstance(evaluator, tune.Replay)
            tune.search(own, sampler, evaluator, budget, say, batch=batch, ahead=ahead)
            return Outcome(own, points)
        with Local(job, points, own.folder / study.WORK, not chosen.static, chosen.trial, say) as local:
            tune.search(own, sampler, local, budget, say, batch=batch, ahead=ahead)
        if chosen.static or not chosen.finalists:
            return Outcome(own, points)
        reference, best = finalists.chosen(job, points, own.results, chosen.finalists)
        if not best:
            return Outcome(own, points)
        with gpu_lease.leases(job.uuids[:1], say):
            finals = finalists.run(job, points, reference, best, own.folder / "finalists", chosen.processes, say)
        finalists.keep(finals, own.folder)
        return Outcome(own, points, tuple(finals), _offer(suite, points, finals, reference, own.folder.name))


def _offer(suite: Suite, points: grid.Grid, finals: list[Final], reference: str, name: str) -> Offer | None:
    index = finalists.winner(finals, points.space.shapes)
    if index is None:
        return None
    of = {f.shape: f for f in finals if f.index == index}
    first = of[points.space.shapes[0]]
    assert first.decision is not None and first.decision.change is not None
    gain = f"{-100 * first.decision.change:.1f} % faster than {reference} at {first.shape}"
    return offer(suite, points, index, reference, name, gain)


def _prepared(
    suite: Suite, points: grid.Grid, settings: Settings, chosen: Options, say: Callable[[str], None]
) -> tuple[Job | None, study.Header, tune.Replay | None]:
    """The job and the header of a study that builds, or the evaluator and the header of one that replays."""
    space = points.space
    if chosen.replay is not None:
        recorded, results = study.read(Path(chosen.replay))
        if (recorded.space.axes, recorded.space.conditions) != (space.axes, space.conditions):
            raise UsageError(f"--replay {chosen.replay}: expected a study of {space.name} as it is now, found another")
        header = dataclasses.replace(recorded, space=space, sampler=_kind(points, chosen), seed=chosen.seed,
                                     command=settings.command)  # fmt: skip
        return None, header, tune.Replay(results.values())
    settings = dataclasses.replace(settings, upto=None, build=str(Path(settings.build) / FOLDER))
    job = run_module.start(settings, say)
    if job.options.debug:
        raise UsageError("DEBUG=1: expected a build that may be timed, found a debug build (-G)")
    if not chosen.static and job.cannot_measure:
        mend = "--static builds and gates without a GPU, --replay STUDY takes the times of another study"
        raise CapabilityError(job.cannot_measure, mend)
    base = suite.variants[space.variant]
    archs = [a for a in job.archs if a in base.where.archs and job.gpu_arch in (None, a)]
    if not archs:
        raise UsageError(f"{base.name}: expected a variant for {job.gpu_arch or job.archs}, found {base.where.archs}")
    job = dataclasses.replace(job, options=dataclasses.replace(job.options, archs=(archs[-1],)))
    built = compile_all(dataclasses.replace(job, variants=(base,)), say)
    artifact = built.artifact(base.name, archs[-1])
    if artifact is None or artifact.status != "ok":
        raise UsageError(f"{base.name}: expected a variant that compiles, found: {artifact and artifact.message}")
    header = study.Header(
        suite=suite.name,
        space=space,
        sampler=_kind(points, chosen),
        seed=chosen.seed,
        closure=artifact.closure,
        constants={k: v for k, v in base.config.items() if k not in space.axes},
        gpu=job.gpu.name if job.gpu else None,
        arch=archs[-1],
        nvcc=built.nvcc,
        compiler=artifact.cxx if isinstance(base.kind, CompiledCallable) else "",
        floor=_floor(job, points),
        command=settings.command,
    )
    return job, header, None


def _kind(points: grid.Grid, chosen: Options) -> str:
    whole = chosen.static or (chosen.evaluations or 0) >= len(points.feasible)
    big = len(points.feasible) > BIG
    return chosen.sampler or ("grid" if whole else "nsga2" if big else "tpe")


def _study(header: study.Header, chosen: Options) -> AbstractContextManager[study.Study]:
    if not chosen.resume:
        return study.begun(Path(chosen.studies), header)
    folder = study.find(Path(chosen.studies), None, header.space.name)
    found, _ = study.read(folder)
    for what in ("suite", "space", "closure", "gpu", "arch", "nvcc", "compiler"):
        if (then := getattr(found, what)) != (now := getattr(header, what)):
            raise UsageError(
                f"--resume: {folder}: expected the same {what} as now ({now}), found {then}\n"
                "  hint: leave --resume out, to begin another study"
            )
    return study.resumed(folder)


def _budget(points: grid.Grid, header: study.Header, chosen: Options) -> tune.Budget:
    evaluations = chosen.evaluations
    if evaluations is None and chosen.seconds is None and chosen.until is None:
        size = len(points.feasible)
        evaluations = size if header.sampler == "grid" else min(size, max(_FEWEST, round(_SHARE * size)))
    if chosen.until is not None and header.floor is None:
        raise UsageError("--until: expected a GPU whose roofs are known, and a problem that says its work; found none")
    until = None if chosen.until is None else (header.floor or 0.0) * (1 + chosen.until / 100)
    return tune.Budget(evaluations, chosen.seconds, until)


def _sampler(own: study.Study, points: grid.Grid, first: dict[int, str], budget: tune.Budget) -> Sampler:
    if own.header.sampler == "grid":
        return Exhaustive(points, own.results)
    journal, seed = own.folder / study.SAMPLER, own.header.seed
    return Proposing(
        own.header.sampler, points, own.results, seed=seed, count=budget.evaluations, first=list(first), journal=journal
    )


def _floor(job: Job, points: grid.Grid) -> float | None:
    """The least time of the first shape by the device's datasheet (us)."""
    device = devices.find(job.gpu.name) if job.gpu else None
    shape = job.suite.shapes[points.space.shapes[0]]
    problem = load_problem(job.suite.root, job.suite.problems[shape.problem].file)
    roof = job.suite.variants[points.space.variant].roof
    bound = roofline.floor(roofline.bounds(work_of(problem, shape.params, roof), roof, roofline.roofs(device)))
    return bound.us if bound else None
