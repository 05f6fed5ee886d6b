"""Builds a variant with its markers, runs it, and times it against the variant without them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flashcore.build.unit import MAKE_RULE
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.features.phases import child
from flashcore.features.phases.timeline import BLOCKS, WARPS, Timeline, layout, timeline
from flashcore.model.progress import Say
from flashcore.model.settings import Bench, Settings
from flashcore.model.suite import Cuda
from flashcore.pipeline.opening import open_context
from flashcore.runner.process import Program
from flashcore.stages import gpu_stages
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.runnable_cases import child_cases

INCLUDE = Path(__file__).parent / "include"


class Recording(NamedTuple):
    """The phases of a case.

    Args:
        call_us: the time of the recorded call, between two events: its launch is in it.
        times: µs per call with and without the markers, in the timing mode of the shape.
    """

    case: str
    gpu: str
    line: Timeline
    call_us: float
    mode: str
    times: list[tuple[float, ...]]


def record(settings: Settings, events: int, say: Say) -> Recording:
    """Records one case; ``settings`` name its variant and, unless it is the first that is timed, its shape.

    Args:
        events: recorded phases per warp, at most.

    Raises:
        UsageError: no such case; the variant's sources have no markers.
        CapabilityError: this machine cannot run it.
        FlashcoreError: it does not compile, fails, or its answers are wrong with the markers.
    """
    context = opened(settings, events, say)
    marked, plain = context.variants
    shape = context.shapes[0]
    (artifact,) = compile_all(replace(context, variants=(plain,))).artifacts
    if artifact.cubin and b"flashcore/phases.cuh" not in Path(artifact.cubin).with_name(MAKE_RULE).read_bytes():
        raise UsageError(
            f"{plain.kind.file}: expected a kernel that marks its phases, found no #include <flashcore/phases.cuh>\n"
            '  hint: include it; write FLASHCORE_ROLE(phases, "compute"); where a warp takes its role in the kernel, '
            'and FLASHCORE_PHASE(phases, "load"); where each phase begins'
        )
    if not context.gpu or context.cannot_measure:
        raise CapabilityError(context.cannot_measure, "run it on a machine with a GPU")
    gpu = context.gpu
    with tempfile.TemporaryDirectory(prefix="flashcore-phases-") as temporary, context.workers as workers:
        context = replace(context, folder=Path(temporary))
        gpu_stages.prepare(context)
        context = replace(context, built=compile_all(context))
        measured = gpu_stages.measure(context)
        times = [*measured.samples.values()]
        if len(times) < 2:
            failed = (f"{o.case}: {o.stage} {o.status}: {o.reason}" for o in measured.outcomes if o.status != "ok")
            raise FlashcoreError(next(failed, f"{plain.name}/{shape.name}: its times are void"))
        (case,) = child_cases(context, [(marked, shape)])
        file = context.folder / "phases"
        task = case.task(context.device, size=BLOCKS * WARPS * layout(events).size, file=str(file))
        with workers.leased(say):
            (result,) = workers.run([task], Program(command=child.TARGET), context.folder)
        if not result.data:
            raise FlashcoreError(f"{case.name}: {result.reason}")
        return Recording(
            f"{plain.name}/{shape.name}",
            gpu.name,
            timeline(file.read_bytes(), events),
            result.data["call_us"],
            shape.rank_by,
            times,
        )


def opened(settings: Settings, events: int, say: Say) -> Context:
    """The context of one shape and two variants: with the markers compiled in, and without.

    Raises:
        UsageError: no such case.
    """
    context = open_context(settings, say)
    cases = [(v, s) for v, s in context.cases("bench") if v.name in settings.variants and isinstance(v.kind, Cuda)]
    if not cases:
        raise UsageError(
            f"{settings.variants[0]}: expected the name of a variant with a CUDA source, and a shape that it supports\n"
            "  hint: --shape"
        )
    plain, shape = cases[0]
    config = {**plain.config, "FLASHCORE_PHASES": events}
    marked = replace(plain, name=f"{plain.name}__marked", config=config)
    suite = context.suite
    include, variants = (*suite.include, str(INCLUDE)), {**suite.variants, marked.name: marked}
    return replace(
        context,
        settings=replace(settings, shapes=(shape.name,), bench=Bench(modes=(shape.rank_by,))),
        suite=replace(suite, include=include, variants=variants),
        options=replace(context.options, archs=(context.gpu_arch or suite.usual_arch,)),
        variants=(marked, plain),
        shapes=(shape,),
    )
