"""Runs the GPU stages in order: check, bench, profile, sanitize.

A case that fails one stage is skipped in the next. On a machine that cannot run them, they are skipped with the reason.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace

from flashcore.errors import CapabilityError
from flashcore.model import plugin, suite
from flashcore.model.case import Case
from flashcore.model.causes import CASES_FAILED, INCAPABLE, NO_GPU
from flashcore.model.progress import FailureLine
from flashcore.model.record import Measured, StageNote, StageResult
from flashcore.model.text import count
from flashcore.stages import cases
from flashcore.stages.bench import bench
from flashcore.stages.check import check
from flashcore.stages.context import Context
from flashcore.stages.profile import profile
from flashcore.stages.sanitize import sanitize
from flashcore.stages.stage import StageModule

STAGES: Mapping[suite.Stage, StageModule] = {"check": check, "bench": bench, "profile": profile, "sanitize": sanitize}


def prepare(context: Context) -> None:
    """Starts the stages' first processes, which import while compilers run."""
    for name in () if context.cannot_measure else _upto(context.settings.upto):
        with contextlib.suppress(CapabilityError):  # the stage reports it
            STAGES[name].prepare(context)


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
            measured, done = _run(context, name, measured)
            if not done:
                break
            for more in context.settings.measurements if name == "bench" else ():
                measured = _added(context, more, measured)
    if context.workers.places and measured.outcomes:
        measured = replace(measured, gpus=bench.used(context.workers.places, context.folder, measured))
        for gpu in (g for g in measured.gpus if g.remark):
            context.say(f"{gpu.uuid}: {gpu.remark}")
    return measured


def _added(context: Context, name: str, measured: Measured) -> Measured:
    """Adds a plugin's measurement of the cases that bench timed."""
    started = time.monotonic()
    timed = {o.case for o in measured.outcomes if o.stage == "bench" and o.status == "ok"}
    pairs = [(v, s) for v, s in context.cases("bench") if Case(v.name, s.name) in timed]
    context.say(f"{name}: {count(len(pairs), 'case')}")
    (context.folder / name).mkdir(parents=True, exist_ok=True)
    facts = plugin.find("measurements", name)(context, cases.child_cases(context, pairs))
    return measured.plus(StageResult(tuple(facts), ()), StageNote(name, "ok", round(time.monotonic() - started, 3)))


def _run(context: Context, name: suite.Stage, measured: Measured) -> tuple[Measured, bool]:
    """Adds this stage's results to ``measured``; also returns whether the next stage can run.

    Raises:
        CapabilityError: nothing was measured.
    """
    say, started = context.say, time.monotonic()
    ready, left_out = cases.sort_out(context, name, measured.outcomes)
    say(f"{name}: {count(len(ready), 'case')}" + f", {len(left_out)} left out" * bool(left_out))
    (context.folder / name).mkdir(parents=True, exist_ok=True)
    try:
        result = STAGES[name].run(context, cases.child_cases(context, ready))
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
