"""Builds a variant with its markers, runs it, and times it against the variant without them."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.measure.bench import case_times
from flashcore.measure.build import dependencies
from flashcore.measure.build.ninja_graph import RULE
from flashcore.measure.cases import child_cases
from flashcore.measure.check import check
from flashcore.measure.compiling import compile_all
from flashcore.measure.context import Context
from flashcore.measure.settings import Bench, Settings
from flashcore.measure.workers.journal import Task
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.program import Program
from flashcore.model.intervals import Ratio, ratio
from flashcore.model.progress import prefixed
from flashcore.model.record import Artifact
from flashcore.model.suite import Cuda, Shape, Variant
from flashcore.pipeline.opening import open_context
from flashcore.plugins.phases import buffer, child
from flashcore.plugins.phases.timeline import Timeline, timeline

INCLUDE = Path(__file__).parent / "include"
HEADER = "flashcore/phases.cuh"
_CALLS = 5


@dataclass(frozen=True, slots=True)
class Recording:
    """The phases of a case.

    Args:
        call_us: the longest of the recorded calls, between two events: its launch is in it.
        marked_us, plain_us: medians with and without the markers, in the timing mode of the shape.
        slowdown: their ratio.
        events: phases that the buffer holds of a warp.
    """

    case: str
    gpu: str
    line: Timeline
    call_us: float
    regime: str
    marked_us: float
    plain_us: float
    slowdown: Ratio
    events: int


def record(settings: Settings, blocks: int, events: int, say: Callable[[str], None]) -> Recording:
    """Records one case; ``settings`` name its variant and, unless it is the first that is timed, its shape.

    Args:
        blocks, events: recorded blocks, and phases per warp, at most.

    Raises:
        UsageError: no such case; the variant's sources have no markers.
        CapabilityError: this machine cannot run it.
        FlashcoreError: it does not compile, fails, or its answers are wrong with the markers.
    """
    plain = open_context(settings, say)
    variant, shape = _case(plain)
    arch = plain.gpu_arch or next((a for a in reversed(variant.where.archs) if a in plain.archs), "")
    plain = replace(plain, options=replace(plain.options, archs=(arch,)), variants=(variant,))
    without, artifact = _built(plain, shape)
    _require_markers(artifact, variant)
    if plain.cannot_measure:
        raise CapabilityError(plain.cannot_measure, "run it on a machine with a GPU")
    within, _ = _built(marked(plain, blocks, events), shape)
    cases = [replace(c, variant=f"{variant.name}@{name}") for c, name in ((within, "marked"), (without, "plain"))]
    with tempfile.TemporaryDirectory(prefix="flashcore-phases-") as folder, plain.workers as workers:
        there = replace(plain, folder=Path(folder))
        with workers.leased(say):
            _check(there, cases[0])
            line, call_us = _recorded(there, cases[0], blocks, events)
            times = _times(there, cases)
    marked_us, plain_us = map(statistics.median, times)
    return Recording(
        case=f"{variant.name}/{shape.name}",
        gpu=plain.gpu.name if plain.gpu else "",
        line=line,
        call_us=call_us,
        regime=shape.rank_by,
        marked_us=marked_us,
        plain_us=plain_us,
        slowdown=ratio(*times),
        events=events,
    )


def _case(context: Context) -> tuple[Variant, Shape]:
    """The case to record.

    Raises:
        UsageError: the names are not of one CUDA variant and a shape that it supports.
    """
    variants = [v for v in context.variants if v.name == context.settings.variant]
    if not variants or not isinstance(variants[0].kind, Cuda):
        raise UsageError(f"{context.settings.variant}: expected the name of a variant with a CUDA source, found none")
    named = context.settings.shapes
    shapes = [s for s in context.shapes if variants[0].runs_on(s) and (named or "bench" in s.stages)]
    if not shapes:
        raise UsageError(f"{variants[0].name}: expected a shape that it supports, found none\n  hint: --shape")
    return variants[0], shapes[0]


def marked(context: Context, blocks: int, events: int) -> Context:
    """The context whose only variant has its markers compiled in."""
    (variant,) = context.variants
    config = {**variant.config, "FLASHCORE_PHASES": events, "FLASHCORE_PHASES_BLOCKS": blocks}
    variant = replace(variant, config=config)
    variants = {**context.suite.variants, variant.name: variant}
    suite = replace(context.suite, include=(*context.suite.include, str(INCLUDE)), variants=variants)
    return replace(context, suite=suite, variants=(variant,), say=lambda text: context.say(prefixed("marked: ", text)))


def _built(context: Context, shape: Shape) -> tuple[Case, Artifact]:
    """The case with its operator.

    Raises:
        FlashcoreError: it does not compile, or its plan refuses the shape.
    """
    (variant,) = context.variants
    built = compile_all(context)
    (arch,) = context.archs
    artifact, plan = built.artifact(variant.name, arch), built.plan(variant.name, shape.name, arch)
    if artifact is None or artifact.status != "ok":
        raise FlashcoreError(f"{variant.name}: {artifact.message if artifact else 'not built'}")
    if plan is not None and plan.cause is not None:
        raise UsageError(f"{variant.name}/{shape.name}: {plan.error}")
    return child_cases(replace(context, built=built), [(variant, shape)])[0], artifact


def _require_markers(artifact: Artifact, variant: Variant) -> None:
    """Raises:
    UsageError: the compiler read no header with markers.
    """
    rule = Path(artifact.cubin or "").with_name(RULE).read_text(encoding="utf-8", errors="surrogateescape")
    if not any(file.endswith(HEADER) for file in dependencies.parsed(rule)):
        raise UsageError(
            f"{variant.kind.file}: expected a kernel that marks its phases, found no #include <{HEADER}>\n"
            '  hint: include it; write FLASHCORE_ROLE(phases, "compute"); where a warp takes its role in the kernel, '
            'and FLASHCORE_PHASE(phases, "load"); where each phase begins'
        )


def _check(context: Context, case: Case) -> None:
    """Raises:
    FlashcoreError: the answers with the markers are wrong.
    """
    (context.folder / "check").mkdir()
    outcome = check.run(context, [case]).outcomes[0]
    if outcome.status != "ok":
        raise FlashcoreError(f"{case.name}: wrong with the markers, so its phases are not shown: {outcome.reason}")


def _recorded(context: Context, case: Case, blocks: int, events: int) -> tuple[Timeline, float]:
    """The phases of some calls, and the longest call in us.

    Raises:
        FlashcoreError: the process failed or hung; what it recorded is unusable.
    """
    folder = context.folder / "phases"
    folder.mkdir()
    size = buffer.size(blocks, events)
    payload = {"case": case.to_json(), "device": context.device, "calls": _CALLS, "size": size, "folder": str(folder)}
    program = Program(command=child.TARGET, limits=context.settings.check.limits)
    (result,) = context.workers.run([Task(case.name, payload)], program, folder)
    if result.data is None:
        raise FlashcoreError(f"{case.name}: {result.reason}")
    calls = [buffer.parse((folder / f"call-{i}.bin").read_bytes(), events) for i in range(_CALLS)]
    return timeline(calls), max(result.data["call_us"])


def _times(context: Context, cases: list[Case]) -> list[tuple[float, ...]]:
    """us per call of each, in turns.

    Raises:
        FlashcoreError: one of them was not timed.
    """
    regime = cases[0].rank_by
    context = replace(context, settings=replace(context.settings, bench=Bench(modes=(regime,))))
    folder = context.folder / "bench"
    folder.mkdir()
    result = case_times.run(context, cases, folder)
    for outcome in result.outcomes:
        if outcome.status != "ok" or f"{outcome.case}/{regime}" not in result.samples:
            raise FlashcoreError(f"{outcome.case}: not timed: {outcome.reason or 'its times are void'}")
    return [result.samples[f"{case.name}/{regime}"] for case in cases]
