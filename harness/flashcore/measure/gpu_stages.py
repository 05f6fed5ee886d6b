"""The stages that need a GPU, one after the other: check, bench, profile, sanitize.

A case that fails one is not taken to the next; a machine that cannot run them leaves them out and says why.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from flashcore.errors import CapabilityError
from flashcore.measure import cases
from flashcore.measure.bench import bench
from flashcore.measure.check import check
from flashcore.measure.context import Context
from flashcore.measure.profile import profile
from flashcore.measure.stage import Stage
from flashcore.model import plugin, suite
from flashcore.model.causes import CasesFailed, FirstRound, Incapable, NoGpu
from flashcore.model.progress import Failure
from flashcore.model.record import Built, Measured, StageNote, StageResult

STAGES: Mapping[suite.Stage, Stage] = {"check": check, "bench": bench, "profile": profile}


class Build(Protocol):
    """A build under way: :class:`flashcore.measure.compiling.Compiling`."""

    @property
    def first(self) -> Built:
        """What checking needs."""
        ...

    def finish(self) -> Built:
        """All that was built, with the static facts; no background work of this process goes on."""
        ...


def prepare(context: Context) -> None:
    """Starts the first processes of the stages: they import while the build compiles."""
    for name in () if context.cannot_measure else _upto(context.settings.upto):
        with contextlib.suppress(CapabilityError):  # said when it is that stage's turn
            STAGES[name].prepare(context)


def measure(context: Context, build: Build, known_right: Collection[str] = ()) -> Measured:
    """Runs the GPU stages up to the last of the settings. A case that fails one is not taken to the next.

    Args:
        known_right: cases that are not checked again.

    Raises:
        CapabilityError: the machine cannot run the first of them after all.
    """
    names = _upto(context.settings.upto)
    names = (*names, "sanitize") if context.settings.sanitize else names
    if names and (reason := context.cannot_measure):
        context.say(f"{', '.join(names)}: left out: {reason}")
        return Measured(notes=tuple(StageNote(name, "skipped", 0.0, NoGpu(reason)) for name in names))
    measured = Measured()
    with context.workers.leased(context.say) if names else contextlib.nullcontext():
        for name in names:
            built = build.first if name == "check" else build.finish()
            measured, done = _run(replace(context, built=built), name, measured, known_right)
            if not done:
                break
    if context.workers.places and measured.outcomes:
        measured = replace(measured, gpus=bench.used(context.workers.places, context.folder, measured))
        for gpu in (g for g in measured.gpus if g.remark):
            context.say(f"{gpu.uuid}: {gpu.remark}")
    return measured


def _run(
    context: Context, name: suite.Stage, measured: Measured, known_right: Collection[str]
) -> tuple[Measured, bool]:
    """What was measured with this stage's results, and whether the next stage can follow.

    Raises:
        CapabilityError: nothing was measured.
    """
    say, started = context.say, time.monotonic()
    ready, left_out = cases.sort_out(context, name, measured.outcomes)
    trusted = [(v, s) for v, s in ready if name == "check" and f"{v.name}/{s.name}" in known_right]
    ready = [pair for pair in ready if pair not in trusted]
    slow = frozenset(f.subject.case for f in measured.facts if isinstance(f.detail, FirstRound))
    context = replace(context, slow=slow)
    parts = (
        f"{name}: {len(ready)} cases",
        f"{len(left_out)} left out" if left_out else "",
        f"{len(trusted)} known to be right" if trusted else "",
    )
    say(", ".join(filter(None, parts)))
    (context.folder / name).mkdir(parents=True, exist_ok=True)
    try:
        stage: Stage = STAGES.get(name) or plugin.resolve("flashcore.plugins.sanitize.sanitize")
        result = stage.run(context, cases.child_cases(context, ready))
    except CapabilityError as error:
        say(Failure(f"{name}: {error}"))
        if not measured.notes:
            raise
        note = StageNote(name, "failed", round(time.monotonic() - started, 3), Incapable(error.what, error.hint))
        return measured.plus(StageResult((), tuple(left_out)), note), False
    failed = [o for o in result.outcomes if o.status == "failed"]
    for outcome in failed:
        say(Failure(f"{name}: {outcome.case} FAILED: {outcome.reason}"))
    seconds = time.monotonic() - started
    say(f"{name}: {len(result.outcomes) - len(failed)} ok, {len(failed)} failed in {seconds:.1f} s")
    cause = CasesFailed(len(failed), len(result.outcomes)) if failed else ""
    note = StageNote(name, "failed" if failed else "ok", round(seconds, 3), cause)
    return measured.plus(replace(result, outcomes=(*left_out, *result.outcomes)), note), True


def _upto(last: str | None) -> tuple[suite.Stage, ...]:
    return suite.GPU_STAGES[: suite.GPU_STAGES.index(last) + 1] if last else ()
