"""Runs the GPU stages in order: check, bench, profile, sanitize.

A case that fails one stage is skipped in the next. On a machine that cannot run them, they are skipped with the reason.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError
from flashcore.model import plugin, suite
from flashcore.model.case import Case
from flashcore.model.causes import CASES_FAILED, INCAPABLE, NO_GPU
from flashcore.model.groups import grouped
from flashcore.model.progress import FailureLine
from flashcore.model.record import CaseOutcome, Measured, SharingGpu, StageNote, StageResult, throttle_reasons
from flashcore.model.text import count
from flashcore.runner.journal import lost_in, measured_on
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Place
from flashcore.stages.bench import bench
from flashcore.stages.check import check
from flashcore.stages.context import Context
from flashcore.stages.profile import profile
from flashcore.stages.runnable_cases import sort_out
from flashcore.stages.sanitize import sanitize

#: Measures the cases, or the remaining ones if the context's folder contains an earlier attempt. It may raise a
#: :class:`CapabilityError`: the machine lacks something that the stage needs; or a :class:`FlashcoreError`: the folder
#: cannot be written; earlier results are kept.
Run = Callable[[Context, Sequence[KernelCall]], StageResult]
STAGES: dict[suite.Stage, Run] = {
    "check": check.run,
    "bench": bench.run,
    "profile": profile.run,
    "sanitize": sanitize.run,
}
#: Start a stage's first processes before their cases are known, so that they import during the build.
PREPARED: Mapping[suite.Stage, Callable[[Context], None]] = {
    "check": check.prepare,
    "bench": bench.prepare,
    "profile": profile.prepare,
}


def prepare(context: Context) -> None:
    """Starts the stages' first processes, which import while compilers run."""
    for name in () if context.cannot_measure else _upto(context.settings.upto):
        with contextlib.suppress(CapabilityError):  # the stage reports it
            PREPARED[name](context)


def measure(context: Context) -> Measured:
    """Runs the GPU stages of the built variants, up to ``settings.upto``. A case that fails one is skipped in the next.

    Raises:
        CapabilityError: the first stage reports that the machine cannot run it.
    """
    names = _upto(context.settings.upto)
    names = (*names, "sanitize") if context.settings.sanitize else names
    if names and (reason := context.cannot_measure):
        context.say(f"{', '.join(names)}: left out: {reason}")
        return Measured(notes=tuple(StageNote(name, "skipped", 0.0, NO_GPU(reason)) for name in names))
    measured = Measured()
    with context.workers.leased(context.say) if names else contextlib.nullcontext():
        for name in names:
            calls, left_out = sort_out(context, name, measured.outcomes)
            measured, done = _run(context, name, calls, left_out, measured)
            if not done:
                break
            for more in context.settings.measurements if name == "bench" else ():
                measured = _added(context, more, calls, measured)
    if context.workers.places and measured.outcomes:
        measured = replace(measured, gpus=used(context.workers.places, context.folder, measured))
        for gpu in (g for g in measured.gpus if g.remark):
            context.say(f"{gpu.uuid}: {gpu.remark}")
    return measured


def _added(context: Context, name: str, calls: Sequence[KernelCall], measured: Measured) -> Measured:
    """Adds a plugin's measurement of those cases of bench that it timed."""
    started = time.monotonic()
    ok = {o.case for o in measured.outcomes if o.stage == "bench" and o.status == "ok"}
    timed = [call for call in calls if call.case in ok]
    context.say(f"{name}: {count(len(timed), 'case')}")
    (context.folder / name).mkdir(parents=True, exist_ok=True)
    facts = plugin.find("measurements", name)(context, timed)
    return measured.plus(StageResult(tuple(facts), ()), StageNote(name, "ok", round(time.monotonic() - started, 3)))


def _run(
    context: Context,
    name: suite.Stage,
    calls: Sequence[KernelCall],
    left_out: Sequence[CaseOutcome],
    measured: Measured,
) -> tuple[Measured, bool]:
    """Adds this stage's results to ``measured``; also returns whether the next stage can run.

    Args:
        left_out: the outcomes of the cases that the stage cannot run.

    Raises:
        CapabilityError: nothing was measured.
    """
    say, started = context.say, time.monotonic()
    say(f"{name}: {count(len(calls), 'case')}" + f", {len(left_out)} left out" * bool(left_out))
    (context.folder / name).mkdir(parents=True, exist_ok=True)
    try:
        result = STAGES[name](context, calls)
    except CapabilityError as error:
        say(FailureLine(f"{name}: {error}"))
        if not measured.notes:
            raise
        note = StageNote(name, "failed", round(time.monotonic() - started, 3), INCAPABLE(error.what, error.hint))
        return measured.plus(StageResult((), tuple(left_out)), note), False
    failed = [o for o in result.outcomes if o.status == "failed"]
    for outcome in failed:
        say(FailureLine(f"{name}: {outcome.case} FAILED: {outcome.reason}"))
    seconds = time.monotonic() - started
    ok = sum(o.status == "ok" for o in result.outcomes)
    skipped = len(result.outcomes) - len(failed) - ok
    more = f", {skipped} skipped" if skipped else ""
    say(f"{name}: {ok} ok, {len(failed)} failed{more} in {seconds:.1f} s")
    cause = CASES_FAILED(len(failed), len(result.outcomes)) if failed else ""
    note = StageNote(name, "failed" if failed else "ok", round(seconds, 3), cause)
    return measured.plus(replace(result, outcomes=(*left_out, *result.outcomes)), note), True


def _upto(last: str | None) -> tuple[suite.Stage, ...]:
    return suite.GPU_STAGES[: suite.GPU_STAGES.index(last) + 1] if last else ()


# --- the GPUs of a run --------------------------------------------------------------------------


def used(places: Sequence[Place], folder: Path, measured: Measured) -> tuple[SharingGpu, ...]:
    """The record's entry for each GPU of a run, read from the files in the run's folder."""
    where = {stage: measured_on(folder / stage) for stage in dict.fromkeys(o.stage for o in measured.outcomes)}
    if "bench" in where:
        where["bench"] = _shapes(where["bench"])
    lost = lost_in(folder)
    hosts = {p.gpu: p.host for p in places}
    for gpu in (gpu for on in where.values() for gpu in on.values()):
        hosts.setdefault(gpu, None)  # the GPU is gone, or the run was resumed without it
    entries = []
    for gpu, host in hosts.items():
        cases: dict[str, tuple[Case, ...]] = {}
        for stage, on in where.items():
            ran = (o for o in measured.outcomes if o.stage == stage and o.status in ("ok", "failed"))
            cases[stage] = tuple(o.case for o in ran if on.get(o.shape if stage == "bench" else str(o.case)) == gpu)
        facts = [f for f in measured.facts if f.subject.case in cases.get("bench", ()) and f.value is not None]
        state: dict[str, list[Any]] = grouped((f.name, f.value) for f in facts)
        reasons = throttle_reasons(f for f in facts if f.name == "throttle")
        clocks = state.get("bench_sm_clock")
        entries.append(
            SharingGpu(
                uuid=gpu,
                host=host,
                sm_clock_mhz=statistics.median(clocks) if clocks else None,
                temperature=max(state.get("bench_temperature", ()), default=None),
                throttle=tuple(sorted(reasons)),
                cases=cases,
                remark=f"lost: {lost[gpu]}" if gpu in lost else "",
            )
        )
    return tuple(entries)


def _shapes(on: Mapping[str, str]) -> dict[str, str]:
    """Shape → the GPU of its last attempt, of tasks ``shape~attempt`` or ``variant/shape~attempt``."""
    attempts = sorted(on.items(), key=lambda item: int(item[0].partition("~")[2] or 0))
    return {name.rpartition("/")[2].partition("~")[0]: gpu for name, gpu in attempts}
