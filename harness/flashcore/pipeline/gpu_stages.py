"""The stages that need a GPU, one after the other: check, bench, profile, sanitize.

A case that fails one is not taken to the next; a machine that cannot run them leaves them out and says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.errors import CapabilityError, UsageError
from flashcore.machine import toolchain
from flashcore.model.catalogue import OTHER_PHASE
from flashcore.model.record import CaseOutcome, StageNote, StageResult
from flashcore.model.suite import Shape, Variant
from flashcore.pipeline.state import GPU_STAGES, Line
from flashcore.static import phases

if TYPE_CHECKING:
    from flashcore.worker.kernel_call import Case


def measure(line: Line, folder: Path, before_timing: Callable[[], None] = lambda: None) -> None:
    """The GPU stages up to the one asked for. A case that fails one is not taken to the next.

    Args:
        before_timing: called when all is checked: whatever else this machine was doing is to be over.
    """
    upto = line.settings.upto
    wanted = GPU_STAGES[: GPU_STAGES.index(upto) + 1] if upto else ()
    wanted = (*wanted, "sanitize") if line.settings.sanitize else wanted
    if not wanted:
        return
    reason = line.cannot_measure
    if reason:
        line.say(f"{', '.join(wanted)}: left out: {reason}")
        line.notes += [StageNote(stage, "skipped", 0.0, reason) for stage in wanted]
        return
    for stage in wanted:
        if stage != "check":
            before_timing()
        started = time.monotonic()
        pairs = line.cases(stage)
        failed = {o.case: o.reason for o in line.outcomes if o.status != "ok"}
        ready = []
        for variant, shape in pairs:
            why = _not_ready(line, variant, shape, failed)
            if why is None:
                ready.append((variant, shape))
            else:
                status, text = why
                line.outcomes.append(
                    CaseOutcome(variant.name, shape.name, stage, status, text)  # type: ignore[arg-type]
                )
        line.say(
            f"{stage}: {len(ready)} cases"
            + (f", {len(pairs) - len(ready)} left out" if len(pairs) > len(ready) else "")
        )
        try:
            result = _run_stage(line, stage, ready, folder / stage)
        except CapabilityError as error:
            seconds = time.monotonic() - started
            line.say(f"{stage}: {error}")
            line.notes.append(StageNote(stage, "failed", round(seconds, 3), str(error)))
            if stage == wanted[0]:  # nothing was measured
                raise
            return
        line.facts += result.facts
        line.outcomes += result.outcomes
        line.samples.update(result.samples)
        bad = [o for o in result.outcomes if o.status == "failed"]
        for outcome in bad:
            line.say(f"{stage}: {outcome.case} FAILED: {outcome.reason}")
        seconds = time.monotonic() - started
        line.say(f"{stage}: {len(result.outcomes) - len(bad)} ok, {len(bad)} failed in {seconds:.1f} s")
        text = f"{len(bad)} of {len(result.outcomes)} cases failed" if bad else ""
        line.notes.append(StageNote(stage, "failed" if bad else "ok", round(seconds, 3), text))


def _not_ready(line: Line, variant: Variant, shape: Shape, failed: dict[str, str]) -> tuple[str, str] | None:
    if (case := f"{variant.name}/{shape.name}") in failed:
        return "skipped", f"failed before: {failed[case]}"
    # A variant that is wrong on one shape is trusted on none.
    wrong = next(
        (o for o in line.outcomes if o.variant == variant.name and o.stage == "check" and o.status == "failed"), None
    )
    if wrong is not None:
        return "skipped", f"wrong on {wrong.shape}: {wrong.reason}"
    if variant.is_peer:
        return None
    artifact = next((a for a in line.artifacts if a.variant == variant.name and a.arch == line.gpu_arch), None)
    if artifact is None or artifact.status == "unsupported":
        return "unsupported", artifact.message if artifact else f"not built for {line.gpu_arch}"
    if artifact.status == "failed":
        return "skipped", f"did not compile for {artifact.arch}"
    plan = next((p for p in line.plans if p.variant == variant.name and p.shape == shape.name), None)
    if plan is not None and plan.error:
        return "failed" if plan.crashed else "unsupported", plan.error
    return None


def child_cases(line: Line, pairs: Sequence[tuple[Variant, Shape]]) -> list[Case]:
    """What the processes that run kernels are told of each case."""
    from flashcore.worker.kernel_call import Case

    libraries = {a.variant: a for a in line.artifacts if a.arch == line.gpu_arch}
    return [
        Case(
            variant=v.name,
            shape=shape.name,
            suite=line.suite.name,
            root=str(Path(line.suite.root).resolve()),
            problem_file=line.suite.problems[v.problem].file,
            params=dict(shape.params),
            arguments=line.suite.problems[v.problem].arguments,
            library=None if v.is_peer else str(Path(libraries[v.name].library or "").resolve()),
            callable=v.callable,
            tolerance=v.tolerance,
            seeds=line.suite.problems[v.problem].seeds,
            roof=v.roof,
        )
        for v, shape in pairs
    ]


def _run_stage(line: Line, stage: str, pairs: list[tuple[Variant, Shape]], folder: Path) -> StageResult:
    from flashcore.machine import ncu
    from flashcore.machine.compute_sanitizer import find_sanitizer
    from flashcore.stages.bench import bench
    from flashcore.stages.check import check
    from flashcore.stages.profile import profile
    from flashcore.stages.sanitize import sanitize

    s = line.settings
    cases = child_cases(line, pairs)
    folder.mkdir(parents=True, exist_ok=True)
    progress = _progress(line, stage, len(cases))
    if stage == "check":
        return check.run(
            cases, folder, time_limit=s.time_limit, repeats=s.repeats, opcheck=s.opcheck, progress=progress
        )
    if stage == "bench":
        return bench.run(
            cases,
            folder,
            baseline=line.suite.baseline,
            min_samples=s.samples,
            seconds=s.seconds,
            modes=s.modes,
            progress=progress,
        )
    if stage == "sanitize":
        return sanitize.run(cases, folder, sanitizer=find_sanitizer(), time_limit=5 * s.time_limit, progress=progress)
    program = ncu.find_ncu()
    line.ncu = toolchain.version_said(program)
    assert line.gpu is not None
    return profile.run(
        cases,
        folder,
        ncu=program,
        chip=profile.chip_of(line.gpu.capability),
        plans={f"{p.variant}/{p.shape}": p for p in line.plans},
        codes=phases_of(line),
        clock_control=s.clock_control,
        keep_report=s.keep_report,
        time_limit=s.time_limit,
        progress=progress,
    )


def phases_of(line: Line) -> dict[str, phases.Code]:
    """Variant → the phases of its code for this GPU, where its sources mark some."""
    from flashcore.static import facts

    sources = phases.Sources(Path(line.suite.root))
    disassembler = toolchain.optional_tool("nvdisasm")
    found: dict[str, phases.Code] = {}
    for a in line.artifacts:
        source = line.suite.variants[a.variant].source
        if a.arch != line.gpu_arch or a.status != "ok" or a.cubin is None or source is None:
            continue
        try:
            code = phases.of_variant(source, facts.listing(Path(a.cubin), disassembler), sources)
        except UsageError as error:  # what was measured before is worth more than a name
            line.say(f"profile: {a.variant} without its phases: {error}")
            code = phases.Code((OTHER_PHASE,), why=str(error))
        if code is not None:
            found[a.variant] = code
    return found


def _progress(line: Line, stage: str, total: int) -> Callable[[str], None]:
    """Counts a stage's cases and estimates what is left from their pace, the start-up left out."""
    done = 0
    first = 0.0

    def progress(text: str) -> None:
        nonlocal done, first
        done = min(done + 1, total)  # a case that is measured again is still one case
        now = time.monotonic()
        first = first or now
        left = (now - first) / (done - 1) * (total - done) if done > 1 else 0.0
        line.say(f"{stage} {done}/{total} {text}" + (f" (about {left:.0f} s left)" if left >= 1 else ""))

    return progress
