"""The straight line: suite → build → check → bench → profile → record.

What needs a GPU is left out on a machine without one, and joined from a recorded run where that is still fresh.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from flashcore.measure import gpu_stages
from flashcore.measure.check.recorded import known_right
from flashcore.measure.compiling import Compiling
from flashcore.measure.context import Context, Say
from flashcore.measure.formulas import formula_facts
from flashcore.measure.settings import Settings
from flashcore.model.files import PARTIAL
from flashcore.model.record import Record
from flashcore.pipeline import resume as resuming
from flashcore.pipeline import roofs
from flashcore.pipeline.kinds import each_kind
from flashcore.pipeline.opening import executor_of, open_recordable
from flashcore.pipeline.recording import Outcome, joined, recorded_before
from flashcore.records import lookup, raw, store


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, and what the user chose when it began, which may differ from the choice that resumes it."""

    record: Record
    folder: Path
    settings: Settings


@runtime_checkable
class Elsewhere(Protocol):
    """An executor that records whole runs, builds included."""

    def runs(self, settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> list[Run]:
        """See :func:`runs`. The folders are on this machine."""
        ...


def runs(settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> list[Run]:
    """A run for each GPU model that the user asks for, the first one's first.

    Args:
        resume: continue with the newest unfinished run of this suite; see :func:`flashcore.pipeline.resume.unfinished`.
        needed: whether it makes no sense without a GPU.

    Raises:
        FlashcoreError: see :func:`run`; what ended before is recorded.
    """
    executor = executor_of(settings)
    if isinstance(executor, Elsewhere):
        return executor.runs(settings, say, resume=resume, needed=needed)
    if not resume:
        contexts = [open_recordable(one, say, needs_gpu=needed) for one in each_kind(settings, say)]
        return [run(context) for context in contexts]
    unfinished = resuming.unfinished(settings, say)
    results = [Run(store.read(path), Path(str(path)), unfinished.settings) for path in unfinished.ended]
    results.append(run(open_recordable(unfinished.settings, say, needs_gpu=needed), unfinished.folder))
    for one in unfinished.not_begun:
        say(f"resume: --gpus {one.gpus}: a separate run, not begun before")
        results.append(run(open_recordable(one, say)))
    return results


def run(context: Context, resumed: Path | None = None) -> Run:
    """Everything up to the last stage that the user asks for, recorded.

    Args:
        resumed: the folder of an unfinished run to continue.

    Raises:
        FlashcoreError: see the stages; what was measured until then stays in ``<id>.partial``.
    """
    formulas = formula_facts(context)
    folder = resumed or store.begin(Path(context.settings.profiles), store.new_id())
    run_id = folder.name.removesuffix(PARTIAL)
    context = replace(context, folder=folder)
    with store.claimed(folder), context.workers:
        gpu_stages.prepare(context)
        with _compiled(context, resumed) as compiling:
            # Before anything is measured: a case that a damaged run has is measured again.
            recorded = [*filter(lookup.is_readable, recorded_before(context, run_id))]
            trusted = known_right(context, compiling.first, recorded)
            measured = gpu_stages.measure(context, compiling, trusted)
            built = compiling.finish()
            measured, ceilings = roofs.with_roofs(context, measured, lambda other: run(other).record)
            record = joined(context, run_id, Outcome(formulas, built, measured, ceilings), recorded)
            raw.keep(folder, built.artifacts)
            store.write(record, folder)
            resuming.forget(folder)
            final = store.complete(folder)
    context.say(f"record: {final}")
    return Run(record, final, context.settings)


@contextlib.contextmanager
def _compiled(context: Context, resumed: Path | None) -> Iterator[Compiling]:
    """The build of a run, whose folder holds what it began with from then on. A new run that cannot even be built
    leaves no folder."""
    try:
        compiling = Compiling(context, ahead=context.settings.upto is not None)
        if resumed:
            resuming.require_same(resumed, compiling.first.closures)
        else:
            resuming.remember(context.folder, context.settings, compiling.first.closures)
    except BaseException:
        if not resumed:
            shutil.rmtree(context.folder, ignore_errors=True)
        raise
    with compiling:
        yield compiling


def measure_roofs(settings: Settings, say: Say, *, fresh: bool = False) -> roofs.Ceilings:
    """The roofs of this machine; see :func:`flashcore.pipeline.roofs.measure_roofs`."""
    return roofs.measure_roofs(settings, say, lambda other: run(other).record, fresh=fresh)
