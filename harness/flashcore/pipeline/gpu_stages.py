"""The stages that need a GPU, one after the other: check, bench, profile, sanitize.

A case that fails one is not taken to the next; a machine that cannot run them leaves them out and says why.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.errors import CapabilityError, UsageError
from flashcore.measure.machine import gpu_lease, toolchain
from flashcore.measure.workers.journal import HANG
from flashcore.model.catalogue import OTHER_PHASE
from flashcore.model.progress import Failure, Step
from flashcore.model.record import Artifact, Built, CaseOutcome, Measured, StageNote, StageResult
from flashcore.model.suite import GPU_STAGES, CompiledCallable, Cuda, PythonCallable, Shape, Stage, Variant
from flashcore.pipeline import plugins
from flashcore.pipeline.state import Job
from flashcore.readers import phases

if TYPE_CHECKING:
    from flashcore.measure import settings
    from flashcore.measure.workers.ahead import Ahead
    from flashcore.measure.workers.kernel_call import Case

Say = Callable[[str], None]


def measure(
    job: Job, built: Built, folder: Path, say: Say, finish: Callable[[], Built] | None = None,
    ahead: Ahead | None = None, known_right: Collection[str] = (),
) -> Measured:  # fmt: skip
    """The GPU stages up to the one asked for. A case that fails one is not taken to the next.

    Args:
        built: what checking needs.
        finish: called when all is checked: background work of this process must have ended when it returns all that was
            built, with the static facts.
        ahead: where children wait that :func:`start_ahead` started.
        known_right: cases that are not checked again.

    Raises:
        CapabilityError: the machine cannot run the first of them after all.
    """
    with gpu_lease.leases(() if job.cannot_measure or not job.settings.upto else job.uuids, say):
        measured = _stages(job, built, folder, say, finish, ahead, known_right)
    if job.places and measured.outcomes:
        from flashcore.pipeline import sharing

        measured = dataclasses.replace(measured, gpus=sharing.used(job.places, folder, measured))
        for gpu in (g for g in measured.gpus if g.remark):
            say(f"{gpu.uuid}: {gpu.remark}")
    return measured


def _stages(
    job: Job, built: Built, folder: Path, say: Say, finish: Callable[[], Built] | None, ahead: Ahead | None,
    known_right: Collection[str],
) -> Measured:  # fmt: skip
    wanted: tuple[Stage, ...] = _stages_up_to(job.settings.upto)
    wanted = (*wanted, "sanitize") if job.settings.sanitize else wanted
    measured = Measured()
    if wanted and (reason := job.cannot_measure):
        say(f"{', '.join(wanted)}: left out: {reason}")
        return Measured(notes=tuple(StageNote(stage, "skipped", 0.0, reason) for stage in wanted))
    for stage in wanted:
        if stage != "check" and finish:
            built = finish()
        started = time.monotonic()
        ready, left_out = _sorted_out(job, built, stage, measured.outcomes)
        known = [(v, s) for v, s in ready if stage == "check" and f"{v.name}/{s.name}" in known_right]
        ready = [pair for pair in ready if pair not in known]
        why = (f"{len(left_out)} left out" if left_out else "", f"{len(known)} known to be right" if known else "")
        say(", ".join(filter(None, (f"{stage}: {len(ready)} cases", *why))))
        try:
            own = _settings(job, built, stage, say, ahead)
            result, measured = _run_stage(job, built, measured, stage, ready, folder / stage, say, own)
        except CapabilityError as error:
            seconds = time.monotonic() - started
            say(Failure(f"{stage}: {error}"))
            if stage == wanted[0]:  # nothing was measured
                raise
            note = StageNote(stage, "failed", round(seconds, 3), str(error))
            return measured.plus(StageResult((), tuple(left_out)), note)
        bad = [o for o in result.outcomes if o.status == "failed"]
        for outcome in bad:
            say(Failure(f"{stage}: {outcome.case} FAILED: {outcome.reason}"))
        seconds = time.monotonic() - started
        say(f"{stage}: {len(result.outcomes) - len(bad)} ok, {len(bad)} failed in {seconds:.1f} s")
        text = f"{len(bad)} of {len(result.outcomes)} cases failed" if bad else ""
        note = StageNote(stage, "failed" if bad else "ok", round(seconds, 3), text)
        measured = measured.plus(dataclasses.replace(result, outcomes=(*left_out, *result.outcomes)), note)
    return measured


def _sorted_out(
    job: Job, built: Built, stage: Stage, before: Sequence[CaseOutcome]
) -> tuple[list[tuple[Variant, Shape]], list[CaseOutcome]]:
    """The cases that a stage can run, and the outcomes of those that it cannot.

    Args:
        before: the outcomes of the stages before it.
    """
    failed = {o.case: o.reason for o in before if o.status != "ok"}
    # A variant that is wrong on one shape, or hangs there, is trusted on none.
    bad = [o for o in before if o.status == "failed" and (o.stage == "check" or HANG in o.reason)]
    wrong = {o.variant: o for o in reversed(bad)}
    ready: list[tuple[Variant, Shape]] = []
    left_out: list[CaseOutcome] = []

    def leave(variant: Variant, shape: Shape, status: str, reason: str) -> None:
        left_out.append(CaseOutcome(variant.name, shape.name, stage, status, reason))  # type: ignore[arg-type]

    for variant, shape in job.cases(stage):
        if (case := f"{variant.name}/{shape.name}") in failed:
            leave(variant, shape, "skipped", f"failed before: {failed[case]}")
        elif first := wrong.get(variant.name):
            leave(variant, shape, "skipped", f"wrong on {first.shape}: {first.reason}")
        elif obstacle := _not_ready(job, built, variant, shape):
            leave(variant, shape, *obstacle)
        else:
            ready.append((variant, shape))
    return ready, left_out


def _not_ready(job: Job, built: Built, variant: Variant, shape: Shape) -> tuple[str, str] | None:
    """The status of a case that was not built, or that its own launch plan refuses, and why."""
    if variant.is_reference:
        return None
    artifact = built.artifact(variant.name, job.gpu_arch)
    if artifact is None or artifact.status == "unsupported":
        return "unsupported", artifact.message if artifact else f"not built for {job.gpu_arch}"
    if artifact.status == "failed":
        return "skipped", f"did not compile for {artifact.arch}"
    plan = built.plan(variant.name, shape.name)
    if plan is not None and plan.error:
        return "failed" if plan.crashed else "unsupported", plan.error
    return None


def _target(variant: Variant, shape: Shape, artifact: Artifact | None) -> dict[str, Any]:
    """What a child calls for a variant: the fields of its case that depend on the variant's kind."""
    kind = variant.kind
    if isinstance(kind, PythonCallable) or artifact is None:
        return {"library": None, "callable": kind.callable if isinstance(kind, PythonCallable) else None}
    if not isinstance(kind, CompiledCallable):
        return {"library": str(Path(artifact.library or "").resolve()), "callable": None, "operator": artifact.host}
    return {
        "library": None,
        "callable": kind.callable,
        "config": dict(variant.config),
        "calls": tuple(plugins.find("languages", kind.language).calls(artifact, shape.name)),
        "language": dict(plugins.entries("languages"))[kind.language],
    }


def child_cases(job: Job, built: Built, pairs: Sequence[tuple[Variant, Shape]]) -> list[Case]:
    """Each case as the processes that run kernels need it."""
    from flashcore.measure.workers.kernel_call import Case

    built_as = {a.variant: a for a in built.artifacts if a.arch == job.gpu_arch}
    planned = {(p.variant, p.shape): len(p.launches) for p in built.plans}
    return [
        Case(
            variant=v.name,
            shape=shape.name,
            suite=job.suite.name,
            root=str(Path(job.suite.root).resolve()),
            problem_file=job.suite.problems[v.problem].file,
            params=dict(shape.params),
            arguments=job.suite.problems[v.problem].arguments,
            **_target(v, shape, built_as.get(v.name)),
            tolerance=v.tolerance,
            seeds=job.suite.problems[v.problem].seeds,
            roof=v.roof,
            rank_by=shape.rank_by,
            repeats=0 if v.is_reference else shape.repeats,
            launches=planned.get((v.name, shape.name), 0),
        )
        for v, shape in pairs
    ]


def _run_stage(
    job: Job, built: Built, so_far: Measured, stage: Stage, pairs: list[tuple[Variant, Shape]], folder: Path, say: Say,
    chosen: settings.Stage,
) -> tuple[StageResult, Measured]:  # fmt: skip
    """One stage's result; and what was measured before it, with the version of ncu once that is known."""
    from flashcore.measure import settings
    from flashcore.measure.check import check
    from flashcore.measure.profile import profile
    from flashcore.measure.sanitize import sanitize
    from flashcore.pipeline import sharing

    cases = child_cases(job, built, pairs)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = dataclasses.replace(chosen, progress=_progress(say, stage, len(cases)))
    if isinstance(chosen, settings.Check):
        return check.run(cases, folder, chosen), so_far
    if isinstance(chosen, settings.Bench):
        return sharing.timed(cases, folder, chosen, say), so_far
    if isinstance(chosen, settings.Sanitize):
        return sanitize.run(cases, folder, chosen), so_far
    assert isinstance(chosen, settings.Profile)
    so_far = dataclasses.replace(so_far, ncu=toolchain.version_said(chosen.ncu))
    chosen = dataclasses.replace(chosen, registers=_registers(job, built))
    return profile.run(cases, folder, chosen), so_far


def _settings(job: Job, built: Built, stage: Stage, say: Say, ahead: Ahead | None) -> settings.Stage:
    """A stage's settings.

    Raises:
        CapabilityError: the tool that it needs is not there.
    """
    from flashcore.measure import settings
    from flashcore.measure.machine import ncu
    from flashcore.measure.machine.compute_sanitizer import find_sanitizer
    from flashcore.measure.profile import profile

    s = job.settings
    if stage == "check":
        return settings.Check(
            time_limit=s.time_limit, repeats=s.repeats, opcheck=s.opcheck, places=job.places, ahead=ahead,
            opchecked=Path(s.build) / job.suite.name / ".opcheck",
        )  # fmt: skip
    if stage == "bench":
        return settings.Bench(
            baseline=job.suite.baseline, samples=s.samples, seconds=s.seconds, modes=s.modes, places=job.places,
            companions=job.companions, ahead=ahead,
        )  # fmt: skip
    if stage == "sanitize":
        return settings.Sanitize(sanitizer=find_sanitizer(), time_limit=5 * s.time_limit, places=job.places)
    assert job.gpu is not None
    return settings.Profile(
        ncu=ncu.find_ncu(),
        chip=profile.chip_of(job.gpu.capability),
        plans={f"{p.variant}/{p.shape}": p for p in built.plans},
        codes=phases_of(job, built, say),
        clock_control=s.clock_control,
        keep_report=s.keep_report,
        time_limit=s.time_limit,
        places=job.places,
        ahead=ahead,
    )


def start_ahead(job: Job, folder: Path, ahead: Ahead) -> None:
    """Starts the children of the GPU stages: they import while the build compiles.

    Args:
        folder: the run's.
    """
    from flashcore.measure import settings
    from flashcore.measure.check import check
    from flashcore.measure.profile import profile
    from flashcore.pipeline import sharing

    for stage in () if job.cannot_measure else _stages_up_to(job.settings.upto):
        cases = job.cases(stage)
        try:
            chosen = _settings(job, Built("", (), ()), stage, lambda _: None, ahead)
        except CapabilityError:  # said when it is that stage's turn
            continue
        if isinstance(chosen, settings.Check) and cases:
            ahead.start(folder / stage, check.TARGET, chosen, most=-(-len(cases) // chosen.apart))
        elif isinstance(chosen, settings.Bench) and cases:
            sharing.start_ahead(folder / stage, chosen, ahead)
        elif isinstance(chosen, settings.Profile):
            marked = dict.fromkeys(_marked(job), phases.Code(()))
            named = [profile.Named(f"{v.name}/{s.name}", v.name, v.is_reference) for v, s in cases]
            profile.start_ahead(named, folder / stage, dataclasses.replace(chosen, codes=marked), ahead)


def _marked(job: Job) -> Iterator[str]:
    """The variants whose sources mark phases, rightly or not: :func:`phases_of` says what is wrong."""
    sources = phases.Sources(Path(job.suite.root))
    for variant in (v for v in job.variants if isinstance(v.kind, Cuda)):
        try:
            if not any(sources(variant.kind.file)):
                continue
        except UsageError:
            pass
        yield variant.name


def _stages_up_to(last: str | None) -> tuple[Stage, ...]:
    return GPU_STAGES[: GPU_STAGES.index(last) + 1] if last else ()


def _registers(job: Job, built: Built) -> dict[str, dict[str, int]]:
    """Variant → kernel → registers a thread in the code for this GPU."""
    found: dict[str, dict[str, int]] = {}
    for fact in built.facts:
        s = fact.subject
        if fact.name == "registers" and s.arch == job.gpu_arch and s.kernel and isinstance(fact.value, int):
            found.setdefault(s.variant, {})[s.kernel] = fact.value
    return found


def phases_of(job: Job, built: Built, say: Say) -> dict[str, phases.Code]:
    """Variant → the phases of its code for this GPU, where its sources mark some."""
    from flashcore.measure.static import facts

    sources = phases.Sources(Path(job.suite.root))
    disassembler = toolchain.optional_tool("nvdisasm")
    found: dict[str, phases.Code] = {}
    for a in built.artifacts:
        kind = job.suite.variants[a.variant].kind
        if a.arch != job.gpu_arch or a.status != "ok" or a.cubin is None or not isinstance(kind, Cuda):
            continue
        try:
            code = phases.of_variant(kind.file, facts.listing(Path(a.cubin), disassembler), sources)
        except UsageError as error:  # earlier measurements are worth more than the names of phases
            say(f"profile: {a.variant} without its phases: {error}")
            code = phases.Code((OTHER_PHASE,), why=str(error))
        if code is not None:
            found[a.variant] = code
    return found


def _progress(say: Say, stage: str, total: int) -> Callable[[str], None]:
    """Counts a stage's cases and estimates the remaining time from their rate, without the start-up."""
    done = 0
    first = 0.0

    def progress(text: str) -> None:
        nonlocal done, first
        done = min(done + 1, total)  # a case that is measured again is still one case
        now = time.monotonic()
        first = first or now
        left = (now - first) / (done - 1) * (total - done) if done > 1 else 0.0
        said = f"{stage} {done}/{total} {text}" + (f" (about {left:.0f} s left)" if left >= 1 else "")
        say(Step(said, done, total))

    return progress
